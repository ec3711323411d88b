"""Claims of attempts on GPUs: a partial unique constraint makes it impossible to book a GPU twice."""

from django.db import models
from django.db.models import F, Q

from cluster_app.models import Gpu
from jobs_app.models import Attempt


class GpuClaimQuerySet(models.QuerySet["GpuClaim"]):
    def open(self) -> "GpuClaimQuerySet":
        return self.filter(released_at=None)

    def holding(self) -> "GpuClaimQuerySet":
        return self.open().exclude(held_from=None)

    def waiting(self) -> "GpuClaimQuerySet":
        return self.open().filter(held_from=None)


class GpuClaim(models.Model):
    """An attempt's claim on a GPU: at most one holds it and at most one waits for it, by database constraints."""

    gpu = models.ForeignKey(Gpu, on_delete=models.PROTECT, related_name="claims")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="claims")
    held_from = models.DateTimeField(null=True, blank=True, help_text="Empty: waits for the GPU to be vacated.")
    released_at = models.DateTimeField(null=True, blank=True)

    objects = GpuClaimQuerySet.as_manager()

    class Meta:
        verbose_name = "GPU claim"
        indexes = [models.Index(fields=("released_at",), name="claim_by_release")]
        constraints = [
            models.UniqueConstraint(
                fields=("gpu",), condition=Q(released_at=None, held_from__isnull=False), name="gpu_held_once"
            ),
            models.UniqueConstraint(
                fields=("gpu",), condition=Q(released_at=None, held_from=None), name="gpu_awaited_once"
            ),
            models.UniqueConstraint(fields=("gpu", "attempt"), name="gpu_once_per_attempt"),
            models.CheckConstraint(
                condition=Q(released_at=None) | Q(held_from=None) | Q(released_at__gte=F("held_from")),
                name="claim_released_after_held",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.gpu} by attempt {self.attempt_id}"
