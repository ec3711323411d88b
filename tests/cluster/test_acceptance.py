"""What was seen of the cluster a moment ago may accept a job, and never refuses one."""

from math import inf
from typing import Any

import pytest

from cluster_app import feasibility_cache
from cluster_app.feasibility import Request
from cluster_app.feasibility_cache import ACCEPTANCE
from jobs_app.errors import InvalidSpec
from jobs_app.models import Job
from tests.service_lab import Lab

LARGE = Request(gpus=8)


def test_the_cluster_is_not_read_for_every_job(
    lab: Lab, django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feasibility_cache, "GOOD_FOR_S", inf)
    lab.node("n1", gpus=8)
    ACCEPTANCE.holds(LARGE)
    with django_assert_num_queries(0):
        assert ACCEPTANCE.holds(LARGE)


def test_a_node_that_has_just_come_is_seen_at_once(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    lab.submit()
    lab.node("n2", gpus=8)
    assert lab.submit(gpus=8).state == Job.State.QUEUED


def test_what_is_refused_is_refused_by_the_nodes_of_now(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    lab.submit()
    lab.node("n2", gpus=2)
    with pytest.raises(InvalidSpec, match="2 A100"):
        lab.submit(gpus=8)
