"""Errors in what policies are told: drawn by seed, and the truth moves the jobs."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from allocation.policies import POLICIES
from simulation.clock.run import Simulation
from simulation.cluster import Cluster
from simulation.rules.service import ServiceRules
from simulation.scenario.setting import InvalidSetting, begin
from simulation.traces.trace import Program, Trace, TraceJob
from simulation.workloads.applications import ApplicationProfiles
from simulation.workloads.rate_sources import BySpeed
from simulation.workloads.wrong_estimates import WrongEstimates

CLUSTER = Cluster.parse("v100=1x4,t4=1x4")


def trace(jobs=40):
    return Trace.of(
        TraceJob(name=f"j{n}", arrival_s=0, gangs=(1, 2), program=Program(f"w{n % 4}"), total_steps=100.0)
        for n in range(jobs)
    )


def begun(policy="fifo", of=None, **errors):
    wrong, rules = WrongEstimates(**errors), ServiceRules(CLUSTER, POLICIES[policy], 60.0)
    return begin(of or trace(), CLUSTER, BySpeed(), rules, None, restart_s=60.0, wrong=wrong), rules


def test_a_rate_is_off_by_one_factor_for_each_workload_and_type():
    state, _ = begun(rate=0.3)
    told, kinds = state.work.believed(np.arange(4))
    factor = told[kinds] / state.jobs.rate[:4]
    types = state.jobs.configurations.gpu_type
    of_type = [np.unique(factor[:, types == j].round(9), axis=1) for j in (0, 1)]
    assert [found.shape for found in of_type] == [(4, 1), (4, 1)]
    assert len(np.unique(np.concatenate(of_type))) == 8
    assert ((factor >= 0.7) & (factor <= 1.3)).all()


def test_the_truth_moves_the_jobs():
    """Alone on its GPUs a job is as quick as it is, whatever is told."""
    one, told = trace(1), {"rate": 0.9, "length": 5, "restart_s": 600}
    ends = [Simulation(*begun(of=one, **errors)).run().finish_s.tolist() for errors in ({}, told)]
    assert ends[0] == ends[1]


def test_a_length_is_told_doubled_or_halved_and_none_stays_none():
    jobs = [*trace().jobs[1:], replace(trace().jobs[0], declared_length=inf)]
    declared = [job.declared_length for job in WrongEstimates(length=2).declared(Trace.of(jobs)).jobs]
    assert set(declared) == {0.5, 2, inf}
    assert 10 <= declared.count(2) <= 30


def test_a_restart_is_told_where_none_is_known():
    known = replace(trace().jobs[0], told_restart_s=7.0)
    state, _ = begun(of=Trace.of([known, *trace().jobs[1:]]), restart_s=15)
    assert state.jobs.told_restart_s.tolist() == [7, *[15] * 39]
    assert set(state.jobs.restart_s.tolist()) == {60}


@pytest.mark.parametrize("errors", [{"rate": 0.3}, {"length": 2}])
def test_the_seed_determines_the_errors(errors):
    def told(seed):
        state, _ = begun(seed=seed, **errors)
        return [*state.work.believed(state.active)[0].ravel(), *state.jobs.declared_steps]

    assert told(1) == told(1) != told(2)


def test_rates_that_are_learnt_have_no_error(tmp_path):
    rules = ServiceRules(CLUSTER, POLICIES["fifo"], 60.0)
    with pytest.raises(InvalidSetting, match="--rate-error cannot be used with --profiles"):
        begin(trace(), CLUSTER, ApplicationProfiles(tmp_path), rules, None, wrong=WrongEstimates(rate=0.3))
