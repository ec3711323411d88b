"""Guards of policies: what the lab predicted of a setting, until when its effects are watched, and the last verdict."""

from datetime import datetime, timedelta

from django.db import models
from django.db.models import F, Q, Subquery

from insight_app.models.lab_run import LabRun
from scheduler_app.models.policy_setting import PolicySetting

EVERY = timedelta(minutes=1)


class PolicyGuardQuerySet(models.QuerySet["PolicyGuard"]):
    def current(self) -> "PolicyGuard | None":
        """Guard of the current setting, if it was chosen from a run of the lab."""
        newest = PolicySetting.objects.order_by("-id").values("pk")[:1]
        return self.select_related("setting__created_by").filter(setting=Subquery(newest)).first()

    def due(self, now: datetime) -> "PolicyGuard | None":
        """The current guard, if a minute has passed since its last verdict; once more when its time is over."""
        newest = PolicySetting.objects.order_by("-id").values("pk")[:1]
        waited = Q(judged_at=None) | Q(judged_at__lte=now - EVERY) | Q(judged_at__gt=now)  # the clock was set back
        guards = self.filter(waited, setting=Subquery(newest)).exclude(judged_at__gte=F("until"))
        return guards.select_related("setting").first()


class PolicyGuard(models.Model):
    """Watches the effects of a setting that was chosen from a run of the lab."""

    class State(models.TextChoices):
        TOO_FEW = "too_few", "too few jobs yet"
        WITHIN = "within", "as predicted"
        BETTER = "better", "better than predicted"
        WORSE = "worse", "worse than predicted"
        OTHER_LOAD = "other_load", "worse, under another load"

    setting = models.OneToOneField(PolicySetting, on_delete=models.CASCADE, primary_key=True, related_name="guard")
    lab_run = models.ForeignKey(LabRun, null=True, on_delete=models.SET_NULL, related_name="guards")
    predicted = models.JSONField(help_text="Figures of the lab: of the policy, of the one before, and what happened.")
    until = models.DateTimeField(help_text="When it stops to watch.")
    undo_by_itself = models.BooleanField(default=False, help_text="Whether it undoes a change that is worse.")
    state = models.CharField(max_length=20, choices=State.choices, default=State.TOO_FEW)
    effects = models.JSONField(default=list, help_text="Each measure with its value, its band and whether it is in it.")
    message = models.CharField(max_length=500, blank=True)
    judged_at = models.DateTimeField(null=True)

    objects = PolicyGuardQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=("too_few", "within", "better", "worse", "other_load")),
                name="policy_guard_state_known",
            ),
        ]

    def __str__(self) -> str:
        return f"guard of {self.setting_id}: {self.get_state_display()}"

    @property
    def recommends_undo(self) -> bool:
        return self.state == self.State.WORSE
