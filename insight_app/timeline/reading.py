"""Input of the timeline: attempts, their GPUs, forecasts, outages and windows; a fixed number of queries."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, Self
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from cluster_app.models import Gpu, Node, NodeEvent, NodeInterval
from insight_app.models import JobForecast
from insight_app.start_forecasts.showing import SHOWN_FOR, ShownForecast
from insight_app.timeline.outages import EVENT_KINDS, NodeNow, Outage, StateEvent, outages_of_node
from insight_app.timeline.time_range import Frame
from jobs_app.models import Attempt, GpuClaim, Job
from scheduler_app.models import TimeWindow
from scheduler_app.windows.reading import WindowRow, read_windows

MOST_ATTEMPTS = 20_000
"""Of more, the newest are shown."""


@dataclass(frozen=True)
class Viewer:
    """Teams whose jobs a user may see; None: all teams."""

    teams: frozenset[int] | None

    @classmethod
    def of(cls, user: User) -> Self:
        return cls(None if user.is_staff else frozenset(user.teams.order_by().values_list("pk", flat=True)))

    def sees(self, team: int) -> bool:
        return self.teams is None or team in self.teams


class JobName(NamedTuple):
    """Name of a job on a timeline."""

    pk: UUID
    name: str
    array_index: int | None
    team_id: int
    team: str

    def __str__(self) -> str:
        return self.name if self.array_index is None else f"{self.name}[{self.array_index}]"


class Run(NamedTuple):
    """An attempt: when its processes were launched and when it ended; `ended_at` is None while it goes on."""

    job: JobName
    seen: bool
    """Whether the reader may see the job; else only which GPUs it held, and when."""
    pk: int
    number: int | None
    """None: not the reader's to know."""
    gpu_type: str
    gpus: int
    began_at: datetime
    ended_at: datetime | None
    outcome: str
    """Empty: it goes on, or its outcome is not the reader's to know."""
    round_number: int

    @property
    def ended_as(self) -> str:
        """The outcome, or that it runs; empty if the reader may not see it."""
        return self.outcome if self.ended_at else "running"


JOB = ("pk", "name", "array_index", "team", "team__name")
JOB_OF_ATTEMPT = ("job", *(f"job__{name}" for name in JOB[1:]))
RUN = ("pk", "number", "gpu_type__name", "gpu_count", "began_at", "ended_at", "outcome", "round_number")


class TimelineGpu(NamedTuple):
    pk: int
    slot: int
    node: str
    gpu_type: str


@dataclass(frozen=True)
class ExpectedRun:
    """A job with its forecast; `run` is None while it waits."""

    job: JobName
    forecast: ShownForecast
    gpu_type: str
    gpus: int
    run: Run | None
    seen: bool


class NodeWindow(NamedTuple):
    """One occurrence of a window: time in which its nodes were, or will be, in maintenance or reserved for a team."""

    window: int
    nodes: tuple[str, ...]
    since: datetime
    until: datetime
    team: str
    """Empty: a maintenance."""
    reason: str

    @classmethod
    def of(cls, row: WindowRow, names: Mapping[int, str]) -> Self:
        """The window restricted to nodes that have names here."""
        nodes = sorted(names[node] for node in row.nodes if node in names)
        return cls(row.window, tuple(nodes), row.begins_at, row.ends_at, row.team, row.reason)

    @property
    def kind(self) -> TimeWindow.Kind:
        return TimeWindow.Kind.RESERVATION if self.team else TimeWindow.Kind.MAINTENANCE

    @property
    def what(self) -> str:
        return f"reserved for team {self.team}" if self.team else "maintenance"


@dataclass(frozen=True)
class Timeline:
    """Runs (the newest first), forecasts, and outages and windows of the nodes that were asked for."""

    frame: Frame
    runs: Sequence[Run]
    expected: Sequence[ExpectedRun]
    outages: Sequence[Outage]
    windows: Sequence[NodeWindow]
    truncated: bool
    """Whether there were more runs than are shown."""

    def cut_to(self, frame: Frame) -> Self:
        """The timeline cut to a shorter frame, in which all of its runs began."""
        outages = [one for one in self.outages if frame.meets(one.since, one.until)]
        windows = [one for one in self.windows if frame.meets(one.since, one.until)]
        return replace(self, frame=frame, outages=outages, windows=windows)


def read_timeline(frame: Frame, sight: Viewer, nodes: Collection[str], gpu_type: str = "") -> Timeline:
    """Runs and forecasts on GPUs of the type (empty: of any), and outages and windows of these nodes."""
    runs = _runs(frame, sight, gpu_type)
    expected = _expected(frame, sight, runs[:MOST_ATTEMPTS], gpu_type)
    out = read_outages(frame.since, nodes), _windows(frame, nodes)
    return Timeline(frame, runs[:MOST_ATTEMPTS], expected, *out, len(runs) > MOST_ATTEMPTS)


def _runs(frame: Frame, sight: Viewer, gpu_type: str) -> list[Run]:
    """Attempts that ran in the frame: those that go on or whose processes may be left, and those that ended in it.

    Two queries: with an `OR` SQLite reads the attempts of all times.
    """
    left = Attempt.objects.with_processes().order_by("-pk")
    ended = Attempt.objects.filter(ended_at__gte=frame.since, gone_at__isnull=False).order_by("-ended_at", "-pk")
    rows = [row for attempts in (left, ended) for row in _run_rows(attempts, gpu_type)]
    return [_run(row, sight) for row in rows]


