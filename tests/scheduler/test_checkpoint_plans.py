"""A job knows when its checkpoints pay: from its nodes, from what they cost before, and on its page."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import Settings

from cluster_app.models import Node, NodeInterval
from cluster_app.node_history import begin_interval
from cluster_app.services import drain
from estimation.checkpoint_plan import daly_interval
from insight_app.explain.outlooks import CheckpointOutlook, checkpoint_outlook
from jobs_app.lifecycle.attempt_endings import AttemptEnd, end_attempt
from jobs_app.models import Attempt, Job
from scheduler_app.round import checkpoint_times
from scheduler_app.round.checkpoint_times import is_news, renew_checkpoint_times
from scheduler_app.round.node_lifetimes import USUAL, by_age, known_lifetimes, lifetimes_now
from tests.service_lab import Lab

SPOT = Node.CapacityType.SPOT
STAY = ("MOTLEY_MEAN_UP_SECONDS", "MOTLEY_NOTIFIED", "MOTLEY_NOTICE_SECONDS")
SAVES_ONCE = """
import os, sys, time
from motley_client.training import checkpoint_dir, progress, save_atomically, should_stop
for name in sorted(os.environ):
    print(name, os.environ[name], sep="=", flush=True)
should_stop()
progress(1)
save_atomically(checkpoint_dir() / "last", lambda file: time.sleep(0.02))
progress(2)
while not should_stop():
    time.sleep(0.01)
sys.exit(75)
"""


def told(lab: Lab, job: Job) -> dict[str, float]:
    return {name: float(value) for name, value in lab.environment(job).items() if name in STAY}


def observe(node: Node, lab: Lab, *, losses: int, up: timedelta, announced: int = 0) -> None:
    """So many times it was up that long, and went; the first of them with an announcement."""
    End = NodeInterval.End
    for number in range(losses):
        start = lab.now - (losses - number) * 2 * up
        end = End.ANNOUNCED if number < announced else End.CHANGED
        NodeInterval.objects.create(node=node, up=True, started_at=start, ended_at=start + up, end=end)


def test_a_job_is_told_how_long_nodes_of_that_kind_stay(lab: Lab) -> None:
    lab.node("n1")
    Node.objects.update(capacity_type=SPOT, notice_s=120)
    job = lab.until_state(lab.submit("env"), Job.State.SUCCEEDED)
    assert told(lab, job) == pytest.approx(dict(zip(STAY, (USUAL[SPOT].mean_up_s, 0, 120), strict=True)), rel=0.01)


def test_a_gang_is_told_when_the_first_of_its_nodes_is_expected_to_go(lab: Lab) -> None:
    for name in ("n1", "n2"):
        observe(lab.node(name), lab, losses=99, up=timedelta(hours=1), announced=50)
    Node.objects.update(capacity_type=SPOT)
    job = lab.until_state(lab.submit("env", gpus=4), Job.State.SUCCEEDED)
    assert lab.attempts(job)[0].nodes == ["n1", "n2"]
    assert told(lab, job)["MOTLEY_MEAN_UP_SECONDS"] == pytest.approx(1800, rel=0.1)
    assert told(lab, job)["MOTLEY_NOTIFIED"] == pytest.approx(0.5, abs=0.02)


def test_by_age_a_node_that_has_stayed_for_long_is_expected_to_stay_if_most_go_early(
    lab: Lab, settings: Settings
) -> None:
    """Nine of ten go after half an hour, the others after a day."""
    node = lab.node("n1")
    Node.objects.update(capacity_type=SPOT)
    observe(node, lab, losses=90, up=timedelta(minutes=30))
    observe(node, lab, losses=10, up=timedelta(days=1))
    begin_interval(node, lab.now)
    now = lab.now
    plain = known_lifetimes(["n1"], now)["n1"].lifetime.mean_up_s
    assert lifetimes_now(["n1"], now)["n1"].lifetime.mean_up_s == plain
    settings.MOTLEY_CHECKPOINTS_BY_AGE = True

    def stays(age: timedelta) -> float:
        NodeInterval.objects.filter(ended_at=None).update(started_at=lab.now - age)
        return lifetimes_now(["n1"], lab.now)["n1"].lifetime.mean_up_s

    assert stays(timedelta()) == pytest.approx(plain, rel=0.25)
    assert stays(timedelta(hours=3)) > 3 * plain
    with CaptureQueriesContext(connection) as queries:
        by_age(known_lifetimes(["n1"], lab.now), lab.now)
    assert sum("intervals" in query["sql"] or "nodeinterval" in query["sql"] for query in queries) <= 4


def test_by_age_a_job_is_told_so(lab: Lab, settings: Settings) -> None:
    settings.MOTLEY_CHECKPOINTS_BY_AGE = True
    node = lab.node("n1")
    Node.objects.update(capacity_type=SPOT)
    observe(node, lab, losses=50, up=timedelta(minutes=30))
    observe(node, lab, losses=10, up=timedelta(days=1))
    begin_interval(node, lab.now - timedelta(hours=3))
    job = lab.until_state(lab.submit("env"), Job.State.SUCCEEDED)
    expected = lifetimes_now(["n1"], lab.now)["n1"].lifetime.mean_up_s
    assert told(lab, job)["MOTLEY_MEAN_UP_SECONDS"] == pytest.approx(expected, rel=0.02)
    assert expected > 2 * known_lifetimes(["n1"], lab.now)["n1"].lifetime.mean_up_s


def test_without_observations_age_says_nothing(lab: Lab, settings: Settings) -> None:
    settings.MOTLEY_CHECKPOINTS_BY_AGE = True
    lab.node("n1")
    NodeInterval.objects.all().delete()
    assert lifetimes_now(["n1"], lab.now) == known_lifetimes(["n1"], lab.now)
    assert lifetimes_now([], lab.now) == {}


def test_what_a_checkpoint_took_is_measured_and_told_to_the_next_attempt(lab: Lab, job_python: Path) -> None:
    node = lab.node("n1")
    job = lab.submit(["python", "-c", SAVES_ONCE])
    lab.until(lambda: lab.attempts(job) and lab.attempts(job)[0].checkpoint_s is not None)
    (first,) = lab.attempts(job)
    assert 0.02 <= first.checkpoint_s < 60
    assert first.started_at <= first.checkpoint_at <= lab.now
    Job.objects.filter(pk=job.pk).update(grace_s=60)
    lab.node("n2")
    drain(node, reason="taken back", actor=None)
    lab.until(lambda: job.attempts.filter(number=2, state=Attempt.State.RUNNING).exists())
    lab.until(lambda: "MOTLEY_CHECKPOINT_SECONDS" in lab.environment(job))
    assert float(lab.environment(job)["MOTLEY_CHECKPOINT_SECONDS"]) == pytest.approx(first.checkpoint_s, rel=1e-3)


def test_a_spot_machine_that_announces_its_end_costs_no_step(lab: Lab, job_python: Path) -> None:
    node = lab.node("n1")
    Node.objects.update(capacity_type=SPOT, notice_s=120)
    command = ["python", "-m", "motley_client.sample", "--steps", "40", "--trace", "trace.txt"]
    job = lab.submit(command, rates={"a100": 20})
    trace = lab.root / "jobs" / str(job.pk) / "work" / "trace.txt"
    lab.until(lambda: trace.exists() and len(trace.read_text().split()) > 5)
    lab.node("n2")
    drain(node, reason="taken back", actor=None)
    lab.until_state(job, Job.State.SUCCEEDED)
    assert [attempt.nodes for attempt in lab.attempts(job)] == [["n1"], ["n2"]]
    assert [int(step) for step in trace.read_text().split()] == list(range(1, 41))


# -- what changes while a job runs -------------------------------------------------------------------------------------

WAITS_FOR_SHORTER_INTERVAL = """
from motley_client.training import checkpoint_saved, next_checkpoint, progress
import time
checkpoint_saved(10)
progress(1)
usual = next_checkpoint()
print("usual", flush=True)
while next_checkpoint() > usual / 3:
    time.sleep(0.05)
