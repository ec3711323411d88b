"""REST: runs of the policy lab (`/lab/runs`)."""

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from jobs_app.permissions import NotForJobs, caller
from jobs_app.submission.fields import Number
from rest.bodies import Strict, Text, body_of
from rest.pagination import NewestFirst
from rest.representation import ShowMany, ShowOne
from scheduler_app.lab.requests import LabRequest, ask_for_run, cancel_run
from scheduler_app.models import LabRun
from scheduler_app.models.lab_run import MOST_DAYS
from scheduler_app.policy.settings import LONGEST_S

MOST_POLICIES = 8
MOST_NODES = 1_000
"""That a run may add of a GPU type: more is another cluster, and the simulation takes hours."""


class LabRunSpec(Strict):
    """A run of the lab: the history of some days under other policies, on the same or on other nodes."""

    policies = serializers.ListField(
        child=Text(max_length=200),
        min_length=1,
        max_length=MOST_POLICIES,
        help_text="Names, with parameters as in `sia:power=-0.5,gap=0.01`.",
    )
    days = serializers.IntegerField(min_value=1, max_value=MOST_DAYS, default=7, help_text="The last N days.")
    round_length_s = Number(
        required=False, allow_null=True, min_value=1, max_value=LONGEST_S, help_text="Default: as it is now."
    )
    nodes = serializers.DictField(
        child=serializers.IntegerField(min_value=-MOST_NODES, max_value=MOST_NODES),
        required=False,
        help_text="GPU type → nodes of its usual size that are added, or taken if negative.",
    )


class LabRunAnswer(serializers.ModelSerializer[LabRun]):
    owner = serializers.CharField(source="owner.username", read_only=True)
    done = serializers.IntegerField(read_only=True, help_text="Jobs that have been simulated to their end.")
    total = serializers.IntegerField(read_only=True, help_text="Jobs to simulate, in all simulations; 0: not known.")

    class Meta:
        model = LabRun
        fields: tuple[str, ...] = (
            "id",
            "owner",
            "days",
            "policies",
            "round_length_s",
            "nodes",
            "state",
            "done",
            "total",
            "message",
            "created_at",
            "finished_at",
        )
        read_only_fields: tuple[str, ...] = fields


class LabRunInFull(LabRunAnswer):
    result = serializers.DictField(
        read_only=True,
        allow_null=True,
        help_text="`actual`: what really happened; `present`: the present policy as simulated, with its `errors` "
        "(relative); `policies`: figures of each, and its teams with the change of their mean completion time; "
        "`summary`. Times are in hours.",
    )

    class Meta(LabRunAnswer.Meta):
        fields = (*LabRunAnswer.Meta.fields, "result")
        read_only_fields = fields


@extend_schema_view(
    list=extend_schema(summary="List runs of the policy lab"),
    retrieve=extend_schema(summary="Get a run of the policy lab with its result"),
)
class LabRunViewSet(ShowMany[LabRun], ShowOne[LabRun], viewsets.GenericViewSet[LabRun]):
    """The caller's runs, for staff those of all, newest first."""

    queryset = LabRun.objects.none()
    permission_classes = (NotForJobs,)
    pagination_class = NewestFirst
    filter_backends = ()
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[LabRun]:
        runs = LabRun.objects.visible_to(caller(self.request)).select_related("owner")
        return runs.defer("result") if self.action == "list" else runs

    def get_serializer_class(self) -> type[LabRunAnswer]:
        return LabRunAnswer if self.action == "list" else LabRunInFull

    @extend_schema(request=LabRunSpec, responses={201: LabRunInFull}, summary="Ask for a run of the policy lab")
    def create(self, request: Request) -> Response:
        """Simulate the jobs of the caller's teams, of all teams for staff, under these policies.

        A person may have three unfinished runs. One run is simulated at a time.
        """
        asked = LabRequest(**body_of(request, LabRunSpec))
        run = ask_for_run(asked, owner=caller(request), now=timezone.now())
        return Response(LabRunInFull(run).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=None, responses=LabRunInFull, summary="Cancel a run of the policy lab")
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Cancel an unfinished run; its process ends within seconds, at the end of a simulated round."""
        run = self.get_object()
        cancel_run(run, now=timezone.now())
        run.refresh_from_db()
        return Response(LabRunInFull(run).data)
