"""Scenarios of `benchmarks.contention`: traces of teams that contend for GPUs, by seed."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.generated_traces import like_sia
from benchmarks.problems import reference
from operations.sample_jobs import sample_job, sample_jobs
from simulation.clock.service_training import SERVICE
from simulation.scenario.generator import generate
from simulation.scenario.generator_options import GeneratorOptions
from simulation.scenario.scenario import Scenario
from simulation.traces.motley_csv import write_motley_csv
from simulation.traces.trace import Program, Trace, TraceJob
from simulation.workloads.rate_sources import REFERENCE, BySpeed

DEMO = "a100=1x4,v100=2x4,t4=2x4"
TWO_TYPES = "v100=5x4,t4=5x4"
TEAM_WEIGHTS = {"flooding": 1.0, "b": 1.0, "c": 2.0, "d": 4.0, "e": 8.0}
FLOOD = 10
"""Jobs of the flooding team, as a multiple of what its weight would give it."""
DEMO_WEIGHTS = {"vision": 2.0, "language": 1.0}
RESTART_S = 60.0
LONGEST_S = 86_400.0
UNDECLARED = 1 / 3
JOBS = 300
GENERATED_SEEDS = range(1000, 1010)
"""Of Sia-like workloads; no choice was made by those below 1000."""

Traces = Callable[[Path], Sequence[Path]]


@dataclass(frozen=True)
class Contention:
    """A scenario: its title, how it is simulated, and the traces, which it writes into a folder, one per seed."""

    title: str
    options: Callable[[Path], Scenario]
    traces: Traces


def scenarios(seeds: Sequence[int]) -> dict[str, Contention]:
    """All scenarios by key."""
    found = {
        "a": Contention("30 identical jobs of two teams", _demo_options, written("a", identical_jobs, seeds)),
        "b": Contention("the demo's jobs", _demo_options, written("b", demo_jobs, seeds)),
    }
    for restart_s in (0, 30, 120):
        title = f"Gavel's 96 jobs, restarts of {restart_s} s"
        found[f"c{restart_s}"] = Contention(
            title, _gavel_options(restart_s), lambda _: [_gavel("max_min_fairness.trace")]
        )
    for load in (0.7, 1.0, 1.3):
        jobs = philly_jobs(load)
        found[f"d{load}"] = Contention(f"five teams, load {load}", philly_options, written(f"d{load}", jobs, seeds))
    found["e"] = Contention("Philly 1 to 3 of Sia", _sia_options(SERVICE), lambda _: _recorded())
    found["e-generated"] = Contention("generated like them", _sia_options(SERVICE), _generated)
    found["e-own"] = Contention("generated, each job's own models only", _sia_options("own"), _generated)
    found["f"] = Contention(
        "five teams, load 1.0, a third declares no length", philly_options, written("f", undeclared, seeds)
    )
    found["f-estimated"] = Contention(
        "the same, their lengths estimated", _estimating, written("f-estimated", undeclared, seeds)
    )
    return found


def identical_jobs(seed: int) -> Iterator[TraceJob]:
    """30 jobs of 4 GPUs, 10 of team language and 20 of vision, that come at once in an order by seed."""
    teams = np.random.default_rng(seed).permutation(["language"] * 10 + ["vision"] * 20).tolist()
    rates = {"t4": 8.0, "v100": 22.0, "a100": 45.0}
    specs = [sample_job(f"big-{i}", team, rates=rates, gpus=4, steps=18_000) for i, team in enumerate(teams)]
    return (demo_job(spec, arrival_s=0.0) for spec in specs)


def demo_jobs(seed: int) -> Iterator[TraceJob]:
    """The demo's sample jobs: eight at once, the others one each eight seconds, in an order by seed."""
    specs = list(sample_jobs())
    for place, i in enumerate(np.random.default_rng(seed).permutation(len(specs)).tolist()):
        yield demo_job(specs[i], arrival_s=8.0 * max(place - 7, 0))


def demo_job(spec: dict[str, Any], *, arrival_s: float) -> TraceJob:
    """A sample job of the demo as a job of a trace."""
    return TraceJob(
        name=spec["name"],
        arrival_s=arrival_s,
        gangs=(spec["gpus"],),
        program=Program(_workload(spec)),
        total_steps=spec["total_steps"],
        team=spec["team"],
        team_weight=DEMO_WEIGHTS[spec["team"]],
    )


