"""How well a workload's rates are known after 0 to 3 measured cells: `python -m benchmarks.completion`, as Markdown.

A cell is a GPU type and a gang. Each workload of Gavel's table and of Sia's profiles is left out in turn, alone or with
all of its model, some of its cells are measured, and the others are estimated: from the specifications alone, by the
method of Gavel's estimator, and by completion (`estimation.completion`). Needs the reference data, see CONTRIBUTING.md.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median
from time import process_time

import numpy as np

from allocation.types import Bools, Floats
from benchmarks.problems import reference
from estimation.completion import Cells, Completed, factors_of, fit_factors
from estimation.gpu_specifications import GPU_SPECIFICATIONS
from estimation.profile import Knowledge, Measured, Measurement, Place
from estimation.rates import Machines, workload_rates
from simulation.traces.trace import Program
from simulation.workloads.applications import COURSES, ApplicationProfiles
from simulation.workloads.rate_sources import read_gavel_table

MEASURED_CELLS = (0, 1, 2, 3)
DRAWS = 20
"""Choices of measured cells per workload, where there are more."""
LATENT, RIDGE, PMF_ITERATIONS, PMF_CHANGE = 10, 0.01, 100, 1e-3
"""Of Gavel's estimator."""
LEAST = 1e-9
COST = (12, 200, 1_000)
"""GPU types, known workloads, and sets of cells in which ten workloads each were measured."""
REPORTS = 10
GAVEL_TYPES = ("k80", "p100", "v100")
SIA_TYPES = {"aws": "t4", "rtx": "rtx2080ti", "dgx-ext": "a100"}
SIA_PLACEMENTS = ((1,), (2,), (4,), (8,), (1, 1), (2, 2), (4, 4), (4, 4, 4, 4))

Rates = Mapping[Place, float]


@dataclass(frozen=True)
class Table:
    """True rates by workload, its model's name first."""

    name: str
    gpu_types: Sequence[str]
    rates: Mapping[tuple[str, str], Rates]

    @property
    def machines(self) -> Machines:
        """All cells that any workload has."""
        places = sorted({place for rates in self.rates.values() for place in rates})
        return machines_of(self.gpu_types, places)


def machines_of(gpu_types: Sequence[str], places: Sequence[Place]) -> Machines:
    usage = np.zeros((len(gpu_types), len(places)), dtype=np.int64)
    for k, (j, gpus, _) in enumerate(places):
        usage[j, k] = gpus
    specs = [GPU_SPECIFICATIONS[name].spec for name in gpu_types]
    return Machines(specs, usage, np.array([nodes for *_, nodes in places]))


def main() -> None:
    for table in (gavel_on_one_gpu(), gavel(), sia()):
        workloads, models = len(table.rates), len({model for model, _ in table.rates})
        sys.stdout.write(f"\n{table.name}: {workloads} workloads of {models} models\n\n")
        sys.stdout.write("| left out | measured cells | " + " | ".join(f"{name}: median | mean" for name in ESTIMATORS))
        sys.stdout.write(" | rate lost by the choice of type | within one spread |\n| --- |")
        sys.stdout.write(" ---: |" * (3 + 2 * len(ESTIMATORS)) + "\n")
        for whole_model in (False, True):
            for cells in MEASURED_CELLS:
                sys.stdout.write(line(table, cells, whole_model=whole_model))
                sys.stdout.flush()
    sys.stdout.write(f"\n{cost()}\n")


def line(table: Table, measured: int, *, whole_model: bool) -> str:
    """A row of the table: errors of each estimator, and what is lost on the type that it calls the fastest."""
    errors: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
    lost: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
    inside: list[bool] = []
    for others, truth, cells in cases(table, measured, whole_model=whole_model):
        known, wanted = {cell: truth[cell] for cell in cells}, [place for place in truth if place not in cells]
        true = np.array([truth[place] for place in wanted])
        completed = completion(table, others, known, wanted)
        inside += (np.abs(np.log(completed.rate[0] / true)) < completed.spread).tolist() if cells else []
        for name, estimate in ESTIMATORS.items():
            rates = estimate(table, others, known, wanted)
            rates = rates if cells else rates * np.exp(np.log(true / rates).mean())  # only the ratios can be known
            errors[name] += np.abs(rates / true - 1).tolist()
            lost[name] += lost_by_choice({**known, **dict(zip(wanted, rates.tolist(), strict=True))}, truth)
    if not errors["completion"]:
        return ""
    figures = " | ".join(f"{median(e):.0%} | {fmean(e):.0%}" for e in errors.values())
    losses = ", ".join(f"{fmean(one):.1%}" for one in lost.values())
    within = f"{fmean(inside):.0%}" if inside else ""
    return f"| {'its model' if whole_model else 'the workload'} | {measured} | {figures} | {losses} | {within} |\n"


