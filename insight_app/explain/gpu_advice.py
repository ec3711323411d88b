"""Which GPUs a job should have requested: time and cost on those on which its workload was measured. Pure but one read.

Only measured rates are compared, of the same team, workload and batch size: an estimate is good enough to try a type,
not to blame a choice.
"""

from collections.abc import Iterable, Sequence
from math import ceil
from typing import NamedTuple

from django.db.models import QuerySet

from insight_app.explain.cost_and_time import CostUnit, pareto_optimal
from jobs_app.models import Attempt, Job, Throughput
from simulation.results.time_units import format_duration

LEAST_REPORTS = 3
"""Progress reports behind a rate that is compared."""
LEAST_GAIN = 0.05
"""Part of the cost or time below which a difference is noise."""
NO_STEPS = "How long it takes elsewhere is not known: it has reported no steps."
NOT_MEASURED = "Its own rate was not measured: it has reported too few steps."
BATCH_UNKNOWN = "Its workload was measured there with several batch sizes, and which one it has is not known."
ONLY_HERE = "Its workload was measured on no other GPUs, so there is nothing to compare."


class MeasuredGpus(NamedTuple):
    """GPUs with the measured rate of the workload, in steps/s, and how many runs it is from."""

    gpu_type: str
    gpus: int
    nodes: int
    rate: float
    runs: int
    price_per_hour: float
    """Of one GPU; 0: the type has no price."""

    @property
    def name(self) -> str:
        return f"{self.gpus} {self.gpu_type.upper()}"


class OtherGpus(NamedTuple):
    """Time and cost of the whole job on other GPUs, beside those that it ran on."""

    on: MeasuredGpus
    run_s: float
    cost: float
    later_s: float
    """Negative: sooner."""
    cheaper: float
    """Part of the cost that is saved; negative: dearer."""
    pareto_optimal: bool

    @property
    def beside(self) -> str:
        """As `12 min later, 40 % cheaper`."""
        time = f"{format_duration(abs(self.later_s))} {'later' if self.later_s >= 0 else 'sooner'}"
        cost = f"{abs(self.cheaper):.0%} {'cheaper' if self.cheaper >= 0 else 'dearer'}".replace("%", " %")
        return f"{time}, {cost}"

    @property
    def words(self) -> str:
        """As `8 V100: 12 min later, 40 % cheaper (measured in 3 runs)`."""
        return f"{self.on.name}: {self.beside} (measured in {self.on.runs} run{'s' * (self.on.runs != 1)})"


class GpuAdvice(NamedTuple):
    """What the job would have taken on other GPUs, the cheapest first; without any, `why_none` says why."""

    own: MeasuredGpus | None
    own_run_s: float
    own_cost: float
    others: Sequence[OtherGpus]
    unit: CostUnit
    why_none: str = ""

    @property
    def sentence(self) -> str:
        """The advice in one sentence; empty if there is nothing to compare."""
        if self.why_none or self.own is None:
            return self.why_none
        both = [one for one in self.others if one.cheaper >= LEAST_GAIN and one.later_s <= 0]
        if both:
            return f"Request {both[0].words}: it is better in both."
        cheaper = next((one for one in self.others if one.cheaper >= LEAST_GAIN), None)
        if cheaper is not None:
            return f"Where it may take longer, request {cheaper.words}."
        sooner = [one for one in self.others if -one.later_s >= LEAST_GAIN * self.own_run_s]
        if sooner:
            return f"Where it has to be sooner, request {min(sooner, key=lambda one: one.later_s).words}."
        return f"{self.own.name} were a good choice: of the GPUs on which it was measured none is cheaper or faster."


