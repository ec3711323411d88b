"""Recorded applications, one folder each: length of training, batch limits, mean rates.

What their tables lack stands in `course.json`: epochs, restart_s, and optionally told_restart_s, slowdown and pipeline
with stages (GPUs of a replica by type) and micro_batches. Sia's applications, which have no such file, are known.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from allocation.types import Floats, Ints
from estimation.goodput import CANDIDATES, BatchLimits, GradientNoise, divided, gain
from simulation.cluster import Placement
from simulation.traces.trace import Program, Trace, TraceJob
from simulation.workloads.pipelines import Pipeline, PipelineTimes
from simulation.workloads.rate_sources import InvalidTable, UnknownWorkload
from simulation.workloads.recorded_runs import Epochs, StepTimes


class TrainingCourse(NamedTuple):
    """Facts about an application that its tables lack."""

    epochs: int
    restart_s: float
    """Seconds from a checkpoint to the next step."""
    told_restart_s: float
    """The restart time that the scheduler assumes."""
    slowdown: float
    """Factor by which a step on a real cluster is slower than in the tables."""
    pipeline: Pipeline | None = None
    """None: a replica is one GPU."""


COURSES = {
    "bert": TrainingCourse(2, 120, 120, 1.2),
    "cifar10": TrainingCourse(100, 50, 30, 1.8),
    "deepspeech2": TrainingCourse(80, 25, 25, 1.2),
    "gpt_pmp": TrainingCourse(2, 30, 30, 1.0, Pipeline({"rtx": 8, "dgx-ext": 2}, micro_batches=48)),
    "imagenet": TrainingCourse(90, 250, 250, 1.2),
    "ncf": TrainingCourse(10, 15, 30, 1.5),
    "yolov3": TrainingCourse(50, 80, 45, 1.2),
}
"""The values of Sia's simulator."""
COURSE_FILE = "course.json"

RECORDED_ON = {"aws": "t4", "dgx-ext": "a100", "rtx": "rtx2080ti"}
"""GPUs of the machines on which the applications were recorded."""

MOST_PER_GPU = {("deepspeech2", "rtx"): 57}
"""Types whose memory holds less than the largest batch of the table."""


@dataclass(frozen=True, eq=False)
class Application:
    """One application: facts, epochs, and step times by GPU type."""

    name: str
    course: TrainingCourse
    folder: Path
    epochs: Epochs

    @property
    def gpus_per_replica(self) -> Mapping[str, int]:
        """GPUs of each type that one replica takes; empty: one of any type."""
        return self.course.pipeline.stages if self.course.pipeline else {}

    @cache  # noqa: B019 - as above
    def times(self, gpu_type: str) -> StepTimes | PipelineTimes:
        """Step times on a GPU type; InvalidTable if none were recorded."""
        if not (self.folder / f"placements-{gpu_type}.csv").exists():
            known = ", ".join(sorted(file.stem.partition("-")[2] for file in self.folder.glob("placements-*.csv")))
            raise InvalidTable(f"nothing of {self.name} was recorded on {gpu_type}; there is {known}")
        with _faults(self.folder):
            times = StepTimes.read(self.folder, gpu_type)
        pipeline = self.course.pipeline
        return PipelineTimes(times, pipeline.stages[gpu_type], pipeline.micro_batches) if pipeline else times

    @cached_property
    def ends(self) -> Floats:
        """Progress at the end of each epoch, in steps of the initial batch."""
        return np.array([self.epochs.progress(epoch + 1) for epoch in range(self.course.epochs)])

    @cache  # noqa: B019 - as above
    def limits(self, gpu_type: str) -> BatchLimits:
        """Batch limits on that GPU type; for a GPU read a replica."""
        sizes, (least, most) = self.epochs.batches, self.times(gpu_type).per_gpu
        most = MOST_PER_GPU.get((self.name, gpu_type), most)
        return BatchLimits(initial=int(sizes[0]), most=int(sizes[-1]), most_per_gpu=most, least_per_gpu=least)

    def steps_of(self, batch: int) -> float:
        """Steps of that batch until completion."""
        return float(self.epochs.at(batch, self.course.epochs - 1)[1])


