"""Traces that are made up, like those of real clusters in what is published of them: any number, and any length."""

from collections.abc import Iterator
from dataclasses import replace
from math import pi
from random import Random

import numpy as np

from allocation.arrays import Floats
from allocation.configurations import gang_sizes
from simulation.drawing import Drawn, draw_like_published
from simulation.gavel_jobs import draw_gavel
from simulation.likeness import LIKENESSES
from simulation.recipe import GAVEL, SIA, Recipe
from simulation.setting import InvalidSetting
from simulation.sia_jobs import draw_sia
from simulation.trace import Program, Trace, TraceJob

DAY_S, HOUR_S = 86_400.0, 3600.0

ELASTIC = 4
"""An elastic job may have so many times fewer GPUs, and more, than it would have had as a rigid one."""

URGENT_WEIGHT = 5.0
DEADLINES = ((0.33, 1.2), (0.67, 2.0), (1.0, 10.0))
"""Up to which chance a deadline leaves a job how many times its duration. Both are Gavel's, as is the stream below."""
DEADLINES_SEED = 6


def generate(recipe: Recipe, seed: int) -> Trace:
    """Make up the jobs; the same seed gives the same, and what one option adds leaves the rest of them alone.

    Of Gavel's jobs --urgent changes the rest, too: it draws from one stream.
    """
    recipe.check()
    if recipe.like == SIA:
        jobs, gaps = draw_sia(recipe, seed)
        arrival_s = _through_days(recipe, np.cumsum(gaps) * _gap_s(recipe)).round().tolist()
        return Trace.of(replace(job, arrival_s=came_s) for job, came_s in zip(jobs, arrival_s, strict=True))
    drawn = draw_gavel(recipe, seed) if recipe.like == GAVEL else draw_like_published(recipe, seed)
    of_jobs = zip(drawn.duration_s.tolist(), drawn.workloads, drawn.gangs.tolist(), strict=True)
    steps = np.array([duration_s * recipe.rate(workload, gang) for duration_s, workload, gang in of_jobs])
    return Trace.of(_jobs(recipe, seed, drawn, steps, _arrivals(recipe, drawn, steps)))


def _arrivals(recipe: Recipe, drawn: Drawn, steps: Floats) -> Floats:
    """Seconds (n,): a Poisson process, faster and slower over the day."""
    gap_s = _gap_s(recipe) if recipe.load is None else _gap_of_load_s(recipe, recipe.load, drawn, steps)
    return _through_days(recipe, np.cumsum(drawn.gaps) * gap_s)


def _gap_s(recipe: Recipe) -> float:
    """From one arrival to the next, on the mean."""
    return HOUR_S / (recipe.per_hour or 1)


def _gap_of_load_s(recipe: Recipe, load: float, drawn: Drawn, steps: Floats) -> float:
    gpus = float(recipe.machines.capacity.sum())
    return _work_gpu_s(recipe, drawn, steps) / (load * gpus * recipe.jobs)


def _through_days(recipe: Recipe, even_s: Floats) -> Floats:
    original = LIKENESSES.get(recipe.like)
    daily = recipe.daily if recipe.daily is not None else (original.daily if original else 0.0)
    if daily == 0:
        return even_s
    busiest_s = HOUR_S * original.busiest_h if original else DAY_S / 2
    return _in_days(even_s, daily, busiest_s)


def _in_days(even_s: Floats, daily: float, busiest_s: float) -> Floats:
    r"""Stretch time, so that what comes evenly comes at a rate of :math:`1 + a \cos(2 \pi (t - b) / day)`."""
    turn = 2 * pi / DAY_S
    at_s = np.linspace(0, even_s[-1] + DAY_S, 200 * (int(even_s[-1] / DAY_S) + 2))
    passed_s = at_s + daily / turn * (np.sin(turn * (at_s - busiest_s)) + np.sin(turn * busiest_s))
    stretched: Floats = np.interp(even_s, passed_s, at_s)
    return stretched


def _work_gpu_s(recipe: Recipe, drawn: Drawn, steps: Floats) -> float:
    """The time of the cluster's average GPU that all jobs take together."""
    kinds = list(zip(drawn.workloads, drawn.gangs.tolist(), strict=True))
    rates = {kind: _average_rate(recipe, *kind) for kind in set(kinds)}
    return float((drawn.gangs * steps / np.array([rates[kind] for kind in kinds])).sum())


def _average_rate(recipe: Recipe, workload: str | None, gang: int) -> float:
    machines = recipe.machines
    rates = [recipe.rate(workload, gang, gpu_type) for gpu_type in machines.gpu_types]
    if max(rates) == 0:
        raise InvalidSetting(f"{workload} on {gang} GPUs runs nowhere on {recipe.cluster}")
    return float(machines.capacity @ np.array(rates) / machines.capacity.sum())


def _jobs(recipe: Recipe, seed: int, drawn: Drawn, steps: Floats, arrival_s: Floats) -> Iterator[TraceJob]:
    of_elastic, of_teams, of_deadlines = np.random.default_rng([seed, 1]).spawn(3)
    n, width = recipe.jobs, len(str(recipe.jobs - 1))
    elastic = of_elastic.random(n) < recipe.elastic
    teams = _teams(recipe.teams, of_teams.random(n))
    due_s = _deadlines(recipe.deadlines, of_deadlines.random(n), seed) * drawn.duration_s
    for i in range(n):
        gang, came_s = int(drawn.gangs[i]), round(float(arrival_s[i]), 3)
        yield TraceJob(
            name=f"{recipe.like}-{i:0{width}d}",
            arrival_s=came_s,
            gangs=_gangs(gang, recipe.limit) if elastic[i] else (gang,),
            program=Program(drawn.workloads[i]),
            total_steps=float(steps[i]),
            weight=URGENT_WEIGHT if drawn.urgent[i] else 1.0,
            team=teams[i],
            deadline_s=None if np.isnan(due_s[i]) else round(came_s + float(due_s[i]), 3),
        )


def _gangs(gang: int, limit: int) -> tuple[int, ...]:
    return gang_sizes(max(1, gang // ELASTIC), min(gang * ELASTIC, limit))


def _teams(teams: int, chances: Floats) -> list[str | None]:
    """A team for each job: the first has the most, the k-th a k-th of that."""
    if not teams:
        return [None] * len(chances)
    share = 1 / np.arange(1, teams + 1)
    until = np.cumsum(share) / share.sum()
    return [f"team-{k + 1}" for k in np.searchsorted(until[:-1], chances, side="right").tolist()]


def _deadlines(part: float, chances: Floats, seed: int) -> Floats:
    """How many times its duration each job has until its deadline; nan: it has none."""
    stream = Random(seed + DEADLINES_SEED)  # noqa: S311  # no secret
    drawn = [stream.uniform(0, 1) for _ in chances]
    factors = [next(factor for below, factor in DEADLINES if chance < below or below == 1) for chance in drawn]
    return np.where(chances < part, factors, np.nan)
