"""Engines, which run attempts."""

from collections.abc import Mapping
from typing import Any

from django.db import models
from django.db.models import Q

from cluster_app.models.validators import name_is_plain


class Engine(models.Model):
    """Engine that runs attempts: how it is reached, whether it answers, and the nodes that it reported."""

    class Kind(models.TextChoices):
        LOCAL = "local", "local: processes on this machine"
        SLURM = "slurm", "Slurm: jobs of a Slurm cluster"
        AGENT = "agent", "agent: a machine that has joined with a token"
        SERVERS = "servers", "servers: the site's own machines, each with an agent"

    name = models.CharField(max_length=40, unique=True, validators=[name_is_plain], help_text="As nodes name it: hpc.")
    kind = models.CharField(max_length=20, choices=Kind.choices)
    options = models.JSONField(
        default=dict,
        blank=True,
        help_text='A map. Local: empty. Slurm: at least the folder that all nodes share, {"root": "/shared/motley"}.',
    )
    enabled = models.BooleanField(default=True, help_text="If not, no new jobs are started there; running jobs go on.")
    trusted = models.BooleanField(
        default=True,
        help_text="Its machines may have secrets of jobs. A machine that joined gets them only if trusted.",
    )
    heard_at = models.DateTimeField("last heard", null=True, blank=True, editable=False)
    since = models.DateTimeField(
        null=True, blank=True, editable=False, help_text="Since when it has answered or, with a fault, has not."
    )
    fault = models.CharField(max_length=500, blank=True, editable=False, help_text="Empty: it answers.")
    retry_at = models.DateTimeField(null=True, blank=True, editable=False, help_text="It is not asked before.")
    inventory = models.JSONField(default=dict, blank=True, editable=False, help_text="Reported nodes by name.")

    class Meta:
        ordering = ("name",)
        constraints = [
            models.CheckConstraint(
                condition=Q(kind__in=("agent", "local", "servers", "slurm")), name="engine_kind_known"
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def has_agents(self) -> bool:
        """Whether agents fetch its commands and write its reports."""
        return self.kind in WITH_AGENTS

    @property
    def answers(self) -> bool:
        """Whether it answered the last poll."""
        return self.heard_at is not None and not self.fault

    @property
    def saves_power(self) -> bool:
        """Whether its site puts nodes to sleep and wakes them, by an option that only some kinds have."""
        return self.options.get("power_saving") is True


LOCAL_ENGINE = "local"
"""Name of the engine of this machine, which a migration adds."""
SERVERS_ENGINE = "servers"
"""Name of the engine of the site's own servers, which the first of them adds."""
WITH_AGENTS = (Engine.Kind.AGENT, Engine.Kind.SERVERS)


def booked_per_gpu(kind: str, options: Mapping[str, Any]) -> tuple[int, int]:
    """CPUs and MiB that an engine books for each GPU of a job at least; (0, 0): it books nothing.

    Slurm gives a job the CPU that its task runs on, and what the site's options say.
    """
    if kind != Engine.Kind.SLURM:
        return 0, 0
    asked = (options.get(name) for name in ("cpus_per_gpu", "memory_mib_per_gpu"))
    cpus, memory_mib = (number if type(number) is int and number > 0 else 0 for number in asked)
    return max(cpus, 1), memory_mib
