"""REST: what a policy would do in the next round, and what came of it, as documents of other routes."""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from insight_app.explain.policy_preview import JobPreview, Preview, PreviewedAction, PreviewedJob
from insight_app.models import PolicyGuard

NOTHING_WATCHED = "none"
STATES = (NOTHING_WATCHED, *PolicyGuard.State.values)
NO_GUARD = "The setting was not chosen from a run of the lab: there is no prediction to compare its effects with."


class FateAnswer(serializers.Serializer[Any]):
    """What a round does with a job, and the GPUs that the job then has."""

    deed = serializers.ChoiceField([deed.value for deed in PreviewedAction])
    gpu_type = serializers.CharField(allow_null=True)
    gpus = serializers.IntegerField()


class JobPreviewAnswer(serializers.Serializer[Any]):
    job = serializers.UUIDField()
    name = serializers.CharField(allow_null=True, help_text="null if the job has been deleted since.")
    team = serializers.CharField(allow_null=True)
    present = FateAnswer(help_text="In the next round under the current policy.")
    chosen = FateAnswer(help_text="In the next round under this policy.")


class DeedsAnswer(serializers.Serializer[Any]):
    """Numbers of jobs."""

    start = serializers.IntegerField()
    stop = serializers.IntegerField()
    move = serializers.IntegerField(help_text="Jobs that get other GPUs, of the same type or of another one.")
    resize = serializers.IntegerField(help_text="Jobs that get another number of GPUs of the same type.")


class PreviewAnswer(serializers.Serializer[Any]):
    """The next round under a policy beside the next round under the present one; nothing is written."""

    jobs = serializers.IntegerField(help_text="Jobs that run or could.")
    present = DeedsAnswer()
    chosen = DeedsAnswer()
    differing = serializers.IntegerField(help_text="Jobs with which the two rounds do not do the same.")
    listed = JobPreviewAnswer(many=True, help_text="The first 100 of them, those that lose GPUs before the others.")


def preview_document(preview: Preview) -> dict[str, Any]:
    return {
        "jobs": preview.jobs,
        "present": {deed.value: count for deed, count in preview.present.items()},
        "chosen": {deed.value: count for deed, count in preview.chosen.items()},
        "differing": preview.differing,
        "listed": [_job(one) for one in preview.listed],
    }


def _job(one: JobPreview) -> dict[str, Any]:
    named = {"name": str(one.job), "team": one.job.team.name} if one.job else {"name": None, "team": None}
    return {"job": str(one.id), **named, "present": _fate(one.present), "chosen": _fate(one.chosen)}


def _fate(fate: PreviewedJob) -> dict[str, Any]:
    return {"deed": fate.deed.value, "gpu_type": fate.gpu_type or None, "gpus": fate.gpus}


# -- guard -------------------------------------------------------------------------------------------------------


class EffectAnswer(serializers.Serializer[Any]):
    """A measure since the change, and the band in which it was expected; times are in hours."""

    measure = serializers.CharField()
    meaning = serializers.CharField()
    state = serializers.ChoiceField(PolicyGuard.State.values)
    value = serializers.FloatField(allow_null=True)
    jobs = serializers.IntegerField(allow_null=True, help_text="null: it is not a mean over jobs.")
    predicted = serializers.FloatField()
    low = serializers.FloatField()
    high = serializers.FloatField()


class GuardAnswer(serializers.Serializer[Any]):
    """Effects of the current setting compared with the lab's prediction. `none`: there is no prediction."""

    setting = serializers.IntegerField(allow_null=True)
    lab_run = serializers.IntegerField(allow_null=True)
    state = serializers.ChoiceField(STATES)
    message = serializers.CharField()
    recommends_undo = serializers.BooleanField()
    undo_by_itself = serializers.BooleanField()
    until = serializers.DateTimeField(allow_null=True, help_text="When it stops to watch.")
    judged_at = serializers.DateTimeField(allow_null=True)
    effects = EffectAnswer(many=True)


def guard_document(guard: PolicyGuard | None) -> Mapping[str, Any]:
    if guard is None:
        document: dict[str, Any] = dict.fromkeys(("setting", "lab_run", "until", "judged_at"))
        flags = {"recommends_undo": False, "undo_by_itself": False}
        return document | flags | {"state": NOTHING_WATCHED, "message": NO_GUARD, "effects": []}
    columns = ("state", "message", "recommends_undo", "undo_by_itself", "until", "judged_at", "effects")
    found = {name: getattr(guard, name) for name in columns}
    return {"setting": guard.setting_id, "lab_run": guard.lab_run_id, **found}
