"""Windows of nodes in a future: which rows they keep from nodes, and stop; nothing where there are no windows."""

from dataclasses import dataclass, replace

import numpy as np

from allocation.inventory import Inventory
from allocation.problem import Problem
from allocation.rounds.windows import Stays, Windows, closed_by, node_sets_of, open_rows
from estimation.types import Bools, Floats, Ints

NO_ROWS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Closures:
    """Windows, in seconds from the moment of the forecast, and the teams of the L rows of a future."""

    windows: Windows | None
    team: Ints

    def narrowed(
        self, problem: Problem, inventory: Inventory, rows: Ints, stays: Stays | None, now_s: float
    ) -> tuple[Problem, Inventory, Ints]:
        """The problem of those of these rows that may start or stay somewhere, and what is left to them."""
        if self.windows is None or stays is None:
            return problem, inventory, rows
        some, left, able = open_rows(problem, inventory, self.windows.after(now_s), stays)
        return some, left, rows[able]

    def inventory_for(self, rows: Ints, inventory: Inventory, stays: Stays | None, now_s: float) -> Inventory:
        """The inventory with the nodes that are left to these rows; those of others are of no account."""
        if self.windows is None or stays is None or not rows.size:
            return inventory
        windows = self.windows.after(now_s)
        closed = closed_by(windows, stays, self.team[rows])
        sets, of_row = node_sets_of(closed, windows, inventory.of_rows(rows, np.full_like(inventory.holder, -1)))
        node_set = np.full(len(self.team), -1)
        node_set[rows] = of_row
        return replace(inventory, node_set=node_set, node_sets=sets)

    def left_by(self, owner: Ints, inventory: Inventory, now_s: float) -> Ints:
        """Rows that own GPUs (G,) on nodes whose window goes on, and is not for their team."""
        if self.windows is None:
            return NO_ROWS
        on_nodes = self._going_on(now_s)[:, inventory.gpu_node] & (owner >= 0)
        others = self.windows.team[:, None] != self.team[owner]
        return np.unique(owner[np.asarray((on_nodes & others).any(axis=0))])

    def free_s(self, inventory: Inventory, now_s: float) -> Floats:
        """When each GPU (G,) was free of windows again, of those that are over."""
        if self.windows is None:
            return np.zeros(len(inventory.gpu_node))
        over_s = np.where(self.windows.ends_s <= now_s, self.windows.ends_s, 0)
        of_node: Floats = np.where(self.windows.nodes, over_s[:, None], 0).max(axis=0)
        return of_node[inventory.gpu_node]

    def next_s(self, now_s: float) -> float:
        """When a window begins or ends next; infinite: none does."""
        return float(min((at for at in self._times if at > now_s), default=np.inf))

    def passed_between(self, since_s: float, now_s: float) -> bool:
        """Whether a window has begun or ended."""
        return any(since_s < at <= now_s for at in self._times)

    @property
    def _times(self) -> list[float]:
        return [] if self.windows is None else [*self.windows.begins_s.tolist(), *self.windows.ends_s.tolist()]

    def _going_on(self, now_s: float) -> Bools:
        """Nodes (V, N) of the windows that go on."""
        if self.windows is None:
            return np.zeros((0, 0), dtype=np.bool_)
        going_on = (self.windows.begins_s <= now_s) & (now_s < self.windows.ends_s)
        return self.windows.nodes & going_on[:, None]
