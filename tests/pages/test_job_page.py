"""What the page of a job says of its attempts, of its end, and of where it runs."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags

from cluster_app.models import Node
from jobs_app.lifecycle.commands import cancel_job, hold_job
from jobs_app.measurement.progress_curves import CurvePoint, note_points
from jobs_app.models import Attempt, Job, Reason, Team
from tests.pages.conftest import decide

Read = Callable[..., str]


@pytest.fixture
def read(member: User, web: Callable[[User], Client]) -> Read:
    """The text of a tab of a job, with single spaces."""

    def text(job: Job, tab: str = "overview") -> str:
        page = web(member).get(reverse("job", args=[job.pk]), {"tab": tab}).content.decode()
        return re.sub(r"\s+", " ", strip_tags(page))

    return text


@pytest.fixture
def attempt(decided: Any) -> Attempt:
    """The live attempt of a job."""
    return Attempt.objects.live().order_by("pk")[0]


def test_jobs_that_the_reader_may_not_see_are_neither_named_nor_counted(
    submit: Callable[..., Job], member: User, stranger: User, web: Callable[[User], Client]
) -> None:
    secret = submit(name="hidden-one")
    Team.objects.get(name="speech").members.add(member)
    begun = submit(name="begun", team="speech")
    submit(name="waits", after=[{"job": str(begun.pk)}])
    Job.objects.filter(pk=begun.pk).update(continues=secret.pk)
    seen, known = (web(user).get(reverse("job", args=[begun.pk])) for user in (stranger, member))
    assert ("hidden-one" in seen.content.decode(), seen.context["waited_for"]) == (False, 0)
    assert ("hidden-one" in known.content.decode(), known.context["waited_for"]) == (True, 1)


def end(attempt: Attempt, **columns: Any) -> Job:
    over = {"state": "ended", "outcome": "preempted", "ended_at": timezone.now(), "gone_at": timezone.now()}
    Attempt.objects.filter(pk=attempt.pk).update(**over | columns)
    return attempt.job


def test_an_attempt_that_the_site_ended_says_so(attempt: Attempt, read: Read) -> None:
    shown = read(end(attempt, message="It was cancelled in Slurm, not by Motley."), "attempts")
    assert "It was cancelled in Slurm, not by Motley. Work lost: none." in shown


def test_an_attempt_that_asked_to_be_requeued_says_so(attempt: Attempt, read: Read) -> None:
    assert "The job asked to be requeued. Work lost" in read(end(attempt, exit_code=75), "attempts")


def test_a_note_that_ends_with_a_full_stop_is_given_no_other(attempt: Attempt, read: Read) -> None:
    shown = read(end(attempt, stop_reason="withdraw", stop_note="Slurm has not started it."), "attempts")
    assert "Withdrawn from the site&#x27;s queue: Slurm has not started it. Work lost" in shown


@pytest.mark.parametrize("tab", ["overview", "attempts"])
def test_the_number_of_an_attempt_in_slurm_is_shown(attempt: Attempt, read: Read, tab: str) -> None:
    Attempt.objects.filter(pk=attempt.pk).update(engine="hpc", site_job="104")
    assert "hpc job 104" in read(attempt.job, tab)


def test_a_log_is_chosen_by_the_name_of_its_node(attempt: Attempt, read: Read) -> None:
    Attempt.objects.filter(pk=attempt.pk).update(launched_at=timezone.now(), nodes=["n7", "n9"])
    assert "rank 0: n7 rank 1: n9" in read(attempt.job, "logs")


def test_the_first_second_of_a_job_is_no_power_of_ten(attempt: Attempt, read: Read) -> None:
    began = timezone.now() - timedelta(seconds=2)
    Attempt.objects.filter(pk=attempt.pk).update(state="running", started_at=began)
    assert re.search(r"Used ?[\d.]+ GPU-seconds?", read(attempt.job))


def test_a_cancelled_job_says_by_whom_in_one_sentence(jobs: list[Job], member: User, read: Read) -> None:
    cancel_job(jobs[0], actor=member)
    assert "Cancelled: by mia. Why?" in read(jobs[0])


def test_an_exit_code_is_said_once(jobs: list[Job], read: Read) -> None:
    ended = {"state": "failed", "exit_code": 3, "finished_at": timezone.now()}
    Job.objects.filter(pk=jobs[0].pk).update(**ended, reason=Reason.EXIT_CODE, message="exit code 3")
    assert "Exited with an error: exit code 3. Why?" in read(jobs[0])


@pytest.mark.parametrize(("late", "told"), [(-60, "met"), (125, "missed by 2 min 5 s")])
def test_a_job_that_succeeded_says_so_and_whether_it_met_its_deadline(
    jobs: list[Job], read: Read, late: int, told: str
) -> None:
    now = timezone.now()
    Job.objects.filter(pk=jobs[0].pk).update(
        state="succeeded", reason="", message="", reasons=[], finished_at=now, deadline=now - timedelta(seconds=late)
    )
    assert re.search(rf"Deadline .{{5,20}} UTC {told} ", read(jobs[0]))
    assert "The job succeeded: its processes ended with exit code 0." in read(jobs[0], "why")


def test_a_deadline_that_has_passed_is_told(jobs: list[Job], read: Read) -> None:
    at = timezone.now()
    Job.objects.filter(pk=jobs[0].pk).update(deadline=at + timedelta(hours=1))
    assert "passed" not in read(jobs[0])
    Job.objects.filter(pk=jobs[0].pk).update(deadline=at - timedelta(minutes=1))
    assert re.search(r"Deadline .{5,20} UTC it has passed", read(jobs[0]))
    assert re.search(r"Its deadline passed at .{5,20} UTC\.", read(jobs[0], "why"))


def test_a_job_that_is_held_says_by_whom_and_what_releases_it_once(jobs: list[Job], member: User, read: Read) -> None:
    hold_job(jobs[0], actor=member)
    words = f"Held by mia; release it with `motley release {jobs[0]}`, or on its page."
    for tab in ("overview", "why"):
        assert words in read(jobs[0], tab)
        assert f"Held: {words}" not in read(jobs[0], tab)


def test_the_history_counts_one_gpu_as_one(attempt: Attempt, read: Read) -> None:
    assert re.search(r"placed \d GPUs? on \S+, by round", read(attempt.job, "events"))
    assert "1 GPUs" not in read(attempt.job, "events")


def test_gpus_of_a_node_out_of_service_do_not_drain_for_ever(decided: Any, staff: User, web: Any) -> None:
    Node.objects.filter(name="emu-t4-1").update(engine_reason="Slurm says drain: bad fan")
    shown = web(staff).get(reverse("cluster")).content.decode()
    assert ">draining<" not in shown
    assert "4 out of service" in shown


def test_a_job_whose_gpus_are_free_starts_and_waits_for_nobody(attempt: Attempt, read: Read) -> None:
    assert attempt.job.reason == Reason.STARTING
    assert "Starting processes. Why?" in read(attempt.job)


def test_an_attempt_that_was_moved_or_requeued_is_not_called_preempted(attempt: Attempt, read: Read) -> None:
    for outcome in ("moved", "requeued"):
        shown = read(end(attempt, outcome=outcome, stop_reason="move", stop_note="to 4 x t4"), "attempts")
        assert outcome in shown
        assert "Moved to other GPUs: to 4 x t4. Work lost" in shown
        assert "reempted" not in shown


def test_where_a_job_ran_stays_after_its_end(attempt: Attempt, read: Read) -> None:
    job = end(attempt, outcome="succeeded", nodes=["n7"])
    Job.objects.filter(pk=job.pk).update(state="succeeded", finished_at=timezone.now())
    words = f"Ran on {attempt.gpu_count} x {attempt.gpu_type.name.upper()}"
    assert words in read(job)
    assert "on n7" in read(job)


def test_the_overview_names_limits_environment_tags_and_retries(submit: Callable[..., Job], read: Read) -> None:
    job = submit(env={"SEED": "very secret"}, tags={"sweep": "1"}, retries=2, time_limit="2h")
    shown = read(job)
    for words in ("SEED", "sweep=1", "0 of 2 used", "runs for 2 h at most"):
        assert words in shown
    assert "very secret" not in shown


def test_loss_and_rate_are_drawn_over_time(attempt: Attempt, web: Callable[[User], Client], member: User) -> None:
    now = timezone.now()
    for n in range(4):
        note_points({attempt.job.pk: CurvePoint(now + timedelta(seconds=10 * n), 50 * n, 2.0 - n / 4)})
    shown = web(member).get(reverse("job", args=[attempt.job.pk])).content.decode()
    assert shown.count('data-figure="figure-') == 2
    assert "Progress as a table" in shown


def test_a_job_without_steps_is_told_no_fastest_type(submit: Callable[..., Job], read: Read) -> None:
    job = submit(command="echo hi")
    decide()
    shown = read(job, "why")
    assert "No steps/s of this job or its workload are known" in shown
    assert "fastest" not in shown


def test_the_attempts_say_where_their_start_went(attempt: Attempt, read: Read) -> None:
    claimed = attempt.claimed_at
    moments = {"launched_at": claimed + timedelta(seconds=2), "started_at": claimed + timedelta(seconds=5)}
    shown = read(end(attempt, **moments, first_step_at=claimed + timedelta(seconds=65)), "attempts")
    assert "claim 2 s, launch 3 s, first step 60 s" in shown or "claim 2 s, launch 3 s, first step 1 min" in shown


def test_the_start_of_an_attempt_has_the_stages_that_were_measured(attempt: Attempt, read: Read) -> None:
    claimed = attempt.claimed_at
    moments = {"launched_at": claimed, "started_at": claimed + timedelta(seconds=9), "code_s": 4, "setup_s": 11}
    moments |= {"first_step_at": claimed + timedelta(seconds=50), "restored_at": claimed + timedelta(seconds=47)}
    shown = read(end(attempt, **moments, restore_s=6), "attempts")
    assert "launch 5 s, code 4 s, setup 11 s, program 21 s, restore 6 s, warm-up 3 s" in shown
