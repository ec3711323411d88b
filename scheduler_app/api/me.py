"""Over REST: who is calling."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs_app.models import ApiToken
from jobs_app.permissions import NotForJobs


class Me(serializers.Serializer[Any]):
    username = serializers.CharField()
    is_staff = serializers.BooleanField()
    teams = serializers.ListField(child=serializers.CharField())
    scope = serializers.ChoiceField(ApiToken.Scope.choices, allow_null=True, help_text="Null: a browser's session.")
    token = serializers.CharField(allow_null=True, help_text="The first letters of the token.")


class MeView(APIView):
    permission_classes = (NotForJobs,)

    @extend_schema(responses=Me)
    def get(self, request: Request) -> Response:
        """Who the caller is, and what the token may do."""
        token = request.auth if isinstance(request.auth, ApiToken) else None
        user: Any = request.user
        return Response(
            {
                "username": user.get_username(),
                "is_staff": user.is_staff,
                "teams": list(user.teams.values_list("name", flat=True)),
                "scope": token.scope if token else None,
                "token": token.prefix if token else None,
            }
        )
