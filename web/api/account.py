"""REST: the caller's account (`/me`) and API tokens (`/tokens`)."""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, status, viewsets
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs_app.errors import NotAllowed
from jobs_app.models import ApiToken, Team
from jobs_app.models.team import digest_of
from jobs_app.permissions import NotForJobs
from jobs_app.submission.fields import PlainText
from jobs_app.submission.units import Seconds
from jobs_app.tokens import issue_token, revoke_token
from web.rest.bodies import Strict, body_of
from web.rest.choices import Choice
from web.rest.etags import IF_MATCH, refuse_stale
from web.rest.pagination import NewestFirst
from web.rest.representation import ShowMany, ShowOne

WIDTH = {scope: width for width, scope in enumerate(ApiToken.Scope.values)}
"""From the narrowest scope to the widest."""


class Me(serializers.Serializer[Any]):
    username = serializers.CharField()
    is_staff = serializers.BooleanField()
    teams = serializers.ListField(child=serializers.CharField())
    default_team = serializers.CharField(
        allow_null=True,
        help_text="Of jobs that name none: the one that the caller joined first, of an administrator in none the only "
        "one there is. Null: there is none, or several to choose from.",
    )
    scope = serializers.ChoiceField(ApiToken.Scope.choices, allow_null=True, help_text="Null for a browser session.")
    token = serializers.CharField(allow_null=True, help_text="Prefix of the token.")


class MeView(APIView):
    permission_classes = (NotForJobs,)

    @extend_schema(responses=Me)
    def get(self, request: Request) -> Response:
        """Get the caller's account. The response has the user's teams and the scope of the token."""
        token = request.auth if isinstance(request.auth, ApiToken) else None
        user: Any = request.user
        default = Team.objects.default_of(user)
        return Response(
            {
                "username": user.get_username(),
                "is_staff": user.is_staff,
                "teams": list(user.teams.values_list("name", flat=True)),
                "default_team": default.name if default else None,
                "scope": token.scope if token else None,
                "token": token.prefix if token else None,
            }
        )


class TokenSpec(Strict):
    """Specification of a new token."""

    name = PlainText(max_length=100, help_text="What will use the token.")
    scope = Choice(ApiToken.Scope.choices, default=ApiToken.Scope.SUBMIT)
    expires_at = serializers.DateTimeField(required=False, allow_null=True, help_text="Default: never.")
    expires_in = Seconds(required=False, help_text="Time to expiry, e.g. 30d; cannot be combined with expires_at.")

    def validate_expires_at(self, at: datetime | None) -> datetime | None:
        if at is not None and at <= timezone.now():
            raise serializers.ValidationError("This time is in the past; give a future time.")
        return at

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("expires_at") and "expires_in" in attrs:
            raise serializers.ValidationError({"expires_in": "Give either expires_in or expires_at, not both."})
        return attrs


class TokenAnswer(serializers.ModelSerializer[ApiToken]):
    class Meta:
        model = ApiToken
        fields: tuple[str, ...] = (
            "id",
            "name",
            "scope",
            "prefix",
            "created_at",
            "expires_at",
            "used_at",
            "revoked_at",
        )
        read_only_fields: tuple[str, ...] = fields


class NewToken(TokenAnswer):
    """A new token with its text, which no other response contains."""

    token = serializers.SerializerMethodField()

    class Meta(TokenAnswer.Meta):
        fields = (*TokenAnswer.Meta.fields, "token")
        read_only_fields = fields

    def get_token(self, token: ApiToken) -> str:
        return str(self.context["text"])


@extend_schema_view(list=extend_schema(summary="List tokens"), retrieve=extend_schema(summary="Get a token"))
class TokenViewSet(ShowMany[ApiToken], ShowOne[ApiToken], viewsets.GenericViewSet[ApiToken]):
    """The caller's tokens, newest first. A token cannot create or revoke tokens of a wider scope."""

    serializer_class = TokenAnswer
    permission_classes = (NotForJobs,)
    pagination_class = NewestFirst
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[ApiToken]:
        return ApiToken.objects.filter(user=self.request.user.pk)

    @extend_schema(request=TokenSpec, responses={201: NewToken})
    def create(self, request: Request) -> Response:
        """Create a token. Only this response contains its text.

        One that is made with a token expires with that one at the latest, and is revoked with it.
        """
        asked = body_of(request, TokenSpec)
        _must_cover(request, asked["scope"])
        expires_at = asked.get("expires_at")
        if "expires_in" in asked:
            expires_at = timezone.now() + timedelta(seconds=asked["expires_in"])
        user: Any = request.user
        made_by = request.auth if isinstance(request.auth, ApiToken) else None
        text = issue_token(user, name=asked["name"], scope=asked["scope"], expires_at=expires_at, made_by=made_by)
        token = ApiToken.objects.get(digest=digest_of(text))
        answer = NewToken(token, context={**self.get_serializer_context(), "text": text})
        return Response(answer.data, status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})

    @extend_schema(responses={204: None}, parameters=[IF_MATCH])
    def destroy(self, request: Request, pk: str) -> Response:
        """Revoke a token. It is no longer accepted."""
        token = self.get_object()
        refuse_stale(request, lambda: TokenAnswer(token).data)
        _must_cover(request, token.scope)
        revoke_token(token)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _must_cover(request: Request, scope: str) -> None:
    """Refuse scopes wider than the caller's token: a leaked token must not yield a stronger one."""
    if isinstance(request.auth, ApiToken) and WIDTH[request.auth.scope] < WIDTH[scope]:
        raise NotAllowed(
            f"A token of scope {request.auth.scope} cannot create or revoke one of scope {scope}; use a wider one."
        )
