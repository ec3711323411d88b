"""Rounds as the service plans them."""

from dataclasses import dataclass, field

import numpy as np

from allocation.arrays import Ints
from allocation.floor import Floor
from allocation.limits import Limits
from allocation.parameters import Policy
from allocation.planning import plan_round
from allocation.rounds import reset_due
from simulation.cluster import Cluster
from simulation.rounds import Planned
from simulation.state import State


@dataclass(eq=False)
class ServiceRounds:
    """The policy is asked every round, and what is picked is placed on nodes."""

    cluster: Cluster
    policy: Policy
    round_s: float
    whole_steps: bool = False
    _owner: Ints = field(init=False)
    _shares_since_s: float | None = None

    def __post_init__(self) -> None:
        self._owner = np.full(int(self.cluster.capacity.sum()), -1, dtype=np.int64)

    def plan(self, state: State, *, changed: bool) -> Planned:
        self._renew_shares(state, changed=changed)
        problem = state.problem()
        state.set_isolated(problem)
        floor, rows = self._floor(state), state.active
        plan = plan_round(problem, floor, Limits.none(len(rows)), self.policy, round_s=self.round_s)
        moved = (plan.owner >= 0) & (plan.owner != floor.holder)
        starts = np.isin(np.arange(len(rows)), plan.owner[moved])
        self._owner = np.where(plan.owner >= 0, rows[plan.owner], -1)
        return Planned(plan.picks, starts | ((plan.picks >= 0) & (plan.picks != state.held[rows])))

    def relax(self) -> None:
        """Every round is planned anew."""

    def _renew_shares(self, state: State, *, changed: bool) -> None:
        since_s = None if self._shares_since_s is None else state.now_s - self._shares_since_s
        if reset_due(changed=changed, since_s=since_s, round_s=self.round_s):
            self._shares_since_s = state.now_s
            state.received_s[state.active] = 0

    def _floor(self, state: State) -> Floor:
        sizes = [(j, gpus) for j, nodes in enumerate(self.cluster.node_gpus) for gpus in nodes]
        gpu_node = np.repeat(np.arange(len(sizes)), [gpus for _, gpus in sizes])
        row = np.full(len(state.held) + 1, -1, dtype=np.int64)
        row[state.active] = np.arange(len(state.active))
        N, m = len(sizes), len(state.active)
        return Floor(
            gpu_node=gpu_node,
            node_type=np.array([j for j, _ in sizes], dtype=np.int64),
            holder=row[self._owner],
            releasing=np.zeros(len(gpu_node), dtype=np.bool_),
            node_cpus=np.full(N, np.inf),
            node_memory_mib=np.full(N, np.inf),
            cpus_per_gpu=np.zeros(m),
            memory_per_gpu_mib=np.zeros(m),
            uneven=np.zeros(m, dtype=np.bool_),
        )