def read_gpu_advice(job: Job, attempts: Iterable[Attempt]) -> GpuAdvice:
    """The advice for a job that has run."""
    measured = [one for one in attempts if one.batch_rate and one.reports >= LEAST_REPORTS]
    last = max(measured, key=lambda one: one.number, default=None)
    steps = _own_steps(job)
    if last is None:
        return advice_of(steps, None, [])
    rates = Throughput.objects.filter(team=job.team_id, workload=job.workload)
    batch = _batch_of(last, rates)
    return advice_of(steps, own_gpus(last), None if batch is None else _measured(rates.filter(batch_size=batch)))


def _own_steps(job: Job) -> int:
    """Steps of the whole job, were they all made with its present batch; of one that continues another its own."""
    work = job.work
    if job.continues_step:
        return max(work.own_steps - job.continues_step, 0) + ceil(work.own_steps_left or 0)
    return round((work.total or work.done) / work.each)


def own_gpus(attempt: Attempt) -> MeasuredGpus:
    """Where the attempt ran, by the rate of its present batch."""
    kind, rate = attempt.gpu_type, attempt.batch_rate or 0.0
    return MeasuredGpus(kind.name, attempt.gpu_count, len(attempt.nodes), rate, 1, float(kind.price_per_hour))


def _batch_of(attempt: Attempt, rates: "QuerySet[Throughput]") -> int | None:
    """Batch size of the attempt: as Motley set it, else the only one of its workload there; None if there are several.

    0: no job of its workload has said one there.
    """
    if attempt.batch_size:
        return attempt.batch_size
    there = rates.filter(gpu_type=attempt.gpu_type, gpus=attempt.gpu_count, nodes=len(attempt.nodes))
    batches = set(there.values_list("batch_size", flat=True))
    return batches.pop() if len(batches) == 1 else None


def _measured(rates: "QuerySet[Throughput]") -> list[MeasuredGpus]:
    """One for each place: rates are of one batch size."""
    rows = rates.filter(reports__gte=LEAST_REPORTS, steps_per_second__gt=0, gpu_type__retired_at=None)
    return [
        MeasuredGpus(
            row.gpu_type.name, row.gpus, row.nodes, row.steps_per_second, row.runs, float(row.gpu_type.price_per_hour)
        )
        for row in rows.select_related("gpu_type")
    ]


def advice_of(steps: int, own: MeasuredGpus | None, measured: Sequence[MeasuredGpus] | None) -> GpuAdvice:
    """Compare the whole job, of so many steps, on its own GPUs and on all others on which it was measured.

    `measured`: with the job's batch size; None: that is not known.
    """
    others = [one for one in measured or () if own is None or _place(one) != _place(own)]
    priced = own is not None and all(one.price_per_hour for one in (own, *others))
    unit = CostUnit.PRICE if priced else CostUnit.GPU_HOURS
    if own is None or not steps or not others:
        return GpuAdvice(own, 0.0, 0.0, [], unit, _why_none(steps, own, measured))
    own_s, own_cost = _taken(own, steps, unit)
    points = [(own_s, own_cost), *(_taken(one, steps, unit) for one in others)]
    best = pareto_optimal(points)
    found = [
        OtherGpus(one, run_s, cost, run_s - own_s, 1 - cost / own_cost, good)
        for one, (run_s, cost), good in zip(others, points[1:], best[1:], strict=True)
    ]
    return GpuAdvice(own, own_s, own_cost, sorted(found, key=lambda one: (one.cost, one.run_s)), unit)


def _why_none(steps: int, own: MeasuredGpus | None, measured: Sequence[MeasuredGpus] | None) -> str:
    if own is None:
        return NOT_MEASURED
    if not steps:
        return NO_STEPS
    return BATCH_UNKNOWN if measured is None else ONLY_HERE


def _place(one: MeasuredGpus) -> tuple[str, int, int]:
    return one.gpu_type, one.gpus, one.nodes


def _taken(one: MeasuredGpus, steps: int, unit: CostUnit) -> tuple[float, float]:
    """Seconds, and cost or GPU-hours."""
    run_s = steps / one.rate
    return run_s, one.gpus * run_s / 3600 * (one.price_per_hour if unit is CostUnit.PRICE else 1.0)
