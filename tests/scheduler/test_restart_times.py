"""Restart times are measured by workload and place, and rounds, the lab, REST, the page and the command have them."""

import io
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rich.console import Console

from insight_app.explain.decisions import explain_job
from insight_app.explain.restart_cost import restart_cost
from insight_app.explain.start_stages import start_bars
from insight_app.lab.history import read_history
from insight_app.lab.trace import trace_of
from jobs_app.lifecycle.commands import requeue_job
from jobs_app.models import Attempt, Job
from motley_command.tables.jobs import explanation
from scheduler_app.models import Round
from scheduler_app.round.archive import archive_of
from scheduler_app.round.restart_times import restarts_of_workload
from tests import service_lab
from tests.rest_callers import caller
from tests.service_lab import Lab

SAVES_AND_RESUMES = (
    'trap "sleep 0.5; exit 75" TERM; [ "$MOTLEY_RESUME" = 1 ] && sleep 0.7 && '
    'echo "{\\"step\\": 0, \\"restore_s\\": 0.6, \\"restored_at\\": $(date +%s.%N)}" >> $MOTLEY_PROGRESS; '
    'n=0; while true; do n=$((n+1)); echo "{\\"step\\": $n}" >> $MOTLEY_PROGRESS; sleep 0.05; done'
)
"""A second attempt restores for 0.7 s before its first step; each takes 0.5 s to save."""
DECLARED = {"checkpoint": {"restore_seconds": 600}}


def ended(lab: Lab, job: Job, *, number: int = 2, start_s: float = 20.0, stop_s: float = 4.0, **columns: Any) -> None:
    """An attempt that resumed the job, and was preempted."""
    launched, now = lab.now - timedelta(hours=1), lab.now
    moments = {"launched_at": launched, "started_at": launched, "first_step_at": launched + timedelta(seconds=start_s)}
    stop = {"stop_requested_at": now - timedelta(seconds=stop_s), "ended_at": now, "gone_at": now}
    lab.attempt(job, **({"number": number, "state": "ended", "outcome": "preempted"} | moments | stop | columns))


def counted(job: Job) -> float:
    """Seconds that the latest round counted a restart of the job with."""
    record = Round.objects.latest_committed()
    assert record is not None
    snapshot = archive_of(record).snapshot
    return float(snapshot.problem.restart_s[snapshot.jobs.index(str(job.pk))])


def test_a_job_that_was_restarted_is_counted_with_what_that_took(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes: it saves for half a second and restores for 0.7; 10 minutes are declared."""
    monkeypatch.setattr(service_lab, "HASTE", timedelta())  # the clock of its reports is the machine's
    lab.node("n1", gpus=1)
    lab.policy("motley", round_s=1.0)
    job = lab.submit(SAVES_AND_RESUMES, **DECLARED, setup="sleep 0.2")
    lab.until(lambda: job.attempts.filter(first_step_at__isnull=False).first())
    before = counted(job)
    requeue_job(job, actor=None)
    lab.until(lambda: job.attempts.filter(number=2, first_step_at__isnull=False).first())
    lab.decide()
    found = restart_cost(job, lab.attempts(job))
    assert before == 600 > counted(job)
    assert found is not None
    assert (found.time.stops, found.time.starts, found.source) == (1, 1, "measured")
    assert 0.5 <= found.time.stop_s < counted(job) < 300
    first, second = ({one.stage.name: one.stage.seconds for one in start_bars(a, lab.now)} for a in lab.attempts(job))
    assert [*first] == ["claim", "launch", "setup", "first step"]
    assert [*second] == ["claim", "launch", "setup", "program", "restore", "warm-up"]
    assert 0.2 <= first["setup"] < 300
    assert second["restore"] == 0.6


@pytest.fixture
def restarted(lab: Lab) -> Job:
    """A waiting job of a workload of which another job was stopped and resumed eight times."""
    lab.node("n1", gpus=1)
    other = lab.submit(name="other", workload="bert", **DECLARED)
    for number in range(2, 10):
        ended(lab, other, number=number)
    over = {"state": "succeeded", "started_at": other.created_at, "finished_at": lab.now, "ran_s": 3600}
    Job.objects.filter(pk=other.pk).update(**over)
    return lab.submit("sleep 1000", workload="bert", checkpoint={"restore_seconds": 30})


def test_rounds_and_the_lab_have_the_times_of_the_workload(lab: Lab, restarted: Job) -> None:
    lab.decide()
    assert counted(restarted) == pytest.approx(4 + 20 * 1.5**0.2)
    history = read_history(Job.objects.all(), lab.now - timedelta(days=1), lab.now, now=lab.now)
    (job,) = trace_of(history)
    assert job.restart_s == pytest.approx(4 + 20 * 30**0.2)


def test_another_teams_workload_of_that_name_tells_nothing(lab: Lab, restarted: Job) -> None:
    of_others = lab.submit(owner=lab.user("eve", "language"), workload="bert", checkpoint={"restore_seconds": 30})
    lab.decide()
    assert counted(of_others) == 30


def test_rest_the_page_and_the_command_say_what_a_restart_costs_and_from_what(
    lab: Lab, restarted: Job, plain_static: None, client: Client
) -> None:
    lab.decide()
    answer = caller(lab.user()).get(f"/api/v1/jobs/{restarted.pk}/explain").json()
    assert answer["restart"] == {
        "seconds": pytest.approx(25.7, rel=0.01),
        "stop_s": pytest.approx(4),
        "start_s": pytest.approx(21.7, rel=0.01),
        "declared_s": 30,
        "source": "measured",
        "stops": 8,
        "starts": 8,
        "detail": "about 26 s: 4 s until it has saved and ended (8 stops of its workload), 22 s from the launch to its "
        "first step (8 starts of its workload)",
    }
    client.force_login(lab.user())
    assert answer["restart"]["detail"] in client.get(reverse("job", args=[restarted.pk])).content.decode()
    said = Console(width=300, record=True, file=io.StringIO())
    job = caller(lab.user()).get(f"/api/v1/jobs/{restarted.pk}").json()
    said.print(explanation(job, answer, now=timezone.now()))
    assert "8 starts of its workload" in said.export_text()


def test_on_another_place_the_workloads_times_are_said_to_be_of_elsewhere(lab: Lab, restarted: Job) -> None:
    lab.attempt(restarted, engine="slurm", state="running", started_at=lab.now)
    found = restart_cost(restarted, lab.attempts(restarted))
    assert found is not None
    assert "8 starts of its workload, none of them on A100 of slurm" in found.detail
    assert explain_job(restarted, lab.now)["restart"].detail == found.detail


def test_what_was_not_measured_is_said_to_be_declared(lab: Lab) -> None:
    lab.node("n1", gpus=1)
    job = lab.submit(checkpoint={"restore_seconds": 45})
    ended(lab, job, number=1, outcome="cancelled")
    assert Attempt.objects.get().number == 1
    found = restart_cost(job, lab.attempts(job))
    assert found is not None
    assert (found.source, found.seconds) == ("declared", 45)
    assert found.detail == "45 s, as it declares or by default: no restart of its workload was measured"


def test_a_first_step_before_its_launch_tells_of_a_clock_and_of_no_start(lab: Lab, restarted: Job) -> None:
    known = restarts_of_workload(restarted.team_id, restarted.workload)
    Attempt.objects.filter(number__gt=4).update(first_step_at=F("launched_at") - timedelta(seconds=20))
    behind = restarts_of_workload(restarted.team_id, restarted.workload)
    assert (len(known.starts), len(behind.starts), behind.stops) == (8, 3, known.stops)
