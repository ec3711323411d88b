"""Jobs that ran become a trace, which the simulator replays; names can be replaced by numbers."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django import DjangoAssertNumQueries
from rest_framework.response import Response

from cluster_app.models import GpuType
from insight_app.lab.history import read_history
from insight_app.lab.trace import trace_of
from jobs_app.models import Attempt, Job
from simulation.scenario.scenario import Scenario
from simulation.traces.motley_csv import as_text, from_text, read_motley_csv, write_motley_csv
from simulation.traces.trace import Trace
from tests.rest_callers import caller
from tests.service_lab import Lab

DAY = timedelta(days=1)
STEPS = 'for n in 1 2 3 4 5; do echo "{\\"step\\": $n}" >> $MOTLEY_PROGRESS; sleep 0.05; done'


def ended(lab: Lab, job: Job, *, ran_s: float = 60.0, rate: float = 2.0) -> Job:
    """The job as if it had run so long on one A100 and succeeded."""
    a100, start = GpuType.objects.get(name="a100"), job.created_at + timedelta(seconds=5)
    times = {"started_at": start, "ended_at": start + timedelta(seconds=ran_s)}
    lab.attempt(job, state=Attempt.State.ENDED, outcome="succeeded", rate=rate, gpu_type=a100, **times)
    row = {"state": "succeeded", "finished_at": times["ended_at"], "started_at": start, "ran_s": ran_s}
    Job.objects.filter(pk=job.pk).update(**row)
    return job


def exported(lab: Lab) -> Trace:
    history = read_history(Job.objects.all(), lab.now - DAY, lab.now + DAY, now=lab.now)
    return read_motley_csv("".join(write_motley_csv(trace_of(history))).splitlines())


def body_of(answer: Response) -> Iterator[str]:
    return iter(b"".join(answer).decode().splitlines())


def test_jobs_that_ran_are_replayed_to_their_end_under_any_policy(lab: Lab, tmp_path: Path) -> None:
    lab.node("n1", gpus=2)
    jobs = [
        lab.submit(STEPS, name="steps", total_steps=9),
        lab.submit("sleep 0.2", gpus={"min": 1, "max": 2}, owner=lab.user("bob", "language")),
    ]
    for job in jobs:
        lab.until_state(job, Job.State.SUCCEEDED)
    trace = exported(lab)
    (tmp_path / "history.csv").write_text("".join(write_motley_csv(trace.jobs)))
    scenario = Scenario(format_name="csv", cluster="a100=1x2", round_s=1)
    for policy in ("fifo", "max_min_fairness"):
        figures = scenario.prepare(tmp_path / "history.csv", policy, 0).finish(lambda _: None)
        assert (figures["jobs"], figures["completed"]) == (2, 2)
    reported, other = trace.jobs
    assert (reported.name, reported.total_steps, reported.declared_length) == (str(jobs[0].pk), 5, 9 / 5)
    assert (other.gangs, other.team) == ((1, 2), "language")
    assert other.total_steps


def test_work_without_reports_is_what_the_rates_make_of_the_time(lab: Lab) -> None:
    lab.node("n1", gpus=2)
    lab.node("n2", "v100", gpus=1)
    job = lab.submit(gpu_types=["a100"], rates={"a100": {"1": 3}}, checkpoint={"restore_seconds": 7})
    ended(lab, job)
    (found,) = exported(lab).jobs
    assert (found.total_steps, found.gpu_types, found.restart_s) == (180, {"a100"}, 7)
    assert [tuple(known) for known in found.program.rates] == [("a100", 1, 3.0)]


@pytest.mark.parametrize(
    ("columns", "done", "told"),
    [
        ({"worth_done": 478.0}, 478, 1000),
        ({"worth_done": 478.0, "reported_total_steps": 300}, 478, 578),  # of a step of its noise's batch: of 128
        ({"worth_done": 1250.0}, 1250, 1000),
    ],
)
def test_the_work_of_a_tuned_job_is_in_steps_of_its_initial_batch(
    lab: Lab, columns: dict[str, float], done: float, told: float
) -> None:
    """It has made 200 of its own, and had declared 1,000."""
    lab.node("n1", gpus=2)
    batch = {"initial": 128, "max": 2048, "max_per_gpu": 256}
    job = ended(lab, lab.submit(gpu_types=["a100"], rates={"a100": {"1": 3}}, batch_size=batch, total_steps=1000))
    Job.objects.update(step=200, noise_scale=50.0, noise_batch=128, **columns)
    (found,) = exported(lab).jobs
    assert (found.name, found.total_steps) == (str(job.pk), done)
    assert found.declared_length == pytest.approx(told / done)


def test_a_job_that_never_ran_or_has_not_ended_is_left_out(lab: Lab) -> None:
    lab.node("n1")
    lab.submit(name="waits")
    assert exported(lab).jobs == ()


def test_members_export_the_jobs_of_their_teams_and_staff_all(lab: Lab) -> None:
    lab.node("n1")
    bob, root = lab.user("bob", "language"), lab.user("root", "admins", staff=True)
    ended(lab, lab.submit())
    ended(lab, lab.submit(owner=bob))
    teams = {
        user.username: {job.team for job in read_motley_csv(body_of(caller(user).get("/api/v1/history"))).jobs}
        for user in (lab.user(), bob, root, lab.user("eve", "others"))
    }
    assert teams == {"ada": {"vision"}, "bob": {"language"}, "root": {"vision", "language"}, "eve": set()}


def test_names_that_look_like_formulas_are_text_for_a_spreadsheet_and_the_same_for_the_simulator(lab: Lab) -> None:
    lab.node("n1")
    names = ["=cmd|calc", "'=quoted", "@sum", "plain"]
    for name in names:
        ended(lab, lab.submit(owner=lab.user(f"user-{names.index(name)}", name), workload=name))
    lines = list(body_of(caller(lab.user("root", "admins", staff=True)).get("/api/v1/history")))
    assert not [cell for line in lines for cell in line.split(",") if cell.startswith(("=", "@"))]
    jobs = read_motley_csv(lines).jobs
    assert [job.team for job in jobs] == [job.program.workload for job in jobs] == names


def test_a_long_history_is_exported_in_parts_as_the_same_trace(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.node("n1")
    jobs = [ended(lab, lab.submit()) for _ in range(5)]
    Job.objects.filter(pk__in=[job.pk for job in jobs[2:]]).update(created_at=jobs[2].created_at)
    whole = exported(lab)
    monkeypatch.setattr("insight_app.lab.history.PART", 2)
    assert read_motley_csv(body_of(caller(lab.user()).get("/api/v1/history"))).jobs == whole.jobs
    monkeypatch.setattr("insight_app.lab.history.MOST_STREAMED", 4)
    assert caller(lab.user()).get("/api/v1/history").status_code == 409


def test_names_become_numbers_that_stay_the_same(lab: Lab) -> None:
    lab.node("n1")
    ended(lab, lab.submit(name="secret-project"))
    texts = ["\n".join(body_of(caller(lab.user()).get("/api/v1/history?anonymise=true"))) for _ in range(2)]
    assert texts[0] == texts[1]
    for name in ("vision", "secret-project", str(Job.objects.get().pk)):
        assert name not in texts[0]
    (job,) = read_motley_csv(texts[0].splitlines()).jobs
    assert (job.team or "").startswith("team-")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("since=2026-02-01T00:00Z&until=2026-01-01T00:00Z", "/until"),
        ("since=2020-01-01T00:00Z", "/since"),
        ("until=0001-01-01T00:00Z", "/until"),
        ("anonymise=maybe", "/anonymise"),
    ],
)
def test_a_period_that_cannot_be_is_refused_by_name(lab: Lab, query: str, field: str) -> None:
    answer = caller(lab.user()).get(f"/api/v1/history?{query}")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (400, field)


def test_more_jobs_need_no_more_queries(lab: Lab, django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    lab.node("n1")
    for _ in range(3):
        ended(lab, lab.submit())
    with django_assert_max_num_queries(35) as seen:
        exported(lab)
    few = len(seen)
    for _ in range(5):
        ended(lab, lab.submit())
    with django_assert_max_num_queries(few):
        assert len(exported(lab).jobs) == 8


@pytest.mark.parametrize("name", ["=1", "a;=1", "a|+b", "x\t=2", "\t=2", "a\n-1", "'=1", "a;''@b", "b; c", "'", "a,b"])
def test_no_part_of_a_name_is_a_formula_and_a_reader_has_it_as_it_was(name: str) -> None:
    written = as_text(name)
    assert not [cell for cell in re.split(r"[;|\t\r\n]", written) if cell.startswith(("=", "+", "-", "@"))]
    assert from_text(written) == name
