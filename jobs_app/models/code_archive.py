"""Archives of code that jobs run, by team and digest."""

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q, Sum
from django.utils import timezone

from jobs_app.models.team import Team

DIGEST = r"[0-9a-f]{64}"


class CodeArchiveQuerySet(models.QuerySet["CodeArchive"]):
    def stored(self) -> "CodeArchiveQuerySet":
        return self.filter(stored=True)

    def bytes_stored(self) -> int:
        return self.stored().aggregate(sum=Sum("size_bytes"))["sum"] or 0


class CodeArchive(models.Model):
    """Packed folder of code, named by the SHA-256 of its bytes; a job unpacks it into its own working folder.

    The row stays when the file has been deleted by retention: it says which code a job ran.
    """

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="code_archives", db_index=False)
    digest = models.CharField(max_length=64, validators=[RegexValidator(rf"\A{DIGEST}\Z")])
    size_bytes = models.PositiveBigIntegerField(help_text="Of the archive.")
    unpacked_bytes = models.PositiveBigIntegerField()
    files = models.PositiveIntegerField()
    lock_digest = models.CharField(max_length=64, blank=True, help_text="Of its files that name packages.")
    commit = models.CharField(max_length=64, blank=True, help_text="Of the Git repository it was packed from.")
    branch = models.CharField(max_length=200, blank=True)
    diff = models.TextField(blank=True, help_text="Changes of tracked files since the commit.")
    stored = models.BooleanField(default=True, help_text="Whether the archive is still there.")
    uploaded_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    used_at = models.DateTimeField(default=timezone.now, help_text="When it was last uploaded, or a job submitted.")

    objects = CodeArchiveQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        indexes = [models.Index(fields=("used_at",), condition=Q(stored=True), name="code_by_use")]
        constraints = [models.UniqueConstraint(fields=("team", "digest"), name="code_once_per_team")]

    def __str__(self) -> str:
        return f"{self.digest[:12]} of {self.team}"
