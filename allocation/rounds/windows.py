r"""Windows of time in which nodes are not for all jobs: the nodes and configurations that each job may use now.

Job i may not use the nodes of window v, which begins in :math:`b_v` and is over in :math:`e_v > 0` seconds, if it is
not of the team for which these are reserved and

.. math::
    r_{ij} > \max(b_v, 0), \qquad
    r_{ij} = \begin{cases} L_{ij} & L_{ij} \le h_i g_v \text{ and } L_{ij} < \infty \\
    s_i & \text{otherwise} \end{cases}

L_ij is how long it holds GPUs of type j at most, g_v the longest time without a window on these nodes. A job that may
be stopped (h_i = 1/2, `LONGEST_PART`) and is longer than half of that could start in less than half of the time. It
crosses windows, as one does of which nothing is known: it is stopped before, with its work saved, and starts if that
pays, with s_i seconds left. For one that may not be stopped (h_i = 1) s_i is infinite; if nothing is known of its
length either, it counts as a week.
"""

from dataclasses import dataclass, replace

import numpy as np

from allocation.inventory import Inventory
from allocation.problem import LEAST_WEIGHT, Problem
from allocation.types import Bools, Floats, Ints

LONGEST_PART = 0.5
"""Of the longest time between windows: a job that is to end within it may start in at least half of the time."""
LEAST_LEFT = 0.05
"""Of a length that was expected, the part that is still expected of a job that has outlived it."""
LONGEST_UNKNOWN_S = 7 * 86_400.0
"""A window farther away keeps no job of unknown length waiting: one maintenance next year would do so until then."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Windows:
    """V windows: begins_s, ends_s (V,) from now; gap_s (V,) without any at most; nodes (V, N); team (V,), -1: of none.

    The team of a window may use its nodes all the same: they are reserved for it.
    """

    begins_s: Floats
    ends_s: Floats
    gap_s: Floats
    nodes: Bools
    team: Ints

    def after(self, seconds: float) -> "Windows":
        """The same windows so much later."""
        return replace(self, begins_s=self.begins_s - seconds, ends_s=self.ends_s - seconds)


@dataclass(frozen=True, eq=False)
class Stays:
    """How long m jobs need GPUs: at most length_s (m, n), by GPU type, inf: unknown; least_s (m,) repays a start.

    Both include the time to save its work, as it is stopped so long before a window. least_s inf: it is never stopped.
    """

    length_s: Floats
    least_s: Floats

    def of_rows(self, rows: Ints) -> "Stays":
        """Those of some of the jobs."""
        return Stays(self.length_s[rows], self.least_s[rows])

    def after(self, done_s: Floats) -> "Stays":
        """Those of the jobs once so many seconds (m, n) of theirs are done."""
        with np.errstate(invalid="ignore"):  # of an infinite length as much is left
            left_s = np.maximum(self.length_s - done_s, LEAST_LEFT * self.length_s)
        return Stays(left_s, self.least_s)


def slowest_rates(problem: Problem) -> Floats:
    """Rate (m, n) of each job in its slowest configuration of each type; infinite: it cannot run there."""
    rate = np.where(problem.rate > 0, problem.rate, np.inf)
    return np.stack([rate[:, used].min(axis=1, initial=np.inf) for used in problem.usage > 0], axis=1)


@dataclass(frozen=True, eq=False)
class OpenNodes:
    """The inventory with the nodes that each job may use, the configurations (m, K) that these hold, and closed (m, V).

    closed (m, V): the windows by which a job is kept from nodes.
    """

    inventory: Inventory
    possible: Bools
    closed: Bools


def open_nodes(problem: Problem, inventory: Inventory, windows: Windows, stays: Stays) -> OpenNodes:
    """The nodes that each job may use now. A job may stay where it is: it is stopped when its window is near."""
    closed = closed_by(windows, stays, problem.team)
    sets, of_row = node_sets_of(closed, windows, inventory)
    fits = _fitting(problem, inventory, sets)[inventory.uneven.astype(np.int64), of_row]
    possible: Bools = np.asarray(fits & (problem.rate > 0))
    holds = np.flatnonzero(np.isin(np.arange(len(of_row)), inventory.holder))
    of_row, sets = _with_own_nodes(of_row, sets, inventory, holds)
    held = holds[problem.held[holds] >= 0]
    possible[held, problem.held[held]] = problem.rate[held, problem.held[held]] > 0
    somewhere: Bools = np.asarray(possible.any(axis=1))
    stuck = holds[~somewhere[holds]]
    possible[stuck] = problem.rate[stuck] > 0
    every: Bools = np.asarray(sets.all(axis=1))
    of_row = np.where(every[of_row], -1, of_row)
    narrowed = replace(inventory, node_set=of_row, node_sets=sets[: of_row.max(initial=-1) + 1])
    return OpenNodes(narrowed, possible, _of_use(problem, inventory, windows, closed))


def open_rows(
    problem: Problem, inventory: Inventory, windows: Windows, stays: Stays
) -> tuple[Problem, Inventory, Ints]:
    """The problem and inventory of the jobs that may start or stay somewhere, and their rows."""
    left = open_nodes(problem, inventory, windows, stays)
    able = np.flatnonzero(left.possible.any(axis=1))
    position = np.full(len(left.possible) + 1, -1)
    position[able] = np.arange(len(able))
    rate = np.where(left.possible, problem.rate, 0)[able]
    some = replace(problem.subset(able), rate=rate, weight=weights_of(problem, able))
    return some, left.inventory.of_rows(able, position[inventory.holder]), able


def closed_by(windows: Windows, stays: Stays, team: Ints) -> Bools:
    """Whether each job is kept from the nodes of a type in each window: (m, V, n)."""
    length_s, gap_s = stays.length_s[:, None, :], windows.gap_s[None, :, None]
    part = np.where(np.isinf(stays.least_s), 1.0, LONGEST_PART)[:, None, None]
    crosses = np.isinf(length_s) | (length_s > part * gap_s)
    needs_s = np.where(crosses, stays.least_s[:, None, None], length_s)
    needs_s = np.where(np.isinf(needs_s) & np.isinf(length_s), LONGEST_UNKNOWN_S, needs_s)
    kept = (windows.ends_s > 0) & ((windows.team < 0) | (windows.team != team[:, None]))
    closed: Bools = (needs_s > np.maximum(windows.begins_s, 0)[None, :, None]) & kept[:, :, None]
    return closed


def weights_of(problem: Problem, able: Ints) -> Floats:
    """Weights of these rows alone: their team's other jobs leave them theirs; the mean is 1, none next to 0."""
    team = np.unique(problem.team, return_inverse=True)[1]
    of_all = np.bincount(team, problem.job_weight)
    of_able = np.bincount(team[able], problem.job_weight[able], minlength=len(of_all))
    weight = problem.weight[able] * of_all[team[able]] / of_able[team[able]]
    return np.maximum(weight / weight.mean(), LEAST_WEIGHT) if len(able) else weight


