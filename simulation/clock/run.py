"""Simulated clock: admits arrivals, has each round planned, runs its jobs, and finishes them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil, inf
from time import perf_counter

import numpy as np

from allocation.types import Bools, Floats, Ints
from simulation.clock.round_rules import PlannedRound, RoundRules
from simulation.clock.state import State

PATIENCE = 1000
"""Rounds without a running job, before each of which a node or a window may have changed where any can, after which the
simulation counts as stalled; they count once no job will arrive or waits for a budget, which a reset ends for sure."""


class Stalled(RuntimeError):
    """No job runs or will arrive, but some are unfinished; the message says when, and how many."""


@dataclass(frozen=True, eq=False)
class SimulatedRound:
    """One simulated round: running jobs (rows of the trace), their configurations, and when each stops.

    mates are the jobs (rows of the trace) that share their GPUs, or -1.
    """

    began_s: float
    rows: Ints
    configurations: Ints
    stops_s: Floats
    mates: Ints


def _ignore(_: SimulatedRound) -> None:
    pass


@dataclass(eq=False)
class Simulation:
    """A simulation in progress."""

    state: State
    rounds: RoundRules
    watch: Callable[[SimulatedRound], None] = _ignore
    decided_s: list[float] = field(default_factory=list)
    """Seconds that each planned round took to decide."""
    done: int = 0
    """Number of finished jobs."""
    _next: int = 0
    _changed: bool = False
    _planned: PlannedRound | None = None
    _idle_rounds: int = 0

    @property
    def left(self) -> bool:
        return self._next < len(self.state.left) or self.state.active.size > 0

    def run(self) -> State:
        """Run until every job that can run has finished."""
        self._admit()
        while self.left:
            if self.state.active.size:
                self._run_round(self._plan())
            elif self._next < len(self.state.left):
                self._wait()
            self._admit()
        return self.state

    def _admit(self) -> None:
        arrivals = self.state.jobs.arrival_s
        first, self._next = self._next, int(np.searchsorted(arrivals, self.state.now_s, side="right"))
        came = np.arange(first, self._next)
        came = came[self.state.jobs.runnable[came]]
        self.state.active = np.concatenate([self.state.active, came])
        self._changed |= came.size > 0

    def _wait(self) -> None:
        """Skip the rounds until the next arrival."""
        came_s, round_s = float(self.state.jobs.arrival_s[self._next]), self.rounds.round_s
        delay_s = 0.0 if self.rounds.whole_steps else self.rounds.event_delay_s
        boundary_s = ceil(came_s / round_s) * round_s if delay_s is None else came_s + delay_s
        self.state.now_s = max(self.state.now_s, boundary_s)

    def _plan(self) -> PlannedRound:
        """Plan the next round, or repeat the last plan if nothing can have changed."""
        if self._planned and self._planned.steady and not self._changed:
            return replace(self._planned, starts=np.zeros_like(self._planned.starts))
        began = perf_counter()
        self._planned = self.rounds.plan(self.state, changed=self._changed)
        self.decided_s.append(perf_counter() - began)
        self._changed = False
        return self._planned

    def _run_round(self, planned: PlannedRound) -> None:
        state = self.state
        runs = planned.assignment >= 0
        rows, k, mates = state.active[runs], planned.assignment[runs], planned.shared_with[runs]
        stopped = (state.held[state.active] >= 0) & (planned.starts | ~runs)
        self._start(rows, k, planned.starts[runs], planned.waits_s[runs])
        speed = planned.speeds[runs]
        if planned.idle_until_s is None:
            length_s = self._length_s(rows, k, mates, float(planned.waits_s.max()) if stopped.any() else inf, speed)
        else:
            length_s = self._idle_s(planned.idle_until_s)
        restored_s = np.minimum(state.restoring_s[rows], length_s)
        state.restoring_s[rows] -= restored_s
        state.restored_gpu_s += float(restored_s @ state.jobs.configurations.gpus[k])
        # A job on slow GPUs does in a second what its rate is for a part of a second.
        steps, ran_s = state.work.run(rows, k, state.left[rows], (length_s - restored_s) * speed, mates)
        stops_s = state.now_s + (restored_s + ran_s / speed)
        state.book(rows, k, steps, stops_s - state.now_s, mates)
        self._account(rows, steps, stops_s, length_s)
        state.held[state.active], state.mate[state.active] = planned.assignment, planned.shared_with
        self.watch(SimulatedRound(state.now_s, rows, k, stops_s, mates))
        self._finish(rows, stops_s)
        self._changed |= bool(stopped.any()) and self.rounds.event_delay_s is not None
        self._end_round(stops_s, length_s)

    def _length_s(self, rows: Ints, k: Ints, mates: Ints, stops_s: float, speed: Floats) -> float:
        """Length of the round: until the next is due, or caused by a job that arrives, ends or has been stopped."""
        state, round_s, delay_s = self.state, self.rounds.round_s, self.rounds.event_delay_s
        if delay_s is None:
            return round_s
        arrivals, left_s = state.jobs.arrival_s, state.work.seconds_left(rows, k, state.left[rows], mates) / speed
        came_s = float(arrivals[self._next]) - state.now_s if self._next < len(arrivals) else inf
        ends_s = float((state.restoring_s[rows] + left_s).min(initial=inf))
        return min(round_s, min(came_s, ends_s, stops_s) + delay_s)

    def _idle_s(self, until_s: float) -> float:
        """Whole rounds until then or until a job arrives, or the time until the round that its arrival causes."""
        arrivals, round_s, delay_s = self.state.jobs.arrival_s, self.rounds.round_s, self.rounds.event_delay_s
        came_s = float(arrivals[self._next]) if self._next < len(arrivals) else inf
        whole_s = max(ceil((min(until_s, came_s) - self.state.now_s) / round_s), 1) * round_s
        return whole_s if delay_s is None else min(whole_s, came_s - self.state.now_s + delay_s)

    def _account(self, rows: Ints, steps: Floats, stops_s: Floats, length_s: float) -> None:
        """Extend the teams' ledger by this round."""
        state, now_s = self.state, self.state.now_s
        until_s = float(stops_s.max(initial=now_s)) if self.rounds.whole_steps else now_s + length_s
        gpus = int(state.capacity.sum())
        entitled = state.active[~state.waits_for_budget(state.active)]
        weight = None if state.budgets is None else state.teams.weight * state.budgets.weight_parts(now_s)[:-1]
        state.teams.accrue(entitled, rows, steps, gpus=gpus, until_s=until_s, seconds=until_s - now_s, weight=weight)

    def _start(self, rows: Ints, k: Ints, starts: Bools, waits_s: Floats) -> None:
        """Restore the jobs that start or move from their last checkpoint, as soon as their GPUs are free."""
        state, again = self.state, self.state.running_s[rows] > 0
        state.restarts[rows] += starts & again
        state.began_s[rows] = np.where(np.isnan(state.began_s[rows]), state.now_s, state.began_s[rows])
        state.since_s[rows[starts]] = state.now_s + waits_s[starts]
        restart_s, first_s = state.jobs.restart_s[rows], self.rounds.first_start_s
        takes_s = restart_s if first_s is None else np.where(again, restart_s, first_s)
        state.restoring_s[rows[starts]] = (takes_s + waits_s)[starts]
        state.work.start(rows[starts], k[starts])

    def _finish(self, rows: Ints, stops_s: Floats) -> None:
        state = self.state
        done = state.left[rows] <= 0
        state.finish_s[rows[done]] = stops_s[done]
        state.note_finished(rows[done])
        self.done += int(done.sum())
        state.held[rows[done]] = -1
        state.part(rows[done])
        state.active = state.active[np.isnan(state.finish_s[state.active])]
        self._changed |= bool(done.any())

    @property
    def _waits_for_budget(self) -> bool:
        return bool(self.state.waits_for_budget(self.state.active).any())

    def _end_round(self, stops_s: Floats, length_s: float) -> None:
        goes_on = stops_s.size or self._next < len(self.state.left) or self._waits_for_budget
        self._idle_rounds = 0 if goes_on else self._idle_rounds + 1
        if self._idle_rounds > PATIENCE:
            raise Stalled(
                f"{len(self.state.active)} jobs wait at {self.state.now_s:g} s, but no job runs or will arrive"
            )
        if not self.rounds.whole_steps:
            self.state.now_s += length_s
        elif stops_s.size:
            self.state.now_s = float(stops_s.max())
        elif self._next < len(self.state.left):
            self._wait()
        else:
            self.rounds.relax()
