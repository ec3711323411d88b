"""A small present: two nodes of two GPUs of one type each, and jobs of one GPU unless told."""

from collections.abc import Sequence

import numpy as np

from allocation.inventory import Inventory
from allocation.problem import Problem
from allocation.quotas import Quotas
from estimation.estimate import Estimate
from forecast.draws import Unknowns
from forecast.present import Draw, Present

HOUR_S = 3600.0
GPU_NODE = np.array([0, 0, 1, 1])


def present_of(
    steps: Sequence[float],
    *,
    gpus: Sequence[int] | None = None,
    running: Sequence[int] = (),
    samples: int = 0,
    quotas: Quotas | None = None,
) -> Present:
    """Jobs with so many steps at 1 step/s on as many GPUs as told; those running hold GPUs in their order.

    The last rows are samples of arrivals.
    """
    m, sizes = len(steps), [1, 2, 4]
    wanted = np.array(gpus if gpus is not None else [1] * m)
    rate = (wanted[:, None] == np.array(sizes)).astype(float)
    held, holder, taken = np.full(m, -1), np.full(4, -1), 0
    for row in running:
        held[row] = sizes.index(int(wanted[row]))
        holder[taken : taken + wanted[row]] = row
        taken += int(wanted[row])
    problem = Problem.of(
        rate,
        [sizes],
        [4],
        nodes=[1, 1, 2],
        held=held,
        remaining_steps=np.array(steps, dtype=float),
        total_steps=np.array(steps, dtype=float),
        age_s=np.arange(m, 0, -1, dtype=float),
    )
    inventory = Inventory(
        gpu_node=GPU_NODE,
        node_type=np.zeros(2, dtype=np.int64),
        holder=holder,
        releasing=np.zeros(4, dtype=np.bool_),
        node_cpus=np.full(2, np.inf),
        node_memory_mib=np.full(2, np.inf),
        cpus_per_gpu=np.zeros(m),
        memory_per_gpu_mib=np.zeros(m),
        uneven=np.zeros(m, dtype=np.bool_),
    )
    return Present(
        problem=problem,
        inventory=inventory,
        quotas=quotas or Quotas.none(m),
        jobs=m - samples,
        team_weight=np.ones(m),
        limit_s=np.full(m, np.inf),
        preemptible=np.ones(m, dtype=np.bool_),
    )


def as_told(present: Present) -> Draw:
    """The future in which everything is as told and nothing arrives."""
    rows = np.arange(present.jobs)
    return Draw(rows, np.zeros(len(rows)), present.problem.remaining_steps[rows].copy(), np.ones(len(rows)))


def known(present: Present, *, submitted_s: Sequence[float] = ()) -> Unknowns:
    """All lengths are known; samples were submitted so many seconds before now (negative), in the last three hours."""
    m = len(present.team_weight)
    nothing: list[Estimate | None] = [None] * m
    return Unknowns(
        left=present.problem.remaining_steps.copy(),
        duration=nothing,
        done_s=np.zeros(m),
        rate_spread=np.zeros(m),
        begin_s=np.zeros(present.jobs),
        submitted_s=np.array(submitted_s, dtype=float),
        known_s=3 * HOUR_S,
        history_s=3 * HOUR_S,
    )
