"""Whether the scheduler is alive, as a person wants to know it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from scheduler_app.looking import scheduler_heartbeat
from scheduler_app.models import PolicySetting, Round

SILENT_AFTER_ROUNDS = 3
LEAST_SILENCE = timedelta(seconds=15)
"""Short rounds of a demo must not cry wolf when the machine is busy."""


@dataclass(frozen=True)
class Heartbeat:
    """The last round and how long ago it was; `last` is None before the first."""

    last: Round | None
    silent_for: timedelta | None
    """Set when a round is overdue."""

    @property
    def decided_ms(self) -> float:
        return 1000 * sum(self.last.seconds.values()) if self.last else 0.0


def heartbeat(now: datetime) -> Heartbeat:
    lease, last = scheduler_heartbeat()
    patience = timedelta(seconds=SILENT_AFTER_ROUNDS * PolicySetting.objects.current().round_length_s)
    heard = last.started_at if last else None
    if lease is None or heard is None:
        return Heartbeat(last, silent_for=None)
    silence = now - heard
    return Heartbeat(last, silent_for=silence if silence > max(patience, LEAST_SILENCE) else None)
