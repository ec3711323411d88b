"""Jobs that train: their rate changes with the batch and from epoch to epoch, and is learnt while they run (Sia)."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, isfinite
from typing import NamedTuple

import numpy as np

from allocation.problem import replicas_of
from allocation.types import Floats, Ints
from estimation.goodput import BatchLimits, GradientNoise, best_batches, divided
from estimation.throughput_model import ThroughputModel
from simulation.clock.fastest_course import FastestCourse, rates_of, tuned_rates
from simulation.clock.learned_rates import ObservedSteps, ProfiledRate, believed_rates
from simulation.cluster import Cluster, Placement
from simulation.traces.trace import Program
from simulation.workloads.applications import Application, ApplicationProfiles
from simulation.workloads.jobs import Jobs
from simulation.workloads.pipelines import PipelineTimes
from simulation.workloads.rate_sources import InvalidTable
from simulation.workloads.recorded_runs import StepTimes

OWN, SHARED, INFORMED = ("own", "shared", "informed")
"""Of a job's speed: from its own steps, as in Sia's simulator; from those of all jobs of its application; and, besides,
the limits of a batch and how long a restart really takes."""

DUST = 1e-6
"""Of a step: an epoch's end is not missed by rounding."""


@dataclass(eq=False)
class _Job:
    """One job: what it runs, what is known of it, and the batch that it runs with, per replica."""

    application: Application
    program: Program
    seen: ObservedSteps
    own_noise: GradientNoise | None = None
    local: int = 0
    passes: int = 0
    believed: tuple[object, Floats] | None = None
    """What was believed, and from which models and noise."""

    @property
    def noise(self) -> GradientNoise | None:
        """Its own; until it has run, that of those before it."""
        return self.own_noise or self.seen.first_noise

    def note_noise(self, noise: GradientNoise) -> None:
        """Note the noise of its gradient now."""
        if self.own_noise is None:
            self.seen.first_noise = noise
        self.own_noise = noise


class TimedStep(NamedTuple):
    """A step that runs now: its batch in samples, passes included; samples of a replica at once; times; and noise."""

    batch: int
    local: int
    passes: int
    step_s: float
    averaging_s: float
    noise: GradientNoise

    @property
    def iteration_s(self) -> float:
        """Seconds of all its passes, of which the last averages."""
        return self.step_s + self.passes * (self.step_s - self.averaging_s)


