"""The round mechanism against Gavel's own simulator: its recorded allocations in, its rounds and times out."""

import json
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from allocation.decision import Decision
from allocation.limits import Limits
from allocation.policies import POLICIES
from allocation.problem import Problem
from allocation.rounds import realise, reset_due

ROUND_S = 360.0
TYPES = ("v100", "p100", "k80")
REPLAYS = (
    "small_test__max_min_fairness_perf__2-2-2",
    "medium_test__fifo_perf__2-2-2",
    "medium_test__allox__2-2-2",
    "medium_test__isolated__2-2-2",
    "medium_test__finish_time_fairness_perf__2-2-2",
    "max_min_fairness__max_min_fairness_perf__8-16-24",
)

CLOSED = {"isolated": "isolated", "fifo_perf": "fifo_fastest", "allox": "allox"}
"""Gavel's policies of one answer, and ours: their allocations are compared, not only their rounds."""


@pytest.fixture(scope="module")
def gavel():
    reference = Path(os.environ.get("MOTLEY_REFERENCE", Path(__file__).parents[3] / "shared" / "reference"))
    if not (reference / "gavel").is_dir():
        absent = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        absent(f"no reference data in {reference}")
    return reference / "gavel"


@dataclass(eq=False)
class Row:
    """A job of the trace, as far as it has come."""

    name: str
    arrival_s: float
    steps: int
    gang: int
    rate: np.ndarray
    received_s: np.ndarray = field(default_factory=lambda: np.zeros(len(TYPES)))
    deficit_s: np.ndarray = field(default_factory=lambda: np.zeros(len(TYPES)))


def read_trace(gavel, name):
    throughputs = json.loads((gavel / "simulation_throughputs.json").read_text())
    rows = []
    for i, line in enumerate((gavel / "traces" / f"{name}.trace").read_text().splitlines()):
        columns = line.split("\t")
        key = f"('{columns[0]}', {columns[6]})"
        rate = np.array([throughputs[gpu_type][key]["null"] for gpu_type in TYPES])
        rows.append(Row(str(i), float(columns[9]), int(columns[5]), int(columns[6]), rate))
    return rows


