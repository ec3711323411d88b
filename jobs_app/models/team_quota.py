"""Quota of a team on a GPU type: GPUs at once, with limits of borrowing and lending."""

from django.db import models
from django.db.models import F, Q, Sum

from cluster_app.models import Gpu, GpuType, Node
from jobs_app.models.team import Team

LENDS_MORE = "A team cannot lend more GPUs than its quota has: write a lending limit up to the quota, or none."


class TeamQuota(models.Model):
    """GPUs of a type that a team is guaranteed while it has jobs for them; beyond these it borrows."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="quotas")
    gpu_type = models.ForeignKey(GpuType, verbose_name="GPU type", on_delete=models.CASCADE, related_name="quotas")
    gpus = models.PositiveIntegerField("GPUs", help_text="At once; guaranteed while the team has jobs for them.")
    borrowing_limit = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Most GPUs beyond the quota, of those that no other team's quota needs. 0: the team has its quota at "
        "most. Empty: no limit.",
    )
    lending_limit = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Most GPUs of the quota that others may use while the team does not. Empty: all of it.",
    )

    class Meta:
        verbose_name = "quota on a GPU type"
        verbose_name_plural = "quotas on GPU types"
        ordering = ("team__name", "gpu_type__name")
        constraints = [
            models.UniqueConstraint(
                fields=("team", "gpu_type"),
                name="one_quota_per_team_and_type",
                violation_error_message="The team has a quota on this GPU type already: change that one.",
            ),
            models.CheckConstraint(
                condition=Q(lending_limit=None) | Q(lending_limit__lte=F("gpus")),
                name="team_lends_no_more_than_its_quota",
                violation_error_message=LENDS_MORE,
            ),
        ]

    def __str__(self) -> str:
        return f"{self.gpus} {self.gpu_type} of {self.team}"

    @property
    def most(self) -> int | None:
        """Most GPUs that the team may use at once; None: no limit."""
        return None if self.borrowing_limit is None else self.gpus + self.borrowing_limit

    def excess_text(self) -> str:
        """Warning if the quotas on the type exceed its GPUs; empty if they do not."""
        there = Gpu.objects.present().filter(node__in=Node.objects.current(), node__gpu_type=self.gpu_type).count()
        of_type = TeamQuota.objects.filter(gpu_type=self.gpu_type, team__retired_at=None)
        guaranteed = of_type.aggregate(gpus=Sum("gpus"))["gpus"]
        if guaranteed <= there:
            return ""
        return (
            f"The quotas on {self.gpu_type} add up to {guaranteed} GPUs, but there are {there}: no more are guaranteed."
        )