@dataclass(eq=False)
class Training:
    """The work of recorded applications on one cluster.

    Elastic jobs are believed what the models fitted to their own steps say, or, unless knowledge is `own`, to those of
    all jobs of their application; if it is `informed`, it is also known between what limits a batch may be, where
    otherwise estimates go up to the one that was submitted. Of a job that cannot be changed the mean rate is known.
    Steps are those of the initial batch where the batch is tuned, else the job's own.
    """

    jobs: Jobs
    cluster: Cluster
    profiles: ApplicationProfiles
    knowledge: str = OWN
    _jobs: list[_Job] = field(init=False)
    _offers: dict[str, list[ProfiledRate]] = field(init=False)
    """Configurations by application, on the types that it can use."""
    _types: list[str] = field(init=False)
    _replicas: Floats = field(init=False)
    """Replicas of each kind in each configuration (kinds, K)."""
    _elastic: Sequence[bool] = field(init=False)
    _true: dict[object, Floats] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        experience: dict[str, ObservedSteps] = defaultdict(ObservedSteps)
        programs = [self.jobs.programs[kind] for kind in self.jobs.kind.tolist()]
        applications = [self.profiles.application(program.workload or "") for program in programs]
        self._jobs = [
            _Job(application, program, ObservedSteps() if self.knowledge == OWN else experience[application.name])
            for application, program in zip(applications, programs, strict=True)
        ]
        on = self.jobs.configurations
        self._types = [self.cluster.gpu_types[j] for j in on.gpu_type.tolist()]
        self._offers = {a.name: list(_offers(self.cluster, self.jobs, a)) for a in set(applications)}
        self._replicas = np.broadcast_to(replicas_of(on.usage, self.jobs.gpus_per_replica), self.jobs.kind_rate.shape)
        sizes = [np.unique(n[rate > 0]).size for n, rate in zip(self._replicas, self.jobs.kind_rate, strict=True)]
        self._elastic = [sizes[kind] > 1 for kind in self.jobs.kind.tolist()]

    def believed(self, rows: Ints) -> tuple[Floats, Ints]:
        """Every job is of a kind of its own."""
        rate = np.array([self._believed(i) for i in rows.tolist()]).reshape(len(rows), -1)
        return rate, np.arange(len(rows))

    def _believed(self, i: int) -> Floats:
        """What cannot run is known; where nothing else is, the job is to begin with its fewest replicas, on any type.

        A replica of more GPUs is then taken to be faster in proportion, as in Sia's simulator.
        """
        job = self._jobs[i]
        mean: Floats = self.jobs.kind_rate[self.jobs.kind[i]]
        if not self._elastic[i]:
            return mean
        if job.noise is None or not job.seen.models:
            replicas = np.where(mean > 0, self._replicas[self.jobs.kind[i]], np.inf)
            gpus = np.where(replicas == replicas.min(), self.jobs.configurations.gpus, 0)
            begins: Floats = gpus / gpus[gpus > 0].min()
            return begins
        known = (tuple(job.seen.models.items()), job.noise)
        if job.believed is None or job.believed[0] != known:
            offers = self._offers[job.application.name]
            told = self._told(job.program)
            rate = believed_rates(job.seen, job.noise, job.application, told, offers, columns=len(mean))
            job.believed = known, np.where(mean > 0, rate / job.application.course.slowdown, 0)
        return job.believed[1]

    def _told(self, program: Program) -> Program:
        """What estimates may know of it."""
        unlimited = self.knowledge == INFORMED and program.tuned
        return program._replace(batch=None) if unlimited else program

    def most_replicas(self, rows: Ints) -> Floats:
        return np.array([self._jobs[i].seen.most_replicas if self._grows(i) else np.inf for i in rows.tolist()])

    def _grows(self, i: int) -> bool:
        """Whether the job is to be tried on few GPUs before it gets many: not if its owner set the batch."""
        return self._elastic[i] and self._jobs[i].program.tuned

    def told_restart_s(self, rows: Ints) -> Floats:
        return self.jobs.told_restart_s[rows]

    def start(self, rows: Ints, configurations: Ints) -> None:
        for i, k in zip(rows.tolist(), configurations.tolist(), strict=True):
            self._set_batch(i, k)

    def fastest(self) -> FastestCourse:
        """Of the batches that fit each epoch has the best; a job that cannot be tuned has its own."""
        known: dict[object, Floats] = {}
        rates = []
        for i, job in enumerate(self._jobs):
            what = job.application.name, job.program.tuned, job.program.batch, int(self.jobs.kind[i])
            rates.append(known[what] if what in known else known.setdefault(what, self._epoch_rates(i)))
        return FastestCourse.of_epochs(rates, [np.diff(job.application.ends, prepend=0) for job in self._jobs])

    def _epoch_rates(self, i: int) -> Floats:
        """Most progress per second (E, K) in each epoch and configuration."""
        application = self._jobs[i].application
        rates = np.zeros((len(application.ends), len(self._types)))
        for k in np.flatnonzero(self.jobs.kind_rate[self.jobs.kind[i]] > 0).tolist():
            where = self._types[k], self.jobs.placements[k]
            if self._jobs[i].program.tuned:
                rates[:, k] = tuned_rates(application, *where)
            else:
                local, passes = self.batch_for(i, k)
                rates[:, k] = rates_of(application, *where, np.array([local]), np.array([passes]))
        return rates

    def true_rates(self, rows: Ints, left: Floats, *, ahead: bool) -> Floats:
        """Rates (m, K) at the best batches, in steps/s, of jobs with so many steps (m,) left.

        ahead: on average over what is left, else in the epoch in which the job is.
        """
        rates = [
            self._true_rate(i, of_left, ahead=ahead) for i, of_left in zip(rows.tolist(), left.tolist(), strict=True)
        ]
        return np.array(rates).reshape(len(rows), len(self._types))

    def _true_rate(self, i: int, left: float, *, ahead: bool) -> Floats:
        job, total = self._jobs[i], float(self.jobs.steps[i])
        what = job.application.name, job.program.tuned, job.program.batch, int(self.jobs.kind[i])
        if what not in self._true:
            self._true[what] = self._epoch_rates(i)
        ends, rates = job.application.ends, self._true[what]
        whole = float(ends[-1])
        done = whole * (1 - left / total)
        epoch = min(int(np.searchsorted(ends, done + DUST, side="right")), len(ends) - 1)
        if not ahead:
            return np.asarray(rates[epoch] * total / whole)
        work = np.diff(np.maximum(ends[epoch:], done + DUST), prepend=done)
        with np.errstate(divide="ignore"):
            return np.asarray(work.sum() / (work[:, None] / rates[epoch:]).sum(axis=0) * total / whole)

    def seconds_left(self, rows: Ints, configurations: Ints, left: Floats, mates: Ints) -> Floats:
        """As the jobs would run on, by what is known of them now."""
        columns = zip(rows.tolist(), configurations.tolist(), left.tolist(), strict=True)
        return np.array([self._seconds_left(*column) for column in columns], dtype=float)

    def _seconds_left(self, i: int, k: int, left: float) -> float:
        job = self._jobs[i]
        now = job.local, job.passes, job.own_noise
        _, seconds = self._run(i, k, left, inf, learns=False)
        job.local, job.passes, job.own_noise = now
        return seconds

    def run(
        self, rows: Ints, configurations: Ints, left: Floats, seconds: Floats, mates: Ints
    ) -> tuple[Floats, Floats]:
        columns = zip(rows.tolist(), configurations.tolist(), left.tolist(), seconds.tolist(), strict=True)
        ran = [self._run(*column) for column in columns]
        steps, busy_s = np.array(ran, dtype=float).reshape(-1, 2).T
        return steps, busy_s

    def _run(self, i: int, k: int, left: float, seconds: float, *, learns: bool = True) -> tuple[float, float]:
        """Run from epoch to epoch until the job is done or the time is up."""
        job, gpu_type, placement = self._jobs[i], self._types[k], self.jobs.placements[k]
        ends, total = job.application.ends, float(self.jobs.steps[i])
        whole = float(ends[-1])
        progress = whole * (1 - left / total)
        epoch, spent_s = int(np.searchsorted(ends, progress + DUST, side="right")), 0.0
        while spent_s < seconds and epoch < len(ends):
            step = self._step(job, gpu_type, placement, epoch)
            rate, end, begun_s = _goodput(job.application, step), float(ends[epoch]), spent_s
            if progress + rate * (seconds - spent_s) < end:
                progress, spent_s = progress + rate * (seconds - spent_s), seconds
            else:
                spent_s += round((end - progress) / rate)
                progress, epoch = end, epoch + 1
            if learns:
                self._note(i, k, step, spent_s - begun_s)
            else:
                job.own_noise = step.noise
            self._next_batch(i, k)
        if epoch == len(ends):
            return left, spent_s
        return left - total * (1 - progress / whole), spent_s

    def _step(self, job: _Job, gpu_type: str, placement: Placement, epoch: int) -> TimedStep:
        """A step with the batch that the job runs with."""
        step_s, averaging_s = job.application.times(gpu_type).at(placement, job.local)
        if not isfinite(step_s):
            raise InvalidTable(
                f"{job.application.name} was not recorded with {job.local} samples on {placement} {gpu_type}"
            )
        batch = _replicas_on(job.application, gpu_type, placement) * job.local * (job.passes + 1)
        noise = job.application.epochs.noise(batch, epoch)
        return TimedStep(batch, job.local, job.passes, step_s, averaging_s, noise)

    def _note(self, i: int, k: int, step: TimedStep, seconds: float) -> None:
        """Learn from a step, which the job repeated for so many seconds."""
        job, gpu_type, placement = self._jobs[i], self._types[k], self.jobs.placements[k]
        job.note_noise(step.noise)
        size = len(placement), _replicas_on(job.application, gpu_type, placement)
        job.seen.note(gpu_type, size, step.local, step.step_s, step.averaging_s)

    def _next_batch(self, i: int, k: int) -> None:
        """The batch is set anew after each epoch and round."""
        self._set_batch(i, k)

    def _set_batch(self, i: int, k: int) -> None:
        self._jobs[i].local, self._jobs[i].passes = self.batch_for(i, k)

    def batch_for(self, i: int, k: int) -> tuple[int, int]:
        """Samples per replica at once, and passes before the last, for job i in configuration k.

        The best by what is known, or the submitted one; until the job has run on that type, the initial one. A pipeline
        has its micro-batches.
        """
        job, gpu_type, placement = self._jobs[i], self._types[k], self.jobs.placements[k]
        limits, model = job.application.limits(gpu_type), job.seen.models.get(gpu_type)
        times = job.application.times(gpu_type)
        if job.application.course.pipeline:
            return limits.most_per_gpu, 0
        replicas = _replicas_on(job.application, gpu_type, placement)
        here = BatchLimits(limits.initial, limits.most, times.most_per_gpu(placement), limits.least_per_gpu)
        if job.program.tuned and model and job.noise:
            local, passes = _best(model, here, job.noise, len(placement), replicas)
        else:
            initial = max(limits.initial, limits.least_per_gpu * replicas)
            batch = initial if job.program.tuned else job.program.batch or initial
            local, passes = _divided(float(batch), here, replicas)
        return _fitting(local, passes, times, limits, replicas), passes


