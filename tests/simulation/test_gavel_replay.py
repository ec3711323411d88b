"""The round mechanism against Gavel's own simulator: its recorded allocations in, its rounds and times out."""

import numpy as np
import pytest

from allocation.decision import Decision
from tests.simulation.gavel_reference import Run, golden

REPLAYS = (
    "small_test__max_min_fairness_perf__2-2-2",
    "medium_test__fifo_perf__2-2-2",
    "medium_test__allox__2-2-2",
    "medium_test__isolated__2-2-2",
    "medium_test__finish_time_fairness_perf__2-2-2",
    "max_min_fairness__max_min_fairness_perf__8-16-24",
)


class Replay:
    """A policy that answers what was recorded, in the same order, if it is asked at the same times."""

    def __init__(self, recorded):
        self.recorded = recorded
        self.allocations = [(event["t"], event["alloc"]) for event in recorded["events"] if event.get("alloc")]
        self.lend, shuffled = not recorded["policy"].startswith("fifo"), recorded["policy"] == "isolated"
        trace = next(name for name in ("small_test", "medium_test", "max_min_fairness") if name in recorded["trace"])
        self.run = Run.of(trace, recorded["cluster"], self.answer, shuffled=shuffled, lend=self.lend)
        self.jct_s = self.run.jct_s()

    def answer(self, problem):
        recorded_s, allocation = self.allocations.pop(0)
        state = self.run.simulation.state
        assert recorded_s == state.now_s
        X = np.zeros(problem.rate.shape)
        for row, job in enumerate(state.active.tolist()):
            for gpu_type, share in allocation.get(str(job), {}).items():
                on_type = problem.usage[self.run.gpu_types.index(gpu_type)]
                X[row, on_type == problem.base_gpus[row]] = share
        nothing = np.zeros(len(problem.capacity))
        if self.lend:
            return Decision.of_shares(X, prices=nothing, objective=0, dust=0)
        return Decision.of_assignment(np.where(X.any(axis=1), X.argmax(axis=1), -1), prices=nothing)


@pytest.fixture(scope="module", params=REPLAYS)
def replay(request):
    return Replay(golden(request.param))


def test_every_round_runs_the_jobs_on_the_types_that_gavel_recorded(replay):
    recorded = [
        (event["t"], {job: gpu_type for job, (gpu_type, _) in event["round"].items()})
        for event in replay.recorded["events"]
        if event.get("round")
    ]
    assert replay.run.rounds == recorded


def test_every_job_completes_when_gavel_says_to_the_last_bit(replay):
    assert replay.jct_s == replay.recorded["jct_s"]


def test_every_recorded_allocation_is_used(replay):
    assert replay.allocations == []
