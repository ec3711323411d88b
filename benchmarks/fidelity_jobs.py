"""Jobs of `benchmarks.fidelity`: as a trace with a table of rates for the simulator, and as specs for the service."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simulation.traces.motley_csv import write_motley_csv
from simulation.traces.trace import Program, TraceJob

CLUSTER = {"a100": (1, 4), "v100": (2, 4), "t4": (2, 4)}
"""Nodes of each type, and their GPUs."""
TEAM_WEIGHTS = {"vision": 2.0, "language": 1.0}
MODELS = {
    "resnet50": ("vision", {"a100": 45.0, "v100": 22.0, "t4": 8.0}),
    "yolo": ("vision", {"a100": 32.0, "v100": 25.0, "t4": 14.0}),
    "bert": ("language", {"a100": 44.0, "v100": 15.0, "t4": 5.0}),
    "lstm": ("language", {"a100": 27.0, "v100": 24.0, "t4": 18.0}),
}
"""The team of each model, and its steps/s on one GPU of each type."""
SCALING = 0.9
"""Exponent of the number of GPUs in the rate of a gang."""
GANGS, GANG_PARTS = (1, 2, 4), (0.5, 0.3, 0.2)
SHORTEST_S, LONGEST_S = 20.0, 100.0
"""On V100 GPUs; log-uniform between."""
PROGRAM = Path(__file__).with_name("paced_job.py")


def fidelity_jobs(jobs: int, within_s: float, seed: int) -> list[TraceJob]:
    """Jobs that arrive at uniform times within so many seconds, the first at once."""
    rng = np.random.default_rng(seed)
    arrival_s = np.sort(rng.uniform(0, within_s, jobs)).round(2)
    models, gangs = rng.choice(list(MODELS), jobs).tolist(), rng.choice(GANGS, jobs, p=GANG_PARTS).tolist()
    length_s = np.exp(rng.uniform(np.log(SHORTEST_S), np.log(LONGEST_S), jobs))
    rows = zip((arrival_s - arrival_s[0]).tolist(), models, gangs, length_s.tolist(), strict=True)
    return [_job(i, *row) for i, row in enumerate(rows)]


def _job(number: int, arrival_s: float, model: str, gpus: int, length_s: float) -> TraceJob:
    team = MODELS[model][0]
    return TraceJob(
        name=f"{model}-{number}",
        arrival_s=arrival_s,
        gangs=(gpus,),
        program=Program(model),
        total_steps=round(length_s * rates_of(model, gpus)["v100"]),
        team=team,
        team_weight=TEAM_WEIGHTS[team],
    )


def rates_of(model: str, gpus: int) -> dict[str, float]:
    """Steps/s of a gang by GPU type."""
    return {gpu_type: round(rate * gpus**SCALING, 2) for gpu_type, rate in MODELS[model][1].items()}


def write_trace(jobs: Sequence[TraceJob], folder: Path) -> tuple[Path, Path]:
    """Write the trace and the table of rates, in Gavel's format, for the simulator."""
    trace, table = folder / "fidelity.csv", folder / "fidelity-rates.json"
    trace.write_text("".join(write_motley_csv(jobs)))
    rates = {
        gpu_type: {
            f"('{model}', {gpus})": {"null": rates_of(model, gpus)[gpu_type]} for model in MODELS for gpus in GANGS
        }
        for gpu_type in CLUSTER
    }
    table.write_text(json.dumps(rates))
    return trace, table


def cluster_words() -> str:
    """The cluster as the simulator's option."""
    return ",".join(f"{gpu_type}={nodes}x{gpus}" for gpu_type, (nodes, gpus) in CLUSTER.items())


def spec_of(job: TraceJob, *, set_up_s: float, restore_s: float) -> Mapping[str, Any]:
    """The job for the service: a process that sleeps through its steps at the rates of the trace."""
    rates = rates_of(job.program.workload or "", job.gangs[0])
    told = {"steps": job.total_steps, "set_up_s": set_up_s, "rates": rates}
    return {
        "name": job.name,
        "team": job.team,
        "workload": job.program.workload,
        "command": ["python", "-c", PROGRAM.read_text(), json.dumps(told)],
        "gpus": job.gangs[0],
        "rates": rates,
        "total_steps": job.total_steps,
        "checkpoint": {"grace_seconds": 20, "restore_seconds": restore_s},
    }