def lost_by_choice(believed: Rates, truth: Rates) -> list[float]:
    """For each gang, the part of the rate on its fastest type that it lacks on the type believed the fastest."""
    by_gang: dict[tuple[int, int], list[Place]] = defaultdict(list)
    for place in truth:
        by_gang[place[1:]].append(place)
    several = [places for places in by_gang.values() if len(places) > 1]
    chosen = [max(places, key=believed.__getitem__) for places in several]
    best = [max(truth[place] for place in places) for places in several]
    return [1 - truth[place] / rate for place, rate in zip(chosen, best, strict=True)]


def cases(table: Table, measured: int, *, whole_model: bool) -> Iterator[tuple[list[Rates], Rates, tuple[Place, ...]]]:
    """The workloads that are known, the one that is not, and its measured cells."""
    for (model, name), truth in table.rates.items():
        left_out = [key for key in table.rates if key == (model, name) or (whole_model and key[0] == model)]
        others = [rates for key, rates in table.rates.items() if key not in left_out]
        for cells in choices(sorted(truth), measured):
            if len(cells) < len(truth):
                yield others, truth, cells


def choices(places: Sequence[Place], measured: int) -> list[tuple[Place, ...]]:
    """Sets of cells to measure: all, or as many as are drawn."""
    if len(places) <= len(GAVEL_TYPES) or measured == 0:
        return list(combinations(places, measured))
    rng = np.random.default_rng(measured)
    drawn = [sorted(rng.choice(len(places), measured, replace=False).tolist()) for _ in range(DRAWS)]
    return [tuple(places[at] for at in one) for one in drawn]


# -- estimators ------------------------------------------------------------------------------------------------------


def by_specification(table: Table, others: Sequence[Rates], known: Rates, wanted: Sequence[Place]) -> Floats:
    """What the service estimated before: from the nearest measured cell by speed and law of scaling."""
    measured = Measured({place: Measurement(rate, REPORTS) for place, rate in known.items()})
    return workload_rates(machines_of(table.gpu_types, wanted), Knowledge(measured))[0]


def completion(table: Table, others: Sequence[Rates], known: Rates, wanted: Sequence[Place]) -> Completed:
    factors = factors_of(table.machines.speed, others)
    assert factors is not None
    return factors.complete(Cells.of(list(known)), np.array([list(known.values())]), Cells.of(wanted))


def by_completion(table: Table, others: Sequence[Rates], known: Rates, wanted: Sequence[Place]) -> Floats:
    rates: Floats = completion(table, others, known, wanted).rate[0]
    return rates


def by_matching(table: Table, others: Sequence[Rates], known: Rates, wanted: Sequence[Place]) -> Floats:
    """Gavel's: complete a matrix, and take the rates of the known workload with the nearest row (cosine).

    The original completes rates beside another job, relative to the rate alone; here rates are relative to the first
    measured cell, or else to the fastest one. Its references' columns are read by their own index, not by that of the
    whole matrix. Of a workload without a measured cell it takes any reference for the match.
    """
    places = sorted({place for rates in others for place in rates} | {*known, *wanted})
    base, rng, at = next(iter(known), None), np.random.default_rng(0), [places.index(place) for place in wanted]
    rows = [rates for rates in others if base is None or base in rates]
    relative = [_relative(rates, places, rates[base] if base else max(rates.values())) for rates in rows]
    if base is None:
        return _filled(np.array(relative), rng)[rng.integers(len(rows)), at]
    matrix = np.array([*relative, _relative(known, places, known[base])])
    completed = _filled(matrix / np.nanmax(matrix), rng) * np.nanmax(matrix)
    direction = completed / np.linalg.norm(completed, axis=1)[:, None]
    matched: Floats = completed[int((direction[:-1] @ direction[-1]).argmax()), at] * known[base]
    return matched


def _relative(rates: Rates, places: Sequence[Place], base: float) -> Floats:
    return np.array([rates.get(place, np.nan) for place in places]) / base


