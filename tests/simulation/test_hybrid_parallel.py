"""Jobs whose replicas take several GPUs each: Sia's recorded pipelines, and what its simulator made of them."""

import numpy as np
import pytest

from simulation.clock.run import SimulatedRound, Simulation
from simulation.cluster import Cluster
from simulation.rules.sia import SiaRules
from simulation.traces.trace import Trace
from simulation.workloads.jobs import Jobs
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
