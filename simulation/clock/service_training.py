"""Jobs that train, with the knowledge that a service has of them: learnt from their reports, by the code of its rounds.

A service is told the batch limits of a job and how long its owner takes a restart for. All else it hears while jobs of
the workload run: steps per second in each configuration with each batch (not how much of a step averages gradients),
the gradient noise of the job and of its workload, and how long restarts took. Before the first report rates are those
of the data sheets. When a job is launched it is told its batch, and the batches among which it goes on to choose by the
noise that it measures itself, as `motley_client.gradient_noise.TunedTraining` does.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from allocation.types import Floats, Ints
from estimation.batch_tuning import Tuned, tuned_rates
from estimation.fading_means import FadingNoise, FadingRate
from estimation.fitted_models import Fits
from estimation.goodput import BatchChoice, BatchLimits, GradientNoise, best_choice, efficiency
from estimation.gpu_specifications import GPU_SPECIFICATIONS
from estimation.profile import GpuSpec, Knowledge, Measurement, Tuning
from estimation.rates import Machines, estimate_rates
from estimation.replicas import InReplicas
from estimation.restart_times import MeasuredRestarts, MeasuredTime, RestartPlace, restart_time
from simulation.clock.training import TimedStep, Training
from simulation.workloads.applications import RECORDED_ON, Application
from simulation.workloads.rate_sources import data_sheet

SERVICE = "service"

REPORT_S = 1.0
"""Between two progress reports of a job whose steps are not longer: as often as the service reads them."""
LEAST_GAIN = 1.05
"""Another batch must promise so many times the goodput of the present one, as in the client."""
MOST_RESTARTS = 20
"""Of a workload, the latest, as in the service."""
ENGINE = "simulated"
NO_TEAM = -1
"""Jobs without a team are of one, as in a service: what one of them reports is known of all."""

Workload = tuple[int, str, int | None]
"""Team, application, and the batch that the owner set; None: it is tuned."""


@dataclass(eq=False)
class _Reports:
    """What jobs of a workload have reported, and the rates that follow from it, by kind of job."""

    limits: BatchLimits | None
    """None: the batch is not tuned."""
    rates: dict[tuple[int, int, int, int], FadingRate] = field(default_factory=dict)
    """By GPU type, GPUs, nodes and batch."""
    noise: FadingNoise = field(default_factory=FadingNoise)
    starts: list[MeasuredTime] = field(default_factory=list)
    estimates: dict[tuple[int, GradientNoise | None], Floats] = field(default_factory=dict)
    """By kind of job and the job's own noise."""

    def knowledge(self, own: GradientNoise | None) -> Knowledge:
        """As a round has it of a job with this noise of its own; None: it has not reported any."""
        measured = {
            where: Measurement(seen.rate, seen.reports, seen.spread) for where, seen in sorted(self.rates.items())
        }
        return Knowledge.of_batches(measured, {}, self._tuning(own))

    def _tuning(self, own: GradientNoise | None) -> Tuning | None:
        if self.limits is None:
            return None
        heard = self.noise.reports > 0
        of_workload = GradientNoise(self.noise.sqr, self.noise.sample_var / self.limits.initial) if heard else None
        return Tuning(self.limits, own or of_workload)


