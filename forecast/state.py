"""State of one future: what its rows have done and hold, and what is free."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from allocation.rounds.windows import Stays, slowest_rates
from estimation.types import Floats, Ints
from forecast.closures import Closures
from forecast.gates import Gates, Waits
from forecast.outages import Nodes
from forecast.present import Draw, Present, Rounds


@dataclass(eq=False)
class State:
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
    gates: Gates = field(init=False)
    team: Ints = field(init=False)
    demand: Floats = field(init=False)
    served_s: float = 0.0
    decided_s: float = 0.0
    next_decision_s: float = 0.0
    moves_s: float = np.inf
    shares_since_s: float = 0.0
    changed: bool = False
    looked_s: float = 0.0
    due: bool = True
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
        self.team = np.unique(problem.team, return_inverse=True)[1]
        self.backlog_s = np.zeros(int(self.team.max(initial=-1)) + 1)
        self.backlog_s[self.team] = problem.team_backlog_s
        self.demand = np.where(problem.rate > 0, problem.gpus, 0).max(axis=1, initial=0).astype(float)
        self.gates = Gates.of(self.present.waits or Waits.none(self.present.jobs), running[: self.present.jobs])
        self.open_s = self.draw.arrival_s.copy()
        self.open_s[list(self.gates.closed)] = np.inf
        self.owner = self.present.inventory.holder.copy()
        self.free_s = np.zeros(len(self.owner))
        self.nodes = Nodes(self.present.inventory, problem.capacity, self.draw.outages)

    @cached_property
    def closures(self) -> Closures:
        """The windows that keep rows from nodes."""
        return Closures(self.present.windows, self.present.problem.team)

    @cached_property
    def slowest(self) -> Floats:
        return slowest_rates(self.present.problem)

    def stays(self, rows: Ints) -> Stays | None:
        """How long these rows still need GPUs: less what they have done, or held GPUs, since the forecast."""
        if (stays := self.present.stays) is None:
            return None
        limit_s, steps = self.present.limit_s[rows], self.draw.left[rows] - self.left[rows]
        limited = np.isfinite(limit_s)
        ran_s = np.where(limited, limit_s, 0) - np.where(limited, self.limit_s[rows], 0)
        done_s = np.where(limited[:, None], ran_s[:, None], steps[:, None] / self.slowest[rows])
        return stays.of_rows(rows).after(done_s)

    def rate(self, running: Ints) -> Floats:
        rate: Floats = self.present.problem.rate[running, self.held[running]] * self.draw.speed[running]
        return rate

    def ends_s(self, running: Ints) -> Floats:
        """When each of these is done, or at its limit."""
        booked_s = self.booked_s[running]
        done_s = np.maximum(self.ready_s[running], booked_s) + self.left[running] / self.rate(running)
        ends_s: Floats = np.minimum(done_s, booked_s + self.limit_s[running])
        return ends_s

    def note_change(self, changed: object) -> None:
        self.changed |= bool(changed)
        self.due |= bool(changed)
