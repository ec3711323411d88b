"""Measured restart times of workloads, from the moments that attempts record: what rounds count a restart with."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import BigIntegerField, ExpressionWrapper, Q, Subquery

from estimation.restart_times import MeasuredRestarts, MeasuredTime, RestartPlace, RestartTime, anywhere, restart_time
from jobs_app.models import Attempt
from jobs_app.models.attempt import STOPPED, AttemptQuerySet

MOST_ATTEMPTS = 20_000
"""The newest of the site that are looked at, by rounds and by pages: neither slows down as rows grow."""
MOST_RESTARTS = 5_000
MOST_TIMES = 20
"""Of a workload, the latest: what has changed since does not weigh for ever."""
STARTED = Q(number__gt=1, launched_at__isnull=False, first_step_at__isnull=False)
STOPPED_AND_ENDED = Q(outcome__in=STOPPED, stop_requested_at__isnull=False, ended_at__isnull=False)


class _Moments(NamedTuple):
    """What an attempt tells of restarts; a first attempt tells only how it was stopped."""

    team: int
    workload: str
    gpu_type: str
    engine: str
    number: int
    outcome: str
    launched_at: datetime | None
    first_step_at: datetime | None
    stop_requested_at: datetime | None
    ended_at: datetime | None


class KnownRestarts(NamedTuple):
    """Measured restarts by team and workload, and where each job runs now."""

    measured: Mapping[tuple[int, str], MeasuredRestarts]
    held: Mapping[UUID, RestartPlace]

    def of(self, team: int, workload: str, declared_s: float, *, job: UUID, gpu_types: Collection[str]) -> RestartTime:
        """Restart of a job: stopped where it runs now, started on any of the types that it allows (empty: all)."""
        if (team, workload) not in self.measured:
            return RestartTime(0.0, declared_s)
        held = self.held.get(job)
        return restart_time(
            declared_s,
            self.measured[team, workload],
            stops_at=anywhere if held is None else held.__eq__,
            starts_at=lambda place: not gpu_types or place.gpu_type in gpu_types,
        )


def read_restarts() -> KnownRestarts:
    """What the newest attempts tell, whatever their workloads; two queries."""
    live = Attempt.objects.live().filter(stopping_at=None).values_list("job", "gpu_type__name", "engine")
    held = {job: RestartPlace(gpu_type, engine) for job, gpu_type, engine in live}
    return KnownRestarts(_measured(_newest()), held)


def restarts_of_workload(team: int, workload: str) -> MeasuredRestarts:
    """What the workload's attempts tell; one query."""
    of_workload = _newest().filter(job__team=team, job__workload=workload)
    return _measured(of_workload).get((team, workload), MeasuredRestarts())


def _newest() -> AttemptQuerySet:
    last = Subquery(Attempt.objects.order_by("-pk").values("pk")[:1])
    return Attempt.objects.filter(pk__gt=ExpressionWrapper(last - MOST_ATTEMPTS, output_field=BigIntegerField()))


def _measured(attempts: AttemptQuerySet) -> dict[tuple[int, str], MeasuredRestarts]:
    """Of each workload the latest times."""
    columns = ("job__team", "job__workload", "gpu_type__name", *_Moments._fields[3:])
    rows = attempts.filter(STARTED | STOPPED_AND_ENDED).order_by("-pk").values_list(*columns)[:MOST_RESTARTS]
    return by_workload(_Moments(*row) for row in rows)


def by_workload(attempts: Iterable[_Moments]) -> dict[tuple[int, str], MeasuredRestarts]:
    """Stops and starts of each workload, the latest first. Pure.

    The first step is by the clock of its machine: one before the launch tells of a clock that is behind.
    """
    stops: dict[tuple[int, str], list[MeasuredTime]] = defaultdict(list)
    starts: dict[tuple[int, str], list[MeasuredTime]] = defaultdict(list)
    for one in attempts:
        key, place = (one.team, one.workload), RestartPlace(one.gpu_type, one.engine)
        if one.outcome in STOPPED and one.stop_requested_at and one.ended_at:
            stops[key].append(MeasuredTime(place, (one.ended_at - one.stop_requested_at).total_seconds()))
        if one.number > 1 and one.launched_at and one.first_step_at and one.first_step_at > one.launched_at:
            starts[key].append(MeasuredTime(place, (one.first_step_at - one.launched_at).total_seconds()))
    keys = {*stops, *starts}
    return {key: MeasuredRestarts(stops[key][:MOST_TIMES], starts[key][:MOST_TIMES]) for key in keys}
