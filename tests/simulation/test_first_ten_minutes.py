"""The demo's first ten minutes under our own policies: gangs run beside small jobs, and what began goes on."""

import numpy as np
import pytest

from benchmarks.first_ten_minutes import LONGEST_WAIT, MOST_FOR_LATER, MOST_RESTARTS, outcome

SEEDS = (0, 1)


@pytest.fixture(scope="module", params=["motley", pytest.param("motley_static", marks=pytest.mark.thorough)])
def runs(request):
    return [outcome(request.param, seed=seed, every_s=10.0) for seed in SEEDS]


def test_no_job_is_restarted_again_and_again(runs):
    assert max(run.restarts.max() for run in runs) <= MOST_RESTARTS


def test_no_job_is_stopped_within_its_lease(runs):
    assert sum(run.in_lease.sum() for run in runs) == 0


def test_no_gang_makes_room_again_and_again_for_jobs_that_came_later(runs):
    assert max(run.for_later[run.gangs].max() for run in runs) <= MOST_FOR_LATER


def test_gangs_do_not_wait_much_longer_than_the_small_jobs_around_them(runs):
    gangs, small = (np.mean([getattr(run, f"{name}_wait_s") for run in runs]) for name in ("gang", "small"))
    assert gangs <= LONGEST_WAIT * small
