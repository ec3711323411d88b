"""Jobs whose replicas take several GPUs each: Sia's recorded pipelines, and what its simulator made of them."""

from collections import defaultdict

import numpy as np
import pytest

from simulation.clock.run import SimulatedRound, Simulation
from simulation.cluster import Cluster
from simulation.rules.sia import SiaRules
from simulation.scenario.scenario import Scenario
from simulation.traces.trace import Trace
from simulation.workloads.jobs import Jobs
from simulation.workloads.rate_sources import InvalidTable
from tests.reference import reference
from tests.simulation.sia_reference import ROUND_S, profiles, sia, simulation, workload
from tests.simulation.told_rounds import ToldRounds

CLUSTER = Cluster.parse("rtx=3x8,dgx-ext=2x8")
"""Nodes of the types on which pipelines were recorded."""
PLACED = {60.0: ("rtx", (8,)), 120.0: ("rtx", (8, 8)), 180.0: ("rtx", (8, 8, 8))}
"""Where the original ran the job from then on."""
JCT_S = 20_766
"""Of the original, whose ratios of throughputs were completed: as published, such a job stops the simulation."""
LATER_S = 20
"""At 180 s the costs of 16 and 24 GPUs are equal when rounded: the original grows then, ours a round later."""


def gpt() -> Trace:
    return workload("derived/gpt-1job")


def told() -> tuple[Simulation, ToldRounds]:
    """The job on the GPUs that the original gave it."""
    rounds = ToldRounds(Jobs.of(profiles().completed(gpt()).jobs, CLUSTER, profiles()), CLUSTER.gpu_types, PLACED)
    whole = simulation(gpt(), rounds, CLUSTER)
    whole.run()
    return whole, rounds


def free() -> tuple[Simulation, dict[float, tuple[str, int]]]:
    """The job by Sia's rules and policy, and on which GPUs it ran from when on."""
    whole, since, last = simulation(gpt(), SiaRules(sia(), ROUND_S), CLUSTER), {}, ("", 0)

    def watch(round_: SimulatedRound) -> None:
        nonlocal last
        k, on = int(whole.state.held[0]), whole.state.jobs.configurations
        now = (CLUSTER.gpu_types[int(on.gpu_type[k])], int(on.gpus[k])) if k >= 0 else ("", 0)
        if now != last and np.isnan(whole.state.finish_s[0]):
            since[round_.began_s] = last = now

    whole.watch = watch
    whole.run()
    return whole, since


def test_pipelines_on_the_originals_gpus_are_done_in_the_very_second():
    whole, _ = told()
    assert whole.state.finish_s[0] - whole.state.jobs.arrival_s[0] == JCT_S
    assert whole.state.restarts.tolist() == [2]


def test_the_originals_choices_of_whole_replicas_are_as_good_as_ours():
    """It begins with one pipeline on the type where that takes most GPUs, and at most doubles the replicas."""
    _, rounds = told()
    assert len(rounds.shortfalls) == len(PLACED)
    assert max(rounds.shortfalls) == pytest.approx(0, abs=1e-6)


def test_our_own_choices_are_the_originals_but_for_a_tie():
    whole, since = free()
    assert list(since.values()) == [(gpu_type, sum(placement)) for gpu_type, placement in PLACED.values()]
    assert list(since) == [60, 120, 240]
    assert whole.state.finish_s[0] - whole.state.jobs.arrival_s[0] == JCT_S + LATER_S


def test_a_pipeline_runs_only_in_whole_replicas_on_types_that_hold_it():
    cluster = Cluster.parse("aws=4x4,rtx=3x8,dgx-ext=2x8")
    jobs = Jobs.of(profiles().completed(gpt()).jobs, cluster, profiles())
    on = jobs.configurations
    able = {
        (cluster.gpu_types[j], gpus)
        for j, gpus, rate in zip(on.gpu_type.tolist(), on.gpus.tolist(), jobs.kind_rate[0].tolist(), strict=True)
        if rate > 0
    }
    assert able == {("rtx", 8), ("rtx", 16), ("rtx", 24), *(("dgx-ext", gpus) for gpus in (2, 4, 8, 16))}


# -- of Motley's own traces ----------------------------------------------------------------------------------------

HEADER = "name,arrival_s,total_steps,replicas,gpus_per_replica"


def given(tmp_path, *rows, cluster, policy="max_min_fairness", **options):
    """Per job, the GPU types and numbers of GPUs on which it ran; all jobs end."""
    path = tmp_path / "trace.csv"
    path.write_text("\n".join([HEADER, *rows]))
    prepared = Scenario(format_name="csv", cluster=cluster, round_s=60, **options).prepare(path, policy, seed=0)
    jobs, on = prepared.simulation.state.jobs, defaultdict(set)

    def watch(round_: SimulatedRound) -> None:
        for row, k in zip(round_.rows.tolist(), round_.configurations.tolist(), strict=True):
            used = jobs.configurations.usage[:, k]
            on[jobs.names[row]] |= {(prepared.gpu_types[j], int(used[j])) for j in np.flatnonzero(used)}

    assert prepared.finish(watch)["completed"] == len(rows)
    return dict(on)


def test_a_job_of_two_gpus_a_replica_has_whole_replicas(tmp_path):
    """Of 3 GPUs it has 2, and the single one goes to the other job; of 7, 6."""
    assert given(tmp_path, "pair,0,500,1,2", "single,0,500,1,1", cluster="v100=1x3") == {
        "pair": {("v100", 2)},
        "single": {("v100", 1)},
    }
    elastic = 'pairs,0,5000,"{""min"": 1, ""max"": 3}",2'
    assert given(tmp_path, elastic, cluster="v100=1x7") == {"pairs": {("v100", 6)}}


@pytest.mark.parametrize("policy", ["motley", "max_min_fairness", "finish_time_fairness", "sia", "srtf", "fifo"])
def test_a_replica_takes_the_gpus_of_its_type_under_every_kind_of_policy(tmp_path, policy):
    """Two replicas are 4 A100 or 8 V100, and never 8 A100, which would be four; on T4 the job cannot be."""
    a, b, c = (name + ',0,2000,2,"{""a100"": 2, ""v100"": 4}"' for name in "abc")
    on = given(tmp_path, a, b, cluster="a100=1x8,v100=1x8,t4=1x8", policy=policy)
    assert set().union(*on.values()) <= {("a100", 4), ("v100", 8)}
    assert given(tmp_path, c, cluster="v100=2x8", policy=policy) == {"c": {("v100", 8)}}


def test_a_gang_on_two_types_has_whole_replicas_on_each(tmp_path):
    """One job has 4 V100, and the other no 3 of one type beside 1 of the other."""
    rows = [f"{name},0,5000,2,2" for name in "ab"]
    on = given(tmp_path, *rows, cluster="v100=1x7,p100=1x3", policy="fifo", mixed_gangs=True)
    assert on == {"a": {("v100", 4)}, "b": {("v100", 2), ("p100", 2)}}


def test_the_size_of_a_recorded_replica_is_not_another_in_the_trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(f"{HEADER},workload\na,0,500,1,2,bert\n")
    scenario = Scenario(format_name="csv", cluster="rtx=1x8", profiles=reference("sia") / "apps")
    with pytest.raises(InvalidTable, match=r"job a: a replica of bert takes 1 GPU of any type, the trace says 2"):
        scenario.prepare(path, "fifo", seed=0)
