"""Work of the rows that run until the next round of a future: steps, time limits, ends, and what teams received."""

import numpy as np

from allocation.fairness import entitled_shares, later_backlog
from allocation.problem import isolated_rate
from estimation.types import Floats, Ints
from forecast.state import State


def run_until(state: State, until_s: float, active: Ints) -> None:
    """Let the rows that hold GPUs work until then, or until they end."""
    running = np.flatnonzero(state.held >= 0)
    if running.size:
        _work(state, running, until_s, active)
    state.note_change(((state.open_s > state.now_s) & (state.open_s <= until_s)).any())
    state.now_s = until_s


def _work(state: State, running: Ints, until_s: float, active: Ints) -> None:
    ends_s = state.ends_s(running)
    stops_s = np.minimum(ends_s, until_s)
    booked_s = state.booked_s[running]
    works_s = np.maximum(stops_s - np.maximum(state.ready_s[running], booked_s), 0)
    work = _book(state, running, works_s, stops_s - booked_s, len(active))
    _note_shares(state, active, running, work, until_s - state.now_s)
    state.booked_s[running] = stops_s
    _finish(state, running[ends_s <= until_s], ends_s[ends_s <= until_s])


def _book(state: State, running: Ints, works_s: Floats, holds_s: Floats, jobs: int) -> Floats:
    """Record what these rows did: works_s of work, holds_s on their GPUs; gives the work in seconds of an average GPU.

    `jobs` is the number of those that are there: alone, each would have that part of the cluster.
    """
    problem, k = state.present.problem, state.held[running]
    steps, used = state.rate(running) * works_s, problem.usage[:, k].T
    base_gpus, base_rate = problem.base_gpus[running], problem.base_rate[running]
    state.left[running] -= steps
    state.told[running] -= steps
    state.limit_s[running] -= holds_s
    state.attained_gpu_s[running] += used.sum(axis=1) * holds_s
    state.received_s[running] += (used > 0) * holds_s[:, None]
    alone = isolated_rate(base_gpus, base_rate, problem.capacity, np.full(len(running), jobs))
    state.isolated_s[running] += steps / alone
    work: Floats = steps * base_gpus / base_rate
    return work


def _note_shares(state: State, active: Ints, running: Ints, work: Floats, seconds: float) -> None:
    """Extend the teams' backlogs, as the ledger of the service does."""
    if work.sum() <= 0:
        return
    teams = len(state.backlog_s)
    weight = np.ones(teams)
    weight[state.team] = state.present.team_weight
    demand = np.bincount(state.team[active], state.demand[active], minlength=teams)
    entitled = entitled_shares(weight, demand / max(state.present.problem.capacity.sum(), 1))
    delivered = np.bincount(state.team[running], work, minlength=teams) / work.sum()
    state.backlog_s = later_backlog(state.backlog_s, entitled - delivered, seconds)


def _finish(state: State, rows: Ints, at_s: Floats) -> None:
    state.finish_s[rows] = at_s
    state.held[rows] = -1
    ended = np.isin(state.owner, rows)
    state.free_s[ended] = state.finish_s[state.owner[ended]]
    state.owner[ended] = -1
    state.note_change(rows.size)
    _open_after(state, rows[np.argsort(at_s, kind="stable")])


def _open_after(state: State, ended: Ints) -> None:
    """Let those into the queue that waited for these, which ended in this order."""
    for row in ended[ended < state.present.jobs].tolist() if state.gates.closed else ():
        opened = list(state.gates.opened_by(row))
        state.open_s[opened] = np.maximum(state.draw.arrival_s[opened], state.finish_s[row])
