"""Description of a site: versions, host, engines, processes of the scheduler, environment settings."""

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.db import connection
from django.db.models import Count, Q

from cluster_app.models import Engine, Node
from operations.readiness import redis_version
from scheduler_app.models import SchedulerLease

SHOWN = frozenset(
    {
        *(
            "MOTLEY_HOSTS",
            "MOTLEY_PORT",
            "MOTLEY_URL",
            "MOTLEY_TRUSTED_ORIGINS",
            "MOTLEY_TLS",
            "MOTLEY_DEBUG",
            "MOTLEY_VAR",
        ),
        *("MOTLEY_REST_RATE", "MOTLEY_ANONYMOUS_RATE", "MOTLEY_LOGIN_RATE", "MOTLEY_ADDRESS_HEADER", "MOTLEY_PROXIES"),
        "MOTLEY_CURRENCY",
        *("MOTLEY_JOB_USER", "MOTLEY_LIMIT_CPUS", "MOTLEY_CGROUP", "MOTLEY_CONTAINERS", "MOTLEY_EMAIL_FROM"),
        *(
            "MOTLEY_IMAGE_REGISTRIES",
            "MOTLEY_IMAGE_FOLDERS",
            "MOTLEY_JOB_PATH",
            "MOTLEY_LOG_FORMAT",
            "MOTLEY_LOG_LEVEL",
        ),
    }
)
"""Texts that are no secret. Others, such as commands and addresses with passwords, are only said to be set."""
PLAIN = (bool, int, float, timedelta, Path)
"""Types of settings whose values cannot be secret."""


@dataclass(frozen=True)
class Setting:
    """A variable of the environment; `value` is None where it may be a secret."""

    name: str
    value: str | None


def settings_of(environment: Mapping[str, str]) -> list[Setting]:
    """The variables that are set: others have their defaults."""
    return [
        Setting(name, value if name in SHOWN or isinstance(getattr(settings, name, None), PLAIN) else None)
        for name, value in sorted(environment.items())
        if name.startswith("MOTLEY_") and value
    ]


def versions() -> Iterator[tuple[str, str]]:
    """Part → its version."""
    yield "Motley", settings.MOTLEY_VERSION
    yield "Python", platform.python_version()
    yield "Django", django.get_version()
    yield "Database", f"{connection.display_name} {'.'.join(map(str, connection.get_database_version()))}"
    if settings.MOTLEY_HAS_BROKER:
        yield "Redis", redis_version() or "does not answer"


def host() -> Iterator[tuple[str, str]]:
    """Host of this web process."""
    yield "Host", platform.node()
    yield "System", f"{platform.system()} {platform.release()}, {os.cpu_count()} CPUs"
    yield "Address", settings.PUBLIC_URL
    yield "Runs as", "full stack: Celery and Redis" if settings.MOTLEY_HAS_BROKER else "one service without a broker"
    for mails, variable in (("Mails notifications", "MOTLEY_MAIL_URL"), ("Mails invitations", "MOTLEY_EMAIL_URL")):
        yield mails, "yes" if getattr(settings, variable) else f"no: {variable} is not set"


@dataclass(frozen=True)
class Process:
    """Process that runs a loop of the scheduler, by its lease."""

    loop: str
    holder: str
    lease_until: datetime
    works: bool


def processes(now: datetime) -> list[Process]:
    leases = {lease.pk: lease for lease in SchedulerLease.objects.all()}
    return [
        Process(loop.label, lease.holder, lease.expires_at, works=lease.expires_at > now)
        for loop in SchedulerLease.Loop
        if (lease := leases.get(loop.value)) is not None
    ]


def engines() -> list[tuple[Engine, int, int]]:
    """Engines, each with its nodes in use, and of these the healthy ones."""
    current = Node.objects.current().order_by().values_list("engine__name")
    healthy = Count("pk", filter=Q(health=Node.Health.HEALTHY))
    counts: dict[str, tuple[int, int]] = {
        name: (nodes, well) for name, nodes, well in current.annotate(nodes=Count("pk"), well=healthy)
    }
    rows: Any = Engine.objects.defer("inventory", "options")
    return [(engine, *counts.get(engine.name, (0, 0))) for engine in rows]
