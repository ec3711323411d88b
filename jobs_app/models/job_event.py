"""History of a job."""

from django.conf import settings
from django.db import models
from django.utils import timezone

from jobs_app.models.job import Job


class JobEvent(models.Model):
    """One event in a job's history; events of the kinds in `WAKING` wake the scheduler."""

    class Kind(models.TextChoices):
        SUBMITTED = "submitted", "submitted"
        HELD = "held", "held"
        RELEASED = "released", "released"
        CHANGED = "changed", "changed"
        PLACED = "placed", "placed"
        STARTED = "started", "started"
        STOPPING = "stopping", "stopping"
        REQUEUED = "requeued", "back in the queue"
        FINISHED = "finished", "finished"
        WARNING = "warning", "warning"
        COMMENTED = "commented", "comment"

    WAKING = (Kind.SUBMITTED, Kind.RELEASED, Kind.CHANGED, Kind.REQUEUED, Kind.FINISHED)

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="events", db_index=False)  # with the event's id
    at = models.DateTimeField(default=timezone.now)
    kind = models.CharField(max_length=20, choices=Kind.choices)
    attempt = models.PositiveIntegerField(null=True, blank=True)
    message = models.CharField(max_length=500, blank=True)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL)

    class Meta:
        ordering = ("id",)
        indexes = [
            models.Index(fields=("job", "id"), name="event_by_job"),
            models.Index(fields=("at",), name="event_by_time"),
            models.Index(fields=("job", "id"), condition=models.Q(kind="commented"), name="comment_by_job"),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind
