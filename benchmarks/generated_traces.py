"""Traces that several benchmarks generate: jobs made as Gavel makes its own, and workloads like Sia's of Philly."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.problems import reference
from simulation.scenario.generator import generate
from simulation.scenario.generator_options import GeneratorOptions
from simulation.traces.motley_csv import write_motley_csv
from simulation.traces.sia import write_sia

SEEDS = (0, 1, 2)


def gavel_table() -> Path:
    """Gavel's published table of rates."""
    return reference() / "gavel" / "simulation_throughputs.json"


def like_gavel(folder: Path, jobs: int, per_hour: float, cluster: str) -> Sequence[Path]:
    """Traces of three seeds in Motley's format, at the rates of Gavel's table."""
    options = GeneratorOptions(like="gavel", jobs=jobs, per_hour=per_hour, cluster=cluster, throughputs=gavel_table())
    return [_written(folder / f"{seed}.csv", "".join(write_motley_csv(generate(options, seed).jobs))) for seed in SEEDS]


def like_sia(folder: Path, seeds: Sequence[int], *, name: str) -> Sequence[Path]:
    """Workloads of 160 jobs, 20 an hour, in Sia's format, in files of this name and the seed."""
    options = GeneratorOptions(like="sia", jobs=160, per_hour=20)
    return [_written(folder / f"{name}-{seed}.csv", "".join(write_sia(generate(options, seed).jobs))) for seed in seeds]


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
