"""On recorded interruptions of spot machines, plans keep more work than checkpoints at fixed intervals."""

import numpy as np
import pytest

from benchmarks.intermittence import PLANS, Job, Up, jobs_of, score, slowdown, zones
from tests.reference import reference

JOBS = 8


@pytest.fixture(scope="module")
def mean_slowdown() -> dict[str, float]:
    reference("traces")
    rng = np.random.default_rng(0)
    cases = [(job, zone) for zone in zones() for job in jobs_of(zone, rng, number=JOBS)]
    compared = ("every stage", "Daly, mean cost", "dynamic programme")
    took = [[score(job, zone, PLANS[name]).slowdown for name in compared] for job, zone in cases]
    finished = np.array([one for one in took if np.isfinite(one).all()])
    return dict(zip(compared, finished.mean(axis=0), strict=True))


def test_a_planned_job_is_done_before_one_that_saves_at_fixed_intervals(mean_slowdown: dict[str, float]) -> None:
    assert mean_slowdown["dynamic programme"] < mean_slowdown["Daly, mean cost"] < mean_slowdown["every stage"]


def test_an_interrupted_job_goes_on_from_its_last_checkpoint() -> None:
    up = Up(np.array([0.0, 1000.0]), np.array([350.0, 5000.0]))
    job = Job(np.full(4, 100.0), np.full(4, 10.0), 0.0, np.array([True, True]))
    never, each = np.zeros(4, dtype=np.bool_), np.ones(4, dtype=np.bool_)
    assert slowdown(job, up, never, on_notice=False) == (1000 + 90 + 400) / 400
    assert slowdown(job, up, each, on_notice=False) == (1000 + 90 + 100 + 10) / 400
    assert slowdown(job, up, never, on_notice=True) == (1000 + 90 + 400 - (350 - 120)) / 400
