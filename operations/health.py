"""Health of the scheduler: the age of its last committed round, and whether its loop of engines works."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler_app.models import PolicySetting, Round, SchedulerLease, SetAside

SILENT_AFTER_ROUNDS = 3
LEAST_SILENCE = timedelta(seconds=15)
"""Least time before a warning: short rounds of the demo may be late on a busy machine."""


@dataclass(frozen=True)
class SchedulerHealth:
    """The last round, the last committed round and its age; None before the first."""

    last: Round | None
    good: Round | None
    age: timedelta | None
    patience: timedelta
    engines_silent_for: timedelta | None = None
    """Time for which no process has spoken with the engines, if that is too long."""
    set_aside: int = 0
    """Jobs, attempts and nodes that raised an error and are left alone."""

    @property
    def healthy(self) -> bool:
        return self.age is not None and self.age <= self.patience and self.engines_silent_for is None

    @property
    def silent_for(self) -> timedelta | None:
        """Time since the last committed round if the next is overdue; None before the first round."""
        return self.age if self.age is not None and self.age > self.patience else None

    @property
    def failing(self) -> bool:
        """Whether the scheduler works, but its last round failed."""
        return self.last is not None and self.last.result == Round.Result.FAILED

    @property
    def fell_back(self) -> bool:
        """Whether the policy's solver failed in the last round and a fallback decided."""
        return self.last is not None and self.last.fell_back

    @property
    def decided_ms(self) -> float:
        return 1000 * sum(self.last.seconds.values()) if self.last else 0.0


def scheduler_health(now: datetime) -> SchedulerHealth:
    """The scheduler's state now."""
    last, good = Round.objects.defer("archive").first(), Round.objects.latest_committed()
    patience = timedelta(seconds=SILENT_AFTER_ROUNDS * PolicySetting.objects.current().round_length_s)
    age = now - good.started_at if good else None
    set_aside = SetAside.objects.count()
    return SchedulerHealth(last, good, age, max(patience, LEAST_SILENCE), _engines_silent_for(now), set_aside)


def _engines_silent_for(now: datetime) -> timedelta | None:
    """Time since the lease of the engine loop expired, if that is too long; None before its first turn."""
    lease = SchedulerLease.objects.filter(pk=SchedulerLease.Loop.ENGINES).first()
    silence = now - lease.expires_at if lease else timedelta()
    return silence if silence > LEAST_SILENCE else None
