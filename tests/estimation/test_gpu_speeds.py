"""Speeds of single GPUs from the rates of runs: slow ones are found, also in gangs, and no others are named."""

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from estimation.gpu_speeds import LEAST_JOBS, GpuRuns, GpuSpeeds, gpu_speeds, grouped_quantile

NOISE = 0.03


def runs_of(told: Iterable[tuple[int, int, Sequence[int], float]], gpus: int) -> GpuRuns:
    """Runs as (group, job, GPUs, log rate)."""
    group, job, members, log_rate = zip(*told, strict=True)
    run = np.repeat(np.arange(len(members)), [len(one) for one in members])
    return GpuRuns(np.array(log_rate), np.array(group), np.array(job), run, np.concatenate(members), gpus)


def generated(log_speed: np.ndarray, sizes: Sequence[int], runs: int, seed: int) -> GpuRuns:
    """Runs of ten workloads on random gangs within nodes of eight."""
    rng = np.random.default_rng(seed)
    told = []
    for job in range(runs):
        size, workload = int(rng.choice(sizes)), int(rng.integers(10))
        node = 8 * int(rng.integers(len(log_speed) // 8))
        members = node + rng.choice(8, size, replace=False)
        log_rate = workload + np.log(size) + log_speed[members].min() + rng.normal(0, NOISE)
        told.append((workload * 100 + size, job, members, log_rate))
    groups = {group: number for number, group in enumerate(sorted({group for group, *_ in told}))}
    return runs_of([(groups[group], *rest) for group, *rest in told], len(log_speed))


def named(speeds: GpuSpeeds) -> dict[int, float]:
    slower = speeds.slower_by(np.zeros(len(speeds.jobs), dtype=bool))
    return {int(gpu): float(slower[gpu]) for gpu in np.flatnonzero(slower)}


@pytest.mark.parametrize("sizes", [(1,), (1, 2, 4), (1, 2, 4, 8)])
def test_slow_gpus_are_named_and_no_others(sizes: Sequence[int]) -> None:
    log_speed = np.zeros(64)
    log_speed[[3, 17, 40]] = np.log([0.82, 0.7, 0.88])
    found = named(gpu_speeds(generated(log_speed, sizes, 1500, seed=1)))
    assert set(found) == {3, 17, 40}
    assert found[3] == pytest.approx(0.18, abs=0.04)


def test_what_all_jobs_of_a_kind_share_is_no_slowness_of_a_gpu() -> None:
    told = [(job % 2, job, [job % 4], 1.0 if job % 2 else 3.0) for job in range(40)]
    assert named(gpu_speeds(runs_of(told, 4))) == {}


def test_a_gang_is_as_fast_as_its_slowest_member_and_the_others_are_not_named() -> None:
    pairs = [(a, b) for a in range(6) for b in range(a + 1, 6)]
    told = [(0, job, pair, -0.2 if 0 in pair else 0.0) for job, pair in enumerate(pairs * 3)]
    assert set(named(gpu_speeds(runs_of(told, 6)))) == {0}


def test_a_workload_that_ran_on_one_gpu_alone_tells_nothing_of_it() -> None:
    elsewhere = [(0, job, [1 + job % 3], 0.0) for job in range(12)]
    own = [(1, 12 + job, [0], -5.0) for job in range(12)]
    speeds = gpu_speeds(runs_of([*elsewhere, *own], 4))
    assert (named(speeds), speeds.jobs[0]) == ({}, 0)


def test_one_job_that_is_slow_again_and_again_names_no_gpu() -> None:
    elsewhere = [(0, job, [1 + job % 3], 0.0) for job in range(12)]
    the_same = [(0, 99, [0], -0.5) for _ in range(3 * LEAST_JOBS)]
    assert named(gpu_speeds(runs_of([*elsewhere, *the_same], 4))) == {}


def test_few_jobs_count_for_less() -> None:
    def told(jobs: int) -> list[tuple[int, int, Sequence[int], float]]:
        elsewhere = [(0, job, [1 + job % 3], 0.0) for job in range(30)]
        return [*elsewhere, *((0, 100 + job, [0], -0.3) for job in range(jobs))]

    few, many = (gpu_speeds(runs_of(told(jobs), 4)).log_speed[0] for jobs in (3, 20))
    assert -0.3 < many < few < 0


def test_a_slow_gpu_stays_slow_until_it_is_clearly_as_fast_as_the_others() -> None:
    speeds = GpuSpeeds(np.log([0.96, 0.96, 0.99]), np.full(3, 0.001), np.full(3, 20), np.arange(3))
    assert speeds.slower_by(np.array([True, False, True])).round(2).tolist() == [0.04, 0.0, 0.0]


def test_without_runs_all_gpus_are_as_fast_as_their_type() -> None:
    none = np.zeros(0, dtype=np.int64)
    speeds = gpu_speeds(GpuRuns(np.zeros(0), none, none, none, none, 3))
    assert (speeds.log_speed.tolist(), speeds.jobs.tolist()) == ([0, 0, 0], [0, 0, 0])


def test_the_median_of_each_group_by_weight() -> None:
    values, group = np.array([5.0, 1.0, 9.0, 2.0, 7.0]), np.array([0, 0, 0, 2, 2])
    assert grouped_quantile(values, group, 3).tolist() == [5.0, 0.0, 2.0]
    assert grouped_quantile(values, group, 3, weight=np.array([1.0, 1, 5, 1, 3])).tolist() == [9.0, 0.0, 7.0]


def test_columns_of_different_lengths_are_refused() -> None:
    none = np.zeros(0, dtype=np.int64)
    with pytest.raises(ValueError, match="equal lengths"):
        GpuRuns(np.zeros(1), none, none, none, none, 1)


def test_gpus_of_which_the_same_runs_tell_are_not_told_apart() -> None:
    """Node 0 runs whole, and is slow; of the others each runs alone."""
    whole = [(0, job, [0, 1], -0.3) for job in range(12)]
    pairs = [(0, 20 + job, pair, 0.0) for job, pair in enumerate([(2, 3), (4, 5), (2, 5), (3, 4)] * 4)]
    speeds = gpu_speeds(runs_of([*whole, *pairs], 7))
    assert set(named(speeds)) == {0, 1}
    assert speeds.together[0] == speeds.together[1]
    assert len(set(speeds.together[1:].tolist())) == 6
