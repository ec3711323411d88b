"""One future: rounds of the policy, played forward from a draw until the jobs that are there have ended.

A round is decided by `plan_round`, as in the service and in the simulator. Decisions are fewer the farther they lie in
the future: the time between two is at least a part of that from now (`DECISIONS`). Between them jobs that wait start on
GPUs that become free, in order (`forecast.filling`), at times that are not so coarse (`FILLINGS`). They are taken to
have started when the GPUs became free, as in a round that this would have caused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import monotonic

import numpy as np

from allocation.fairness import entitled_shares, later_backlog
from allocation.plan_round import Plan, plan_round
from allocation.policies.parameters import Policy
from allocation.problem import Problem, isolated_rate, runnable
from allocation.rounds.mechanism import reset_due
from allocation.rounds.windows import LEAST_LEFT, Stays, slowest_rates
from estimation.types import Bools, Floats, Ints
from forecast.closures import Closures
from forecast.filling import Filling
from forecast.gates import Gates, Waits
from forecast.outages import Nodes, Outage
from forecast.present import Draw, Present, weights_among

DECISIONS, FILLINGS = 0.25, 0.02
"""Least time between two decisions, and between two fillings, as a part of the time from now to them."""
NEAR_DECISIONS_S, NEAR_FILLINGS_S = 10.0, 1.0
"""The same in seconds, near to now."""
DAY_S = 86_400.0
HORIZON_S = 3 * DAY_S
"""Jobs that have not ended by then have no end in this future."""
DONE_PART = 1e-6
"""Part of its work that rounding leaves of a job that is done."""
SOLVE_LIMIT_S = 1e-3
"""Time limit of a decision: of an uncertain future, what is certified at once is as good as the best."""


@dataclass(frozen=True, eq=False)
class Played:
    """What became of the m jobs: seconds from now to start and end (inf: beyond the horizon), and the GPU type.

    gpu_type (m,) is that of the first start, or what it holds now; -1: it never started. done (m,): it ended with its
    work done, and not at its time limit.
    """

    start_s: Floats
    finish_s: Floats
    gpu_type: Ints
    done: Bools


@dataclass(frozen=True)
class Rounds:
    """How rounds are decided: the policy, their length, and the time for which a job keeps its GPUs at least."""

    policy: Policy
    round_s: float
    min_run_s: float = 0.0
    strict: bool = False
    """Whether jobs are served in the order of submission, and the first that does not fit stops the queue."""


class OutOfTime(Exception):
    """A future was given up before its jobs had ended."""


def play(
    present: Present,
    draw: Draw,
    rounds: Rounds,
    *,
    horizon_s: float = HORIZON_S,
    deadline: float = np.inf,
    watched: Sequence[int] = (),
) -> Played:
    """Play the rounds of one future until all jobs that are there have ended, or to the horizon.

    Where rows are watched, it ends with the last of them: what becomes of the others is not told.

    Raises
    ------
    OutOfTime
        `time.monotonic` reached the deadline.
    """
    future = Future(present.rows(draw.rows), draw, rounds)
    until = np.array(watched or range(present.jobs), dtype=np.int64)
    while future.now_s < horizon_s and np.isinf(future.finish_s[until]).any():
        if monotonic() >= deadline:
            raise OutOfTime(f"a future was given up {future.now_s:,.0f} s from now")
        future.run_round()
    return future.played()


@dataclass(eq=False)
class Future:
    """State of one future: columns of its L rows, of the T teams and of the G GPUs.

    left (L,) true steps; told (L,) those that the policy is told; held (L,) configuration or -1; since_s (L,) of the
    last start, open_s (L,) from which it may run, ready_s (L,) from which it works, booked_s (L,) up to which its work
    is counted; owner (G,) row or -1; free_s (G,) when a GPU was released.
    """

    present: Present
    draw: Draw
    rounds: Rounds
    now_s: float = 0.0
    left: Floats = field(init=False)
    told: Floats = field(init=False)
    limit_s: Floats = field(init=False)
    held: Ints = field(init=False)
    since_s: Floats = field(init=False)
    ready_s: Floats = field(init=False)
    booked_s: Floats = field(init=False)
    attained_gpu_s: Floats = field(init=False)
    isolated_s: Floats = field(init=False)
    received_s: Floats = field(init=False)
    restarts: Ints = field(init=False)
    start_s: Floats = field(init=False)
    finish_s: Floats = field(init=False)
    gpu_type: Ints = field(init=False)
    backlog_s: Floats = field(init=False)
    owner: Ints = field(init=False)
    open_s: Floats = field(init=False)
    free_s: Floats = field(init=False)
    nodes: Nodes = field(init=False)
    _gates: Gates = field(init=False)
    _team: Ints = field(init=False)
    _demand: Floats = field(init=False)
    _served_s: float = 0.0
    _next_decision_s: float = 0.0
    _shares_since_s: float = 0.0
    _changed: bool = False
    _looked_s: float = 0.0
    _due: bool = True
    """Whether the next round may decide otherwise: jobs wait, came or went since the last."""

    def __post_init__(self) -> None:
        problem, L = self.present.problem, len(self.draw.rows)
        running = problem.held >= 0
        self.left, self.told = self.draw.left.copy(), problem.remaining_steps.copy()
        self.limit_s, self.held = self.present.limit_s.copy(), problem.held.copy()
        self.since_s, self.ready_s, self.booked_s = -problem.held_s, np.zeros(L), np.zeros(L)
        self.attained_gpu_s, self.isolated_s = problem.attained_gpu_s.copy(), problem.isolated_s.copy()
        self.received_s, self.restarts = problem.received_s.copy(), problem.restarts.copy()
        self.start_s, self.finish_s = np.where(running, 0.0, np.inf), np.full(L, np.inf)
        self.gpu_type = np.where(running, problem.usage[:, problem.held].argmax(axis=0), -1)
        self._team = np.unique(problem.team, return_inverse=True)[1]
        self.backlog_s = np.zeros(int(self._team.max(initial=-1)) + 1)
        self.backlog_s[self._team] = problem.team_backlog_s
        self._demand = np.where(problem.rate > 0, problem.gpus, 0).max(axis=1, initial=0).astype(float)
        self._gates = Gates.of(self.present.waits or Waits.none(self.present.jobs), running[: self.present.jobs])
        self.open_s = self.draw.arrival_s.copy()
        self.open_s[list(self._gates.closed)] = np.inf
        self.owner = self.present.inventory.holder.copy()
        self.free_s = np.zeros(len(self.owner))
        self.nodes = Nodes(self.present.inventory, problem.capacity, self.draw.outages)

    @cached_property
    def closures(self) -> Closures:
        """The windows that keep rows from nodes."""
        return Closures(self.present.windows, self.present.problem.team)

    @cached_property
    def _slowest(self) -> Floats:
        return slowest_rates(self.present.problem)

    def _stays(self, rows: Ints) -> Stays | None:
        """How long these rows still need GPUs: less what they have done, or held GPUs, since the forecast."""
        if (stays := self.present.stays) is None:
            return None
        limit_s, steps = self.present.limit_s[rows], self.draw.left[rows] - self.left[rows]
        limited = np.isfinite(limit_s)
        ran_s = np.where(limited, limit_s, 0) - np.where(limited, self.limit_s[rows], 0)
        done_s = np.where(limited[:, None], ran_s[:, None], steps[:, None] / self._slowest[rows])
        return stays.of_rows(rows).after(done_s)

    def played(self) -> Played:
        m = self.present.jobs
        done = np.isfinite(self.finish_s) & (self.left <= DONE_PART * self.draw.left)
        return Played(self.start_s[:m], self.finish_s[:m], self.gpu_type[:m], done[:m])

    def run_round(self) -> None:
        """Decide, start and stop jobs, and run them until the next round."""
        self._turn_nodes()
        self._leave_nodes()
        active = np.flatnonzero(np.isinf(self.finish_s) & (self.open_s <= self.now_s))
        if self._due and active.size:
            self._decide(active) if self.now_s >= self._next_decision_s else self._fill(active)
        self._due = bool((self.held[active] < 0).any())
        self._run_until(self._next_s(), active)

    def _leave_nodes(self) -> None:
        """Stop the rows on nodes whose window has begun; the GPUs are free again when it is over."""
        closures, inventory = self.closures, self.present.inventory
        gone = closures.left_by(self.owner, inventory, self.now_s)
        self._stop(gone)
        self.free_s = np.maximum(self.free_s, closures.free_s(inventory, self.now_s))
        self._note_change(gone.size or closures.passed_between(self._looked_s, self.now_s))
        self._looked_s = self.now_s

    @property
    def _turn_s(self) -> float:
        return max(self.rounds.round_s, self.rounds.min_run_s)

    def _decide(self, active: Ints) -> None:
        self._renew_shares()
        able = active[runnable(self.present.problem.rate[active], self.present.problem.usage, self.nodes.capacity)]
        if able.size:
            rows, plan = self._plan(able)
            assignment, owner = np.full(len(self.left), -1), np.full(len(self.owner), -1)
            assignment[rows] = plan.assignment
            owner[self.nodes.usable] = np.append(rows, -1)[plan.owner]
            self._apply(able, assignment[able], owner)
        self._next_decision_s = self.now_s + max(DECISIONS * self.now_s, NEAR_DECISIONS_S)

    def _fill(self, active: Ints) -> None:
        present = self.present
        taken = np.where(self.nodes.usable, self.owner, 0)  # what is down is as if somebody held it
        waiting, assignment, owner = active[self.held[active] < 0], self.held.copy(), self.owner.copy()
        inventory = self.closures.inventory_for(waiting, present.inventory, self._stays(waiting), self.now_s)
        filling = Filling.of(present.problem, inventory, present.quotas, self.held, taken)
        for row, k, gpus in filling.starts(self._queue(waiting), strict=self.rounds.strict):
            assignment[row], owner[gpus] = k, row
        self._apply(active, assignment[active], owner)

    def _queue(self, waiting: Ints) -> Ints:
        """The order in which they start: of submission, or those first that have received least for their weight."""
        problem = self.present.problem
        age_s = problem.age_s[waiting] - self.draw.arrival_s[waiting]
        received = self.attained_gpu_s[waiting] / problem.job_weight[waiting] * (not self.rounds.strict)
        return waiting[np.lexsort((-age_s, received))]

    # -- decide --------------------------------------------------------------------------------------------------

    def _plan(self, active: Ints) -> tuple[Ints, Plan]:
        """The rows that may run on nodes that no window keeps from them, and their plan."""
        position = np.full(len(self.left) + 1, -1)
        position[active] = np.arange(len(active))
        inventory = self.present.inventory.of_rows(active, position[self.owner])
        if not self.nodes.all_up:
            inventory = inventory.of_gpus(self.nodes.usable)
        if self.now_s > 0:  # by then the jobs that are leaving have left
            inventory = replace(inventory, releasing=np.zeros_like(inventory.releasing))
        problem, inventory, able = self.closures.narrowed(
            self._problem(active), inventory, active, self._stays(active), self.now_s
        )
        quotas = self.present.quotas.of_rows(able)
        return able, plan_round(problem, inventory, quotas, self.rounds.policy, round_s=self.rounds.round_s)

    def _problem(self, active: Ints) -> Problem:
        """The round as the policy sees it."""
        problem, capacity = self.present.problem.subset(active), self.nodes.capacity
        fits = (problem.usage <= capacity[:, None]).all(axis=0)
        held = self.held[active] >= 0
        kept_s = self.since_s[active] + self.rounds.min_run_s - self.now_s
        kept_s[~self.present.preemptible[active]] = np.inf
        unlock_s = np.where(held, np.maximum(np.maximum(problem.unlock_s - self.now_s, kept_s), 0), 0)
        told = np.maximum(self.told[active], LEAST_LEFT * problem.remaining_steps)
        return replace(
            problem,
            rate=np.where(fits, problem.rate, 0),
            capacity=capacity,
            weight=weights_among(self.present.team_weight[active], problem.job_weight, problem.team),
            team_backlog_s=self.backlog_s[self._team[active]],
            age_s=problem.age_s + self.now_s - self.draw.arrival_s[active],
            remaining_steps=told,
            attained_gpu_s=self.attained_gpu_s[active],
            isolated_s=self.isolated_s[active],
            received_s=self.received_s[active],
            held=self.held[active],
            held_s=np.where(held, np.maximum(self.now_s - self.since_s[active], 0), 0),
            restarts=self.restarts[active],
            locked=unlock_s > 0,
            unlock_s=unlock_s,
            deadline_s=problem.deadline_s - self.now_s,
            solve_limit_s=SOLVE_LIMIT_S,
        )

    def _renew_shares(self) -> None:
        """Reset the time received, as when shares are set anew."""
        if reset_due(changed=self._changed, since_s=self.now_s - self._shares_since_s, turn_s=self._turn_s):
            self._shares_since_s, self._changed = self.now_s, False
            self.received_s[:] = 0

    # -- start and stop ------------------------------------------------------------------------------------------

    def _apply(self, active: Ints, assignment: Ints, owner: Ints) -> None:
        new = (owner >= 0) & (owner != self.owner)
        starts = np.zeros(len(self.left), dtype=np.bool_)
        starts[owner[new]] = True
        starts[active] |= (assignment >= 0) & (assignment != self.held[active])
        from_s = self._from_s(owner, new, waited=self.held < 0)
        self.held[active] = assignment
        self._start(np.flatnonzero(starts), from_s)
        self.free_s[(self.owner >= 0) & (owner < 0)] = self.now_s
        self.owner, self._served_s = owner, self.now_s

    def _from_s(self, owner: Ints, new: Bools, *, waited: Bools) -> Floats:
        """When each row (L,) that starts can have started: where it waited, when its last GPU became free."""
        free_s = np.where(self.owner < 0, self.free_s, self.now_s)
        from_s = np.maximum(self.open_s, self._served_s)
        np.maximum.at(from_s, owner[new], free_s[new])
        return np.where(waited, np.minimum(from_s, self.now_s), self.now_s)

    def _start(self, rows: Ints, from_s: Floats) -> None:
        problem = self.present.problem
        self.restarts[rows] += self.attained_gpu_s[rows] > 0
        self.since_s[rows] = self.booked_s[rows] = from_s[rows]
        self.ready_s[rows] = from_s[rows] + problem.restart_s[rows]
        first = rows[np.isinf(self.start_s[rows])]
        self.start_s[first] = from_s[first]
        self.gpu_type[first] = problem.usage[:, self.held[first]].argmax(axis=0)

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _turn_nodes(self) -> None:
        """Lose the nodes whose outage has begun; what is up again is free from now on."""
        for outage, gpus in self.nodes.turned(self.now_s):
            if not self.nodes.up[outage.node]:
                self._lose(outage, gpus)
            self.free_s[gpus] = self.now_s
            self._note_change(changed=True)

    def _lose(self, outage: Outage, gpus: Bools) -> None:
        """Put the jobs of the node back into the queue, without what they did since their last checkpoint."""
        there = self.owner[gpus]
        rows = np.unique(there[there >= 0])
        worked_s = np.clip(self.now_s - self.ready_s[rows], 0, outage.lost_s)
        steps = self._rate(rows) * worked_s
        self.left[rows] += steps
        self.told[rows] += steps
        self._stop(rows)

    def _stop(self, rows: Ints) -> None:
        """Put rows back into the queue; their GPUs are free from now on."""
        self.held[rows], self.open_s[rows] = -1, self.now_s
        freed = np.isin(self.owner, rows)
        self.free_s[freed], self.owner[freed] = self.now_s, -1

    # -- run -----------------------------------------------------------------------------------------------------

    def _next_s(self) -> float:
        """When jobs are started next: at the next arrival or end, or, while jobs wait, at the next decision."""
        least_s = max(FILLINGS * self.now_s, NEAR_FILLINGS_S)
        came_s = self.open_s[self.open_s > self.now_s].min(initial=np.inf)
        ends_s = self._ends_s(np.flatnonzero(self.held >= 0)).min(initial=np.inf)
        event_s = min(came_s, ends_s, self.nodes.next_s, self.closures.next_s(self.now_s)) - self.now_s
        decision_s = max(self._next_decision_s - self.now_s, self.rounds.round_s)
        longest_s = decision_s if self._due else np.inf
        return float(self.now_s + max(least_s, min(event_s, longest_s, HORIZON_S)))

    def _rate(self, running: Ints) -> Floats:
        rate: Floats = self.present.problem.rate[running, self.held[running]] * self.draw.speed[running]
        return rate

    def _ends_s(self, running: Ints) -> Floats:
        """When each of these is done, or at its limit."""
        booked_s = self.booked_s[running]
        done_s = np.maximum(self.ready_s[running], booked_s) + self.left[running] / self._rate(running)
        ends_s: Floats = np.minimum(done_s, booked_s + self.limit_s[running])
        return ends_s

    def _run_until(self, until_s: float, active: Ints) -> None:
        running = np.flatnonzero(self.held >= 0)
        if running.size:
            self._work(running, until_s, active)
        self._note_change(((self.open_s > self.now_s) & (self.open_s <= until_s)).any())
        self.now_s = until_s

    def _work(self, running: Ints, until_s: float, active: Ints) -> None:
        ends_s = self._ends_s(running)
        stops_s = np.minimum(ends_s, until_s)
        booked_s = self.booked_s[running]
        works_s = np.maximum(stops_s - np.maximum(self.ready_s[running], booked_s), 0)
        self._book(running, works_s, stops_s - booked_s, active, until_s - self.now_s)
        self.booked_s[running] = stops_s
        self._finish(running[ends_s <= until_s], ends_s[ends_s <= until_s])

    def _book(self, running: Ints, works_s: Floats, holds_s: Floats, active: Ints, seconds: float) -> None:
        """Record what these rows did: works_s of work, holds_s on their GPUs."""
        problem, k = self.present.problem, self.held[running]
        steps, used = self._rate(running) * works_s, problem.usage[:, k].T
        base_gpus, base_rate = problem.base_gpus[running], problem.base_rate[running]
        self.left[running] -= steps
        self.told[running] -= steps
        self.limit_s[running] -= holds_s
        self.attained_gpu_s[running] += used.sum(axis=1) * holds_s
        self.received_s[running] += (used > 0) * holds_s[:, None]
        alone = isolated_rate(base_gpus, base_rate, problem.capacity, np.full(len(running), len(active)))
        self.isolated_s[running] += steps / alone
        self._note_shares(active, running, steps * base_gpus / base_rate, seconds)

    def _note_shares(self, active: Ints, running: Ints, work: Floats, seconds: float) -> None:
        """Extend the teams' backlogs, as the ledger of the service does."""
        if work.sum() <= 0:
            return
        teams = len(self.backlog_s)
        weight = np.ones(teams)
        weight[self._team] = self.present.team_weight
        demand = np.bincount(self._team[active], self._demand[active], minlength=teams)
        entitled = entitled_shares(weight, demand / max(self.present.problem.capacity.sum(), 1))
        delivered = np.bincount(self._team[running], work, minlength=teams) / work.sum()
        self.backlog_s = later_backlog(self.backlog_s, entitled - delivered, seconds)

    def _finish(self, rows: Ints, at_s: Floats) -> None:
        self.finish_s[rows] = at_s
        self.held[rows] = -1
        ended = np.isin(self.owner, rows)
        self.free_s[ended] = self.finish_s[self.owner[ended]]
        self.owner[ended] = -1
        self._note_change(rows.size)
        self._open_after(rows[np.argsort(at_s, kind="stable")])

    def _open_after(self, ended: Ints) -> None:
        """Let those into the queue that waited for these, which ended in this order."""
        for row in ended[ended < self.present.jobs].tolist() if self._gates.closed else ():
            opened = list(self._gates.opened_by(row))
            self.open_s[opened] = np.maximum(self.draw.arrival_s[opened], self.finish_s[row])

    def _note_change(self, changed: object) -> None:
        self._changed |= bool(changed)
        self._due |= bool(changed)
