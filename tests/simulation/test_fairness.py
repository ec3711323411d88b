"""Finish-time fairness and Jain's index, by hand."""

import numpy as np
import pytest

from simulation.clock.fairness import finish_time_ratios_of, jain_index_of
from simulation.clock.state import State
from simulation.cluster import Cluster
from simulation.traces.trace import Program, TraceJob
from simulation.workloads.jobs import Jobs
from simulation.workloads.rate_sources import RateTable

RATES = RateTable({"w": {("slow", 1): 1.0, ("fast", 1): 4.0, ("slow", 2): 2.0, ("fast", 2): 8.0, ("slow", 4): 3.0}})


def finished(words, jobs, finish_s):
    cluster = Cluster.parse(words)
    state = State.before(Jobs.of(jobs, cluster, RATES), cluster, [0] * len(cluster.gpu_types))
    state.finish_s = np.array(finish_s, dtype=float)
    return state


def job(arrival_s, steps, *, gangs=(1,), **columns):
    return TraceJob(name="j", arrival_s=arrival_s, gangs=gangs, program=Program("w"), total_steps=steps, **columns)


def test_alone_on_the_cluster_the_types_count_by_their_gpus():
    state = finished("slow=3,fast=1", [job(0, 100)], [50])
    assert finish_time_ratios_of(state) == pytest.approx([50 / (0.75 * 100 + 0.25 * 25)])


def test_a_gang_larger_than_its_part_has_it_for_a_part_of_the_time():
    state = finished("slow=2", [job(0, 100, gangs=(2,)), job(0, 100)], [100, 100])
    assert finish_time_ratios_of(state) == pytest.approx([100 / 100, 100 / 100])


def test_how_many_are_active_is_the_mean_over_the_life_of_each():
    state = finished("slow=1", [job(0, 100), job(50, 100)], [100, 200])
    alone_s = np.array([100 * 1.5, 100 * (50 * 2 + 100) / 150])
    assert finish_time_ratios_of(state) == pytest.approx([100, 150] / alone_s)


def test_between_two_whole_parts_an_elastic_job_is_interpolated():
    """Four GPUs among 1.6 jobs are 2.5 for each: between 50 s on two or three, no gang of three being known."""
    state = finished("slow=4", [job(0, 100, gangs=(1, 2, 4)), job(0, 60, gangs=(1,))], [100, 60])
    assert finish_time_ratios_of(state)[0] == pytest.approx(100 / 50)


def test_a_type_that_cannot_run_a_job_does_not_count():
    state = finished("slow=4,fast=8", [job(0, 60, gangs=(4,))], [40])
    assert finish_time_ratios_of(state) == pytest.approx([40 / 20])


def test_a_type_with_too_few_gpus_for_any_gang_does_not_count():
    state = finished("slow=2,fast=1", [job(0, 60, gangs=(2,))], [40])
    assert finish_time_ratios_of(state) == pytest.approx([40 / (60 / 2)])


def test_teams_that_get_what_they_are_due_make_the_index_1():
    state = finished("slow=2", [job(0, 100, team="a"), job(0, 100, team="b")], [100, 100])
    assert jain_index_of(state) == pytest.approx(1)


def test_a_team_without_jobs_is_due_nothing_more():
    """b is due half of 100 s, then all of 100 s, and gets as much work done as a, which is due half of 100 s."""
    state = finished("slow=1", [job(0, 60, team="a"), job(0, 60, team="b")], [100, 200])
    x = np.array([60 / 50, 60 / 150])
    assert jain_index_of(state) == pytest.approx(x.sum() ** 2 / (2 * (x**2).sum()))


def test_a_team_of_three_times_the_weight_is_due_three_times_as_much():
    heavy, light = job(0, 300, team="a", team_weight=3.0, weight=9.0), job(0, 100, team="b")
    assert jain_index_of(finished("slow=4", [heavy, light], [100, 100])) == pytest.approx(1)


def test_a_job_without_a_team_is_one_of_its_own_by_its_weight():
    state = finished("slow=4", [job(0, 300, weight=3), job(0, 100)], [100, 100])
    assert jain_index_of(state) == pytest.approx(1)
