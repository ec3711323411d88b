"""Tokens over REST: one's own."""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from cluster_app.pagination import NewestFirst
from cluster_app.representation import IF_MATCH, ShowMany, ShowOne, refuse_stale
from jobs_app.errors import NotAllowed
from jobs_app.fields import PlainText, Strict
from jobs_app.models import ApiToken
from jobs_app.models.team import digest_of
from jobs_app.permissions import NotForJobs
from jobs_app.quantities import Seconds
from jobs_app.services import issue_token, revoke_token
from scheduler_app.api.bodies import body_of

WIDTH = {scope: width for width, scope in enumerate(ApiToken.Scope.values)}
"""From the narrowest scope to the widest."""


class TokenSpec(Strict):
    """A token as people ask for it."""

    name = PlainText(max_length=100, help_text="What will use it.")
    scope = serializers.ChoiceField(ApiToken.Scope.choices, default=ApiToken.Scope.SUBMIT)
    expires_at = serializers.DateTimeField(required=False, allow_null=True, help_text="Left out: it never expires.")
    expires_in = Seconds(required=False, help_text="Instead of expires_at: from now, as 30d.")

    def validate_expires_at(self, at: datetime | None) -> datetime | None:
        if at is not None and at <= timezone.now():
            raise serializers.ValidationError("That is over already; name a time to come.")
        return at

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("expires_at") and "expires_in" in attrs:
            raise serializers.ValidationError({"expires_in": "Write either this or expires_at."})
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
    """The only answer that has the token's text."""

    token = serializers.SerializerMethodField()

    class Meta(TokenAnswer.Meta):
        fields = (*TokenAnswer.Meta.fields, "token")
        read_only_fields = fields

    def get_token(self, token: ApiToken) -> str:
        return str(self.context["text"])


class TokenViewSet(ShowMany[ApiToken], ShowOne[ApiToken], viewsets.GenericViewSet[ApiToken]):
    """One's own tokens, the newest first. A token makes and revokes none that may do more than itself."""

    serializer_class = TokenAnswer
    permission_classes = (NotForJobs,)
    pagination_class = NewestFirst
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[ApiToken]:
        return ApiToken.objects.filter(user=self.request.user.pk)

    @extend_schema(request=TokenSpec, responses={201: NewToken})
    def create(self, request: Request) -> Response:
        """Make a token. Its text is in this answer and nowhere else."""
        asked = body_of(request, TokenSpec)
        _must_cover(request, asked["scope"])
        expires_at = asked.get("expires_at")
        if "expires_in" in asked:
            expires_at = timezone.now() + timedelta(seconds=asked["expires_in"])
        user: Any = request.user
        text = issue_token(user, name=asked["name"], scope=asked["scope"], expires_at=expires_at)
        token = ApiToken.objects.get(digest=digest_of(text))
        answer = NewToken(token, context={**self.get_serializer_context(), "text": text})
        return Response(answer.data, status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})

    @extend_schema(responses={204: None}, parameters=[IF_MATCH])
    def destroy(self, request: Request, pk: str) -> Response:
        """Revoke it: whatever uses it is refused from now on."""
        token = self.get_object()
        refuse_stale(request, lambda: TokenAnswer(token).data)
        _must_cover(request, token.scope)
        revoke_token(token)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _must_cover(request: Request, scope: str) -> None:
    """A token that leaked must not become one that may do more."""
    if isinstance(request.auth, ApiToken) and WIDTH[request.auth.scope] < WIDTH[scope]:
        raise NotAllowed(f"A token of scope {request.auth.scope} handles none of scope {scope}; use a wider one.")