def _offers(cluster: Cluster, jobs: Jobs, application: Application) -> Iterator[ProfiledRate]:
    """Configurations of each GPU type that the application can use."""
    on, units = jobs.configurations, application.gpus_per_replica
    for j, gpu_type in enumerate(cluster.gpu_types):
        if not units or gpu_type in units:
            unit = units.get(gpu_type, 1)
            columns = np.flatnonzero((on.gpu_type == j) & (on.gpus % unit == 0))
            per_node = max(cluster.node_gpus[j]) / unit
            yield ProfiledRate(gpu_type, columns, on.nodes[columns], on.gpus[columns] // unit, per_node)


def _replicas_on(application: Application, gpu_type: str, placement: Placement) -> int:
    return sum(placement) // application.gpus_per_replica.get(gpu_type, 1)


def _goodput(application: Application, step: TimedStep) -> float:
    """Steps of the initial batch per second."""
    scale, noise = step.batch / application.epochs.batches[0], step.noise
    worth = (noise.var + noise.sqr) / (noise.var / scale + noise.sqr)
    return float(worth / step.iteration_s / application.course.slowdown)


def _fitting(local: int, passes: int, times: StepTimes | PipelineTimes, limits: BatchLimits, gpus: int) -> int:
    """No more than was recorded on so many GPUs, and than the application takes."""
    return min(local, times.most_on(gpus), limits.most // (gpus * (passes + 1)))


@lru_cache(maxsize=65_536)
def _best(model: ThroughputModel, limits: BatchLimits, noise: GradientNoise, nodes: int, gpus: int) -> tuple[int, int]:
    best = best_batches(model.throughput, limits, noise, nodes=np.array([nodes]), gpus=np.array([gpus]))
    return int(best.local[0]), int(best.passes[0])


@lru_cache(maxsize=65_536)
def _divided(batch: float, limits: BatchLimits, gpus: int) -> tuple[int, int]:
    local, passes = divided(np.array([batch]), limits, np.array([gpus]))
    return int(local[0]), int(passes[0])
