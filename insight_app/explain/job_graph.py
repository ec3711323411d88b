"""Jobs that wait for each other: the graph of a job, when all of it is expected to end, and its critical path.

The critical path is read from the end: of the job that ends last, the parent that ends last, and so on. Ends of jobs
that have not ended are medians of their forecasts, in which jobs wait for their parents already.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Self
from uuid import UUID

from django.db.models import Q, QuerySet

from insight_app.start_forecasts.showing import ShownForecast, read_forecasts
from jobs_app.models import Job, JobDependency

MOST_JOBS = 500
"""Of a graph; beyond them it is cut off, and says so."""
State = Job.State
BY_WEIGHT = (
    *(State.RUNNING, State.STARTING, State.STOPPING, State.QUEUED),
    *(State.FAILED, State.TIMED_OUT, State.CANCELLED, State.SUCCEEDED),
)
"""The state of an array is the first of these in which a task of it is."""

Edge = tuple[UUID, UUID]
"""Parent and child."""


class GraphNode(NamedTuple):
    """A job, or the tasks of an array that are in the graph; times of forecasts are medians, None where unknown."""

    key: UUID
    """Of the job, or of the array."""
    job: Job
    """The job, or one task of it."""
    tasks: int
    state: State
    starts_at: datetime | None
    ends_at: datetime | None
    column: int
    """The longest chain of jobs before it."""
    is_critical: bool

    @property
    def name(self) -> str:
        return f"{self.job.name} ({self.tasks} tasks)" if self.tasks > 1 else str(self.job)

    @property
    def is_over(self) -> bool:
        return self.state in Job.FINAL


class JobGraph(NamedTuple):
    """The jobs that a job waits for, those that wait for it, and all that they are connected with."""

    nodes: Sequence[GraphNode]
    """By column; parents before their children."""
    edges: Sequence[Edge]
    ends_at: datetime | None
    """When all have ended, or are expected to have."""
    why_none: str
    complete: bool

    @property
    def critical_path(self) -> Sequence[GraphNode]:
        return [node for node in self.nodes if node.is_critical]

    @property
    def is_over(self) -> bool:
        return all(node.is_over for node in self.nodes)


class _Group(NamedTuple):
    """What a node is made of."""

    job: Job
    tasks: int
    state: State
    starts_at: datetime | None
    ends_at: datetime | None

    @classmethod
    def of(cls, jobs: Sequence[Job], forecasts: Mapping[UUID, ShownForecast]) -> Self:
        states = {State(job.state) for job in jobs}
        starts = [_start_of(job, forecasts.get(job.pk)) for job in jobs]
        ends = [_end_of(job, forecasts.get(job.pk)) for job in jobs]
        return cls(
            min(jobs, key=lambda job: job.array_index or 0),
            len(jobs),
            next(state for state in BY_WEIGHT if state in states),
            min((at for at in starts if at is not None), default=None),
            None if None in ends else max(at for at in ends if at is not None),
        )


def _start_of(job: Job, forecast: ShownForecast | None) -> datetime | None:
    return job.started_at or (forecast.start.median if forecast and forecast.start else None)


def _end_of(job: Job, forecast: ShownForecast | None) -> datetime | None:
    return job.finished_at or (forecast.finish.median if forecast else None)


def read_job_graph(job: Job, visible: "QuerySet[Job]") -> JobGraph:
    """The graph of the job, of the jobs that the reader may see."""
    edges, complete = _connected(job.pk, visible)
    pks = {job.pk, *(pk for edge in edges for pk in edge)}
    jobs = list(visible.filter(pk__in=pks).order_by("pk"))
    return graph_of(jobs, edges, read_forecasts(jobs), complete=complete)


def _connected(start: UUID, visible: "QuerySet[Job]") -> tuple[set[Edge], bool]:
    """Dependencies between the jobs that are connected with this one, found in steps; whether these are all."""
    known, news, edges = {start}, {start}, set[Edge]()
    while news and len(known) < MOST_JOBS:
        touching = JobDependency.objects.filter(Q(child__in=news) | Q(parent__in=news))
        found = set(touching.values_list("parent", "child")[: 4 * MOST_JOBS]) - edges
        others = {pk for edge in found for pk in edge} - known
        seen = set(visible.filter(pk__in=others).values_list("pk", flat=True)[: MOST_JOBS - len(known)])
        known |= seen
        edges |= {edge for edge in found if known.issuperset(edge)}
        news = seen
    return edges, not news


def graph_of(
    jobs: Sequence[Job], edges: Iterable[Edge], forecasts: Mapping[UUID, ShownForecast], *, complete: bool = True
) -> JobGraph:
    """The graph of these jobs, in which tasks of an array are one."""
    key_of = {job.pk: job.array_id or job.pk for job in jobs}
    members: dict[UUID, list[Job]] = defaultdict(list)
    for job in jobs:
        members[key_of[job.pk]].append(job)
    groups = {key: _Group.of(of_one, forecasts) for key, of_one in members.items()}
    between = sorted({(key_of[parent], key_of[child]) for parent, child in edges})
    parents: dict[UUID, list[UUID]] = defaultdict(list)
    for parent, child in between:
        parents[child].append(parent)
    columns = _columns(groups, parents)
    unknown = [group for group in groups.values() if group.ends_at is None]
    critical = set() if unknown else _critical_path(groups, parents)
    nodes = [GraphNode(key, *group, columns[key], key in critical) for key, group in groups.items()]
    ends = [group.ends_at for group in groups.values() if group.ends_at is not None]
    return JobGraph(
        sorted(nodes, key=lambda node: (node.column, node.job.pk)),
        between,
        None if unknown else max(ends),
        _why_none(unknown),
        complete,
    )


def _why_none(unknown: Sequence[_Group]) -> str:
    if not unknown:
        return ""
    more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    return f"There is no forecast of {unknown[0].job}{more}: the end of the whole is not known yet."


def _columns(groups: Iterable[UUID], parents: Mapping[UUID, Sequence[UUID]]) -> dict[UUID, int]:
    """Length of the longest chain before each; a parent is older than its child, so there are no cycles."""
    columns = dict.fromkeys(groups, 0)
    for _ in columns:
        moved = False
        for key in columns:
            least = max((columns[parent] + 1 for parent in parents.get(key, ())), default=0)
            moved, columns[key] = moved or least != columns[key], least
        if not moved:
            break
    return columns


def _critical_path(groups: Mapping[UUID, _Group], parents: Mapping[UUID, Sequence[UUID]]) -> set[UUID]:
    """From the node that ends last, each time the parent that ends last."""

    def ends_at(key: UUID) -> float:
        at = groups[key].ends_at
        return at.timestamp() if at is not None else 0.0

    path, at = set[UUID](), max(groups, key=ends_at)
    while at not in path:
        path.add(at)
        at = max(parents.get(at, ()), key=ends_at, default=at)
    return path
