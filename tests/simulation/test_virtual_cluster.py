"""The replay by Helios' rules, by hand and beside what Helios' own simulator found on Philly's jobs."""

from math import inf

import pytest

from benchmarks.remaining_work import (
    DAY_S,
    DailyFit,
    fifo,
    measured,
    noisy,
    oracle,
    read_virtual_clusters,
    rolling,
    shortest,
)
from benchmarks.virtual_cluster import QueuedJob, waits_of
from tests.reference import reference

CLAIMED = {fifo: 43_644, shortest: 17_796, noisy: 21_138}
"""Mean completion times, s: a third of the nodes, October and November 2017; the noise was drawn once."""


def job(arrival_s: float, duration_s: float, gpus: int = 1) -> QueuedJob:
    return QueuedJob("vc", arrival_s, duration_s, gpus)


def by_arrival(one: QueuedJob) -> float:
    return one.arrival_s


def by_duration(one: QueuedJob) -> float:
    return one.duration_s


def test_the_first_job_that_does_not_fit_stops_the_queue() -> None:
    jobs = [job(0, 100, 6), job(1, 50, 4), job(2, 10, 1)]
    assert waits_of(jobs, 1, by_arrival) == [0, 99, 98]


def test_a_running_job_is_not_stopped_for_a_shorter_one_and_the_shortest_goes_next() -> None:
    jobs = [job(0, 100, 8), job(1, 50, 8), job(2, 10, 8)]
    assert waits_of(jobs, 1, by_duration) == [0, 109, 98]


def test_a_gang_is_on_one_node_or_on_whole_ones() -> None:
    """After 6 and 6 GPUs on two nodes, four are free, but not together; eight need a whole node."""
    jobs = [job(0, 100, 6), job(0, 200, 6), job(1, 10, 4), job(2, 10, 8)]
    assert waits_of(jobs, 2, by_arrival) == [0, 0, 99, 108]


def test_a_job_larger_than_the_cluster_waits_for_ever_and_nobody_for_it() -> None:
    assert waits_of([job(0, 10, 24), job(1, 10, 1)], 2, by_arrival) == [inf, 0]


def test_a_job_is_told_to_the_history_when_it_ends() -> None:
    ended: list[tuple[float, float]] = []
    waits_of([job(0, 10), job(1, 5)], 1, by_arrival, lambda one, now_s: ended.append((one.duration_s, now_s)))
    assert ended == [(5, 6), (10, 10)]


def test_the_daily_fit_knows_only_jobs_that_ended_before_the_day() -> None:
    """Before it knows enough it says the mean of those that ended; what a job takes itself does not matter."""
    learner = DailyFit()
    assert learner.predict(job(0, 10)) == 0
    learner.note_end(job(0, 10), 10.0)
    assert learner.predict(job(DAY_S + 1, 10)) == learner.predict(job(DAY_S + 1, 9_999)) == pytest.approx(10)
    assert learner.model is None


@pytest.mark.thorough
def test_on_phillys_jobs_the_orders_differ_as_in_helios_simulator() -> None:
    reference("traces")
    clusters = read_virtual_clusters()
    found = {rule: measured(clusters, rule, 0).completion_s for rule in (fifo, shortest, oracle, noisy, rolling)}
    assert found[fifo] == pytest.approx(CLAIMED[fifo], rel=0.01)
    assert found[shortest] == pytest.approx(CLAIMED[shortest], rel=0.01)
    assert found[noisy] == pytest.approx(CLAIMED[noisy], rel=0.1)
    assert found[oracle] < found[rolling] < 0.5 * found[fifo]
