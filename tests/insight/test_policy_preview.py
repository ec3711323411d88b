"""Preview of a policy: what it says of the next round is what the next round does; nothing is written."""

from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from insight_app.explain.policy_preview import MOST_LISTED, Preview, PreviewedAction, preview_policy
from jobs_app.models import Job
from scheduler_app.models import PolicySetting, Round
from tests.rest_callers import Scope, caller
from tests.service_lab import UNTIL_LET_GO, Lab

ROUTE = "/api/v1/policies/preview"


@pytest.fixture
def crowded(lab: Lab) -> tuple[Job, Job]:
    """Under `fifo` a long job holds both GPUs and may be preempted by now, and a short one waits."""
    lab.node("n1", gpus=2)
    lab.policy("fifo")
    rates = {"a100": {"2": 1.0}}
    first = lab.submit(gpus=2, rates=rates, total_steps=100_000, name="long")
    lab.recorded_as_running(first)
    first.attempts.update(started_at=F("started_at") - timedelta(minutes=1))
    return first, lab.submit(gpus=2, rates=rates, total_steps=10, name="short")


def previewed(lab: Lab, policy: str) -> Preview:
    setting = PolicySetting.objects.current()
    return preview_policy(PolicySetting(policy=policy, round_length_s=setting.round_length_s, min_run_s=0), lab.now)


def test_what_it_says_the_next_round_does(lab: Lab, crowded: tuple[Job, Job]) -> None:
    first, second = crowded
    found = previewed(lab, "srtf")
    assert (found.jobs, found.differing) == (2, 2)
    assert (
        found.present[PreviewedAction.START],
        found.chosen[PreviewedAction.START],
        found.chosen[PreviewedAction.STOP],
    ) == (0, 1, 1)
    assert [(one.job, one.present.deed, one.chosen.deed) for one in found.listed] == [
        (first, PreviewedAction.KEEP, PreviewedAction.STOP),
        (second, PreviewedAction.WAIT, PreviewedAction.START),
    ]
    assert str(found.listed[1].chosen) == "2 A100"
    lab.policy("srtf")
    lab.decide()
    record = Round.objects.first()
    assert record
    assert (record.starts, record.stops) == (1, 1)


def test_the_present_policy_differs_in_nothing_from_itself(lab: Lab, crowded: tuple[Job, Job]) -> None:
    assert previewed(lab, "fifo").differing == 0


def test_an_empty_queue_is_previewed_too(lab: Lab) -> None:
    lab.node("n1")
    assert previewed(lab, "srtf").jobs == 0


def test_a_job_that_goes_to_another_gpu_type_is_moved_and_not_resized(lab: Lab) -> None:
    lab.node("n1", "t4", gpus=1)
    job = lab.submit(rates={"a100": {"1": 9.0}, "t4": {"1": 1.0}}, total_steps=100_000)
    lab.recorded_as_running(job)
    job.attempts.update(started_at=lab.now - timedelta(hours=1))
    lab.node("n2", "a100", gpus=1)
    chosen = previewed(lab, "srtf").chosen
    assert (chosen[PreviewedAction.MOVE], chosen[PreviewedAction.RESIZE]) == (1, 0)


def test_many_jobs_are_listed_up_to_a_cap_by_as_many_queries(lab: Lab, crowded: tuple[Job, Job]) -> None:
    with CaptureQueriesContext(
        connection,
    ) as few:
        previewed(lab, "srtf")
    lab.node("n2", gpus=8)
    spec = {"gpus": 1, "rates": {"a100": {"1": 1.0}}, "total_steps": 10}
    for _ in range(MOST_LISTED // 10):
        lab.submit(UNTIL_LET_GO, **spec)
    with CaptureQueriesContext(connection) as many:
        previewed(lab, "srtf")
    assert len(many) == len(few)


def test_nothing_is_written(lab: Lab, crowded: tuple[Job, Job]) -> None:
    with CaptureQueriesContext(connection) as queries:
        previewed(lab, "srtf")
    assert [query["sql"] for query in queries if not query["sql"].startswith("SELECT")] == []


# -- REST --------------------------------------------------------------------------------------------------------


@pytest.fixture
def root(lab: Lab) -> APIClient:
    return caller(lab.user("root", "admins", staff=True), Scope.ADMIN)


def test_staff_preview_over_rest(lab: Lab, crowded: tuple[Job, Job], root: APIClient) -> None:
    first, _ = crowded
    answer = root.post(ROUTE, {"policy": "srtf"}, format="json").json()
    assert (answer["chosen"], answer["differing"]) == ({"start": 1, "stop": 1, "move": 0, "resize": 0}, 2)
    assert answer["listed"][0] == {
        "job": str(first.pk),
        "name": "long",
        "team": "vision",
        "present": {"deed": "keep", "gpu_type": "a100", "gpus": 2},
        "chosen": {"deed": "stop", "gpu_type": None, "gpus": 0},
    }
    assert PolicySetting.objects.current().policy == "fifo"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [({"policy": "lottery"}, "/policy"), ({"policy": "fifo", "parameters": {"p": 1}}, "/parameters/p")],
)
def test_what_cannot_be_chosen_cannot_be_previewed(root: APIClient, body: dict[str, object], pointer: str) -> None:
    answer = root.post(ROUTE, body, format="json")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
