"""Measured rates of all teams' workloads, for matrix completion of other workloads' rates; no names are shown."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice, zip_longest
from typing import NamedTuple

import numpy as np

from estimation.completion import RateFactors, factors_of
from estimation.profile import USABLE_REPORTS, GpuSpec, Place
from jobs_app.models import Throughput

MOST_ROWS = 4_000
MOST_WORKLOADS = 200
"""A fit to so many takes some tenths of a second at most (`python -m benchmarks.completion`)."""


class KnownRate(NamedTuple):
    """A measured rate in steps/s."""

    team_id: int
    workload: str
    batch_size: int
    gpu_type_id: int
    gpus: int
    nodes: int
    steps_per_second: float


def read_known_rates() -> list[KnownRate]:
    """The usable rates that were first measured most recently."""
    usable = Throughput.objects.filter(reports__gte=USABLE_REPORTS, steps_per_second__gt=0)
    return [KnownRate(*row) for row in usable.order_by("-pk").values_list(*KnownRate._fields)[:MOST_ROWS]]


def rate_factors(rates: Iterable[KnownRate], types: Sequence[int], specs: Sequence[GpuSpec]) -> RateFactors | None:
    """Rate factors of workloads with a single batch size: a mean over batch sizes would not compare GPU types.

    Of too many workloads the teams' are taken in turn, so that one team's sweep leaves room for the others'.
    """
    index = {gpu_type: j for j, gpu_type in enumerate(types)}
    cells: dict[tuple[int, str], dict[Place, float]] = defaultdict(dict)
    batches: dict[tuple[int, str], set[int]] = defaultdict(set)
    for row in (row for row in rates if row.gpu_type_id in index):  # a type may have come since types were read
        cells[row.team_id, row.workload][index[row.gpu_type_id], row.gpus, row.nodes] = row.steps_per_second
        batches[row.team_id, row.workload].add(row.batch_size)
    by_team: dict[int, list[dict[Place, float]]] = defaultdict(list)
    for (team, workload), of_workload in cells.items():
        if len(of_workload) > 1 and len(batches[team, workload]) == 1:
            by_team[team].append(of_workload)
    in_turn = (found for turn in zip_longest(*by_team.values()) for found in turn if found)
    return factors_of(np.array([spec.speed for spec in specs]), islice(in_turn, MOST_WORKLOADS))