def _run_rows(attempts: QuerySet[Attempt], gpu_type: str) -> QuerySet[Attempt, Any]:
    launched = attempts.annotate(began_at=Coalesce("launched_at", "started_at")).exclude(began_at=None)
    on = launched.filter(gpu_type__name=gpu_type) if gpu_type else launched
    return on.values_list(*JOB_OF_ATTEMPT, *RUN)[: MOST_ATTEMPTS + 1]


def _run(row: Sequence[Any], sight: Viewer) -> Run:
    job, run = JobName(*row[: len(JOB)]), row[len(JOB) :]
    if sight.sees(job.team_id):
        return Run(job, True, *run)
    return Run(job, False, *run)._replace(number=None, outcome="")


def _expected(frame: Frame, sight: Viewer, runs: Sequence[Run], gpu_type: str) -> list[ExpectedRun]:
    """Forecasts that are not too old: of all that runs, and of those waiting jobs that the reader may see."""
    if not settings.MOTLEY_FORECASTS:
        return []
    forecasts = JobForecast.objects.filter(made_at__gte=frame.now - SHOWN_FOR).in_bulk()
    jobs = Job.objects.unfinished().filter(pk__in=JobForecast.objects.values("pk"), held=False)
    running = {run.job.pk: run for run in runs if run.ended_at is None}
    found = []
    for pk, name, index, team_id, team, state, gpus_min in jobs.order_by().values_list(*JOB, "state", "gpus_min"):
        row, run, waits = forecasts.get(pk), running.get(pk), state == Job.State.QUEUED
        if row is None or waits is not (run is None) or (waits and (row.runs or not sight.sees(team_id))):
            continue  # it has started or stopped since, or is not the reader's to see
        on, gpus = (run.gpu_type, run.gpus) if run else (row.gpu_type, gpus_min)
        if on and gpu_type in ("", on):
            job, forecast = JobName(pk, name, index, team_id, team), ShownForecast.of(row, waits=waits)
            found.append(ExpectedRun(job, forecast, on, gpus, run, sight.sees(team_id)))
    return found


def read_outages(since: datetime, nodes: Collection[str]) -> list[Outage]:
    """When the nodes were down or out of service since then; what is read is bounded by time, not by nodes.

    One that went after it had been drained is out of service, and not down as well.
    """
    wanted = set(nodes)
    if not wanted:
        return []
    gone = NodeInterval.objects.filter(
        node=OuterRef("node"), ended_at=OuterRef("started_at"), end=NodeInterval.End.ANNOUNCED
    )
    down = NodeInterval.objects.filter(~Exists(gone), Q(ended_at=None) | Q(ended_at__gte=since), up=False)
    found = [
        Outage(*row, "down")
        for row in down.order_by("started_at", "pk").values_list("node__name", "started_at", "ended_at")
    ]
    events: dict[str, list[StateEvent]] = defaultdict(list)
    lately = NodeEvent.objects.filter(at__gte=since, kind__in=EVENT_KINDS).order_by("at", "pk")
    for name, at, kind, message in lately.values_list("node__name", "at", "kind", "message"):
        events[name].append(StateEvent(at, kind, message))
    now, before = Node.objects.order_by("name").values_list("name", "state", "reason"), _last_events_before(since)
    for node in now:
        found += outages_of_node(NodeNow(*node), events[node[0]], since, before.get(node[0]))
    return [outage for outage in found if outage.node in wanted]


def _last_events_before(since: datetime) -> dict[str, StateEvent]:
    """The last change of each node's state before then, by name; one query."""
    rows = last_state_events(since).order_by().values_list("node__name", "at", "kind", "message")
    return {name: StateEvent(at, kind, message) for name, at, kind, message in rows}


def last_state_events(before: datetime) -> QuerySet[NodeEvent]:
    """The last change of each node's state before then: retention keeps it, or outages would have no begin."""
    of_node = NodeEvent.objects.filter(node=OuterRef("pk"), kind__in=EVENT_KINDS, at__lt=before).order_by("-at", "-pk")
    return NodeEvent.objects.filter(pk__in=Node.objects.values(last=Subquery(of_node.values("pk")[:1])))


def _windows(frame: Frame, nodes: Collection[str]) -> list[NodeWindow]:
    """Windows of these nodes in the frame, over, going on or to come; one query where there is none."""
    if not nodes:
        return []
    found = [row for row in read_windows(frame.since, frame.until - frame.since) if row.begins_at < frame.until]
    names = dict(Node.objects.filter(name__in=nodes).values_list("pk", "name")) if found else {}
    shown = [NodeWindow.of(row, names) for row in found]
    return [window for window in shown if window.nodes]


def read_gpus(nodes: Collection[str]) -> list[TimelineGpu]:
    """GPUs of the nodes, by GPU type, node and index."""
    gpus = Gpu.objects.present().filter(node__name__in=nodes)
    rows = gpus.order_by("node__gpu_type__name", "node__name", "index")
    return [TimelineGpu(*row) for row in rows.values_list("pk", "index", "node__name", "node__gpu_type__name")]


def read_gpus_of_runs(frame: Frame) -> dict[int, list[int]]:
    """GPUs by the attempt that held them in the frame."""
    claims = GpuClaim.objects.filter(Q(released_at=None) | Q(released_at__gte=frame.since), held_from__isnull=False)
    found: dict[int, list[int]] = defaultdict(list)
    for attempt, gpu in claims.order_by().values_list("attempt", "gpu"):
        found[attempt].append(gpu)
    return found


def nodes_of_runs(runs: Sequence[Run]) -> dict[int, list[str]]:
    """Names of the nodes of each run, by the key of its attempt; apart, because a chart of thousands needs none."""
    return dict(Attempt.objects.filter(pk__in=[run.pk for run in runs]).values_list("pk", "nodes"))
