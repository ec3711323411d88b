"""REST: targets of notifications (`/notification-targets`), and what was or is to be sent (`/notifications`)."""

from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from jobs_app.errors import InvalidSpec, NotAllowed
from jobs_app.models import Notification, NotificationTarget, Team
from jobs_app.notifications.addresses import MOST_CHARACTERS
from jobs_app.notifications.targets import NewTarget, add_target, change_events, delete_target, send_again, send_test
from jobs_app.permissions import NotForJobs, caller, is_administrator
from web.rest.bodies import ListOf, Strict, Text, body_of
from web.rest.choices import Choice
from web.rest.pagination import NewestFirst, OldestFirst
from web.rest.representation import ShowMany


def _events() -> ListOf:
    choices = [(event.value, event.value) for event in NotificationTarget.CHOSEN]
    return ListOf(child=Choice(choices), min_length=1, max_length=len(choices))


class EventChoice(Strict):
    """The events that a target is told of."""

    events = _events()


class TargetSpec(EventChoice):
    """A target to add."""

    kind = Choice(NotificationTarget.Kind.choices)
    address = Text(
        max_length=MOST_CHARACTERS, help_text="A mail address, or the URL of a webhook; it is not shown again."
    )
    team = serializers.CharField(required=False, allow_null=True, max_length=60, help_text="Default: your own target.")


class TargetAnswer(serializers.ModelSerializer[NotificationTarget]):
    team = serializers.CharField(source="team.name", default=None, allow_null=True, read_only=True)
    user = serializers.CharField(source="user.username", default=None, allow_null=True, read_only=True)
    address = serializers.CharField(source="shown", read_only=True, help_text="Without what is secret in it.")
    events = _events()

    class Meta:
        model = NotificationTarget
        fields: tuple[str, ...] = (
            *("id", "kind", "address", "team", "user", "events", "created_at", "sent_at", "failures", "retry_at"),
        )
        read_only_fields: tuple[str, ...] = fields


class NewTargetAnswer(TargetAnswer):
    """A new target with the key that signs its messages, which no other response contains."""

    key = serializers.SerializerMethodField(help_text="Empty, unless it is a webhook.")

    class Meta(TargetAnswer.Meta):
        fields = (*TargetAnswer.Meta.fields, "key")
        read_only_fields = fields

    def get_key(self, target: NotificationTarget) -> str:
        return str(self.context["key"])


class NotificationAnswer(serializers.ModelSerializer[Notification]):
    target = serializers.IntegerField(source="target_id", read_only=True)

    class Meta:
        model = Notification
        fields: tuple[str, ...] = (
            *("id", "target", "event", "facts", "state", "created_at", "due_at", "tries", "sent_at", "error"),
        )
        read_only_fields: tuple[str, ...] = fields


@extend_schema_view(list=extend_schema(summary="List targets of notifications"))
class NotificationTargetViewSet(ShowMany[NotificationTarget], viewsets.GenericViewSet[NotificationTarget]):
    """The caller's targets and those of the caller's teams, without what is secret in their addresses."""

    queryset = NotificationTarget.objects.none()
    serializer_class = TargetAnswer
    permission_classes = (NotForJobs,)
    pagination_class = OldestFirst
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[NotificationTarget]:
        return NotificationTarget.objects.visible_to(caller(self.request)).select_related("team", "user")

    @extend_schema(request=TargetSpec, responses={201: NewTargetAnswer})
    def create(self, request: Request) -> Response:
        """Add a target of the caller or, with `team`, of that team. Only this response contains its key."""
        asked = body_of(request, TargetSpec)
        team = _team(asked["team"], request) if asked.get("team") else None
        _must_cover(request, team)
        kind = NotificationTarget.Kind(asked["kind"])
        new = add_target(kind, asked["address"], asked["events"], team=team, actor=caller(request))
        return Response(_answer(new), status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})

    @extend_schema(request=EventChoice, responses={200: TargetAnswer})
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change the events that a target is notified of."""
        target = self._own(request)
        change_events(target, body_of(request, EventChoice)["events"], actor=caller(request))
        return Response(TargetAnswer(target).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a target, with its notifications."""
        delete_target(self._own(request), actor=caller(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _own(self, request: Request) -> NotificationTarget:
        target = self.get_object()
        _must_cover(request, target.team)
        return target

    @extend_schema(request=None, responses={202: None})
    @action(detail=True, methods=["post"])
    def test(self, request: Request, pk: str) -> Response:
        """Send a test. What becomes of it is in `/notifications`."""
        send_test(self._own(request), timezone.now(), actor=caller(request))
        return Response(status=status.HTTP_202_ACCEPTED)


@extend_schema_view(list=extend_schema(summary="List notifications"))
class NotificationViewSet(ShowMany[Notification], viewsets.GenericViewSet[Notification]):
    """Notifications to the targets that the caller may see, newest first."""

    queryset = Notification.objects.none()
    serializer_class = NotificationAnswer
    permission_classes = (NotForJobs,)
    pagination_class = NewestFirst

    def get_queryset(self) -> QuerySet[Notification]:
        return Notification.objects.visible_to(caller(self.request)).select_related("target__team")

    @extend_schema(request=None, responses={202: None})
    @action(detail=True, methods=["post"])
    def send(self, request: Request, pk: str) -> Response:
        """Send a notification again that was given up."""
        notification = self.get_object()
        _must_cover(request, notification.target.team)
        send_again(notification, timezone.now(), actor=caller(request))
        return Response(status=status.HTTP_202_ACCEPTED)


def _answer(new: NewTarget) -> Any:
    return NewTargetAnswer(new.target, context={"key": new.key}).data


def _must_cover(request: Request, team: Team | None) -> None:
    """Refuse changes of a team's targets by an administrator's token that is not of scope admin."""
    if team is not None and caller(request).is_staff and not is_administrator(request):
        raise NotAllowed("Targets of a team are changed with a token of scope admin.")


def _team(name: str, request: Request) -> Team:
    """A team of the caller; any for an administrator."""
    user = caller(request)
    try:
        return (Team.objects if user.is_staff else user.teams).get(name=name)
    except ObjectDoesNotExist:
        raise InvalidSpec.at("/team", "no_such_team", f"You are not a member of a team {name!r}.") from None
