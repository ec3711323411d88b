"""Rounds to be decided: so many jobs of 20 teams on as many GPUs of three types or more, few kinds or all different."""

import json
import os
import re
from pathlib import Path

import numpy as np

from allocation.arrays import Floats, Ints
from allocation.problem import Problem

TYPES = ("k80", "p100", "v100")
GANGS = (1, 2, 4, 8)
ODDS = (0.7, 0.1, 0.15, 0.05)
SIZES = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32)
"""Of an elastic job: with three types 39 configurations, and one more over two nodes makes 40."""
INPUTS = ("few-kinds", "all-different")
TEAMS = 20


def reference() -> Path:
    """Where the throughputs that Gavel published lie; the project keeps none of them."""
    return Path(os.environ.get("MOTLEY_REFERENCE", Path(__file__).parents[2] / "shared" / "reference"))


def rigid(jobs: int, *, kind: str, types: int = len(TYPES), seed: int = 0) -> Problem:
    """Gangs of 1 to 8 with the rates of Gavel's 26 job types; each row perturbed where all are to differ."""
    rng = np.random.default_rng(seed)
    rates = {size: _more_types(rows, types, seed) for size, rows in _published().items()}
    gang = rng.choice(len(GANGS), jobs, p=ODDS)
    rate = np.zeros((jobs, len(GANGS) * types))
    for b, size in enumerate(GANGS):
        rows = np.flatnonzero(gang == b)
        models = rates[size][rng.integers(len(rates[size]), size=rows.size)]
        rate[rows, b * types : (b + 1) * types] = models
    return _problem(rng, _perturbed(rng, rate, kind), np.kron(np.array(GANGS), np.eye(types, dtype=int)))


def elastic(jobs: int, *, kind: str, seed: int = 0) -> Problem:
    """Jobs of 1 to 32 GPUs in 40 configurations: one GPU's published rate, and more with falling returns."""
    rng = np.random.default_rng(seed)
    models = _published()[1]
    model = rng.integers(len(models), size=jobs)
    exponent = np.linspace(0.6, 0.95, len(models))[model]
    usage = np.kron(np.array([*SIZES, SIZES[-1]]), np.eye(len(TYPES), dtype=int))[:, :40]
    spanning = np.where(np.arange(40) == 39, 0.7, 1.0)
    one_gpu = models[model][:, usage.argmax(axis=0)]
    rate = one_gpu * usage.sum(axis=0) ** exponent[:, None] * spanning
    return _problem(rng, _perturbed(rng, rate, kind), usage)


def _published() -> dict[int, Floats]:
    """Gang → rates (models, types) in steps/s."""
    tables = json.loads((reference() / "gavel" / "simulation_throughputs.json").read_text())
    of_gang: dict[int, list[list[float]]] = {size: [] for size in GANGS}
    for key in tables[TYPES[0]]:
        size = int(re.search(r", (\d+)\)$", key)[1])  # type: ignore[index]  # every key ends so
        of_gang[size].append([tables[gpu_type][key]["null"] for gpu_type in TYPES])
    return {size: np.array(rows) for size, rows in of_gang.items()}


def _more_types(rates: Floats, types: int, seed: int) -> Floats:
    """Further types are one of the three, half to three times as fast, and for each model up to a quarter off that."""
    rng = np.random.default_rng(seed)
    more = types - rates.shape[1]
    like, times = rng.integers(rates.shape[1], size=more), rng.uniform(0.5, 3, more)
    return np.column_stack([rates, rates[:, like] * times * rng.uniform(0.8, 1.25, (len(rates), more))])


def _perturbed(rng: np.random.Generator, rate: Floats, kind: str) -> Floats:
    return rate * rng.uniform(0.8, 1.25, rate.shape) if kind == "all-different" else rate


def _problem(rng: np.random.Generator, rate: Floats, usage: Ints) -> Problem:
    m, n = len(rate), len(usage)
    capacity = np.full(n, m // n) + (np.arange(n) < m % n)
    kinds = 10 ** rng.uniform(3, 6, 26)
    return Problem.of(
        rate,
        usage,
        np.maximum(capacity, usage.max() if m < 100 else 0),
        age_s=np.repeat(np.linspace(0, 86_400, 26), -(-m // 26))[:m],
        remaining_steps=np.resize(kinds, m),
        isolated_s=np.resize(np.linspace(0, 40_000, 26), m),
        attained_gpu_s=np.resize(np.linspace(0, 30_000, 26), m),
        deadline_s=np.where(rng.random(m) < 0.2, 10 ** rng.uniform(4, 6, m), np.inf),
        restart_s=np.full(m, 60.0),
        price_per_gpu_hour=np.resize([0.45, 1.46, 2.48], n),
        team=np.arange(m) % TEAMS,
    )