class Replay:
    """A clock, the jobs and the recorded allocations in their order; the decisions are the round mechanism's."""

    def __init__(self, golden, waiting):
        self.golden, self.waiting = golden, waiting
        self.capacity = [int(gpus) for gpus in golden["cluster"].split(":")]
        self.allocations = [(event["t"], event["alloc"]) for event in golden["events"] if "alloc" in event]
        self.active, self.running, self.rounds, self.jct_s = [], [], [], {}
        self.alloc, self.known, self.reset_s, self.now_s, self.changed = {}, [], 0.0, 0.0, False
        self.policy = POLICIES.get(CLOSED.get(golden["policy"]))
        self.decided = []
        self.shuffle = random.Random(golden["seed"] + 5).shuffle if golden["policy"] == "isolated" else None

    def run(self):
        while self.waiting or self.active:
            self.finish_round()
            self.admit()
            if self.active:
                self.allocate()
                self.start_round()

    def finish_round(self):
        began_s = self.now_s
        self.now_s = max((finish for _, _, _, finish in self.running), default=began_s)
        for row, j, steps, finish_s in self.running:
            row.steps -= steps
            row.received_s[j] += finish_s - began_s
            if row.steps <= 0:
                self.active.remove(row)
                self.jct_s[row.name] = finish_s - row.arrival_s
                self.changed = True
        if not self.running and self.waiting:
            self.now_s = max(self.now_s, self.waiting[0].arrival_s)

    def admit(self):
        while self.waiting and self.waiting[0].arrival_s <= self.now_s:
            self.active.append(self.waiting.pop(0))
            self.changed = True

    def allocate(self):
        since_s = self.now_s - self.reset_s
        if not self.changed or not reset_due(changed=True, since_s=since_s if self.reset_s else None, round_s=ROUND_S):
            return
        for row in self.active:
            row.deficit_s += self.shares_of(row) * since_s - row.received_s
            row.received_s[:] = 0
        if self.policy:
            self.decided.append((self.now_s, self.allocated()))
        recorded_s, self.alloc = self.allocations.pop(0)
        assert recorded_s == self.now_s
        self.known, self.reset_s, self.changed = list(self.active), self.now_s, False

    def allocated(self):
        """What our policy allocates now, as Gavel writes it; types in alphabetical order decide between equals."""
        types = sorted(TYPES)
        by_name = [TYPES.index(gpu_type) for gpu_type in types]
        kept = np.array([self.shares_of(row)[by_name] for row in self.active])
        decision = self.policy(
            Problem.of(
                [row.rate[by_name] for row in self.active],
                np.eye(len(types), dtype=int),
                [self.capacity[j] for j in by_name],
                age_s=[self.now_s - row.arrival_s for row in self.active],
                remaining_steps=[row.steps for row in self.active],
                held=np.where(kept.max(axis=1) == 1, kept.argmax(axis=1), -1),
            )
        )
        shares = np.eye(len(types) + 1)[decision.picks, :-1] if decision.shares is None else decision.shares
        rows = zip(self.active, shares.tolist(), strict=True)
        return {row.name: dict(zip(types, of_types, strict=True)) for row, of_types in rows}

    def start_round(self):
        self.order = list(range(len(TYPES)))
        if self.shuffle:
            self.shuffle(self.order)
        picks = self.decide()
        # Gavel drops jobs that came after its last allocation, though it has charged their GPUs
        chosen = [(row, k) for row, k in zip(self.active, picks, strict=True) if k >= 0 and row in self.known]
        self.running = []
        for row, k in chosen:
            j = int(k) % len(TYPES)
            steps = min(int(row.rate[j] * ROUND_S), row.steps)
            self.running.append((row, j, steps, self.now_s + steps / row.rate[j]))
        if chosen:
            self.rounds.append((self.now_s, {row.name: TYPES[j] for row, j, _, _ in self.running}))
        elif not self.waiting:
            raise AssertionError(f"nothing runs at {self.now_s} s and nothing will come")

    def decide(self):
        gangs = sorted({row.gang for row in self.active})
        column = {gang: len(TYPES) * b for b, gang in enumerate(gangs)}
        rate = np.zeros((len(self.active), len(TYPES) * len(gangs)))
        shares = np.zeros_like(rate)
        for i, row in enumerate(self.active):
            mine = slice(column[row.gang], column[row.gang] + len(TYPES))
            rate[i, mine], shares[i, mine] = row.rate, self.shares_of(row)
        usage = np.hstack([gang * np.eye(len(TYPES), dtype=int) for gang in gangs])
        received_s = np.array([row.received_s for row in self.active])
        problem = Problem.of(rate, usage, self.capacity, received_s=received_s)
        return realise(
            problem,
            self.decision(shares),
            Limits.none(len(self.active)),
            round_s=ROUND_S,
            type_order=self.order,
            deficit=np.array([row.deficit_s for row in self.active]),
        )

    def decision(self, shares):
        nothing = np.zeros(len(TYPES))
        if self.golden["policy"].startswith("fifo"):
            return Decision.of_picks(np.where(shares.any(axis=1), shares.argmax(axis=1), -1), prices=nothing)
        return Decision.of_shares(shares, prices=nothing, objective=0, dust=0)

    def shares_of(self, row):
        shares = self.alloc.get(row.name, {})
        return np.array([shares.get(gpu_type, 0.0) for gpu_type in TYPES])


@pytest.fixture(scope="module", params=REPLAYS)
def replay(request, gavel):
    golden = json.loads((gavel / "golden" / f"{request.param}.json").read_text())
    replay = Replay(golden, read_trace(gavel, request.param.split("__")[0]))
    replay.run()
    return replay


def test_every_round_runs_the_jobs_on_the_types_that_gavel_recorded(replay):
    recorded = [
        (event["t"], {job: gpu_type for job, (gpu_type, _) in event["round"].items()})
        for event in replay.golden["events"]
        if event.get("round")
    ]
    assert replay.rounds == recorded


def test_every_job_completes_when_gavel_says_to_the_last_bit(replay):
    assert replay.jct_s == replay.golden["jct_s"]


def test_every_recorded_allocation_is_used(replay):
    assert [alloc for _, alloc in replay.allocations if alloc] == []


def test_policies_of_one_answer_allocate_as_gavel_recorded(replay):
    if replay.policy is None:
        return
    recorded = [(event["t"], event["alloc"]) for event in replay.golden["events"] if event.get("alloc")]
    assert len(replay.decided) >= len(recorded) > 10
    for (decided_s, decided), (recorded_s, alloc) in zip(replay.decided, recorded, strict=False):
        assert decided_s == recorded_s
        given = {job: of_types for job, of_types in decided.items() if any(of_types.values())}
        assert {job: pytest.approx(of_types) for job, of_types in alloc.items()} == given