"""
TOLD = {"mean_up_s": 7200.0, "notified": 0.5, "notice_s": 120.0, "checkpoint_s": 10.0}


@pytest.mark.parametrize(
    ("change", "news"),
    [
        ({}, False),
        ({"mean_up_s": 7000.0, "notified": 0.52, "checkpoint_s": 10.5}, False),
        ({"mean_up_s": 6000.0}, False),
        ({"mean_up_s": 5000.0}, True),
        ({"notified": 0.6}, True),
        ({"notice_s": 30.0}, True),
        ({"checkpoint_s": 20.0}, True),
        ({"checkpoint_s": None}, True),
    ],
)
def test_only_what_changes_the_interval_noticeably_is_told_again(
    change: dict[str, float | None], *, news: bool
) -> None:
    assert is_news(TOLD, TOLD | change) is news


def test_a_round_finds_what_has_changed_since_the_job_was_told(lab: Lab, running: Attempt) -> None:
    told = {"mean_up_s": USUAL[SPOT].mean_up_s, "notified": 0.0, "notice_s": 0.0, "checkpoint_s": 60.0}
    Attempt.objects.update(checkpoint_times=told)

    def renewed() -> tuple[bool, float]:
        renew_checkpoint_times(1, lab.now)
        running.refresh_from_db()
        return running.checkpoint_times_due, running.checkpoint_times["mean_up_s"]

    assert renewed() == (False, USUAL[SPOT].mean_up_s)
    observe(Node.objects.get(), lab, losses=50, up=timedelta(minutes=30))
    due, mean_up_s = renewed()
    assert due
    assert mean_up_s == pytest.approx(1800, rel=0.2)


def test_of_many_attempts_each_round_looks_at_a_part_and_all_have_their_turn(
    lab: Lab, running: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_times, "LOOKED_AT", 1)
    for _ in range(2):
        lab.attempt(lab.submit(), state=Attempt.State.RUNNING, nodes=running.nodes)
    told = {"mean_up_s": 60.0, "notified": 0.0, "notice_s": 0.0, "checkpoint_s": 60.0}
    Attempt.objects.update(checkpoint_times=told)
    for number, most in ((1, 1), (2, 2), (3, 3), (4, 3)):
        renew_checkpoint_times(number, lab.now)
        assert Attempt.objects.filter(checkpoint_times_due=True).count() <= most
    assert Attempt.objects.filter(checkpoint_times_due=True).count() == 3


@pytest.mark.thorough
def test_a_job_that_runs_saves_more_often_when_its_nodes_turn_out_to_go_often(lab: Lab, job_python: Path) -> None:
    node = lab.node("n1")
    job = lab.submit(["python", "-c", WAITS_FOR_SHORTER_INTERVAL])
    lab.running(job)
    lab.until(lambda: "usual" in lab.output(job))
    observe(node, lab, losses=99, up=timedelta(minutes=5))
    lab.until_state(job, Job.State.SUCCEEDED)
    (attempt,) = lab.attempts(job)
    assert (attempt.checkpoint_times["mean_up_s"] < 3600, attempt.checkpoint_times_due) == (True, False)


# -- what people see ---------------------------------------------------------------------------------------------------


@pytest.fixture
def running(lab: Lab) -> Attempt:
    """On one spot node, with 10 hours of work left, saves of 60 s, and a deadline in 20 hours."""
    lab.node("n1")
    Node.objects.update(capacity_type=SPOT)
    job = lab.submit(total_steps=36_000, deadline=(lab.now + timedelta(hours=20)).isoformat())
    columns = {"state": "running", "nodes": ["n1"], "rate": 1.0, "started_at": lab.now, "checkpoint_s": 60.0}
    attempt = lab.attempt(job, **columns)
    Job.objects.filter(pk=job.pk).update(state="running")
    job.refresh_from_db()
    return attempt


def outlook(lab: Lab, attempt: Attempt) -> CheckpointOutlook:
    attempt.job.refresh_from_db()
    found = checkpoint_outlook(attempt.job, list(attempt.job.attempts.all()), lab.now)
    assert found is not None
    return found


def test_a_job_saves_by_the_interval_of_its_nodes_and_loses_half_of_it(lab: Lab, running: Attempt) -> None:
    found = outlook(lab, running)
    assert found.interval_s == pytest.approx(daly_interval(60, USUAL[SPOT].mean_up_s), rel=0.01)
    assert found.at_stake_gpu_s == found.interval_s / 2
    assert found.lost_gpu_s == pytest.approx(10 / 4 * found.interval_s / 2, rel=0.1)


def test_a_deadline_is_the_less_probable_the_sooner_it_is_and_the_more_often_the_node_goes(
    lab: Lab, running: Attempt
) -> None:
    relaxed = outlook(lab, running).in_time
    Job.objects.update(deadline=lab.now + timedelta(hours=11, minutes=30))
    tight = outlook(lab, running).in_time
    observe(Node.objects.get(), lab, losses=50, up=timedelta(minutes=30))
    often = outlook(lab, running).in_time
    Job.objects.update(deadline=lab.now + timedelta(hours=9))
    assert relaxed > 0.99 > tight > 0.3 > often > outlook(lab, running).in_time == 0


def test_a_restore_takes_as_long_as_the_restores_of_its_workload_did(lab: Lab, running: Attempt) -> None:
    launched = lab.now
    Job.objects.update(restore_s=200)
    Attempt.objects.update(number=2, launched_at=launched, first_step_at=launched + timedelta(seconds=200))
    assert outlook(lab, running).restore_s == pytest.approx(200)


def test_the_page_of_a_running_job_shows_plan_expected_loss_and_deadline(
    lab: Lab, running: Attempt, plain_static: None, client: Client
) -> None:
    client.force_login(lab.user("ada"))
    page = client.get(reverse("job", args=[running.job_id])).content.decode()
    text = re.sub(r"(\s|<[^>]*>)+", " ", page)
    assert "A checkpoint takes 1 min measured" in text
    assert "Best interval 21 min" in text
    assert "Expected loss 27 GPU-minutes of work until its end" in text
    assert "Meets its deadline 100 % probable" in text


def test_a_lost_node_costs_the_work_since_the_last_checkpoint(lab: Lab, running: Attempt) -> None:
    at = lab.now + timedelta(seconds=500)
    Attempt.objects.update(checkpoint_at=lab.now, step_at=lab.now + timedelta(seconds=490))
    end_attempt(running, AttemptEnd(at, lost=True))
    running.refresh_from_db()
    assert running.work_lost_gpu_s == pytest.approx(500, abs=1)