def _filled(matrix: Floats, rng: np.random.Generator) -> Floats:
    """Probabilistic matrix factorisation by alternating ridge least squares, cut to 0 to 1; known cells are kept."""
    seen, before = ~np.isnan(matrix), np.zeros(matrix.shape)
    left, right = (rng.standard_normal((size, LATENT)) for size in matrix.shape)
    for _ in range(PMF_ITERATIONS):
        left = _ridge(matrix, seen, right)
        right = _ridge(matrix.T, seen.T, left)
        now = left @ right.T
        if np.linalg.norm(now - before) / matrix.size < PMF_CHANGE:
            break
        before = now
    return np.where(seen, matrix, np.clip(now, LEAST, 1))


def _ridge(matrix: Floats, seen: Bools, other: Floats) -> Floats:
    grams = [
        (other[s].T @ other[s] + RIDGE * np.eye(LATENT), other[s].T @ row[s])
        for row, s in zip(matrix, seen, strict=True)
    ]
    solved: Floats = np.array([np.linalg.solve(gram, projected) for gram, projected in grams])
    return solved


ESTIMATORS: Mapping[str, Callable[[Table, Sequence[Rates], Rates, Sequence[Place]], Floats]] = {
    "specification": by_specification,
    "Gavel's method": by_matching,
    "completion": by_completion,
}
"""Of the table, the rates of the other workloads and the measured cells: the rates of the cells to estimate."""

# -- cost ------------------------------------------------------------------------------------------------------------


def cost() -> str:
    """CPU seconds of a fit, and of the completion of a round's workloads that were measured in many different cells."""
    rng, (types, known, groups) = np.random.default_rng(0), COST
    speed, sizes = np.exp(rng.normal(size=types)), (1, 4)
    chosen = [rng.choice(types, 3, replace=False).tolist() for _ in range(known)]
    rows = [{(j, gpus, 1): float(np.exp(rng.normal())) for j in of for gpus in sizes} for of in chosen]
    began = process_time()
    factors = fit_factors(speed, rows)
    fitted = process_time()
    assert factors is not None
    at, cells = (
        Cells.of([(0, 1, 1), (1, 1, 1)]),
        Cells.of([(j, gpus, 1) for j in range(types) for gpus in (1, 2, 4, 8)]),
    )
    for _ in range(groups):
        factors.complete(at, np.ones((10, 2)), cells)
    seconds = f"{fitted - began:.2f} s of CPU to fit, {process_time() - fitted:.2f} s to complete"
    return f"{known} workloads known on {types} types, {10 * groups} to complete in {groups} sets of cells: {seconds}."


# -- tables ----------------------------------------------------------------------------------------------------------


def gavel_on_one_gpu() -> Table:
    rates = {name: {place: r for place, r in of.items() if place[1:] == (1, 1)} for name, of in gavel().rates.items()}
    return Table("Gavel's table on one GPU", GAVEL_TYPES, rates)


def gavel() -> Table:
    """With gangs of 2, 4 and 8 on one node and on several."""
    path = reference() / "gavel" / "simulation_throughputs.json"
    rates: dict[tuple[str, str], dict[Place, float]] = {}
    for workload, by_place in read_gavel_table(path).rates.items():
        row = rates.setdefault((workload.partition(" (")[0], workload), {})
        for (name, gpus), rate in by_place.items():
            gpu_type, _, apart = name.partition("_")
            if rate > 0 and (gpus > 1 or not apart):
                row[GAVEL_TYPES.index(gpu_type), gpus, 2 if apart else 1] = rate
    return Table("Gavel's table with gangs", GAVEL_TYPES, rates)


def sia() -> Table:
    """The applications with a replica per GPU, at each recorded batch."""
    profiles, rates = ApplicationProfiles(reference() / "sia" / "apps"), {}
    for name in (name for name, course in COURSES.items() if course.pipeline is None):
        for batch in profiles.application(name).epochs.batches.astype(int).tolist():
            row = {
                (j, sum(placement), len(placement)): profiles.rate(Program(name, batch), recorded, placement)
                for j, recorded in enumerate(SIA_TYPES)
                for placement in SIA_PLACEMENTS
            }
            rates[name, f"{name} {batch}"] = {place: rate for place, rate in row.items() if rate > 0}
    return Table("Sia's profiles", tuple(SIA_TYPES.values()), rates)


if __name__ == "__main__":
    main()