@dataclass(eq=False)
class ServiceTraining(Training):
    """The work of recorded applications on one cluster, of which policies are told what a service would know."""

    follows_noise: bool = True
    """Whether running jobs choose their batch anew; else it stays until the next launch."""
    _machines: Machines = field(init=False)
    _reports: dict[Workload, _Reports] = field(init=False, default_factory=dict)
    _workload: list[Workload] = field(init=False)
    _views: dict[int, InReplicas] = field(init=False, default_factory=dict)
    """By kind of job."""
    _choices: dict[int, list[BatchChoice]] = field(init=False, default_factory=dict)
    """By job, as it was told them at its launch."""
    _begun: set[int] = field(init=False, default_factory=set)
    _restarting: set[int] = field(init=False, default_factory=set)
    _unreported_s: dict[int, float] = field(init=False, default_factory=lambda: defaultdict(float))
    """By job, since its last report."""

    def __post_init__(self) -> None:
        super().__post_init__()
        on = self.jobs.configurations
        self._machines = Machines(_specs(self.cluster.gpu_types), on.usage, on.nodes)
        self._workload = [self._workload_of(i) for i in range(len(self._jobs))]

    def _workload_of(self, i: int) -> Workload:
        job, team = self._jobs[i], max(int(self.jobs.team[i]), NO_TEAM)
        workload = team, job.application.name, None if job.program.tuned else job.program.batch
        if workload not in self._reports:
            limits = _declared_limits(job.application, self.cluster.gpu_types) if job.program.tuned else None
            self._reports[workload] = _Reports(limits)
        return workload

    def believed(self, rows: Ints) -> tuple[Floats, Ints]:
        rate = np.array([self._estimate(i) for i in rows.tolist()]).reshape(len(rows), -1)
        return rate, np.arange(len(rows))

    def _estimate(self, i: int) -> Floats:
        """Rates (K,) of a job by all that its workload has reported."""
        reports, kind, own = self._reports[self._workload[i]], int(self.jobs.kind[i]), self._jobs[i].own_noise
        if (kind, own) not in reports.estimates:
            view, able = self._view(i), self.jobs.kind_rate[kind] > 0
            known = [view.known(reports.knowledge(own))]
            rate, _ = estimate_rates(view.machines, known, np.zeros(1, dtype=np.int64), able[None, view.columns])
            reports.estimates[kind, own] = view.spread(rate)[0]
        return reports.estimates[kind, own]

    def _view(self, i: int) -> InReplicas:
        kind, takes = int(self.jobs.kind[i]), self._jobs[i].application.gpus_per_replica
        if kind not in self._views:
            units = [takes.get(name, 0) if takes else 1 for name in self.cluster.gpu_types]
            self._views[kind] = InReplicas.of(self._machines, np.array(units, dtype=np.int64))
        return self._views[kind]

    def most_replicas(self, rows: Ints) -> Floats:
        return np.array([self._most_replicas(i) for i in rows.tolist()], dtype=float)

    def _most_replicas(self, i: int) -> int:
        units = self._view(i).units.tolist()
        gangs = ((gpus, units[j]) for j, gpus, _, _ in self._reports[self._workload[i]].rates)
        return max((gpus // unit for gpus, unit in gangs if unit), default=0)

    def told_restart_s(self, rows: Ints) -> Floats:
        return np.array([self._told_restart_s(i) for i in rows.tolist()], dtype=float)

    def _told_restart_s(self, i: int) -> float:
        measured = MeasuredRestarts(starts=self._reports[self._workload[i]].starts)
        return restart_time(float(self.jobs.told_restart_s[i]), measured).seconds

    def start(self, rows: Ints, configurations: Ints) -> None:
        super().start(rows, configurations)
        for i, k in zip(rows.tolist(), configurations.tolist(), strict=True):
            self._choices[i] = self._told_choices(i, k)
            self._unreported_s[i] = 0.0
        self._restarting.update(self._begun.intersection(rows.tolist()))

    def _told_choices(self, i: int, k: int) -> list[BatchChoice]:
        job = self._jobs[i]
        if job.application.course.pipeline or not job.program.tuned:
            return []
        gpus, nodes = int(self._machines.gpus[k]), int(self._machines.nodes[k])
        return self._tuned(i).choices(k, nodes=nodes, gpus=gpus)

    def batch_for(self, i: int, k: int) -> tuple[int, int]:
        """Samples per replica at once, and passes before the last, as rounds tell a job at its launch."""
        job = self._jobs[i]
        if job.application.course.pipeline or not job.program.tuned:
            return super().batch_for(i, k)
        tuned = self._tuned(i)
        return self._shared_out(i, k, int(tuned.batch[k]), int(tuned.passes[k]))

    def _shared_out(self, i: int, k: int, batch: int, passes: int) -> tuple[int, int]:
        """No more than was recorded on these GPUs."""
        placement = self.jobs.placements[k]
        times, gpus = self._jobs[i].application.times(self._types[k]), sum(placement)
        local = -(-batch // (gpus * (passes + 1)))
        return max(min(local, times.most_per_gpu(placement), times.most_on(gpus)), 1), passes

    def _tuned(self, i: int) -> Tuned:
        view, known = self._view(i), self._reports[self._workload[i]].knowledge(self._jobs[i].own_noise)
        return view.spread_tuned(tuned_rates(view.machines, view.known(known), Fits()))

    def _next_batch(self, i: int, k: int) -> None:
        """By the noise that the job measures, among the batches that it was told at its launch."""
        job, choices = self._jobs[i], self._choices[i]
        if not (self.follows_noise and choices and job.own_noise):
            return
        initial = job.application.limits(self._types[k]).initial
        batch = sum(self.jobs.placements[k]) * job.local * (job.passes + 1)
        present = min(choices, key=lambda one: abs(one.batch - batch))
        best = best_choice(choices, job.own_noise, initial)
        of_both = np.array([one.samples_per_s for one in (present, best)])
        goodput = of_both * efficiency(job.own_noise, np.array([present.batch, best.batch]) / initial)
        if goodput[1] >= LEAST_GAIN * goodput[0]:
            job.local, job.passes = self._shared_out(i, k, best.batch, best.passes)

    def _note(self, i: int, k: int, step: TimedStep, seconds: float) -> None:
        """Merge the reports of so many seconds into what is known of the workload."""
        application, reports = self._jobs[i].application, self._reports[self._workload[i]]
        iteration_s = step.iteration_s * application.course.slowdown
        heard, self._unreported_s[i] = divmod(self._unreported_s[i] + seconds, max(iteration_s, REPORT_S))
        self._note_start(i, k, reports)
        self._jobs[i].own_noise = step.noise
        if not heard:
            return
        where = int(self.jobs.configurations.gpu_type[k]), sum(self.jobs.placements[k]), len(self.jobs.placements[k])
        seen = reports.rates.get((*where, step.batch), FadingRate())
        reports.rates[*where, step.batch] = seen.with_reports(1 / iteration_s, int(heard))
        sample_var = step.noise.var * application.epochs.batches[0]
        reports.noise = reports.noise.with_reports(step.noise.sqr, float(sample_var), int(heard))
        reports.estimates.clear()

    def _note_start(self, i: int, k: int, reports: _Reports) -> None:
        """Note how long its restart took, once it makes steps again."""
        self._begun.add(i)
        if i in self._restarting:
            self._restarting.discard(i)
            took = MeasuredTime(RestartPlace(self._types[k], ENGINE), float(self.jobs.restart_s[i]))
            reports.starts = [took, *reports.starts[: MOST_RESTARTS - 1]]


def _declared_limits(application: Application, gpu_types: Sequence[str]) -> BatchLimits:
    """One limit for all types, as an owner declares it: what fits on each."""
    usable = [name for name in gpu_types if not application.gpus_per_replica or name in application.gpus_per_replica]
    limits = [application.limits(name) for name in usable]
    return replace(
        limits[0],
        most_per_gpu=min(one.most_per_gpu for one in limits),
        least_per_gpu=max(one.least_per_gpu for one in limits),
    )


def _specs(gpu_types: Sequence[str]) -> list[GpuSpec]:
    """Data sheets of the types; one that has none is taken to be as fast as the slowest that has."""
    known = {name: sheet.spec for name in gpu_types if (sheet := data_sheet(RECORDED_ON.get(name, name)))}
    slowest = min(known.values(), key=lambda spec: spec.speed, default=GPU_SPECIFICATIONS["t4"].spec)
    return [replace(known.get(name, slowest), name=name) for name in gpu_types]
