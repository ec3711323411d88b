"""Trainings of `benchmarks.fidelity --training`: elastic, with tuned batches, and hybrid-parallel.

Their truth is a table of step times and the gradient noise of each epoch: as recorded applications for the simulator,
and as specs of jobs that keep that pace for the service.
"""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simulation.traces.sia import write_sia
from simulation.traces.trace import Program, TraceJob

PROGRAM = Path(__file__).with_name("paced_training.py")
PLACEMENTS = ((1,), (2,), (4,), (4, 4))
"""Placements of the gangs that jobs may have, as GPUs on each node."""


class Truth(NamedTuple):
    """An application: seconds of a step are fixed_s + sample_s x samples a GPU + averaging_s by nodes (one, several).

    A pipeline takes GPUs by type, and so many micro-batches of one sample; its times are those of a stage.
    """

    category: str
    initial: int
    most: int
    most_per_gpu: int
    noise_scale: tuple[float, ...]
    """By epoch, in samples."""
    steps: float
    """Steps of the initial batch in an epoch."""
    fixed_s: Mapping[str, float]
    sample_s: Mapping[str, float]
    averaging_s: tuple[float, float] = (0.0, 0.0)
    most_gpus: int = 8
    gpus_per_replica: Mapping[str, int] = {}
    micro_batches: int = 0


TRUTHS = {
    "vision": Truth(
        category="adaptive",
        initial=64,
        most=1024,
        most_per_gpu=256,
        noise_scale=(100.0, 400.0, 1200.0),
        steps=110,
        fixed_s={"a100": 0.02, "v100": 0.03, "t4": 0.04},
        sample_s={"a100": 0.002, "v100": 0.004, "t4": 0.012},
        averaging_s=(0.02, 0.05),
    ),
    "language": Truth(
        category="adaptive",
        initial=32,
        most=512,
        most_per_gpu=64,
        noise_scale=(60.0, 200.0, 300.0),
        steps=90,
        fixed_s={"a100": 0.05, "v100": 0.06, "t4": 0.08},
        sample_s={"a100": 0.004, "v100": 0.009, "t4": 0.02},
        averaging_s=(0.06, 0.15),
    ),
    "detection": Truth(
        category="scale-gpus",
        initial=64,
        most=128,
        most_per_gpu=64,
        noise_scale=(500.0, 500.0),
        steps=120,
        fixed_s={"a100": 0.03, "v100": 0.04, "t4": 0.05},
        sample_s={"a100": 0.003, "v100": 0.005, "t4": 0.01},
        averaging_s=(0.03, 0.08),
        most_gpus=4,
    ),
    "hybrid": Truth(
        category="scale-gpus",
        initial=16,
        most=32,
        most_per_gpu=16,
        noise_scale=(400.0, 400.0),
        steps=60,
        fixed_s={"v100": 0.01, "t4": 0.02},
        sample_s={"v100": 0.0, "t4": 0.0},
        most_gpus=4,
        gpus_per_replica={"v100": 2, "t4": 4},
        micro_batches=16,
    ),
}
PARTS = {"vision": 0.35, "language": 0.3, "detection": 0.25, "hybrid": 0.1}
"""Of the jobs."""


def training_jobs(jobs: int, within_s: float, seed: int) -> list[TraceJob]:
    """Jobs that arrive at uniform times within so many seconds, the first at once."""
    rng = np.random.default_rng(seed)
    arrival_s = np.sort(rng.uniform(0, within_s, jobs)).round(2)
    names = rng.choice(list(PARTS), jobs, p=list(PARTS.values())).tolist()
    rows = zip((arrival_s - arrival_s[0]).tolist(), names, strict=True)
    return [_job(i, *row) for i, row in enumerate(rows)]


def _job(number: int, arrival_s: float, name: str) -> TraceJob:
    truth = TRUTHS[name]
    return TraceJob(
        name=f"{name}-{number}",
        arrival_s=arrival_s,
        gangs=(truth.most_gpus,),
        program=Program(name, truth.initial),
    )


def _truth_of(job: TraceJob) -> Truth:
    return TRUTHS[job.program.workload or ""]


# -- for the simulator --------------------------------------------------------------------------------------------


def write_recordings(folder: Path, *, restart_s: float) -> Path:
    """Write each application as a folder of recorded step times and epochs, in Sia's format."""
    for name, truth in TRUTHS.items():
        place = folder / name
        place.mkdir(parents=True)
        _write_course(place, truth, restart_s)
        for gpu_type in truth.fixed_s:
            _write_times(place, truth, gpu_type)
        for batch in (truth.initial, truth.most):
            _write_epochs(place, truth, batch)
    return folder


