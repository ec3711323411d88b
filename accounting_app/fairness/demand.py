"""Demand of teams: GPUs of the jobs that run, and of those that could start now if GPUs were free.

Jobs that are held, wait for a begin time, for other jobs, for a pause to end or for a budget, and tasks beyond their
array's limit at a time ask for no GPUs: none of them would start on one that is free.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import Count, Q, Sum

from jobs_app.models import Job
from jobs_app.models.job import JobQuerySet


class TeamDemand(NamedTuple):
    """GPUs of a team's jobs."""

    waiting: int = 0
    """GPUs for which startable jobs ask, each job counted with its smallest gang."""
    most: int = 0
    """The most that these and the running ones can use."""


class WaitingTasks(NamedTuple):
    """Tasks of one array that could start, were it not for its limit, with the sums of their gangs."""

    team: int
    array: UUID
    at_a_time: int
    tasks: int
    gpus_min: int
    gpus_max: int


def startable_tasks(waiting: int, busy: int, at_a_time: int) -> int:
    """Number of waiting tasks of an array that its limit lets start now, given how many run. Pure."""
    return min(waiting, max(at_a_time - busy, 0))


def team_demands(now: datetime, *, closed: Collection[int] = ()) -> dict[int, TeamDemand]:
    """Demand of each team that has any; `closed` are teams whose budget lets no job start."""
    waiting, most = defaultdict[int, int](int), defaultdict[int, int](int)
    running = Job.objects.active().order_by().values_list("team")
    for team, gpus in running.annotate(Sum("gpus_max")):
        most[team] += gpus
    for team, smallest, largest in _startable(Job.objects.schedulable(now).exclude(team__in=closed).order_by()):
        waiting[team] += smallest
        most[team] += largest
    return {team: TeamDemand(waiting[team], most[team]) for team in most}


def _startable(jobs: JobQuerySet) -> Iterable[tuple[int, int, int]]:
    """Team, smallest and largest gangs of these jobs, as far as the limits of their arrays let them start."""
    unlimited = jobs.filter(Q(array=None) | Q(array__at_a_time=None))
    yield from unlimited.values_list("team").annotate(Sum("gpus_min"), Sum("gpus_max"))
    limited = jobs.filter(array__at_a_time__isnull=False).values_list("team", "array", "array__at_a_time")
    arrays = [WaitingTasks(*row) for row in limited.annotate(Count("pk"), Sum("gpus_min"), Sum("gpus_max"))]
    at_work = Job.objects.active().filter(array__in=[one.array for one in arrays]).order_by().values_list("array")
    busy = Counter(dict(at_work.annotate(Count("pk")))) if arrays else Counter[UUID]()
    for one in arrays:
        part = startable_tasks(one.tasks, busy[one.array], one.at_a_time) / one.tasks
        yield one.team, round(one.gpus_min * part), round(one.gpus_max * part)
