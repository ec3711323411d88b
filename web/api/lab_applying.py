"""REST: previewing and applying a policy of a lab run (`/lab/runs/{id}/preview`, `/lab/runs/{id}/apply`)."""

from typing import Any

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from insight_app.explain.policy_preview import preview_policy
from insight_app.explain.solve_slots import solve_slots
from insight_app.lab.applying import (
    GUARD_H,
    MOST_GUARD_H,
    Application,
    apply_run,
    cautions_on,
    prediction_of,
    setting_of,
)
from insight_app.models import LabRun
from jobs_app.permissions import StaffChanges, caller
from jobs_app.submission.fields import Number
from web.api.policies import SettingAnswer
from web.api.policy_effects import GuardAnswer, PreviewAnswer, guard_document, preview_document
from web.rest.bodies import Strict, Text, body_of


class RunPolicy(Strict):
    policy = Text(max_length=200, help_text="One of the run's, as named there.")


class ApplicationSpec(RunPolicy):
    """A policy of the run, put in force with the run's parameters and round length."""

    note = Text(required=False, allow_blank=True, max_length=250, default="", help_text="Reason, for the history.")
    guard_hours = Number(
        required=False,
        default=GUARD_H,
        min_value=0.1,
        max_value=MOST_GUARD_H,
        help_text="For how long its effects are compared with the prediction.",
    )
    undo_by_itself = serializers.BooleanField(
        required=False, default=False, help_text="Whether the change is undone once its effects are worse."
    )


CAUTIONS = serializers.ListField(
    child=serializers.CharField(), help_text="Why the prediction may not hold; empty: no reason is known."
)


class RunPreviewAnswer(PreviewAnswer):
    """The next round under a policy of the run, and what the lab predicted of it."""

    cautions = CAUTIONS
    predicted = serializers.DictField(
        help_text="Figures of the policy (`chosen`), of the present one as simulated, and what really happened."
    )


class AppliedAnswer(serializers.Serializer[Any]):
    setting = SettingAnswer()
    cautions = CAUTIONS
    guard = GuardAnswer()


class LabPreviewView(APIView):
    permission_classes = (StaffChanges,)

    @extend_schema(request=RunPolicy, responses=RunPreviewAnswer, summary="Preview a policy of a lab run")
    def post(self, request: Request, pk: int) -> Response:
        """What the next round would do under it, and what the lab predicted. Staff only; nothing is written."""
        policy, now = body_of(request, RunPolicy)["policy"], timezone.now()
        run = get_object_or_404(LabRun.objects.select_related("owner"), pk=pk)
        found = {"predicted": prediction_of(run, policy), "cautions": cautions_on(run, now)}
        with solve_slots.slot_for(caller(request)):
            return Response(preview_document(preview_policy(setting_of(run, policy), now)) | found)


class LabApplyView(APIView):
    permission_classes = (StaffChanges,)

    @extend_schema(request=ApplicationSpec, responses={201: AppliedAnswer}, summary="Apply a policy of a lab run")
    def post(self, request: Request, pk: int) -> Response:
        """Put it in force from the next round on, and watch its effects. Staff only."""
        asked, now = Application(**body_of(request, ApplicationSpec)), timezone.now()
        run = get_object_or_404(LabRun.objects.select_related("owner"), pk=pk)
        prediction_of(run, asked.policy)  # a run that cannot be applied has nothing to caution against
        cautions = cautions_on(run, now)
        guard = apply_run(run, asked, actor=caller(request), now=now)
        document = {"setting": guard.setting, "cautions": cautions, "guard": guard_document(guard)}
        return Response(AppliedAnswer(document).data, status=status.HTTP_201_CREATED)
