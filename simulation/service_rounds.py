"""Rounds as the service plans them."""

from dataclasses import dataclass, field

import numpy as np

from allocation.arrays import Ints
from allocation.decision import Decision
from allocation.floor import Floor
from allocation.limits import Limits
from allocation.parameters import Policy
from allocation.planning import Plan, plan_round
from allocation.rounds import reset_due
from simulation.cluster import Cluster
from simulation.rounds import Planned
from simulation.state import State


@dataclass(eq=False)
class ServiceRounds:
    """The policy is asked every round, and what is picked is placed on nodes.

    A policy that is timeless decides alike as long as no job comes or is done: what it shares out is kept till then.
    Rounds are skipped where it decides as before and nothing moves; and where it shares out, if every job runs all the
    time in the only configuration of which it has a share.
    """

    cluster: Cluster
    policy: Policy
    round_s: float
    timeless: bool = False
    whole_steps: bool = False
    _decision: Decision | None = None
    _owner: Ints = field(init=False)
    _shares_since_s: float | None = None

    def __post_init__(self) -> None:
        self._owner = np.full(int(self.cluster.capacity.sum()), -1, dtype=np.int64)

    def plan(self, state: State, *, changed: bool) -> Planned:
        self._renew_shares(state, changed=changed)
        problem = state.problem()
        state.set_isolated(problem)
        floor, rows = self._floor(state), state.active
        plan = plan_round(problem, floor, Limits.none(len(rows)), self._asked(changed=changed), round_s=self.round_s)
        self._decision = plan.decision
        moved = (plan.owner >= 0) & (plan.owner != floor.holder)
        starts = np.isin(np.arange(len(rows)), plan.owner[moved])
        self._owner = np.where(plan.owner >= 0, rows[plan.owner], -1)
        changes = plan.picks != state.held[rows]
        steady = self.timeless and not (changes | starts).any() and _repeats(plan)
        return Planned(plan.picks, starts | (changes & (plan.picks >= 0)), steady)

    def _asked(self, *, changed: bool) -> Policy:
        decision = self._decision
        if changed or not self.timeless or decision is None or decision.shares is None:
            return self.policy
        return lambda _: decision

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


def _repeats(plan: Plan) -> bool:
    """Whether who received how much of his shares makes no difference to the next round."""
    shares = plan.decision.shares
    if shares is None:
        return True
    alone = ((shares > 0).sum(axis=1) == 1) & (plan.picks == shares.argmax(axis=1))
    return bool(alone.all())