def _write_course(place: Path, truth: Truth, restart_s: float) -> None:
    course: dict[str, Any] = {"epochs": len(truth.noise_scale), "restart_s": restart_s}
    if truth.micro_batches:
        course["pipeline"] = {"stages": dict(truth.gpus_per_replica), "micro_batches": truth.micro_batches}
    (place / "course.json").write_text(json.dumps(course))


def _write_times(place: Path, truth: Truth, gpu_type: str) -> None:
    rows = [
        (
            "".join(map(str, placement)),
            len(placement),
            sum(placement),
            local,
            *_times(truth, gpu_type, placement, local),
        )
        for placement in PLACEMENTS
        for local in ((1,) if truth.micro_batches else (1, truth.most_per_gpu))
    ]
    of_time = ("local_bsz", "step_time", "sync_time")
    _write(place / f"placements-{gpu_type}.csv", ("placement", *of_time), [(row[0], *row[3:]) for row in rows])
    scaled = [row[1:] for row in rows]
    _write(place / f"scalability-{gpu_type}.csv", ("num_nodes", "num_replicas", *of_time), scaled)


def _times(truth: Truth, gpu_type: str, placement: Sequence[int], local: int) -> tuple[float, float]:
    averaging_s = 0.0 if sum(placement) == 1 else truth.averaging_s[len(placement) > 1]
    return truth.fixed_s[gpu_type] + truth.sample_s[gpu_type] * local + averaging_s, averaging_s


def _write_epochs(place: Path, truth: Truth, batch: int) -> None:
    rows = [
        (end, end * truth.initial / batch, 1.0, scale / truth.initial)
        for end, scale in zip(ends_of(truth), truth.noise_scale, strict=True)
    ]
    _write(place / f"validation-{batch}.csv", ("progress", "iteration", "grad_sqr", "grad_var"), rows)


def _write(file: Path, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with file.open("w", newline="") as lines:
        csv.writer(lines).writerows([names, *rows])


def ends_of(truth: Truth) -> list[float]:
    """Ends of the epochs, in steps of the initial batch."""
    return [truth.steps * (epoch + 1) for epoch in range(len(truth.noise_scale))]


def write_training_trace(jobs: Sequence[TraceJob], folder: Path) -> Path:
    """Write the trace in Sia's format, with categories."""
    trace = folder / "training.csv"
    names, *rows = csv.reader(write_sia(jobs))
    categories = [_truth_of(job).category for job in jobs]
    _write(trace, [*names, "category"], [[*row, category] for row, category in zip(rows, categories, strict=True)])
    return trace


# -- for the service ----------------------------------------------------------------------------------------------


def training_spec(job: TraceJob, *, set_up_s: float, restore_s: float) -> Mapping[str, Any]:
    """The spec of the job for the service: its process sleeps for the time of its steps."""
    truth = _truth_of(job)
    ends = ends_of(truth)
    told = {
        "set_up_s": set_up_s,
        "initial": truth.initial,
        "micro_batches": truth.micro_batches,
        "gpus_per_replica": dict(truth.gpus_per_replica),
        "fixed_s": dict(truth.fixed_s),
        "sample_s": dict(truth.sample_s),
        "averaging_s": truth.averaging_s,
        "ends": ends,
        "noise_scale": truth.noise_scale,
    }
    return {
        "name": job.name,
        "workload": job.program.workload,
        "command": ["python", "-c", PROGRAM.read_text(), json.dumps(told)],
        "total_steps": round(ends[-1]),
        "gpu_types": list(truth.fixed_s),
        "checkpoint": {"grace_seconds": 20, "restore_seconds": restore_s},
        **_size_of(truth),
    }


def _size_of(truth: Truth) -> dict[str, Any]:
    if truth.gpus_per_replica:
        most = truth.most_gpus // min(truth.gpus_per_replica.values())
        return {"replicas": {"min": 1, "max": most}, "gpus_per_replica": dict(truth.gpus_per_replica)}
    size: dict[str, Any] = {"gpus": {"min": 1, "max": truth.most_gpus}}
    if truth.category == "adaptive":
        size["batch_size"] = {"initial": truth.initial, "max": truth.most, "max_per_gpu": truth.most_per_gpu}
    return size
