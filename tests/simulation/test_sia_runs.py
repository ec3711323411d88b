"""Our simulator beside what Sia's says of its own: jobs alone, and whole workloads."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from sia_reference import CLUSTER, ROUND_S, expected, one_job, profiles, recorded, run, sia, simulation, workload

from allocation.arrays import Floats
from allocation.policies import POLICIES
from simulation.cluster import Cluster
from simulation.figures import figures_of
from simulation.formats.sia import GANGS
from simulation.jobs import Jobs
from simulation.rounds import Planned
from simulation.state import State
from simulation.trace import Program, Spread, Trace, TraceJob

APPLICATIONS = ("cifar10", "bert", "deepspeech2", "yolov3", "imagenet")
HUNDREDTH = 0.01
"""To which the original rounds costs: of those that differ by less, its solver takes any."""


@dataclass
class Told:
    """Rules that give the only job what is written down."""

    jobs: Jobs
    gpu_types: tuple[str, ...]
    told: dict[float, tuple[str, tuple[int, ...]]]
    round_s: float = ROUND_S
    whole_steps: bool = False
    first_start_costs: bool = True
    seen: list[tuple[float, Floats]] = field(default_factory=list)
    _now: tuple[str, tuple[int, ...]] = ("", ())

    def plan(self, state: State, *, changed: bool) -> Planned:
        self._now = self.told.get(state.now_s, self._now)
        if not self.seen:
            state.set_isolated(state.problem())
        self.look(state)
        on = zip(self.jobs.configurations.gpu_type.tolist(), self.jobs.placements, strict=True)
        picks = np.array([[(self.gpu_types[j], placement) for j, placement in on].index(self._now)])
        return Planned(picks, picks != state.held[state.active])

    def look(self, state: State) -> None:
        """Note the progress."""
        self.seen.append((state.now_s, state.jobs.steps - state.left))

    def relax(self) -> None:
        """Nothing changes."""


def alone(trace: Trace, cluster: Cluster, told: dict[float, tuple[str, tuple[int, ...]]], rules: type[Told] = Told):
    jobs = Jobs.of(profiles().completed(trace).jobs, cluster, profiles())
    rounds = rules(jobs, cluster.gpu_types, told)
    whole = simulation(trace, rounds, cluster)
    whole.run()
    return whole, rounds


def test_a_job_on_a_fixed_placement_is_done_when_the_original_is():
    """Sixty runs: every application, on one GPU up to 24 of each type."""
    for run_ in recorded("golden_fixed_placement"):
        cluster = Cluster.parse(f"{run_['gpu']}={'4x4' if run_['gpu'] == 'aws' else '4x8'}")
        job = TraceJob(name="a", arrival_s=0, gangs=GANGS, program=Program(run_["app"], tuned=True), spread=Spread.FULL)
        whole, _ = alone(Trace.of([job]), cluster, {0.0: (run_["gpu"], tuple(run_["placement"]))})
        assert whole.state.finish_s.tolist() == [run_["jct_s"]], run_


class Checked(Told):
    """Rules that also check that what is written down is, to the last digit of the original, a best decision."""

    def look(self, state: State) -> None:
        super().look(state)
        if state.restoring_s[0] > 0 and state.held[0] >= 0:
            return
        worth = sia()(state.problem()).worth
        assert worth is not None
        on = zip(self.jobs.configurations.gpu_type.tolist(), self.jobs.placements, strict=True)
        k = [(self.gpu_types[j], placement) for j, placement in on].index(self._now)
        assert worth[0, k] >= worth.max() - HUNDREDTH * 1.0001, state.now_s


@pytest.mark.parametrize("application", APPLICATIONS)
def test_a_job_alone_gets_on_round_by_round_as_the_originals_and_each_of_its_decisions_is_ours(application):
    """Of equals the original's solver takes any, so its choices are written down; everything else is ours."""
    golden = recorded("golden_single_job")[application]
    told = {float(event["t"]): (event["gpu_type"], tuple(event["placement"])) for event in golden["events"]}
    whole, rounds = alone(one_job(golden["job"]), CLUSTER, told, Checked)
    progress = dict(rounds.seen)
    for event in golden["events"][:-1]:
        assert progress[event["t"]][0] == pytest.approx(event["progress"], abs=1e-3)
    assert whole.state.finish_s.tolist() == [golden["completion_time"]]
    assert whole.state.restarts.tolist() == [golden["restarts"]]


def figures(whole: Any) -> dict[str, Any]:
    return figures_of(whole.state, CLUSTER.gpu_types, decided_s=whole.decided_s, wall_s=0, prices=None)


CHANCE = 0.06
"""A run's average hangs on which of equals the solver takes: the original's own solvers differ by two in a hundred."""


@pytest.mark.parametrize(
    "name", ["philly/workload-1", "philly/workload-2", "philly/workload-3", "derived/philly-1-rigid"]
)
def test_whole_workloads_take_as_long_as_in_the_original(name):
    """docs/reproduction.md has the figures, and those of the other workloads."""
    found = figures(run(workload(name), sia()))
    original = expected(f"sia-{name.split('/')[1].replace('workload', 'philly')}")
    assert found["completed"] == original["n_done"]
    assert found["avg_jct_h"] == pytest.approx(original["avg_jct_h"], rel=CHANCE)
    assert found["p99_jct_h"] == pytest.approx(original["p99_jct_h_linear"], rel=0.1)
    assert found["makespan_h"] == pytest.approx(original["makespan_h"], rel=0.1)


@pytest.mark.parametrize("workload_name", ["workload-1", "workload-2", "workload-3"])
def test_gavels_sum_of_throughputs_takes_as_long_as_in_the_original(workload_name):
    found = figures(run(workload(f"philly/{workload_name}", "rigid"), POLICIES["max_sum_throughput"], 360))
    original = expected(f"gavel-{workload_name.replace('workload', 'philly')}")
    assert found["avg_jct_h"] == pytest.approx(original["avg_jct_h"], rel=0.05)


def test_our_own_policy_with_what_a_service_knows_is_much_faster_on_average():
    """docs/reproduction.md has whole workloads, and what each ingredient buys."""
    trace = workload("derived/philly-1-small20")
    published = figures(run(trace, sia()))
    ours = figures(run(trace, POLICIES["motley"], knowledge="service"))
    assert ours["completed"] == published["completed"]
    assert ours["avg_jct_h"] < 0.8 * published["avg_jct_h"]
    assert ours["rho"]["worst"] < 1.05 * published["rho"]["worst"]
