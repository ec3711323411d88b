"""Whether the scheduler does its work, judged by progress: by its last good round. For persons, probes and metrics."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler_app.looking import latest_round
from scheduler_app.models import PolicySetting, Round

SILENT_AFTER_ROUNDS = 3
LEAST_SILENCE = timedelta(seconds=15)
"""Short rounds of a demo must not cry wolf when the machine is busy."""


@dataclass(frozen=True)
class Heartbeat:
    """The last round, the last good one and its age; None before the first."""

    last: Round | None
    good: Round | None
    age: timedelta | None
    patience: timedelta

    @property
    def healthy(self) -> bool:
        return self.age is not None and self.age <= self.patience

    @property
    def silent_for(self) -> timedelta | None:
        """Set when a good round is overdue; before the first there is nothing to be late."""
        return None if self.healthy else self.age

    @property
    def failing(self) -> bool:
        """The scheduler is at work, but its rounds come to nothing."""
        return self.last is not None and self.last.result == Round.Result.FAILED

    @property
    def fell_back(self) -> bool:
        """The policy's solver failed in the last round, and a stand-in decided."""
        return self.last is not None and self.last.fell_back

    @property
    def decided_ms(self) -> float:
        return 1000 * sum(self.last.seconds.values()) if self.last else 0.0


def heartbeat(now: datetime) -> Heartbeat:
    last, good = Round.objects.defer("archive").first(), latest_round()
    patience = timedelta(seconds=SILENT_AFTER_ROUNDS * PolicySetting.objects.current().round_length_s)
    age = now - good.started_at if good else None
    return Heartbeat(last, good, age, max(patience, LEAST_SILENCE))
