"""Rules of the service: the policy decides every round, and its assignment is placed on nodes."""

from dataclasses import dataclass, field
from math import inf, isfinite

import numpy as np

from allocation.decision import Decision
from allocation.demands import MIB_PER_GIB, Demands
from allocation.inventory import Inventory
from allocation.plan_round import Plan, plan_round
from allocation.policies.parameters import Policy
from allocation.problem import runnable
from allocation.quotas import Quotas
from allocation.rounds.mechanism import least_run_s, reset_due
from allocation.rounds.windows import open_rows
from allocation.types import Bools, Floats, Ints
from simulation.clock.maintenance import Maintenance
from simulation.clock.node_failures import Failures
from simulation.clock.round_rules import PlannedRound
from simulation.clock.state import State
from simulation.cluster import Cluster
from simulation.rules.cpu_shares import CpuShares

MOMENT_S = 1e-6
"""Times are sums of floats."""


@dataclass(eq=False)
class ServiceRules:
    """Plans rounds as the service does.

    A timeless policy decides the same until a job arrives or finishes: its shares are kept until then.
    Rounds are skipped where its decision and placement repeat: no lock will end and, with shares, every job runs all
    the time in the only configuration of which it has a share.

    A job that has started keeps its GPUs for min_run_s, at least half a round, and in the round that the stop before it
    causes; GPUs that a running job has to leave are free after release_s.

    Nodes fail and recover at the ends of rounds; jobs write a checkpoint when they are stopped, and at the end of the
    round in which checkpoint_s have passed since the last.
    """

    cluster: Cluster
    policy: Policy
    round_s: float
    timeless: bool = False
    node_failures: Failures | None = None
    checkpoint_s: float = 0.0
    min_run_s: float = 0.0
    whole_steps: bool = False
    first_start_s: float | None = 0.0
    event_delay_s: float | None = None
    release_s: float = 0.0
    places_by_loss: bool = True
    """Whether the placement of gangs knows how often each node fails, as the service does."""
    gpu_slower_by: Floats | None = None
    """Part (G,) of 1 by which each GPU is slower than its type; a gang is as fast as its slowest GPU."""
    places_by_speed: bool = True
    """Whether the placement of gangs knows it, as the service does."""
    places_by_deadline: bool = True
    """Whether it knows deadlines, too."""
    cpu_shares: CpuShares | None = None
    """How CPUs are shared out; None: in proportion to GPUs. Jobs that share a GPU have CPUs in proportion."""
    node_price: Floats | None = None
    """Price (N,) of a GPU of each node per hour, by which it places."""
    maintenance: Maintenance | None = None
    _decision: Decision | None = None
    _owner: Ints = field(init=False)
    _sharer: Ints = field(init=False)
    _node_type: Ints = field(init=False)
    _gpu_node: Ints = field(init=False)
    _shares_since_s: float | None = None
    _closed: Bools = field(init=False)
    """Nodes (N,) in maintenance."""

    def __post_init__(self) -> None:
        sizes = [gpus for nodes in self.cluster.node_gpus for gpus in nodes]
        self._node_type = np.repeat(np.arange(len(self.cluster.node_gpus)), [len(n) for n in self.cluster.node_gpus])
        self._gpu_node = np.repeat(np.arange(len(sizes)), sizes)
        self._owner = np.full(int(self.cluster.capacity.sum()), -1, dtype=np.int64)
        self._sharer = self._owner.copy()
        self._closed = np.zeros(len(sizes), dtype=np.bool_)

    def plan(self, state: State, *, changed: bool) -> PlannedRound:
        changed |= self._nodes_changed(state) | self._nodes_maintained(state)
        if state.budgets is not None:
            changed |= state.budgets.turn_to(state.now_s)
        self._renew_shares(state, changed=changed)
        rows = state.active[self._can_run_now(state) & ~state.waits_for_budget(state.active)]
        if not rows.size:
            return self._nothing_runs(state)
        unlock_s = self._unlock_s(state, rows)
        problem = state.problem(rows, capacity=self._capacity(), locked=unlock_s > 0, unlock_s=unlock_s)
        state.set_isolated(problem, rows)
        inventory = self._inventory(state, rows)
        if not self.places_by_deadline:
            problem = problem.changed(deadline_s=np.full(len(rows), np.inf))
        if self.maintenance is not None:
            stays = self.maintenance.stays(problem, min_run_s=self.min_run_s)
            problem, inventory, able = open_rows(problem, inventory, self.maintenance.at(state.now_s), stays)
            rows = rows[able]
            if not rows.size:
                return self._nothing_runs(state)
        quotas = state.quotas.of_rows(rows) if state.quotas else Quotas.none(len(rows))
        asked = self._asked(changed=changed or state.budgets is not None)
        plan = plan_round(problem, inventory, quotas, asked, round_s=self.round_s)
        self._decision = plan.decision
        planned = self._planned(state, rows, plan, locked=bool((unlock_s > 0).any()))
        stopped = (planned.assignment != state.held[state.active]) | planned.starts
        state.save(state.active[stopped])
        return planned

    def _unlock_s(self, state: State, rows: Ints) -> Floats:
        """Seconds (m,) for which each job keeps its GPUs."""
        held_s = state.now_s - state.since_s[rows]
        left_s = least_run_s(round_s=self.round_s, min_run_s=self.min_run_s) - held_s
        if self.event_delay_s is not None:  # in the round that a stop causes, what was given its GPUs is starting yet
            left_s = np.where(held_s <= self.event_delay_s + MOMENT_S, np.maximum(left_s, self.round_s), left_s)
        unlock_s: Floats = np.where(state.held[rows] >= 0, np.maximum(left_s, 0), 0)
        return unlock_s

    def _planned(self, state: State, rows: Ints, plan: Plan, *, locked: bool) -> PlannedRound:
        """Record the holder of each GPU, and extend the plan to all active jobs; locked: a job is, until later."""
        mate = np.full(len(rows), -1) if plan.mate is None else plan.mate
        sharer = np.where(plan.owner >= 0, mate[plan.owner], -1)
        starts, up = self._moved(rows, plan.owner) | self._moved(rows, sharer), self._gpus_up()
        taken = self._taken(state, rows, plan.owner)
        self._owner[:] = self._sharer[:] = -1
        self._owner[up] = np.where(plan.owner >= 0, rows[plan.owner], -1)
        self._sharer[up] = np.where(sharer >= 0, rows[sharer], -1)
        changes = plan.assignment != state.held[rows]
        lasting = self._is_timeless and state.budgets is None and not locked
        steady = lasting and not (changes | starts).any() and _repeats(plan)
        place = np.searchsorted(state.active, rows)
        assignment, started = np.full(len(state.active), -1), np.zeros(len(state.active), dtype=np.bool_)
        assignment[place], started[place] = plan.assignment, starts | (changes & (plan.assignment >= 0))
        mates = np.full(len(state.active), -1)
        mates[place] = np.where(mate >= 0, rows[mate], -1)
        release_s = np.zeros(len(state.active))
        release_s[place] = self.release_s * taken
        idle_until_s = None if (assignment >= 0).any() else self._idle_until_s(state)
        return PlannedRound(assignment, started, steady, mates, release_s, self._speeds(state), idle_until_s)

    def _speeds(self, state: State) -> Floats | None:
        """How fast each active job (A,) is where it is now; None: as its rates say."""
        if self.gpu_slower_by is None:
            return None if self.cpu_shares is None else self._speeds_by_cpus(state, self.cpu_shares)
        of_gpus = self._speeds_by_gpus(state, self.gpu_slower_by)
        return of_gpus if self.cpu_shares is None else of_gpus * self._speeds_by_cpus(state, self.cpu_shares)

    def _speeds_by_cpus(self, state: State, shares: CpuShares) -> Floats:
        """By the CPUs of each active job (A,) on the nodes of its GPUs."""
        N, speed = len(self._node_type), np.ones(len(state.held))
        held, gpus = self._owner >= 0, np.zeros((len(state.held), N), dtype=np.int64)
        np.add.at(gpus, (self._owner[held], self._gpu_node[held]), 1)
        if (running := np.flatnonzero(gpus.any(axis=1))).size:
            programs = [state.jobs.programs[kind] for kind in state.jobs.kind[running].tolist()]
            speed[running] = shares.speeds(programs, gpus[running], np.bincount(self._gpu_node, minlength=N))
        speeds: Floats = speed[state.active]
        return speeds

    def _speeds_by_gpus(self, state: State, slower_by: Floats) -> Floats:
        """By the slowest GPU of each active job (A,)."""
        speed = np.ones(len(state.held) + 1)
        for holders in (self._owner, self._sharer):
            np.minimum.at(speed, holders, 1 - slower_by)
        speeds: Floats = speed[state.active]
        return speeds

    def _taken(self, state: State, rows: Ints, on: Ints) -> Bools:
        """Rows (m,) that are given a GPU which another unfinished job holds, or that hold others themselves."""
        holder, new = self._owner[self._gpus_up()], np.where(on >= 0, rows[on], -1)
        is_active = np.zeros(len(state.held), dtype=np.bool_)
        is_active[state.active] = True
        from_another = (new >= 0) & (holder >= 0) & (holder != new) & is_active[holder]
        moves = (state.held[rows] >= 0) & self._moved(rows, on)
        return _marked(len(rows), on[from_another]) | moves

    def _moved(self, rows: Ints, on: Ints) -> Bools:
        """Rows (m,) placed on a GPU that they did not hold in the previous round."""
        of_trace, up = np.where(on >= 0, rows[on], -1), self._gpus_up()
        new = (on >= 0) & (of_trace != self._owner[up]) & (of_trace != self._sharer[up])
        return _marked(len(rows), on[new])

    def _nothing_runs(self, state: State) -> PlannedRound:
        """The plan of a round in which no job can run on the nodes that are up."""
        self._owner[:] = self._sharer[:] = -1
        none = np.full(len(state.active), -1)
        return PlannedRound(none, none >= 0, idle_until_s=self._idle_until_s(state))

    def _idle_until_s(self, state: State) -> float | None:
        """When jobs of which none runs may run: a budget is reset, a node is repaired, a window ends; None: unknown.

        Where all wait for a budget, it does not matter what becomes of nodes meanwhile.
        """
        waits, until_s = state.waits_for_budget(state.active), inf
        if state.budgets is not None and waits.any():
            until_s = state.budgets.next_reset_s()
            if waits.all():
                return until_s
        if self.node_failures is not None:
            until_s = min(until_s, self.node_failures.next_s)
        if self.maintenance is not None:
            until_s = min(until_s, self.maintenance.next_end_s(state.now_s))
        return until_s if isfinite(until_s) else None

    def _nodes_changed(self, state: State) -> bool:
        """Advance node failures; jobs on a failed node go back to their last checkpoint."""
        state.save(state.active[state.unsaved_s[state.active] >= self.checkpoint_s])
        if self.node_failures is None:
            return False
        before = self.node_failures.down.copy()
        failed = self.node_failures.pass_until(state.now_s)
        self._stop(state, self._jobs_on(state, failed))
        return bool(failed.any() or (self.node_failures.down != before).any())

    def _nodes_maintained(self, state: State) -> bool:
        """Stop jobs on nodes whose window has come, with their work saved; whether nodes came or went."""
        if self.maintenance is None:
            return False
        before, self._closed = self._closed, self.maintenance.closed(state.now_s)
        leave = self._jobs_on(state, self._closed)
        state.save(leave)
        self._stop(state, leave)
        return bool((self._closed != before).any())

    def _jobs_on(self, state: State, nodes: Bools) -> Ints:
        """Active jobs that hold GPUs on these nodes (N,)."""
        there = nodes[self._gpu_node]
        return np.intersect1d(np.append(self._owner[there], self._sharer[there]), state.active)

    def _stop(self, state: State, rows: Ints) -> None:
        """Put jobs back into the queue, as they were at their last checkpoint."""
        state.lose(rows)
        for on in (self._owner, self._sharer):
            on[np.isin(on, rows)] = -1

    def _gpus_up(self) -> Bools:
        """Which GPUs of the cluster are on nodes that are up and not in maintenance."""
        down = self._closed if self.node_failures is None else self._closed | self.node_failures.down
        return ~down[self._gpu_node]

    def _capacity(self) -> Ints:
        return np.bincount(self._node_type[self._gpu_node[self._gpus_up()]], minlength=len(self.cluster.gpu_types))

    def _can_run_now(self, state: State) -> Bools:
        jobs, rows = state.jobs, state.active
        rate, kind = state.work.believed(rows)
        return runnable(rate, jobs.configurations.usage, self._capacity())[kind]

    def _asked(self, *, changed: bool) -> Policy:
        decision = self._decision
        if changed or self.maintenance or not self.timeless or decision is None or decision.shares is None:
            return self.policy
        return lambda _: decision

    @property
    def _is_timeless(self) -> bool:
        return self.timeless and self.node_failures is None and self.maintenance is None

    def relax(self) -> None:
        """No rule waits: every round is planned anew."""

    def _renew_shares(self, state: State, *, changed: bool) -> None:
        since_s = None if self._shares_since_s is None else state.now_s - self._shares_since_s
        if reset_due(changed=changed, since_s=since_s, turn_s=max(self.round_s, self.min_run_s)):
            self._shares_since_s = state.now_s
            state.renew_shares()

    def _inventory(self, state: State, rows: Ints) -> Inventory:
        """The inventory of GPUs that are up, with the row that holds each."""
        up, N, m = self._gpus_up(), len(self._node_type), len(rows)
        row = np.full(len(state.held) + 1, -1, dtype=np.int64)
        row[rows] = np.arange(m)
        demands = self._demands(state, rows)
        room = np.full((N, 2), np.inf)
        if demands is not None and self.cpu_shares is not None:
            room = self.cpu_shares.capacity(np.bincount(self._gpu_node, minlength=N))
        return Inventory(
            gpu_node=self._gpu_node[up],
            node_type=self._node_type,
            holder=np.where(row[self._owner[up]] >= 0, row[self._owner[up]], row[self._sharer[up]]),
            releasing=np.zeros(int(up.sum()), dtype=np.bool_),
            node_cpus=room[:, 0],
            node_memory_mib=room[:, 1] * MIB_PER_GIB,
            cpus_per_gpu=np.zeros(m),
            memory_per_gpu_mib=np.zeros(m),
            uneven=np.zeros(m, dtype=np.bool_),
            node_loss_rate=self._loss_rates(),
            gpu_slower_by=self.gpu_slower_by[up] if self.gpu_slower_by is not None and self.places_by_speed else None,
            node_price=self.node_price,
            demands=demands,
        )

    def _demands(self, state: State, rows: Ints) -> Demands | None:
        """Of CPUs, by which these jobs are placed; None: by their GPUs alone."""
        if self.cpu_shares is None:
            return None
        kinds, profile = np.unique(state.jobs.kind[rows], return_inverse=True)
        return self.cpu_shares.demands(
            [state.jobs.programs[kind] for kind in kinds.tolist()],
            profile.ravel(),
            state.jobs.kind_rate[kinds] > 0,
            offered=state.jobs.configurations,
            node_gpus=np.bincount(self._gpu_node, minlength=len(self._node_type)),
            held=state.held[rows],
        )

    def _loss_rates(self) -> Floats | None:
        return 1 / self.node_failures.mean_up_s if self.node_failures and self.places_by_loss else None


def _marked(rows: int, those: Ints) -> Bools:
    """Mask of these rows among so many."""
    marked = np.zeros(rows, dtype=np.bool_)
    marked[those] = True
    return marked


def _repeats(plan: Plan) -> bool:
    """Whether the next round's plan does not depend on the time received."""
    shares = plan.decision.shares
    if shares is None:
        return True
    if plan.mate is not None:
        return False
    alone = ((shares > 0).sum(axis=1) == 1) & (plan.assignment == shares.argmax(axis=1))
    return bool(alone.all())
