"""Progress of an array: its tasks by state, how long one takes, and the GPU time that is left."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Count, F, Max

from accounting_app.durations.array_samples import read_array_samples
from accounting_app.models import DurationForecast
from estimation.estimate import HIGH, LOW, Estimate
from estimation.task_sampling import TaskSample
from jobs_app.models import Attempt, Job
from jobs_app.models.job import JobQuerySet
from simulation.results.time_units import format_duration


@dataclass(frozen=True)
class ArrayProgress:
    """Tasks of an array by state, and the duration of one on its smallest gang of average GPUs."""

    id: UUID
    name: str
    tasks: int
    waiting: int
    running: int
    """Those that start or stop included."""
    succeeded: int
    failed: int
    """Cancelled and timed out ones included."""
    each: Estimate | None
    """From the tasks that have succeeded; None: none has."""
    left_gpu_s: float | None

    @property
    def least_s(self) -> float | None:
        return self.each and self.each.quantile_left(LOW)

    @property
    def most_s(self) -> float | None:
        return self.each and self.each.quantile_left(HIGH)


def array_progress(array: UUID, seen: JobQuerySet, now: datetime) -> ArrayProgress | None:
    """Progress of this array over the jobs that are seen, in five queries at most; None if none of them is of it."""
    tasks = seen.filter(array=array)
    counts = dict(tasks.order_by().values_list("state").annotate(Count("pk")))
    first = tasks.order_by("array_index").first()
    if first is None:
        return None
    each = _each(array, sum(counts.values()))
    running = sum(counts.get(state, 0) for state in Job.ACTIVE)
    waiting = counts.get(Job.State.QUEUED, 0)
    return ArrayProgress(
        id=array,
        name=first.name,
        tasks=sum(counts.values()),
        waiting=waiting,
        running=running,
        succeeded=counts.get(Job.State.SUCCEEDED, 0),
        failed=sum(counts.get(state, 0) for state in Job.FINAL) - counts.get(Job.State.SUCCEEDED, 0),
        each=each,
        left_gpu_s=_left_gpu_s(array, each, waiting + running, now) if each else None,
    )


def _each(array: UUID, tasks: int) -> Estimate | None:
    """Mean of the array's own tasks, without history, which may be of other teams."""
    found = read_array_samples([array]).get(array)
    return TaskSample(tasks, 0, found.ended).estimate() if found else None


def _left_gpu_s(array: UUID, each: Estimate, unfinished: int, now: datetime) -> float:
    """GPU-seconds of smallest gangs on average GPUs; a task that has not begun to run counts in full."""
    ended = DurationForecast.objects.filter(array=array, ended_at__isnull=False)  # as its index has them
    gpus = ended.aggregate(gpus=Max("gpus"))["gpus"] or 1
    live = Attempt.objects.live().filter(job__array=array, started_at__isnull=False)
    ran = live.values_list("started_at", F("gpu_count") * F("relative_speed"))
    left_s = [each.mean_left(max((now - at).total_seconds(), 0) * speed / gpus) for at, speed in ran if at]
    return gpus * (sum(left_s) + max(unfinished - len(left_s), 0) * each.mean)


def gpu_time(gpu_s: float | None) -> str:
    """GPU time in hours, minutes or seconds."""
    if not gpu_s:
        return "none"
    for name, size in (("hour", 3600), ("minute", 60)):
        if gpu_s >= size:
            return _gpu_units(f"{gpu_s / size:.2g}" if gpu_s < 100 * size else f"{gpu_s / size:,.0f}", name)
    return _gpu_units(f"{gpu_s:.2g}", "second") if gpu_s >= 0.1 else "less than 0.1 GPU-seconds"


def _gpu_units(amount: str, name: str) -> str:
    return f"{amount} GPU-{name}{'' if amount == '1' else 's'}"


def array_summary(found: ArrayProgress) -> str:
    """Progress of an array, e.g. 5 of 100 done: 2 h 10 min each on GPUs of mean speed, 36 GPU-hours left."""
    failed = f", {found.failed:,} failed" if found.failed else ""
    done = f"{found.succeeded:,} of {found.tasks:,} done{failed}"
    if found.each is None or not found.left_gpu_s:
        return done
    return f"{done}: {format_duration(found.each.mean)} each on GPUs of mean speed, {gpu_time(found.left_gpu_s)} left"