def undeclared(seed: int) -> Iterator[TraceJob]:
    """The jobs of load 1.0, of which a third declares no length."""
    chance = np.random.default_rng([seed, 1])
    for job in philly_jobs(1.0)(seed):
        yield replace(job, declared_length=inf) if chance.random() < UNDECLARED else job


def philly_jobs(load: float) -> Callable[[int], Iterator[TraceJob]]:
    """Philly-like jobs of five teams, of which one submits ten times its share.

    Jobs of more than a day end after it, and arrive sooner for that, so that the load is not that of two or three jobs.
    """

    def jobs(seed: int) -> Iterator[TraceJob]:
        options = GeneratorOptions(like="philly", jobs=JOBS, load=load, cluster=TWO_TYPES)
        part = np.array([w * (FLOOD if team == "flooding" else 1) for team, w in TEAM_WEIGHTS.items()])
        drawn = np.random.default_rng(seed).choice(list(TEAM_WEIGHTS), size=JOBS, p=part / part.sum()).tolist()
        generated = generate(options, seed).jobs
        steps = [min(job.total_steps or 0, _most_steps(job)) for job in generated]
        sooner = sum(steps) / sum(job.total_steps or 0 for job in generated)
        for job, team, most in zip(generated, drawn, steps, strict=True):
            came_s, weight = sooner * job.arrival_s, TEAM_WEIGHTS[team]
            yield replace(job, arrival_s=came_s, total_steps=most, team=team, team_weight=weight)

    return jobs


def _most_steps(job: TraceJob) -> float:
    return LONGEST_S * BySpeed().rate(job.program, REFERENCE, job.gangs)


def written(name: str, jobs: Callable[[int], Iterable[TraceJob]], seeds: Sequence[int]) -> Traces:
    """Traces in Motley's format, one per seed."""

    def write(folder: Path) -> Sequence[Path]:
        paths = [folder / f"{name}-{seed}.csv" for seed in seeds]
        for path, seed in zip(paths, seeds, strict=True):
            path.write_text("".join(write_motley_csv(Trace.of(jobs(seed)).jobs)))
        return paths

    return write


def _workload(spec: dict[str, object]) -> str:
    return f"{spec['gpus']} GPUs at {json.dumps(spec['rates'])}"


def _demo_options(folder: Path) -> Scenario:
    return demo_scenario(folder, [*identical_jobs(0), *demo_jobs(0)])


def demo_scenario(folder: Path, jobs: Iterable[TraceJob]) -> Scenario:
    """The demo's cluster and timing; rates are those that its jobs declare, in a file in this folder."""
    table: dict[str, dict[str, dict[str, float]]] = {"a100": {}, "v100": {}, "t4": {}}
    for job in jobs:
        workload = job.program.workload or ""
        for kind, rate in json.loads(workload.partition(" at ")[2]).items():
            table[kind][f"('{workload}', {job.gangs[0]})"] = {"null": rate}
    path = folder / "demo-rates.json"
    path.write_text(json.dumps(table))
    return Scenario(
        format_name="csv", cluster=DEMO, throughputs=path, round_s=5, min_run_s=20, restart_s=4, rules="service"
    )


def _gavel_options(restart_s: float) -> Callable[[Path], Scenario]:
    return lambda _: Scenario(
        format_name="gavel",
        cluster="v100=2x4,p100=4x4,k80=6x4",
        throughputs=reference() / "gavel" / "simulation_throughputs.json",
        rules="service",
        round_s=60,
        min_run_s=300,
        restart_s=restart_s,
    )


def _gavel(name: str) -> Path:
    return reference() / "gavel" / "traces" / name


def _estimating(folder: Path) -> Scenario:
    return replace(philly_options(folder), estimate_lengths=True)


def philly_options(_: Path) -> Scenario:
    """The cluster and timing of the five teams."""
    return Scenario(
        format_name="csv", cluster=TWO_TYPES, rules="service", round_s=60, min_run_s=300, restart_s=RESTART_S
    )


def _sia_options(knowledge: str) -> Callable[[Path], Scenario]:
    profiles = reference() / "sia" / "apps"
    cluster = "aws=6x4,dgx-ext=2x8,rtx=3x8"
    return lambda _: Scenario(format_name="sia", cluster=cluster, profiles=profiles, knowledge=knowledge, round_s=60)


def _recorded() -> Sequence[Path]:
    return [reference() / "sia" / "workloads" / "philly" / f"workload-{n}.csv" for n in (1, 2, 3)]


def _generated(folder: Path) -> Sequence[Path]:
    return like_sia(folder, GENERATED_SEEDS, name="sia")
