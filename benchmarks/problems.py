"""Rounds to be decided: jobs of 20 teams on GPUs of three types or more, few kinds or all different.

The rates are those that Gavel published for 26 job types on three GPU types. A further type is like one of the three,
half to three times as fast, and for each model up to a quarter off that. The cluster has as many GPUs of each type as
of any other, so many that the jobs ask for `load` times all of them.
"""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from allocation.problem import Problem
from allocation.types import Floats, Ints

TYPES = ("k80", "p100", "v100")
GANGS = (1, 2, 4, 8)
ODDS = (0.7, 0.1, 0.15, 0.05)
"""Of the gangs in Gavel's traces."""
SIZES = (1, 2, 4, 8, 16, 32, 12, 24, 3, 6, 10, 20, 28)
"""Of an elastic job: as many of them as make 40 configurations."""
CONFIGURATIONS = 40
WEIGHTS = (1, 2, 5)
KINDS = 78
"""Where there are few: 26 types with three weights."""
INPUTS = ("few-kinds", "all-different")
DEADLINES = "elastic-deadlines"
"""Input of elastic jobs that all differ, each with a deadline of its own."""
IN_TIME = (0.2, 2.0)
"""Of such a job, the time to its deadline over what it would need on one GPU: not all deadlines can be met."""
TEAMS = 20
LOAD = 1.2


def reference() -> Path:
    """The folder of the reference data: MOTLEY_REFERENCE, or ../shared/reference; the repository holds none of it."""
    folder = Path(os.environ.get("MOTLEY_REFERENCE") or Path(__file__).parents[2] / "shared" / "reference")
    if not folder.is_dir():
        raise SystemExit(
            f"No reference data in {folder}: set MOTLEY_REFERENCE, see 'Reference data' in CONTRIBUTING.md."
        )
    return folder


def rigid(jobs: int, *, kind: str, types: int = len(TYPES), load: float = LOAD, seed: int = 0) -> Problem:
    """Gangs of 1 to 8 with published rates; each row perturbed where all are to differ."""
    rng = np.random.default_rng(seed)
    rates = {size: _more_types(rows, types, seed) for size, rows in _published().items()}
    kinds = KINDS if kind == "few-kinds" else jobs
    gang = rng.choice(len(GANGS), kinds, p=ODDS)
    rate = np.zeros((kinds, len(GANGS) * types))
    for b, size in enumerate(GANGS):
        rows = np.flatnonzero(gang == b)
        rate[rows, b * types : (b + 1) * types] = rates[size][rng.integers(len(rates[size]), size=rows.size)]
    usage = np.kron(np.array(GANGS), np.eye(types, dtype=int))
    return _problem(rng, rate, usage, jobs=jobs, kind=kind, load=load, wanted=np.array(GANGS)[gang])


def elastic(jobs: int, *, kind: str, types: int = len(TYPES), load: float = LOAD, seed: int = 0) -> Problem:
    """Jobs of 1 to 32 GPUs in 40 configurations or more: one GPU's rate, and of more with falling returns."""
    rng = np.random.default_rng(seed)
    models = _more_types(_published()[1], types, seed)
    model = rng.integers(len(models), size=KINDS if kind == "few-kinds" else jobs)
    exponent = np.linspace(0.6, 0.95, len(models))[model]
    sizes = np.sort(SIZES[: -(-CONFIGURATIONS // types)])
    usage = np.kron(sizes, np.eye(types, dtype=int))
    rate = models[model][:, usage.argmax(axis=0)] * usage.sum(axis=0) ** exponent[:, None]
    return _problem(rng, rate, usage, jobs=jobs, kind=kind, load=load, wanted=np.ones(len(rate), dtype=int))


def elastic_with_deadlines(jobs: int, *, types: int = len(TYPES), load: float = LOAD, seed: int = 0) -> Problem:
    """Elastic jobs that all differ, each with a deadline of its own."""
    problem = elastic(jobs, kind="all-different", types=types, load=load, seed=seed)
    factor = np.random.default_rng([seed, 1]).uniform(*IN_TIME, jobs)
    return replace(problem, deadline_s=problem.remaining_steps / problem.base_rate * factor)


def _published() -> dict[int, Floats]:
    """Gang → rates (models, types) in steps/s."""
    tables = json.loads((reference() / "gavel" / "simulation_throughputs.json").read_text())
    of_gang: dict[int, list[list[float]]] = {size: [] for size in GANGS}
    for key in tables[TYPES[0]]:
        size = int(re.search(r", (\d+)\)$", key)[1])  # type: ignore[index]  # every key ends so
        of_gang[size].append([tables[gpu_type][key]["null"] for gpu_type in TYPES])
    return {size: np.array(rows) for size, rows in of_gang.items()}


def _more_types(rates: Floats, types: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    more = types - rates.shape[1]
    like, times = rng.integers(rates.shape[1], size=more), rng.uniform(0.5, 3, more)
    return np.column_stack([rates, rates[:, like] * times * rng.uniform(0.8, 1.25, (len(rates), more))])


def _problem(
    rng: np.random.Generator, rate: Floats, usage: Ints, *, jobs: int, kind: str, load: float, wanted: Ints
) -> Problem:
    """Jobs of these kinds (C,), or each one of its own, on GPUs for what they want; all else by chance."""
    if kind == "all-different":
        rate = rate * rng.uniform(0.8, 1.25, rate.shape)
    C = len(rate)
    columns: dict[str, Floats] = {
        "rate": rate,
        "weight": rng.choice(WEIGHTS, C),
        "age_s": rng.uniform(0, 86_400, C),
        "remaining_steps": 10 ** rng.uniform(3, 6, C),
        "isolated_s": rng.uniform(0, 40_000, C),
        "attained_gpu_s": rng.uniform(0, 30_000, C),
        "deadline_s": np.where(rng.random(C) < 0.2, 10 ** rng.uniform(4, 6, C), np.inf),
    }
    of_kind = rng.permutation(np.resize(np.arange(C), jobs))
    n = len(usage)
    gpus = int(wanted[of_kind].sum() / load)
    return Problem.of(
        usage=usage,
        capacity=np.maximum(np.full(n, gpus // n) + (np.arange(n) < gpus % n), usage.max() if jobs < 100 else 0),
        restart_s=np.full(jobs, 60.0),
        price_per_gpu_hour=np.resize([0.45, 1.46, 2.48], n),
        team=np.arange(jobs) % TEAMS,
        **{name: values[of_kind] for name, values in columns.items()},
    )
