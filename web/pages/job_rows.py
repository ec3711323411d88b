"""Rows of job lists: a job each, or an array as a whole, with the GPUs that it holds and its forecast."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, F, QuerySet, Sum

from cluster_app.models import GpuType
from insight_app.gpu_occupancy import gpu_counts
from insight_app.start_forecasts.arrays import read_forecasts_of_arrays
from insight_app.start_forecasts.showing import ShownForecast, read_forecasts
from jobs_app.models import Attempt, Job
from jobs_app.models.job import JobQuerySet

TYPE_COLOURS = ("#56b4e9", "#3fb88f", "#f0e442", "#b79df0", "#b5d86b", "#e8a38a")
"""Those of the classes `gpu-type-0` to `gpu-type-5` of the style sheet; after six types they repeat."""
MOST_DOTS = 8
"""Of one GPU type in one row; a larger gang is one dot and its number."""
MOST_FREE_DOTS = 16
"""Of one GPU type in the plan of a job."""
MOST_COUNTED = 1000
"""Ended jobs of one state: a list must not become slower by each job that has ended."""


@dataclass(frozen=True)
class GpuDots:
    """GPUs of one type: their number, and how many dots of which style stand for them."""

    gpu_type: str
    count: int
    style: str

    @property
    def dots(self) -> range:
        return range(self.count if self.count <= MOST_DOTS else 1)


@dataclass(frozen=True)
class FreeGpus:
    """GPUs of one type that are free now, as dots beside those that are not; of many GPUs, a part of the dots."""

    gpu_type: str
    free: int
    total: int
    style: str

    @property
    def free_dots(self) -> range:
        dots = min(self.total, MOST_FREE_DOTS)
        return range(max(round(dots * self.free / self.total), min(self.free, 1)) if self.total else 0)

    @property
    def taken_dots(self) -> range:
        return range(min(self.total, MOST_FREE_DOTS) - len(self.free_dots))


@dataclass(frozen=True)
class StateSegment:
    """Jobs in one state, and their place on a stacked bar, in per cent of its width."""

    state: str
    label: str
    count: int
    x: float = 0
    width: float = 0
    more: bool = False
    """Whether there are more than `count`."""


@dataclass(frozen=True)
class ArrayTasks:
    """Tasks of an array that the reader may see, by state."""

    counts: Mapping[str, int] = field(default_factory=dict)
    restarts: int = 0
    """Attempts after the first of each task."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def succeeded(self) -> int:
        return self.counts.get(Job.State.SUCCEEDED, 0)

    @property
    def unfinished(self) -> int:
        return self.total - sum(self.counts.get(state, 0) for state in Job.FINAL)

    @property
    def others(self) -> str:
        """Tasks that have not succeeded, as text after a number: , 3 running, 5 queued."""
        rest = (one for one in self.segments if one.state != Job.State.SUCCEEDED)
        return "".join(f", {one.count:,} {one.label}" for one in rest)

    @property
    def segments(self) -> list[StateSegment]:
        return stacked(self.counts)


@dataclass(frozen=True)
class JobRow:
    """A job, or with `tasks` the array that it is the last task of."""

    job: Job
    gpus: Sequence[GpuDots]
    forecast: ShownForecast | None
    tasks: ArrayTasks | None = None

    @property
    def can_be_selected(self) -> bool:
        """A job that has ended can be compared; of an array the unfinished tasks are selected."""
        return self.tasks.unfinished > 0 if self.tasks else True

    @property
    def restarts(self) -> int:
        return self.tasks.restarts if self.tasks else self.job.restarts


def stacked(counts: Mapping[str, int]) -> list[StateSegment]:
    """The states that occur side by side, in the order of a job's life."""
    whole, before, segments = sum(counts.values()) or 1, 0, []
    for state, label in Job.State.choices:
        if count := counts.get(state, 0):
            segments.append(StateSegment(state, str(label), count, 100 * before / whole, 100 * count / whole))
            before += count
    return segments


def count_states(jobs: QuerySet[Job]) -> dict[str, int]:
    """Number of these jobs in each state."""
    return dict(jobs.order_by().values_list("state").annotate(Count("pk")))


def count_ended(jobs: JobQuerySet) -> list[StateSegment]:
    """How many of these jobs have ended in each state, up to a limit; they have no place on the bar."""
    segments = []
    for state in Job.FINAL:
        count = jobs.filter(state=state).order_by()[: MOST_COUNTED + 1].count()
        if count:
            segments.append(StateSegment(state, state.label, min(count, MOST_COUNTED), more=count > MOST_COUNTED))
    return segments


