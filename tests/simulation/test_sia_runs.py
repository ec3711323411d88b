"""Our simulator beside what Sia's says of its own: jobs alone, and whole workloads."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import mean
from typing import Any, Self

import pytest

from allocation.policies import POLICIES
from simulation.clock.metrics import figures_of
from simulation.clock.run import SimulatedRound, Simulation
from simulation.cluster import Cluster
from simulation.traces.sia import GANGS
from simulation.traces.trace import GangSpread, Program, Trace, TraceJob
from simulation.workloads.jobs import Jobs
from tests.simulation.recorded_batches import Batch, Began, ToldTraining, in_full, told_batches
from tests.simulation.sia_reference import (
    CLUSTER,
    ROUND_S,
    expected,
    one_job,
    profiles,
    recorded,
    run,
    sia,
    simulation,
    workload,
)
from tests.simulation.told_rounds import ToldRounds

APPLICATIONS = ("cifar10", "bert", "deepspeech2", "yolov3", "imagenet")
WORSE_BATCH, WORSE_GPUS, USUALLY_WORSE = 0.10, 0.08, 0.025
"""By what part of the best, by our fit, a choice of the original's may be worse: a batch, a configuration, and the mean
over a run's batches. Measured: 0.094, 0.075 and 0.020; on its first few steps the original's fit is far from converged.
"""


@dataclass
class Alone:
    """A job alone, run with told GPUs and batches, and how each of its rounds began, with the restarts until then."""

    whole: Simulation
    rounds: ToldRounds
    work: ToldTraining
    began: dict[float, tuple[Began, int]] = field(default_factory=dict)

    @classmethod
    def run(
        cls, trace: Trace, cluster: Cluster, told: dict[float, tuple[str, tuple[int, ...]]], batches: Sequence[Batch]
    ) -> Self:
        jobs = Jobs.of(profiles().completed(trace).jobs, cluster, profiles())
        rounds, work = ToldRounds(jobs, cluster.gpu_types, told), ToldTraining(jobs, cluster, profiles(), told=batches)
        alone = cls(simulation(trace, rounds, cluster), rounds, work)
        alone.whole.state.work, alone.whole.watch = work, alone.note
        alone.whole.run()
        assert work.all_taken
        return alone

    def note(self, round_: SimulatedRound) -> None:
        """Note how a round began."""
        assert self.work.began is not None
        self.began[round_.began_s] = self.work.began, int(self.whole.state.restarts[0])


@pytest.mark.parametrize("gpu_type", ["aws", "dgx-ext", "rtx"])
@pytest.mark.parametrize("application", APPLICATIONS)
def test_a_job_on_a_fixed_placement_is_done_when_the_original_is_with_the_same_batches(application, gpu_type):
    """Sixty runs in all: on one GPU up to 24 of each type."""
    cluster = Cluster.parse(f"{gpu_type}={'4x4' if gpu_type == 'aws' else '4x8'}")
    for run_, rows in zip(recorded("golden_fixed_placement"), told_batches()["fixed"], strict=True):
        if (run_["app"], run_["gpu"]) != (application, gpu_type):
            continue
        job = TraceJob(
            name="a", arrival_s=0, gangs=GANGS, program=Program(application, tuned=True), spread=GangSpread.FULL
        )
        batches = in_full(rows)
        alone = Alone.run(Trace.of([job]), cluster, {0.0: (gpu_type, tuple(run_["placement"]))}, batches)
        assert alone.whole.state.finish_s.tolist() == [run_["jct_s"]], run_
        assert batches[-1] == (run_["atomic"], run_["accum"])
        assert mean(alone.work.shortfalls) <= USUALLY_WORSE, run_


@pytest.mark.parametrize("application", APPLICATIONS)
def test_a_job_alone_gets_on_round_by_round_as_the_originals_and_its_decisions_are_nearly_ours(application):
    golden = recorded("golden_single_job")[application]
    told = {float(event["t"]): (event["gpu_type"], tuple(event["placement"])) for event in golden["events"]}
    batches = in_full(told_batches()["single"][application])
    alone = Alone.run(one_job(golden["job"]), CLUSTER, told, batches)
    for event in golden["events"]:
        if event["t"] < golden["completion_time"]:
            began, restarts = alone.began[event["t"]]
            assert began.batch == (event["atomic_bsz"], event["accum_steps"])
            assert began.progress == pytest.approx(event["progress"], abs=1e-3)
            assert (began.epoch, restarts) == (event["epoch"], event["restarts"])
            assert began.restored_s == min(event["rescale_left"], ROUND_S)
    assert alone.whole.state.finish_s.tolist() == [golden["completion_time"]]
    assert alone.whole.state.restarts.tolist() == [golden["restarts"]]
    assert max(alone.work.shortfalls) <= WORSE_BATCH
    assert mean(alone.work.shortfalls) <= USUALLY_WORSE
    assert max(alone.rounds.shortfalls) <= WORSE_GPUS


def figures(whole: Any) -> dict[str, Any]:
    return figures_of(whole.state, CLUSTER.gpu_types, decided_s=whole.decided_s, wall_s=0, prices=None)


CHANCE = 0.06
"""A run's average hangs on which of equals the solver takes: the original's own solvers differ by two in a hundred."""
LONG_JOBS = 0.15
"""The makespan is that of a few long jobs, and which of equals is taken moves each of them by hours."""
PHILLY = ("philly/workload-1", "philly/workload-2", "philly/workload-3")


@cache
def by_sia(name: str) -> dict[str, Any]:
    """The figures of a whole workload."""
    return figures(run(workload(name), sia()))


def original_of(name: str) -> dict[str, Any]:
    return expected(f"sia-{name.split('/')[1].replace('workload', 'philly')}")


@pytest.mark.thorough
@pytest.mark.xdist_group("philly")
@pytest.mark.parametrize("name", [*PHILLY, "derived/philly-1-rigid"])
def test_whole_workloads_take_as_long_as_in_the_original(name):
    """docs/reproduction.md has the figures, and those of the other workloads."""
    found, original = by_sia(name), original_of(name)
    assert found["completed"] == original["n_done"]
    assert found["avg_jct_h"] == pytest.approx(original["avg_jct_h"], rel=CHANCE)
    assert found["p99_jct_h"] == pytest.approx(original["p99_jct_h_linear"], rel=0.1)
    assert found["makespan_h"] == pytest.approx(original["makespan_h"], rel=LONG_JOBS)


@pytest.mark.thorough
@pytest.mark.xdist_group("philly")
def test_phillys_workloads_together_take_as_long_as_in_the_original():
    """Over several workloads what hangs on equals cancels out."""
    original = mean(original_of(name)["avg_jct_h"] for name in PHILLY)
    assert mean(by_sia(name)["avg_jct_h"] for name in PHILLY) == pytest.approx(original, rel=0.03)


@pytest.mark.parametrize("workload_name", ["workload-1", "workload-2", "workload-3"])
def test_gavels_sum_of_throughputs_takes_as_long_as_in_the_original(workload_name):
    found = figures(run(workload(f"philly/{workload_name}", "rigid"), POLICIES["max_sum_throughput"], 360))
    original = expected(f"gavel-{workload_name.replace('workload', 'philly')}")
    assert found["avg_jct_h"] == pytest.approx(original["avg_jct_h"], rel=0.05)


def test_our_own_policy_with_batch_limits_and_restarts_known_is_much_faster_on_average():
    """docs/reproduction.md has whole workloads, and what each ingredient buys."""
    trace = workload("derived/philly-1-small20")
    published = figures(run(trace, sia()))
    ours = figures(run(trace, POLICIES["motley"], knowledge="informed"))
    assert ours["completed"] == published["completed"]
    assert ours["avg_jct_h"] < 0.8 * published["avg_jct_h"]
    assert ours["rho"]["worst"] < 1.1 * published["rho"]["worst"]  # of twenty jobs, one decides: 1.066 times here
