"""What would start a waiting job: what is said is done, and the job starts."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from django.urls import reverse
from rest_framework.test import APIClient

from insight_app.explain.what_if import (
    ChangeKind,
    PlannedRound,
    ProposedChange,
    WouldStart,
    _at_whose_cost,
    what_would_start,
)
from jobs_app.lifecycle.commands import cancel_job, change_job, hold_job
from jobs_app.models import Job
from jobs_app.submission.conversion import parse_change, spec_of
from jobs_app.submission.submit import cloned_spec, submit_job
from tests.rest_callers import Scope, caller
from tests.service_lab import UNTIL_LET_GO, Lab


def found(lab: Lab, job: Job) -> WouldStart:
    """What is said of the job, as the database has it now."""
    return what_would_start(Job.objects.get(pk=job.pk), lab.now)


def kinds(found: WouldStart) -> list[ChangeKind]:
    return [option.kind for option in found.options]


def done(lab: Lab, job: Job, change: ProposedChange) -> Job:
    """The change as a person would make it; the job that is to start."""
    if change.anew:
        made = submit_job(cloned_spec(spec_of(job), dict(change.changes)), owner=job.owner)
        cancel_job(job, actor=job.owner)
        return made
    actor = lab.user("root", staff=True) if change.for_staff else job.owner
    change_job(job, parse_change(dict(change.changes)), actor=actor, administrator=change.for_staff)
    return job


def starts_next(lab: Lab, job: Job, change: ProposedChange) -> bool:
    lab.decide()
    job.refresh_from_db()
    attempt = job.attempts.last()
    given = attempt and (attempt.gpu_type.name, attempt.gpu_count)
    return job.state != Job.State.QUEUED and given == (change.gpu_type, change.gpus)


@pytest.fixture
def full(lab: Lab) -> Lab:
    """On the A100s three of four GPUs are taken, for good; the T4s are idle."""
    lab.node("n1", gpus=4)
    lab.node("n2", "t4", gpus=4)
    lab.recorded_as_running(lab.submit(gpus=3, gpu_types=["a100"], preemptible=False, name="holder"))
    return lab


@pytest.fixture
def waiting(full: Lab) -> Job:
    """Wants two A100s, and one is left."""
    job = full.submit(gpus=2, gpu_types=["a100"], name="waiting")
    full.decide()
    assert Job.objects.get(pk=job.pk).state == Job.State.QUEUED
    return job


def test_a_type_with_room_that_the_job_does_not_allow_is_named(full: Lab, waiting: Job) -> None:
    change = found(full, waiting).options[0]
    assert (change.kind, change.changes) == (ChangeKind.ANOTHER_TYPE, {"gpu_types": ["a100", "t4"]})
    assert change.detail == "If it also allowed T4, it would get 2 T4."
    assert starts_next(full, done(full, waiting, change), change)


def test_the_largest_gang_that_fits_is_named(full: Lab, waiting: Job) -> None:
    change = next(option for option in found(full, waiting).options if option.kind == ChangeKind.FEWER_GPUS)
    assert (change.changes, change.detail) == ({"gpus": 1}, "If it asked for 1 instead of 2 GPUs, it would get 1 A100.")
    assert starts_next(full, done(full, waiting, change), change)


@pytest.mark.parametrize("column", [{"rates": "nonsense"}, {"batch_size": {"initial": 8}}], ids=["unread", "undecided"])
def test_a_job_that_is_set_aside_changes_no_answer_to_others(full: Lab, waiting: Job, column: dict[str, Any]) -> None:
    before = found(full, waiting)
    bad = full.submit(gpu_types=["a100"])
    Job.objects.filter(pk=bad.pk).update(**column)
    full.decide()
    assert found(full, waiting) == before
    assert "failed on the job" in found(full, bad).note


def test_of_an_elastic_job_the_least_is_lowered(full: Lab) -> None:
    job = full.submit(gpus={"min": 2, "max": 8}, gpu_types=["a100"])
    full.decide()
    change = next(option for option in found(full, job).options if option.kind == ChangeKind.FEWER_GPUS)
    assert change.changes == {"gpus": {"min": 1, "max": 8}}
    assert starts_next(full, done(full, job, change), change)


def test_room_without_cpus_beside_it_is_no_room(lab: Lab) -> None:
    lab.node("n1", gpus=4, cpus=8)
    lab.node("n2", "t4", gpus=4, cpus=2)
    holder = {"gpus": 3, "cpus_per_gpu": 2, "gpu_types": ["a100"], "preemptible": False}
    lab.recorded_as_running(lab.submit(**holder))
    job = lab.submit(gpus=2, cpus_per_gpu=4, gpu_types=["a100"])
    lab.decide()
    assert found(lab, job).options == []


def test_nothing_is_promised_where_nothing_helps(lab: Lab) -> None:
    lab.node("n1", gpus=2)
    lab.recorded_as_running(lab.submit(gpus=2, preemptible=False))
    job = lab.submit(gpus=2)
    lab.decide()
    said = found(lab, job)
    assert (said.options, "No other GPU type" in said.note) == ([], True)


def test_a_job_that_would_be_last_in_the_queue_is_promised_nothing(full: Lab, waiting: Job) -> None:
    """Submitted again it would stand behind a gang that stops the queue."""
    full.policy("fifo")
    full.submit(gpus=4, gpu_types=["a100"], name="behind")
    assert kinds(found(full, waiting)) == []


@pytest.fixture
def outweighed(lab: Lab) -> Job:
    """One GPU, and another job has it by right: both have run, its weight is larger, and it had less than its share."""
    lab.policy(round_s=60)
    lab.node("n1", gpus=1)
    lab.team("vision", weight=1, max_job_weight=64)
    heavy = lab.submit(UNTIL_LET_GO, weight=4, name="heavy")
    lab.round()
    light = lab.submit(UNTIL_LET_GO, weight=1, name="light")
    Job.objects.filter(pk=light.pk).update(attained_gpu_s=1)
    lab.running(heavy)
    return Job.objects.get(pk=light.pk)


def test_jobs_that_would_wait_are_listed_with_and(lab: Lab, outweighed: Job) -> None:
    many = [lab.submit(name=f"n{n}") for n in range(3)]
    ids = [frozenset(str(job.pk) for job in many[:count]) for count in (1, 2, 3)]
    nobody = SimpleNamespace(running=frozenset())
    told = [_at_whose_cost(SimpleNamespace(running=some), nobody, outweighed) for some in ids]  # type: ignore[arg-type]
    assert told == ["n0 would wait for it", "n0 and n1 would wait for it", "n0, n1 and n2 would wait for it"]


def test_a_weight_that_is_enough_is_named(lab: Lab, outweighed: Job) -> None:
    change = next(option for option in found(lab, outweighed).options if option.kind == ChangeKind.HIGHER_WEIGHT)
    assert (change.anew, change.for_staff, change.changes["weight"] <= 64) == (False, False, True)
    assert "it would get 1 A100, and heavy would wait for it." in change.detail
    assert change.detail.endswith("Members of team vision may set up to 64, and should agree on it.")
    assert starts_next(lab, done(lab, outweighed, change), change)


def test_a_weight_beyond_the_teams_limit_is_for_staff(lab: Lab, outweighed: Job) -> None:
    outweighed.team.max_job_weight = 1
    outweighed.team.save()
    change = next(option for option in found(lab, outweighed).options if option.kind == ChangeKind.HIGHER_WEIGHT)
    assert (change.for_staff, "only an administrator can set" in change.detail) == (True, True)
    assert starts_next(lab, done(lab, outweighed, change), change)


def test_a_job_that_starts_anyway_need_not_change(full: Lab) -> None:
    job = full.submit(gpus=1)
    assert found(full, job).note.startswith("No change is needed: the next round would give it 1 ")


def test_a_job_that_waits_for_something_else_is_told_that(full: Lab, waiting: Job) -> None:
    child = full.submit(after=[{"job": str(waiting.pk)}])
    hold_job(waiting, actor=waiting.owner)
    assert found(full, child).note == "The job waits for other jobs; no change would start it."
    assert found(full, waiting).note == "The job is held: release it."
    assert found(full, Job.objects.get(name="holder")).note == "The job is not waiting: it is running."


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (Job.State.SUCCEEDED, "it has succeeded."),
        (Job.State.FAILED, "it has failed."),
        (Job.State.CANCELLED, "it has been cancelled."),
        (Job.State.TIMED_OUT, "it has timed out."),
        (Job.State.STARTING, "it is starting."),
    ],
)
def test_a_job_that_does_not_wait_is_told_its_state(full: Lab, waiting: Job, state: Job.State, words: str) -> None:
    Job.objects.filter(pk=waiting.pk).update(state=state, finished_at=full.now if state in Job.FINAL else None)
    assert found(full, waiting).note == f"The job is not waiting: {words}"


def test_a_member_of_an_array_at_its_limit_is_told_that(full: Lab) -> None:
    full.submit(array={"start": 0, "end": 1, "at_a_time": 1})
    full.decide()
    second = Job.objects.get(array_index=1)
    assert "The limit of running jobs of its array is reached" in found(full, second).note


def test_to_look_changes_nothing(full: Lab, waiting: Job) -> None:
    before = list(Job.objects.order_by("pk").values())
    found(full, waiting)
    assert list(Job.objects.order_by("pk").values()) == before


# -- on pages and over REST ----------------------------------------------------------------------------------------


def explained(client: APIClient, job: Job, query: str) -> Any:
    return client.get(f"/api/v1/jobs/{job.pk}/explain{query}").json()["would_start"]


def test_rest_tries_it_if_it_is_asked_to(full: Lab, waiting: Job, plain_static: None) -> None:
    ada = caller(full.user(), Scope.READ)
    assert explained(ada, waiting, "") is None
    options = explained(ada, waiting, "?would_start=true")["options"]
    assert [(option["kind"], option["changes"]) for option in options] == [
        ("another_type", {"gpu_types": ["a100", "t4"]}),
        ("fewer_gpus", {"gpus": 1}),
    ]


def test_the_page_of_the_job_leads_to_it(full: Lab, waiting: Job, plain_static: None, client: Any) -> None:
    client.force_login(full.user())
    address = reverse("would-start", args=[waiting.pk])
    assert address in client.get(f"{reverse('job', args=[waiting.pk])}?tab=why").content.decode()
    shown = client.get(address).content.decode()
    assert f"motley clone {waiting.pk} --gpu-type a100 --gpu-type t4" in shown
    assert f"motley clone {waiting.pk} --gpus 1" in shown


def test_what_a_change_costs_others_is_told_by_the_prices_of_the_round() -> None:
    """Prices of motley are hours that others wait per GPU-hour; those of other policies have other units."""
    snapshot: Any = SimpleNamespace(types=("a100", "t4"), problem=SimpleNamespace(gpus=[2]), type_of=lambda _: "t4")
    plan: Any = SimpleNamespace(decision=SimpleNamespace(prices=np.array([3.0, 0.7])), assignment=[0])
    planned = PlannedRound(snapshot, plan, 0, False, [], in_hours=True)
    assert planned.price_words(planned.prices) == " Others wait 1.4 h for each hour that it holds these GPUs."
    assert planned.price_words({"t4": 192.0}).startswith(" Others wait 384 h for each hour")
    assert planned.price_words({"t4": 0.0}) == ""
    assert replace(planned, in_hours=False).prices == {}