def read_gpu_styles() -> dict[str, str]:
    """Class of the colour of each GPU type, the same on every page."""
    return {name: f"gpu-type-{number}" for name, number in read_colour_numbers().items()}


def read_gpu_colours() -> dict[str, str]:
    """Colour of each GPU type, as its class has it, for figures."""
    return {name: TYPE_COLOURS[number] for name, number in read_colour_numbers().items()}


def read_colour_numbers() -> dict[str, int]:
    """Number of the colour of each GPU type, the same on every page."""
    return colour_numbers(GpuType.objects.order_by("pk").values_list("pk", "name"))


def colour_numbers(types: Iterable[tuple[int, str]]) -> dict[str, int]:
    """Number of the colour of each GPU type, in the order in which they were added.

    It comes from the type's key, or is the next that no older type has: a type that is added changes no other.
    """
    numbers: dict[str, int] = {}
    free: list[int] = []
    for pk, name in types:
        free = free or list(range(len(TYPE_COLOURS)))
        numbers[name] = min(free, key=lambda number: (number - pk) % len(TYPE_COLOURS))
        free.remove(numbers[name])
    return numbers


def dots_of(gpus: Mapping[str, int], styles: Mapping[str, str]) -> list[GpuDots]:
    return [GpuDots(name, count, styles.get(name, "")) for name, count in sorted(gpus.items())]


def read_free_gpus() -> list[FreeGpus]:
    """Free GPUs of each type now."""
    styles = read_gpu_styles()
    return [FreeGpus(n.gpu_type, n.idle, n.total, styles.get(n.gpu_type, "")) for n in gpu_counts()]


def forecast_time(rows: Iterable[JobRow]) -> datetime | None:
    """When the oldest of the rows' forecasts was made; None if there is none."""
    return min((row.forecast.made_at for row in rows if row.forecast), default=None)


def read_rows(jobs: Sequence[Job], seen: JobQuerySet, *, arrays_as_one: bool) -> list[JobRow]:
    """Rows of these jobs in eight queries at most; `seen`: the jobs that the reader may see."""
    arrays = [job.array_id for job in jobs if job.array_id and arrays_as_one]
    tasks, held = _tasks_by_array(arrays, seen), _gpus_by_array(arrays, seen)
    forecasts, styles = read_forecasts(jobs), read_gpu_styles()
    ends = read_forecasts_of_arrays({array: of.unfinished for array, of in tasks.items() if of.unfinished}, seen)
    rows = []
    for job in jobs:
        of_array = tasks.get(job.array_id) if job.array_id else None
        if job.array_id and of_array and of_array.total > 1:
            rows.append(JobRow(job, dots_of(held[job.array_id], styles), ends.get(job.array_id), of_array))
        else:
            rows.append(JobRow(job, dots_of(_gpus_of(job), styles), forecasts.get(job.pk)))
    return rows


def _gpus_of(job: Job) -> dict[str, int]:
    """GPUs of its latest attempt, unless it waits."""
    latest: Iterable[Attempt] = job.attempts.all() if job.state != Job.State.QUEUED else ()
    return {attempt.gpu_type.name: attempt.gpu_count for attempt in latest}


def _tasks_by_array(arrays: Sequence[UUID], seen: JobQuerySet) -> dict[UUID, ArrayTasks]:
    counts: dict[UUID, dict[str, int]] = defaultdict(dict)
    tasks = seen.filter(array__in=arrays).order_by() if arrays else seen.none()
    for array, state, count in tasks.values_list("array", "state").annotate(Count("pk")):
        counts[array][state] = count
    restarted = tasks.filter(attempt_count__gt=1).values_list("array").annotate(again=Sum(F("attempt_count") - 1))
    restarts = dict(restarted)
    return {array: ArrayTasks(of_array, restarts.get(array, 0)) for array, of_array in counts.items()}


def _gpus_by_array(arrays: Sequence[UUID], seen: JobQuerySet) -> Mapping[Any, dict[str, int]]:
    """GPUs that tasks of the arrays hold now, by type."""
    found: dict[UUID, dict[str, int]] = defaultdict(dict)
    active = seen.active().filter(array__in=arrays).order_by().values("pk") if arrays else seen.none().values("pk")
    held = Attempt.objects.live().filter(job__in=active).order_by().values_list("job__array", "gpu_type__name")
    for array, gpu_type, count in held.annotate(Sum("gpu_count")):
        found[array][gpu_type] = count
    return found
