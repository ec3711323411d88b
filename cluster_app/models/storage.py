"""Named storage, and where it was found missing."""

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from cluster_app.models.engine import Engine
from cluster_app.models.gpu_type import GpuType
from cluster_app.models.node import Node

storage_name_is_plain = RegexValidator(
    r"\A[a-z][a-z0-9_]*\Z",
    "Use lower-case letters, digits and '_', and start with a letter: jobs find the path in MOTLEY_MOUNT_<NAME>.",
)
path_is_absolute = RegexValidator(
    r"\A/(?!.*(?:\A|/)\.\.(?:/|\Z))[^\0\r\n]*\Z", "Write an absolute path without '..', such as /mnt/data."
)


class Storage(models.Model):
    """Path of a named storage on the nodes of an engine, or of one GPU type there. Motley mounts nothing."""

    name = models.CharField(
        max_length=40, validators=[storage_name_is_plain], help_text="As jobs write it under `mounts`: data."
    )
    engine = models.ForeignKey(Engine, on_delete=models.CASCADE, to_field="name", db_column="engine")
    gpu_type = models.ForeignKey(
        GpuType,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        verbose_name="GPU type",
        help_text="Empty: all nodes of the engine. A row with a GPU type comes before one without.",
    )
    path = models.CharField(
        max_length=500,
        validators=[path_is_absolute],
        help_text="Of a folder or file that each of these nodes has, and that the account of jobs may read.",
    )

    class Meta:
        verbose_name_plural = "storage"
        ordering = ("name", "engine", "gpu_type__name")
        constraints = [
            models.UniqueConstraint(
                fields=("name", "engine"),
                condition=Q(gpu_type=None),
                name="storage_once_per_engine",
                violation_error_message="This engine has a path for this name already: change that row.",
            ),
            models.UniqueConstraint(
                fields=("name", "engine", "gpu_type"),
                name="storage_once_per_engine_and_gpu_type",
                violation_error_message="This GPU type there has a path for this name already: change that row.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} on {self.engine_id}" + (f", {self.gpu_type}" if self.gpu_type else "")


class MissingStorage(models.Model):
    """A storage that an attempt did not find on a node: jobs that name it are not placed there for a while."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE)
    name = models.CharField(max_length=40)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=("node", "name"), name="missing_storage_once_per_node")]

    def __str__(self) -> str:
        return f"{self.name} on {self.node}"
