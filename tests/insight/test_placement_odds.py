"""Jobs whose deadline leaves little slack get the nodes that stay; page, REST and command say what the odds are."""

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from cluster_app.models import GpuType, Node
from cluster_app.node_history import Observed
from estimation.interrupted_work import Interruptions
from estimation.node_lifetimes import NodeLifetime
from insight_app.explain.outlooks import compared, placement_odds
from jobs_app.models import Attempt, GpuClaim, Job
from scheduler_app.round.node_lifetimes import KnownLifetime
from tests.rest_callers import caller
from tests.service_lab import Lab

HOUR = 3600


@pytest.fixture
def mixed(lab: Lab, plain_static: None) -> Lab:
    """A stable node at 3 and a spot machine at 1 an hour, each of one GPU."""
    lab.node("stable", gpus=1)
    lab.node("spot", gpus=1)
    GpuType.objects.update(price_per_hour=3)
    Node.objects.filter(name="spot").update(capacity_type="spot", price_per_gpu_hour=1)
    return lab


def node_of(job: Job) -> str:
    (claim,) = GpuClaim.objects.filter(attempt__job=job).select_related("gpu__node")
    return claim.gpu.node.name


def test_a_round_gives_the_job_with_little_slack_the_node_that_stays(mixed: Lab) -> None:
    work = {"total_steps": 8 * HOUR, "rates": {"a100": 1.0}, "checkpoint": {"restore_seconds": 60}}
    relaxed = mixed.submit("sleep 60", **work)
    urgent = mixed.submit("sleep 60", **work, deadline=(mixed.now + timedelta(hours=8.6)).isoformat())
    mixed.round()
    assert (node_of(relaxed), node_of(urgent)) == ("spot", "stable")


@pytest.fixture
def running(mixed: Lab) -> Attempt:
    """On the spot machine, with 10 hours of work left and a deadline in 11."""
    job = mixed.submit(total_steps=10 * HOUR, deadline=(mixed.now + timedelta(hours=11)).isoformat())
    columns = {"state": "running", "nodes": ["spot"], "rate": 1.0, "started_at": mixed.now, "checkpoint_s": 60.0}
    attempt = mixed.attempt(job, **columns)
    Job.objects.filter(pk=job.pk).update(state="running")
    attempt.job.refresh_from_db()
    return attempt


def test_the_odds_are_those_of_its_node_and_of_the_one_that_stays(mixed: Lab, running: Attempt) -> None:
    odds = placement_odds(running.job, [running], mixed.now)
    assert odds is not None
    (elsewhere,) = odds.elsewhere
    assert (odds.placed.node, elsewhere.node) == ("spot", "stable")
    assert odds.placed.in_time < 0.7
    assert elsewhere.in_time > 0.95
    assert odds.detail.startswith("placed on spot: it is expected to stay for 4 h; done by its deadline")
    assert odds.detail.endswith("on stable (90 days)")


def test_page_and_rest_say_it(mixed: Lab, running: Attempt, client: Client) -> None:
    user = mixed.user("ada")
    client.force_login(user)
    page = reverse("job", args=[running.job_id])
    for shown in (client.get(page), client.get(f"{page}?tab=why")):
        assert "laced on spot: it is expected to stay for 4 h" in shown.content.decode()
    answer = caller(user).get(f"/api/v1/jobs/{running.job_id}/explain").json()["placement"]
    assert [answer["placed"]["node"], *(one["node"] for one in answer["elsewhere"])] == ["spot", "stable"]


def test_where_all_nodes_are_stable_nothing_is_said(mixed: Lab, running: Attempt) -> None:
    Node.objects.update(capacity_type="stable")
    assert placement_odds(running.job, [running], mixed.now) is None


def test_nodes_that_stay_about_as_long_are_not_compared() -> None:
    def known(hours: float) -> KnownLifetime:
        return KnownLifetime(NodeLifetime(hours * HOUR, HOUR), Observed(), 0.0)

    others = {"short": known(2), "alike": known(4.5), "long": known(40), "longest": known(90)}
    assert list(compared(others, Interruptions(4 * HOUR, HOUR), 1)) == ["longest", "short"]
    assert compared({"alike": known(4.5)}, Interruptions(4 * HOUR, HOUR), 1) == {}
