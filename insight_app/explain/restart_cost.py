"""What a restart costs a job, and from what that is known."""

from collections.abc import Sequence
from dataclasses import dataclass

from estimation.restart_times import RestartPlace, RestartTime, anywhere, restart_time
from jobs_app.models import Attempt, Job
from scheduler_app.round.restart_times import restarts_of_workload


@dataclass(frozen=True)
class RestartCost:
    """Expected seconds of a restart where the job is, or was last; `place` is None if it never was anywhere."""

    time: RestartTime
    declared_s: float
    place: RestartPlace | None
    gpus: int
    """That it holds meanwhile."""

    @property
    def seconds(self) -> float:
        return self.time.seconds

    @property
    def gpu_s(self) -> float:
        return self.seconds * self.gpus

    @property
    def source(self) -> str:
        return "measured" if self.time.is_measured else "declared"

    @property
    def detail(self) -> str:
        """`about 42 s: 5 s until …, 37 s from … (…)`; what is declared is said to be so."""
        if not self.declared_s:
            return "nothing, as it declares 0 s to restore"
        if not self.time.is_measured:
            return f"{_seconds(self.declared_s)}, as it declares or by default: no restart of its workload was measured"
        stop = f"{_seconds(self.time.stop_s)} until it has saved and ended ({self._stops})"
        start = f"{_seconds(self.time.start_s)} from the launch to its first step ({self._starts})"
        return f"about {_seconds(self.seconds)}: {stop}, {start}"

    @property
    def _stops(self) -> str:
        return self._behind("stop", self.time.stops, self.time.stops_at_place) or "no stop was measured"

    @property
    def _starts(self) -> str:
        return self._behind("start", self.time.starts, self.time.starts_at_place) or "as declared"

    def _behind(self, what: str, times: int, at_place: int) -> str:
        """`4 starts of its workload, 2 of them on A100 of local`; empty: there are none."""
        if not times:
            return ""
        of_workload = f"{times} {what}{'s' * (times != 1)} of its workload"
        if self.place is None or at_place == times:
            return of_workload
        return f"{of_workload}, {at_place or 'none'} of them on {self.place.gpu_type.upper()} of {self.place.engine}"


def restart_cost(job: Job, attempts: Sequence[Attempt]) -> RestartCost | None:
    """What the next restart costs an unfinished job, all of its attempts given; None if it has ended."""
    if job.is_final:
        return None
    last = attempts[-1] if attempts else None
    place = RestartPlace(last.gpu_type.name, last.engine) if last else None
    there = anywhere if place is None else place.__eq__
    measured = restarts_of_workload(job.team_id, job.workload)
    found = restart_time(job.restore_s, measured, stops_at=there, starts_at=there)
    return RestartCost(found, job.restore_s, place, last.gpu_count if last else job.gpus_min)


def _seconds(seconds: float) -> str:
    """`0.4 s`, `42 s`: two digits, as more are not known."""
    return f"{float(f'{seconds:.2g}'):g} s"