@dataclass(frozen=True, eq=False)
class ApplicationProfiles:
    """A folder of applications, each read on first use."""

    folder: Path

    @cache  # noqa: B019 - as above
    def application(self, name: str) -> Application:
        """The application; UnknownWorkload if it was not recorded, InvalidTable if its files are invalid."""
        folder = self.folder / name
        with _faults(folder):
            course = _read_course(folder / COURSE_FILE) or COURSES.get(name)
        if course is None or not folder.is_dir():
            raise UnknownWorkload(name)
        with _faults(folder):
            return Application(name, course, folder, Epochs.read(folder))

    def completed(self, trace: Trace, *, restarts_known: bool = False) -> Trace:
        """Complete the jobs with the steps and the restart costs of their applications."""
        return replace(trace, jobs=tuple(self._completed(job, restarts_known=restarts_known) for job in trace.jobs))

    def _completed(self, job: TraceJob, *, restarts_known: bool) -> TraceJob:
        application = self.application(job.program.workload or "")
        if job.gpus_per_replica not in ({}, application.gpus_per_replica):
            takes = dict(application.gpus_per_replica) or "1 GPU of any type"
            told = f"a replica of {application.name} takes {takes}, the trace says {job.gpus_per_replica}"
            raise InvalidTable(f"job {job.name}: {told}; give gpus in place of replicas and gpus_per_replica")
        batch = job.program.batch
        course = application.course
        of_initial = job.program.tuned or batch is None or course.pipeline
        steps = float(application.ends[-1]) if of_initial or batch is None else application.steps_of(batch)
        told_s = course.restart_s if restarts_known else course.told_restart_s
        return replace(
            job,
            total_steps=steps,
            restart_s=course.restart_s,
            told_restart_s=told_s,
            gpus_per_replica=application.gpus_per_replica,
        )

    @cache  # noqa: B019 - as above
    def rate(self, program: Program, gpu_type: str, placement: Placement) -> float:
        """Mean steps/s over the training, in steps of the initial batch if the batch is tuned; 0: impossible."""
        return mean_rate(self.application(program.workload or ""), program, gpu_type, placement)


def mean_rate(application: Application, program: Program, gpu_type: str, placement: Placement) -> float:
    """Mean steps/s over the training with the best batch of every epoch, or the submitted one; 0: none fits.

    The batch of a pipeline is that of its micro-batches, whatever was submitted.
    """
    times, limits = application.times(gpu_type), application.limits(gpu_type)
    replicas = sum(placement) // application.gpus_per_replica.get(gpu_type, 1)
    least, most_per_gpu = max(limits.initial, limits.least_per_gpu * replicas), times.most_per_gpu(placement)
    if least > limits.most or not most_per_gpu:
        return 0.0
    if application.course.pipeline:
        step_s, _ = times.of_batches(placement, np.array([most_per_gpu]))
        return _over_the_course(application, np.array([least]), step_s * application.course.slowdown)
    wanted = (
        np.geomspace(least, limits.most, CANDIDATES) if program.tuned else np.array([float(program.batch or least)])
    )
    here = BatchLimits(limits.initial, limits.most, most_per_gpu, limits.least_per_gpu)
    local, passes = divided(wanted, here, np.array([replicas]))
    local = np.minimum(np.minimum(local, times.most_on(replicas)), limits.most // (replicas * (passes + 1)))
    step_s, averaging_s = times.of_batches(placement, local)
    iteration_s = (step_s + passes * (step_s - averaging_s)) * application.course.slowdown
    if not program.tuned:
        return float(np.nan_to_num(1 / iteration_s[0]))
    return _over_the_course(application, replicas * local * (passes + 1), iteration_s)


def _over_the_course(application: Application, batch: Ints, iteration_s: Floats) -> float:
    """Mean over the epochs, each with the best of these batches (B,)."""
    seconds, before = 0.0, 0.0
    for epoch, end in enumerate(application.ends.tolist()):
        _, _, sqr, var = application.epochs.at_batches(batch, epoch)
        worth = gain(GradientNoise(sqr, var), batch / application.epochs.batches[0])
        best = float(np.nan_to_num(worth / iteration_s).max())
        if best <= 0:
            return 0.0
        seconds, before = seconds + (end - before) / best, end
    return before / seconds


def _read_course(file: Path) -> TrainingCourse | None:
    """The course of an application of one's own; None: there is no such file."""
    if not file.is_file():
        return None
    told = json.loads(file.read_text())
    restart_s, cut = float(told["restart_s"]), told.get("pipeline")
    stages = {name: int(gpus) for name, gpus in cut["stages"].items()} if cut else {}
    return TrainingCourse(
        epochs=int(told["epochs"]),
        restart_s=restart_s,
        told_restart_s=float(told.get("told_restart_s", restart_s)),
        slowdown=float(told.get("slowdown", 1.0)),
        pipeline=Pipeline(stages, int(cut["micro_batches"])) if cut else None,
    )


@contextmanager
def _faults(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, KeyError, ValueError, IndexError) as error:
        raise InvalidTable(f"{folder} does not hold the profiles of an application: {error!r}") from error