def node_sets_of(closed: Bools, windows: Windows, inventory: Inventory) -> tuple[Bools, Ints]:
    """Sets of nodes (S, N) that stay open where windows are closed (m, V, n), and the set of each row (m,)."""
    patterns, group = np.unique(closed.reshape(len(closed), -1), axis=0, return_inverse=True)
    by_type = patterns.reshape(len(patterns), *closed.shape[1:])
    usable: Bools = np.logical_not((by_type[:, :, inventory.node_type] & windows.nodes).any(axis=1))
    return _joined(usable, group.ravel(), inventory)


def _of_use(problem: Problem, inventory: Inventory, windows: Windows, closed: Bools) -> Bools:
    """The windows (m, V) by which a job is kept from nodes of a type that it can use."""
    types = np.arange(len(problem.capacity))
    has = np.stack([windows.nodes[:, inventory.node_type == j].any(axis=1) for j in types], axis=1)
    can_use = np.stack([(problem.rate[:, used] > 0).any(axis=1) for used in problem.usage > 0], axis=1)
    return np.asarray((closed & has & can_use[:, None, :]).any(axis=2))


def _joined(usable: Bools, group: Ints, inventory: Inventory) -> tuple[Bools, Ints]:
    """Sets of nodes (S, N), and the set of each row (m,): those of windows (U, N) within those that jobs ask for."""
    asked = np.full(len(group), -1) if inventory.node_set is None else inventory.node_set
    pairs, of_row = np.unique(np.column_stack([group, asked]), axis=0, return_inverse=True)
    every = np.ones((1, usable.shape[1]), dtype=np.bool_)
    before = every if inventory.node_sets is None else np.concatenate([inventory.node_sets, every])
    return usable[pairs[:, 0]] & before[pairs[:, 1]], of_row.ravel()


def _with_own_nodes(of_row: Ints, sets: Bools, inventory: Inventory, holds: Ints) -> tuple[Ints, Bools]:
    """Add a set for each row that holds GPUs on a node outside its set: its set and those nodes."""
    of_row, more = of_row.copy(), list[Bools]()
    for row in holds.tolist():
        nodes = inventory.gpu_node[inventory.holder == row]
        if not sets[of_row[row], nodes].all():
            own = sets[of_row[row]].copy()
            own[nodes] = True
            of_row[row] = len(sets) + len(more)
            more.append(own)
    return of_row, np.concatenate([sets, np.array(more)]) if more else sets


def _fitting(problem: Problem, inventory: Inventory, sets: Bools) -> Bools:
    """Configurations that each set of nodes holds in equal parts, and those that it holds in any parts: (2, S, K)."""
    on_node = np.bincount(inventory.gpu_node, minlength=len(inventory.node_type))
    part = problem.gpus // np.maximum(problem.nodes, 1)
    fits = np.zeros((2, len(sets), len(part)), dtype=np.bool_)
    of_type = inventory.node_type[:, None] == np.arange(len(problem.capacity))
    for nodes in inventory.domains or [np.ones(len(on_node), dtype=np.bool_)]:
        for size in np.unique(part).tolist():
            whole = np.where(nodes & (on_node >= size), size, 0)
            fits[0][:, part == size] |= _holds(sets, whole[:, None] * of_type, problem.usage[:, part == size])
        fits[1] |= _holds(sets, np.where(nodes, on_node, 0)[:, None] * of_type, problem.usage)
    return fits


def _holds(sets: Bools, gpus: Ints, usage: Ints) -> Bools:
    """Whether sets (S, N) with so many GPUs (N, n) on each node hold configurations (n, K): (S, K)."""
    held = sets.astype(float) @ gpus
    holds: Bools = np.asarray((usage[None] <= held[:, :, None]).all(axis=1))
    return holds
