"""One future: rounds of the policy, played forward from a draw until the jobs that are there have ended.

A round is decided by `plan_round`, as in the service and in the simulator. Decisions are fewer the farther they lie in
the future: the time between two is at least a part of that from now (`DECISIONS`), and a larger one where they could
only move jobs that run (`MOVES`). Between them jobs that wait start on GPUs that become free, in order
(`forecast.filling`), at times that are not so coarse (`FILLINGS`). They are taken to have started when the GPUs became
free, as in a round that this would have caused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

import numpy as np

from allocation.problem import runnable
from allocation.rounds.mechanism import least_run_s, reset_due
from estimation.types import Bools, Floats, Ints
from forecast.decision import plan_of
from forecast.filling import Filling
from forecast.outages import Outage
from forecast.present import Draw, Present, Rounds
from forecast.state import State
from forecast.work import run_until

DECISIONS, FILLINGS = 0.25, 0.02
"""Least time between two decisions, and between two fillings, as a part of the time from now to them."""
NEAR_DECISIONS_S, NEAR_FILLINGS_S = 10.0, 1.0
"""The same in seconds, near to now."""
MOVES, NEAR_MOVES_S = 1.0, 300.0
"""Least time between decisions due only to move jobs that run, as a part of the time from now and in seconds: they cost
as much as others, and change less."""
DAY_S = 86_400.0
HORIZON_S = 3 * DAY_S
"""Jobs that have not ended by then have no end in this future."""
DONE_PART = 1e-6
"""Part of its work that rounding leaves of a job that is done."""


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
    state = State(present.rows(draw.rows), draw, rounds)
    until = np.array(watched or range(present.jobs), dtype=np.int64)
    while state.now_s < horizon_s and np.isinf(state.finish_s[until]).any():
        if monotonic() >= deadline:
            raise OutOfTime(f"a future was given up {state.now_s:,.0f} s from now")
        run_round(state)
    return _played(state)


def _played(state: State) -> Played:
    m = state.present.jobs
    done = np.isfinite(state.finish_s) & (state.left <= DONE_PART * state.draw.left)
    return Played(state.start_s[:m], state.finish_s[:m], state.gpu_type[:m], done[:m])


def run_round(state: State) -> None:
    """Decide, start and stop jobs, and run them until the next round."""
    _turn_nodes(state)
    _leave_nodes(state)
    active = np.flatnonzero(np.isinf(state.finish_s) & (state.open_s <= state.now_s))
    if (state.due or state.now_s >= state.moves_s) and active.size:
        _decide(state, active) if state.now_s >= state.next_decision_s else _fill(state, active)
    state.due, state.moves_s = bool((state.held[active] < 0).any()), _moves_s(state, active)
    run_until(state, _next_s(state), active)


def _moves_s(state: State, active: Ints) -> float:
    """When a round may move a row that runs to where it is faster, though none comes or ends before it; inf: never.

    What it gains by a restart may depend on how long it has run, and until its lock ends it cannot move.
    """
    problem = state.present.problem
    run_s = least_run_s(round_s=state.rounds.round_s, min_run_s=state.rounds.min_run_s)
    unlock_s = np.maximum(problem.unlock_s[active], state.since_s[active] + run_s)
    movable = (state.held[active] >= 0) & state.present.preemptible[active] & np.isfinite(unlock_s)
    if state.rounds.settled:
        movable &= unlock_s > state.now_s
    rows = active[movable]
    fits = (problem.usage <= state.nodes.capacity[:, None]).all(axis=0)
    rate = np.where(fits, problem.rate[rows], 0)
    gains = rate.max(axis=1, initial=0) > problem.rate[rows, state.held[rows]]
    unlocked_s = unlock_s[movable][gains].min(initial=np.inf)
    return float(max(unlocked_s, state.decided_s + max(MOVES * state.decided_s, NEAR_MOVES_S)))


def _leave_nodes(state: State) -> None:
    """Stop the rows on nodes whose window has begun; the GPUs are free again when it is over."""
    closures, inventory = state.closures, state.present.inventory
    gone = closures.left_by(state.owner, inventory, state.now_s)
    _stop(state, gone)
    state.free_s = np.maximum(state.free_s, closures.free_s(inventory, state.now_s))
    state.note_change(gone.size or closures.passed_between(state.looked_s, state.now_s))
    state.looked_s = state.now_s


def _turn_s(state: State) -> float:
    return max(state.rounds.round_s, state.rounds.min_run_s)


def _decide(state: State, active: Ints) -> None:
    _renew_shares(state)
    able = active[runnable(state.present.problem.rate[active], state.present.problem.usage, state.nodes.capacity)]
    if able.size:
        rows, plan = plan_of(state, able)
        assignment, owner = np.full(len(state.left), -1), np.full(len(state.owner), -1)
        assignment[rows] = plan.assignment
        owner[state.nodes.usable] = np.append(rows, -1)[plan.owner]
        _apply(state, able, assignment[able], owner)
    state.decided_s, state.next_decision_s = state.now_s, state.now_s + max(DECISIONS * state.now_s, NEAR_DECISIONS_S)


def _fill(state: State, active: Ints) -> None:
    present = state.present
    taken = np.where(state.nodes.usable, state.owner, 0)  # what is down is as if somebody held it
    waiting, assignment, owner = active[state.held[active] < 0], state.held.copy(), state.owner.copy()
    inventory = state.closures.inventory_for(waiting, present.inventory, state.stays(waiting), state.now_s)
    filling = Filling.of(present.problem, inventory, present.quotas, state.held, taken)
    for row, k, gpus in filling.starts(_queue(state, waiting), strict=state.rounds.strict):
        assignment[row], owner[gpus] = k, row
    _apply(state, active, assignment[active], owner)


def _queue(state: State, waiting: Ints) -> Ints:
    """The order in which they start: of submission, or those first that have received least for their weight."""
    problem = state.present.problem
    age_s = problem.age_s[waiting] - state.draw.arrival_s[waiting]
    received = state.attained_gpu_s[waiting] / problem.job_weight[waiting] * (not state.rounds.strict)
    return waiting[np.lexsort((-age_s, received))]


def _renew_shares(state: State) -> None:
    """Reset the time received, as when shares are set anew."""
    if reset_due(changed=state.changed, since_s=state.now_s - state.shares_since_s, turn_s=_turn_s(state)):
        state.shares_since_s, state.changed = state.now_s, False
        state.received_s[:] = 0


def _apply(state: State, active: Ints, assignment: Ints, owner: Ints) -> None:
    new = (owner >= 0) & (owner != state.owner)
    starts = np.zeros(len(state.left), dtype=np.bool_)
    starts[owner[new]] = True
    starts[active] |= (assignment >= 0) & (assignment != state.held[active])
    from_s = _from_s(state, owner, new, waited=state.held < 0)
    state.held[active] = assignment
    _start(state, np.flatnonzero(starts), from_s)
    state.free_s[(state.owner >= 0) & (owner < 0)] = state.now_s
    state.owner, state.served_s = owner, state.now_s


def _from_s(state: State, owner: Ints, new: Bools, *, waited: Bools) -> Floats:
    """When each row (L,) that starts can have started: where it waited, when its last GPU became free."""
    free_s = np.where(state.owner < 0, state.free_s, state.now_s)
    from_s = np.maximum(state.open_s, state.served_s)
    np.maximum.at(from_s, owner[new], free_s[new])
    return np.where(waited, np.minimum(from_s, state.now_s), state.now_s)


def _start(state: State, rows: Ints, from_s: Floats) -> None:
    problem = state.present.problem
    state.restarts[rows] += state.attained_gpu_s[rows] > 0
    state.since_s[rows] = state.booked_s[rows] = from_s[rows]
    state.ready_s[rows] = from_s[rows] + problem.restart_s[rows]
    first = rows[np.isinf(state.start_s[rows])]
    state.start_s[first] = from_s[first]
    state.gpu_type[first] = problem.usage[:, state.held[first]].argmax(axis=0)


def _turn_nodes(state: State) -> None:
    """Lose the nodes whose outage has begun; what is up again is free from now on."""
    for outage, gpus in state.nodes.turned(state.now_s):
        if not state.nodes.up[outage.node]:
            _lose(state, outage, gpus)
        state.free_s[gpus] = state.now_s
        state.note_change(changed=True)


def _lose(state: State, outage: Outage, gpus: Bools) -> None:
    """Put the jobs of the node back into the queue, without what they did since their last checkpoint."""
    there = state.owner[gpus]
    rows = np.unique(there[there >= 0])
    worked_s = np.clip(state.now_s - state.ready_s[rows], 0, outage.lost_s)
    steps = state.rate(rows) * worked_s
    state.left[rows] += steps
    state.told[rows] += steps
    _stop(state, rows)


def _stop(state: State, rows: Ints) -> None:
    """Put rows back into the queue; their GPUs are free from now on."""
    state.held[rows], state.open_s[rows] = -1, state.now_s
    freed = np.isin(state.owner, rows)
    state.free_s[freed], state.owner[freed] = state.now_s, -1


def _next_s(state: State) -> float:
    """When jobs start or move next: at the next arrival or end, or, while jobs wait or may move, the next decision."""
    least_s = max(FILLINGS * state.now_s, NEAR_FILLINGS_S)
    came_s = state.open_s[state.open_s > state.now_s].min(initial=np.inf)
    ends_s = state.ends_s(np.flatnonzero(state.held >= 0)).min(initial=np.inf)
    event_s = min(came_s, ends_s, state.nodes.next_s, state.closures.next_s(state.now_s)) - state.now_s
    decision_s = max(state.next_decision_s - state.now_s, state.rounds.round_s)
    longest_s = min(decision_s if state.due else np.inf, max(state.moves_s - state.now_s, state.rounds.round_s))
    return float(state.now_s + max(least_s, min(event_s, longest_s, HORIZON_S)))
