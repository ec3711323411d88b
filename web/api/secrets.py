"""REST: secrets of the caller and of the caller's teams (`/secrets`). No response has a value."""

from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, status, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from jobs_app.errors import InvalidSpec
from jobs_app.models import Secret, Team
from jobs_app.models.secret import NAME
from jobs_app.permissions import NotForJobs, caller
from jobs_app.secrets import LEAST_CHARACTERS, MOST_BYTES, delete_secret, set_secret
from web.rest.bodies import Strict, body_of
from web.rest.pagination import OldestFirst
from web.rest.representation import ShowMany


class SecretValue(serializers.CharField):
    """Text of at least eight characters, as it is."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trim_whitespace=False, min_length=LEAST_CHARACTERS, max_length=MOST_BYTES, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        text = str(super().to_internal_value(data))
        if len(text.encode(errors="replace")) > MOST_BYTES:
            raise serializers.ValidationError(f"A secret may have at most {MOST_BYTES // 1024} KiB.")
        return text


class SecretSpec(Strict):
    """A secret to set."""

    name = serializers.RegexField(
        rf"\A{NAME}\Z",
        error_messages={"invalid": "Write the name of an environment variable: letters, digits and '_'."},
    )
    value = SecretValue(write_only=True, help_text="At least eight characters; it is masked in logs.")
    team = serializers.CharField(required=False, allow_null=True, max_length=60, help_text="Default: your own secret.")


class SecretAnswer(serializers.ModelSerializer[Secret]):
    team = serializers.CharField(source="team.name", default=None, allow_null=True, read_only=True)
    user = serializers.CharField(source="user.username", default=None, allow_null=True, read_only=True)
    changed_by = serializers.CharField(source="changed_by.username", default=None, allow_null=True, read_only=True)

    class Meta:
        model = Secret
        fields: tuple[str, ...] = ("id", "name", "team", "user", "changed_at", "changed_by")
        read_only_fields: tuple[str, ...] = fields


@extend_schema_view(list=extend_schema(summary="List secrets"))
class SecretViewSet(ShowMany[Secret], viewsets.GenericViewSet[Secret]):
    """The caller's secrets and those of the caller's teams, without their values."""

    queryset = Secret.objects.none()
    serializer_class = SecretAnswer
    permission_classes = (NotForJobs,)
    pagination_class = OldestFirst
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[Secret]:
        return Secret.objects.visible_to(caller(self.request)).select_related("team", "user", "changed_by")

    @extend_schema(request=SecretSpec, responses={201: SecretAnswer})
    def create(self, request: Request) -> Response:
        """Set a secret of the caller or, with `team`, of that team. It replaces the value before."""
        asked = body_of(request, SecretSpec)
        team = _team(asked["team"], request) if asked.get("team") else None
        secret = set_secret(asked["name"], asked["value"], team=team, actor=caller(request))
        return Response(SecretAnswer(secret).data, status=status.HTTP_201_CREATED)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a secret. Jobs that name it and have not started fail when they start."""
        delete_secret(self.get_object(), actor=caller(request))
        return Response(status=status.HTTP_204_NO_CONTENT)


def _team(name: str, request: Request) -> Team:
    try:
        return caller(request).teams.get(name=name)
    except ObjectDoesNotExist:
        raise InvalidSpec.at("/team", "no_such_team", f"You are not a member of a team {name!r}.") from None
