"""Reduction of a program over time: each job's configurations that an optimum may use, and blocks of jobs."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from allocation.plan.program import PlanProgram
from allocation.types import Bools, Floats, Ints

BLOCK = 1 << 16
"""Entries (jobs x pieces x configurations) of a block, so that its arrays stay in the processor's cache."""
LEAST_PART = 1e-10
"""Of an interval, what an interior point has where there is no time or no capacity; the solution gives it back."""


def undominated(program: PlanProgram) -> Bools:
    """Possible configurations (m, K) of each job that are on the concave hull of rate over GPUs of their type.

    The others are never better than a mix of these, or of one of them and no GPUs. Configurations of several types are
    kept.
    """
    T, u = program.rate, program.usage
    kept = program.possible.copy()
    if kept.sum(axis=1).max(initial=0) <= 1:
        return kept
    for j in range(len(u)):
        alone = _on(u, j)
        kept[:, alone] = _hull(np.where(kept, T, 0)[:, alone], u[j, alone])
    return kept


def _on(usage: Ints, j: int) -> Ints:
    """Configurations on type j alone, by their number of GPUs."""
    alone = np.flatnonzero((usage[j] > 0) & (usage.sum(axis=0) == usage[j]))
    return alone[np.argsort(usage[j, alone], kind="stable")]


def _hull(rate: Floats, gpus: Ints) -> Bools:
    """Which rates (m, k) by their GPUs (k,), in increasing order, are vertices of the concave hull with the origin."""
    is_vertex = rate > 0
    for k, g in enumerate(gpus.tolist()):
        for before in range(k):
            is_vertex[:, k] &= rate[:, before] < rate[:, k]
        for after in range(k + 1, len(gpus)):
            if gpus[after] == g:
                is_vertex[:, k] &= rate[:, after] <= rate[:, k]
                continue
            for before, fewer in [(-1, 0), *enumerate(gpus[:k].tolist())]:
                low = rate[:, before] if before >= 0 else 0.0
                part = (g - fewer) / (gpus[after] - fewer)
                is_vertex[:, k] &= rate[:, k] > low + part * (rate[:, after] - low)
    return is_vertex


@dataclass(frozen=True, eq=False)
class JobBlock:
    """Rows of a program with their V configurations each; what is padded has a speed and a usage of 0.

    rows (b,); speed f (b, V), part of the work per second; usage u (b, V, n), times the probability to use it; length l
    and cost kappa (b, Q), and least (b, Q), the length in an interior point; late (b,); count N (b,); name (b, V), the
    configuration, -1 where it is padded.
    """

    rows: Ints
    speed: Floats
    usage: Floats
    length: Floats
    least: Floats
    cost: Floats
    late: Floats
    count: Floats
    name: Ints


def job_blocks(program: PlanProgram) -> Iterator[JobBlock]:
    """Give the rows that have a configuration, in blocks."""
    kept = undominated(program)
    able = np.flatnonzero(kept.any(axis=1))
    if not able.size or not program.ends_s.size:
        return
    V = int(kept.sum(axis=1).max())
    most = max(BLOCK // (V * program.length_s.shape[1]), 1)
    for start in range(0, able.size, most):
        yield _block(program, able[start : start + most], kept, V)


def _block(program: PlanProgram, rows: Ints, kept: Bools, V: int) -> JobBlock:
    order = np.argsort(~kept[rows], axis=1, kind="stable")[:, :V]
    is_kept = np.take_along_axis(kept[rows], order, axis=1)
    speed = np.where(is_kept, np.take_along_axis(program.rate[rows], order, axis=1), 0) / program.steps[rows, None]
    usage = np.where(is_kept[..., None], program.usage.T[order], 0) * program.probability[rows, None, None]
    return JobBlock(
        rows=rows,
        speed=speed,
        usage=np.ascontiguousarray(usage, dtype=float),
        length=program.length_s[rows],
        least=np.maximum(program.length_s[rows], LEAST_PART * np.repeat(program.interval_s, program.pieces)),
        cost=program.cost_h[rows],
        late=program.late_h[rows],
        count=program.count[rows].astype(float),
        name=np.where(is_kept, order, -1),
    )
