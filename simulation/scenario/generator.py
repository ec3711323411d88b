"""Generator of traces that resemble published clusters' traces, of any length."""

from collections.abc import Iterator
from dataclasses import replace
from math import pi
from random import Random

import numpy as np

from allocation.configurations import gang_sizes
from allocation.types import Floats
from simulation.scenario.drawing import DrawnJobs, draw_from_statistics
from simulation.scenario.gavel_generator import draw_gavel
from simulation.scenario.generator_options import GAVEL, SIA, GeneratorOptions
from simulation.scenario.published_statistics import PUBLISHED
from simulation.scenario.setting import InvalidSetting
from simulation.scenario.sia_generator import draw_sia
from simulation.traces.trace import Program, Trace, TraceJob

DAY_S, HOUR_S = 86_400.0, 3600.0

ELASTIC = 4
"""Factor by which an elastic job's GPU range extends below and above its rigid gang size."""

URGENT_WEIGHT = 5.0
DEADLINES = ((0.33, 1.2), (0.67, 2.0), (1.0, 10.0))
"""Cumulative probabilities of the deadlines as multiples of the duration; they and the stream below are Gavel's."""
DEADLINES_SEED = 6


def generate(options: GeneratorOptions, seed: int) -> Trace:
    """Generate the jobs; the same seed gives the same jobs, and an option changes only what it is about.

    With Gavel's jobs, --urgent changes the other columns too, because Gavel draws from one stream.
    """
    options.check()
    if options.like == SIA:
        jobs, gaps = draw_sia(options, seed)
        arrival_s = _through_days(options, np.cumsum(gaps) * _gap_s(options)).round().tolist()
        return Trace.of(replace(job, arrival_s=came_s) for job, came_s in zip(jobs, arrival_s, strict=True))
    drawn = draw_gavel(options, seed) if options.like == GAVEL else draw_from_statistics(options, seed)
    of_jobs = zip(drawn.duration_s.tolist(), drawn.workloads, drawn.gangs.tolist(), strict=True)
    steps = np.array([duration_s * options.rate(workload, gang) for duration_s, workload, gang in of_jobs])
    return Trace.of(_jobs(options, seed, drawn, steps, _arrivals(options, drawn, steps)))


def _arrivals(options: GeneratorOptions, drawn: DrawnJobs, steps: Floats) -> Floats:
    """Arrival times (n,) in seconds: a Poisson process whose rate varies over the day."""
    gap_s = _gap_s(options) if options.load is None else _gap_of_load_s(options, options.load, drawn, steps)
    return _through_days(options, np.cumsum(drawn.gaps) * gap_s)


def _gap_s(options: GeneratorOptions) -> float:
    """Mean inter-arrival time in seconds."""
    return HOUR_S / (options.per_hour or 1)


def _gap_of_load_s(options: GeneratorOptions, load: float, drawn: DrawnJobs, steps: Floats) -> float:
    gpus = float(options.machines.capacity.sum())
    return _work_gpu_s(options, drawn, steps) / (load * gpus * options.jobs)


def _through_days(options: GeneratorOptions, even_s: Floats) -> Floats:
    original = PUBLISHED.get(options.like)
    daily = options.daily if options.daily is not None else (original.daily if original else 0.0)
    if daily == 0:
        return even_s
    busiest_s = HOUR_S * original.busiest_h if original else DAY_S / 2
    return _in_days(even_s, daily, busiest_s)


def _in_days(even_s: Floats, daily: float, busiest_s: float) -> Floats:
    r"""Warp time so that even arrivals get the rate :math:`1 + a \cos(2 \pi (t - b) / day)`."""
    turn = 2 * pi / DAY_S
    at_s = np.linspace(0, even_s[-1] + DAY_S, 200 * (int(even_s[-1] / DAY_S) + 2))
    passed_s = at_s + daily / turn * (np.sin(turn * (at_s - busiest_s)) + np.sin(turn * busiest_s))
    stretched: Floats = np.interp(even_s, passed_s, at_s)
    return stretched


def _work_gpu_s(options: GeneratorOptions, drawn: DrawnJobs, steps: Floats) -> float:
    """Work of all jobs in seconds of the cluster's average GPU."""
    kinds = list(zip(drawn.workloads, drawn.gangs.tolist(), strict=True))
    rates = {kind: _average_rate(options, *kind) for kind in set(kinds)}
    return float((drawn.gangs * steps / np.array([rates[kind] for kind in kinds])).sum())


def _average_rate(options: GeneratorOptions, workload: str | None, gang: int) -> float:
    machines = options.machines
    rates = [options.rate(workload, gang, gpu_type) for gpu_type in machines.gpu_types]
    if max(rates) == 0:
        raise InvalidSetting(f"{workload} on {gang} GPUs cannot run on {options.cluster}")
    return float(machines.capacity @ np.array(rates) / machines.capacity.sum())


def _jobs(
    options: GeneratorOptions, seed: int, drawn: DrawnJobs, steps: Floats, arrival_s: Floats
) -> Iterator[TraceJob]:
    of_elastic, of_teams, of_deadlines = np.random.default_rng([seed, 1]).spawn(3)
    n, width = options.jobs, len(str(options.jobs - 1))
    elastic = of_elastic.random(n) < options.elastic
    teams = _teams(options.teams, of_teams.random(n))
    due_s = _deadlines(options.deadlines, of_deadlines.random(n), seed) * drawn.duration_s
    for i in range(n):
        gang, came_s = int(drawn.gangs[i]), round(float(arrival_s[i]), 3)
        yield TraceJob(
            name=f"{options.like}-{i:0{width}d}",
            arrival_s=came_s,
            gangs=_gangs(gang, options.limit) if elastic[i] else (gang,),
            program=Program(drawn.workloads[i]),
            total_steps=float(steps[i]),
            weight=URGENT_WEIGHT if drawn.urgent[i] else 1.0,
            team=teams[i],
            deadline_s=None if np.isnan(due_s[i]) else round(came_s + float(due_s[i]), 3),
        )


def _gangs(gang: int, limit: int) -> tuple[int, ...]:
    return gang_sizes(max(1, gang // ELASTIC), min(gang * ELASTIC, limit))


def _teams(teams: int, chances: Floats) -> list[str | None]:
    """A team for each job; the k-th team gets 1/k of the first team's jobs (Zipf)."""
    if not teams:
        return [None] * len(chances)
    share = 1 / np.arange(1, teams + 1)
    until = np.cumsum(share) / share.sum()
    return [f"team-{k + 1}" for k in np.searchsorted(until[:-1], chances, side="right").tolist()]


def _deadlines(part: float, chances: Floats, seed: int) -> Floats:
    """Deadline of each job as a multiple of its duration; nan: none."""
    stream = Random(seed + DEADLINES_SEED)  # noqa: S311  # no secret
    drawn = [stream.uniform(0, 1) for _ in chances]
    factors = [next(factor for below, factor in DEADLINES if chance < below or below == 1) for chance in drawn]
    return np.where(chances < part, factors, np.nan)
