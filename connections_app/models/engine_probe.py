"""Test of an engine: one short attempt without a job, asked for by an administrator."""

from django.conf import settings
from django.db import models
from django.utils import timezone

from cluster_app.models import Engine


class EngineProbe(models.Model):
    """One test; the newest of an engine counts. It has no job: at its engine it is the attempt of the negative key."""

    engine = models.ForeignKey(Engine, on_delete=models.CASCADE, related_name="probes")
    asked_at = models.DateTimeField(default=timezone.now)
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    node = models.CharField(max_length=100, blank=True)
    nodes = models.JSONField(default=list, blank=True, help_text="All nodes that are tested, in the order of ranks.")
    launched_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    passed = models.BooleanField(null=True)
    message = models.CharField(max_length=500, blank=True, help_text="What came of it, or what it waits for.")
    log = models.TextField(blank=True)

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"test {self.pk} of {self.engine_id}"

    @property
    def attempt(self) -> int:
        """Its number at the engine: those of jobs are positive."""
        return -self.pk

    @property
    def where(self) -> str:
        """The nodes on which it ran; that of a test of before 0.3 is alone."""
        return ", ".join(self.nodes or [self.node])

    @property
    def result(self) -> str:
        """Passed, failed, or its present step."""
        if self.ended_at:
            return "passed" if self.passed else "failed"
        return f"running on {self.where}" if self.launched_at else "waiting for the scheduler"
