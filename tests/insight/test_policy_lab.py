"""Runs of the policy lab: asked for, simulated on jobs that ran, cancelled, lost and begun again."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone

from accounting_app.models import DailyUsage
from cluster_app.models import GpuType
from insight_app.errors import LabRunHasEnded
from insight_app.lab import simulations
from insight_app.lab.history import MOST_JOBS
from insight_app.lab.requests import LabRequest, ask_for_run, cancel_run
from insight_app.lab.results import summary
from insight_app.lab.runs import MOST_AT_ONCE, MOST_TRIES, SILENT, claim_run, follow, note_lost
from insight_app.lab.scenario import (
    BudgetChange,
    QuotaChange,
    TeamLimits,
    cluster_words,
    limit_memory,
    read_node_gpus,
    read_team_limits,
    with_node_changes,
)
from insight_app.lab.uploads import MOST_BYTES, Upload
from insight_app.models import LabRun, LabTrace
from jobs_app.models import Attempt, Budget, Job, Team, TeamQuota
from scheduler_app.policy.settings import with_defaults
from simulation.clock.process_pool import FailedRun, RunUpdate
from simulation.results.comparison import Comparison
from simulation.scenario.team_limits import BudgetWords, QuotaWords
from tests.deployment import wait_for
from tests.lab_history import a_day_of_jobs, ran
from tests.rest_callers import caller
from tests.service_lab import Lab

RUNS = "/api/v1/lab/runs"
State = LabRun.State


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    a_day_of_jobs(lab)
    return lab


def asked(lab: Lab, *policies: str, owner: User | None = None, **columns: Any) -> LabRun:
    request = LabRequest(days=7, policies=policies or ("fifo",), **columns)
    return ask_for_run(request, owner=owner or lab.user("root", "admins", staff=True), now=lab.now)


def simulated(lab: Lab, run: LabRun) -> LabRun:
    claimed = claim_run(lab.now)
    assert claimed == run
    call_command("labrun", run.pk)
    run.refresh_from_db()
    return run


def shown(run: LabRun) -> dict[str, Any]:
    assert run.result, run.message
    return dict(run.result)


def team(result: Mapping[str, Any], policy: str, name: str) -> Mapping[str, Any]:
    (teams,) = (one["teams"] for one in result["policies"] if one["policy"] == policy)
    return next(one for one in teams if one["team"] == name)


# -- simulated ---------------------------------------------------------------------------------------------------


def test_the_present_policy_is_compared_with_what_really_happened_and_others_with_it(cluster: Lab) -> None:
    run = simulated(cluster, asked(cluster, "fifo", "srtf"))
    assert (run.state, run.done, run.message) == (State.DONE, 12, "")
    result = shown(run)
    assert (result["jobs"], result["cluster"]) == (4, "a100=1x2")
    first = Job.objects.order_by("created_at").values_list("created_at", flat=True)[0]
    assert result["span_h"] == pytest.approx((timezone.now() - first) / timedelta(hours=1), abs=0.1), "less than a week"
    assert result["actual"]["avg_jct_h"] == pytest.approx((600 + 609 + 618 + 627) / 4 / 60, rel=0.01)
    assert abs(result["present"]["errors"]["avg_jct_h"]) < 0.05
    fifo, srtf = (one["figures"] for one in result["policies"])
    assert srtf["avg_jct_h"] < fifo["avg_jct_h"]
    assert team(result, "srtf", "language")["change"] < -0.5
    assert team(result, "srtf", "vision")["change"] > 0
    assert result["summary"].startswith("srtf has the least mean job completion time")


def test_each_policy_has_changes_by_job_size_and_figures_of_overhead_and_energy(cluster: Lab) -> None:
    one = cluster.submit(gpus=1, rates={"a100": 1}, total_steps=600)
    ran(cluster, one, after_min=0, minutes=10)
    result = shown(simulated(cluster, asked(cluster, "srtf", "sia:power=-0.25")))
    srtf, sia = result["policies"]
    assert sia["parameters"] == with_defaults("sia", {"power": -0.25}), "also those that its words leave out"
    assert [(size["size"], size["jobs"]) for size in srtf["sizes"]] == [("1", 1), ("2 to 4", 4)]
    busy_gpu_h = 2 * (600 + 3 * 10) / 60 + 10 / 60
    power_kw = GpuType.objects.get().power_w / 1000
    assert result["present"]["figures"]["energy_kwh"] == pytest.approx(busy_gpu_h * power_kw, rel=0.02)
    assert 0 <= srtf["figures"]["overhead"] < 0.1
    assert len(srtf["curves"]["jct_h"]) == 101
    assert max(srtf["curves"]["busy"]) <= 1


def test_weights_of_teams_hold_for_the_policies_and_not_for_the_present_one(cluster: Lab) -> None:
    cluster.policy("max_min_fairness", round_s=60)
    as_it_is, weighted = (
        shown(simulated(cluster, asked(cluster, "max_min_fairness", team_weights=weights)))
        for weights in ({}, {"language": 100})
    )
    assert weighted["present"]["figures"] == as_it_is["present"]["figures"]
    before, after = (team(one, "max_min_fairness", "language")["avg_jct_h"] for one in (as_it_is, weighted))
    assert after < before


def test_quotas_that_teams_have_hold_in_the_simulation_as_they_did_in_the_history(lab: Lab) -> None:
    """Of two GPUs vision may have one: its jobs ran one after the other."""
    lab.node("n1", gpus=2)
    lab.policy("fifo", round_s=60)
    for number in range(4):
        job = lab.submit(gpus=1, rates={"a100": 1}, total_steps=3600)
        ran(lab, job, after_min=number, minutes=60)
    TeamQuota.objects.create(team=lab.team(), gpu_type=GpuType.objects.get(), gpus=1, borrowing_limit=0)
    without = [QuotaChange("vision", "a100", None)]
    result = shown(simulated(lab, asked(lab, quotas=without)))
    assert abs(result["present"]["errors"]["avg_jct_h"]) < 0.05
    assert result["policies"][0]["figures"]["avg_jct_h"] < 0.7 * result["actual"]["avg_jct_h"]


def test_limits_of_teams_over_all_gpu_types_hold_in_the_simulation(lab: Lab) -> None:
    """Of two GPUs vision may have one at once: its jobs ran one after the other."""
    lab.node("n1", gpus=2)
    lab.policy("fifo", round_s=60)
    Team.objects.filter(pk=lab.team().pk).update(max_gpus=1)
    for number in range(4):
        job = lab.submit(gpus=1, rates={"a100": 1}, total_steps=3600)
        ran(lab, job, after_min=number, minutes=60)
    result = shown(simulated(lab, asked(lab)))
    assert abs(result["present"]["errors"]["avg_jct_h"]) < 0.05
    assert result["policies"][0]["figures"]["avg_jct_h"] == pytest.approx(result["actual"]["avg_jct_h"], rel=0.05)


def test_a_budget_that_is_asked_for_holds_for_the_policies_and_not_for_the_present_one(cluster: Lab) -> None:
    hard = [BudgetChange("language", 0.001, "quarter", "hard")]
    as_it_is, limited = (shown(simulated(cluster, asked(cluster, budgets=budgets))) for budgets in ([], hard))
    assert limited["present"]["figures"] == as_it_is["present"]["figures"]
    assert team(limited, "fifo", "language")["change"] > 1
    assert team(limited, "fifo", "vision")["change"] == pytest.approx(0, abs=0.01)


def test_what_a_team_had_used_before_its_history_counts(cluster: Lab) -> None:
    Budget.objects.create(team=cluster.team("language"), gpu_hours=50, period="quarter", kind="hard")
    began = datetime(2026, 11, 25, 6, tzinfo=UTC)
    for days, hours in ((0, 30.0), (1, 20.0)):
        DailyUsage.objects.create(
            team=cluster.team("language"),
            gpu_type=GpuType.objects.get(),
            day=(began - timedelta(days=days)).date(),
            work_gpu_s=hours * 3600,
        )
    budget = read_team_limits(began).budgets["language"]
    assert budget.used_gpu_hours == pytest.approx(20 + 30 / 4)


def test_limits_of_absent_teams_and_types_are_left_out() -> None:
    limits = TeamLimits(
        {
            ("vision", "a100"): QuotaWords("vision", "a100", 4),
            ("vision", "t4"): QuotaWords("vision", "t4", 4),
            ("speech", "a100"): QuotaWords("speech", "a100", 4),
            ("video", "a100"): QuotaWords("video", "a100", 4, None, 1),
        },
        {"speech": BudgetWords("speech", 9.0, "week")},
        most_gpus={"vision": 16, "speech": 8},
    )
    words = limits.words(teams={"vision"}, gpu_types=["a100"])
    assert words == ("vision=16", "vision:a100=4,video:a100=4::1", None, None)


def test_more_nodes_are_simulated_beside_those_there_are(cluster: Lab) -> None:
    run = simulated(cluster, asked(cluster, nodes={"a100": 1}))
    result = shown(run)
    assert result["cluster"] == "a100=2x2"
    assert result["policies"][0]["figures"]["avg_jct_h"] < result["present"]["figures"]["avg_jct_h"] / 2


def test_members_simulate_the_jobs_of_their_teams_alone(cluster: Lab) -> None:
    run = simulated(cluster, asked(cluster, owner=User.objects.get(username="bob")))
    result = shown(run)
    assert "teams that you do not see are left out" in result["summary"]
    assert (result["jobs"], [one["team"] for one in result["policies"][0]["teams"]]) == (3, ["language"])


def test_without_a_history_the_run_says_so(lab: Lab) -> None:
    lab.node("n1")
    run = simulated(lab, asked(lab))
    assert (run.state, "No job that you may see" in run.message) == (State.FAILED, True)


# -- who may see and ask -----------------------------------------------------------------------------------------


def test_a_result_shows_only_to_those_who_may_still_see_its_teams(cluster: Lab) -> None:
    bob = User.objects.get(username="bob")
    run = simulated(cluster, asked(cluster, owner=bob))
    address = f"{RUNS}/{run.pk}"
    assert caller(bob).get(address).json()["result"]["jobs"] == 3
    bob.teams.clear()
    answer = caller(bob).get(address).json()
    assert (answer["result"], "may no longer see" in answer["message"]) == (None, True)
    assert caller(cluster.user("root", "admins", staff=True)).get(address).json()["result"]


def test_a_run_of_a_deactivated_account_or_of_a_team_that_was_lost_is_not_simulated(cluster: Lab) -> None:
    bob = User.objects.get(username="bob")
    lost, deactivated = asked(cluster, owner=bob), asked(cluster, owner=cluster.user())
    bob.teams.clear()
    assert simulated(cluster, lost).message.startswith("No job that you may see")
    User.objects.filter(username="ada").update(is_active=False)
    run = simulated(cluster, deactivated)
    assert (run.state, run.message, run.result) == (State.FAILED, "The account ada is deactivated.", None)


# -- uploaded traces ---------------------------------------------------------------------------------------------

PHILLY = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-01 00:00:00,36000,2,72000,first
2017-10-01 00:01:00,600,2,1200,second
2017-10-01 00:02:00,600,2,1200,second
"""
GAVEL = "\t".join(["lstm", "cmd", "dir", "-n", "1", "1000", "1", "1", "-1", "0"]) + "\n"
TABLE = json.dumps({"a100": {"('lstm', 1)": {"null": 2.0}}})


def test_an_uploaded_trace_is_simulated_without_figures_of_what_really_happened(cluster: Lab) -> None:
    body = {"policies": ["srtf"], "trace": PHILLY, "trace_format": "philly", "team_weights": {"second": 2}}
    answer = caller(cluster.user()).post(RUNS, body, format="json")
    assert (answer.status_code, answer.json()["days"], answer.json()["trace_format"]) == (201, None, "philly")
    result = shown(simulated(cluster, LabRun.objects.get()))
    assert (result["jobs"], result["actual"], result["present"]["errors"]) == (3, None, {})
    assert "what really happened, and so the error of the simulation, is not known" in result["summary"]
    assert team(result, "srtf", "second")["change"] < 0


def test_a_trace_of_gavel_is_simulated_with_its_table_of_rates(cluster: Lab) -> None:
    upload = Upload(text=GAVEL, format_name="gavel", throughputs=TABLE)
    result = shown(simulated(cluster, asked(cluster, upload=upload)))
    assert result["present"]["figures"]["avg_jct_h"] == pytest.approx(500 / 3600, rel=0.1)


def test_an_uploaded_trace_is_deleted_with_its_run(cluster: Lab) -> None:
    run = asked(cluster, upload=Upload(text=PHILLY, format_name="philly"))
    assert LabTrace.objects.get(run=run).text == PHILLY
    run.delete()
    assert not LabTrace.objects.exists()


@pytest.mark.parametrize(
    ("change", "pointer", "words"),
    [
        (
            {"trace": PHILLY.replace(",600,", ",soon,", 1)},
            "/trace",
            "line 3, column 2: duration 'soon' is not a number",
        ),
        ({"trace": PHILLY, "trace_format": "csv"}, "/trace", "'timestamp' is not one of name, arrival_s"),
        ({"trace": PHILLY.splitlines()[0]}, "/trace", "The trace has no jobs"),
        ({"trace": 'timestamp,duration,num_gpus,cluster\n"' + "x" * 200_000}, "/trace", "field larger than"),
        ({"trace": "a" * (MOST_BYTES + 1)}, "/trace", "more than 8 MiB"),
        ({"trace": "\n" * (MOST_JOBS + 2)}, "/trace", "more than 20,000 lines"),
        ({"trace": PHILLY, "trace_format": "sia"}, "/trace_format", "sia"),
        ({"trace": GAVEL, "trace_format": "gavel"}, "/throughputs", "needs the table"),
        ({"trace": GAVEL, "trace_format": "gavel", "throughputs": "[]"}, "/throughputs", "It is not a table of rates"),
        ({"trace": PHILLY, "days": 3}, "/days", "either days or a trace"),
        ({"throughputs": TABLE}, "/throughputs", "It is for a `trace`"),
        ({"trace": PHILLY, "team_weights": {"vision": 2}}, "/team_weights/vision", "there are: first, second"),
        ({"team_weights": {"language": 2}}, "/team_weights/language", "there are: vision"),
        ({"team_weights": {"vision": 0}}, "/team_weights/vision", "1e-06"),
    ],
)
def test_a_trace_that_cannot_be_simulated_is_refused_by_field(
    lab: Lab, change: dict[str, Any], pointer: str, words: str
) -> None:
    lab.node("n1")
    lab.team("language")
    upload = {"trace_format": "philly"} if "trace" in change else {}
    answer = caller(lab.user()).post(RUNS, {"policies": ["fifo"]} | upload | change, format="json")
    assert answer.status_code == 422, answer.json()
    fault = answer.json()["errors"][0]
    assert (fault["pointer"], words in fault["detail"]) == (pointer, True), fault
    assert not LabRun.objects.exists()


# -- asked for ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "pointer", "words"),
    [
        ({"policies": ["fastest"]}, "/policies/0", "unknown policy 'fastest'"),
        ({"policies": ["fifo", "sia:power"]}, "/policies/1", "'power' is not PARAMETER=VALUE"),
        ({"policies": ["sia:speed=3"]}, "/policies/0", "speed"),
        ({"policies": []}, "/policies", "at least 1"),
        ({"nodes": {"h100": 1}}, "/nodes/h100", "it has: a100"),
        ({"nodes": {"a100": -2}}, "/nodes/a100", "There is 1 node of a100"),
        ({"nodes": {"a100": -1}}, "/nodes/a100", "No node would be left"),
        ({"days": 0}, "/days", "1"),
        ({"quotas": [{"team": "video", "gpu_type": "a100", "gpus": 1}]}, "/quotas/0/team", "there are: vision"),
        ({"quotas": [{"team": "vision", "gpu_type": "h100", "gpus": 1}]}, "/quotas/0/gpu_type", "it has: a100"),
        ({"quotas": [{"team": "vision", "gpu_type": "a100", "gpus": -1}]}, "/quotas/0/gpus", "0"),
        (
            {"quotas": [{"team": "vision", "gpu_type": "a100", "gpus": 1, "lending_limit": 2}]},
            "/quotas/0/lending_limit",
            "write 1 at most",
        ),
        ({"budgets": [{"team": "video", "gpu_hours": 1}]}, "/budgets/0/team", "there are: vision"),
        ({"budgets": [{"team": "vision", "gpu_hours": 1, "period": "year"}]}, "/budgets/0/period", "year"),
        ({"round_length_s": 0.5}, "/round_length_s", "1"),
    ],
)
def test_a_run_that_cannot_be_is_refused_by_field(lab: Lab, change: dict[str, Any], pointer: str, words: str) -> None:
    lab.node("n1")
    answer = caller(lab.user()).post(RUNS, {"policies": ["fifo"]} | change, format="json")
    assert answer.status_code == 422
    fault = answer.json()["errors"][0]
    assert (fault["pointer"], words in fault["detail"]) == (pointer, True), fault


def test_a_run_on_a_cluster_without_nodes_is_refused(lab: Lab) -> None:
    answer = caller(lab.user()).post(RUNS, {"policies": ["fifo"]}, format="json")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/nodes")


def test_one_person_has_three_unfinished_runs_at_most(lab: Lab) -> None:
    lab.node("n1")
    ada, bob = caller(lab.user()), caller(lab.user("bob", "language"))
    codes = [ada.post(RUNS, {"policies": ["fifo"]}, format="json").status_code for _ in range(4)]
    assert codes == [201, 201, 201, 409]
    assert bob.post(RUNS, {"policies": ["fifo"]}, format="json").status_code == 201
    ada.post(f"{RUNS}/{LabRun.objects.earliest('pk').pk}/cancel")
    assert ada.post(RUNS, {"policies": ["fifo"]}, format="json").status_code == 201


def test_a_list_shows_own_runs_without_results_and_staff_all(cluster: Lab) -> None:
    asked(cluster, owner=cluster.user())
    asked(cluster, owner=User.objects.get(username="bob"))
    counts = {name: len(caller(User.objects.get(username=name)).get(RUNS).json()["results"]) for name in ("ada", "bob")}
    assert counts == {"ada": 1, "bob": 1}
    rows = caller(cluster.user("root", "admins", staff=True)).get(RUNS).json()["results"]
    assert [(row["owner"], "result" in row) for row in rows] == [("bob", False), ("ada", False)]


# -- few at a time, cancelled, lost ------------------------------------------------------------------------------


def test_runs_of_one_team_are_simulated_in_the_order_of_asking(cluster: Lab) -> None:
    first, second = asked(cluster, owner=cluster.user()), asked(cluster, owner=cluster.user("eve", "vision"))
    assert claim_run(cluster.now) == first
    assert claim_run(cluster.now) is None
    cancel_run(first, now=cluster.now)
    assert claim_run(cluster.now) == second


def test_a_run_does_not_wait_for_those_of_another_team(cluster: Lab) -> None:
    first, _ = asked(cluster, owner=cluster.user()), asked(cluster, owner=cluster.user())
    of_bob, of_staff = asked(cluster, owner=User.objects.get(username="bob")), asked(cluster)
    assert [claim_run(cluster.now) for _ in range(4)] == [first, of_bob, of_staff, None]


def test_so_many_runs_at_once_are_simulated(cluster: Lab) -> None:
    names = [f"of-team-{number}" for number in range(MOST_AT_ONCE + 1)]
    runs = [asked(cluster, owner=cluster.user(name, name)) for name in names]
    assert [claim_run(cluster.now) for _ in names] == [*runs[:-1], None]
    cancel_run(runs[1], now=cluster.now)
    last = claim_run(cluster.now)
    assert last is not None
    assert (last, last.slot) == (runs[-1], 1)


def test_a_job_with_absurd_progress_is_left_out_and_named(cluster: Lab) -> None:
    """Its 1e15 steps would be simulated for millions of years."""
    absurd = cluster.submit(gpus=1, rates={"a100": 1}, total_steps=600)
    ran(cluster, absurd, after_min=0, minutes=10)
    Attempt.objects.filter(job=absurd).update(first_step=0, step=10**15)
    Job.objects.filter(pk=absurd.pk).update(step=10**15)
    result = shown(simulated(cluster, asked(cluster, "fifo")))
    assert result["jobs"] == 4
    assert (
        f"Left out, because they cannot have done the steps that they reported in the time that they ran: {absurd.pk}."
        in (result["summary"])
    )


def test_a_run_that_is_cancelled_while_it_is_simulated_ends_and_stays_so(
    cluster: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = asked(cluster)
    claimed = claim_run(cluster.now)
    assert claimed
    monkeypatch.setattr(simulations, "read_node_gpus", lambda: cancel_run(run, now=cluster.now) or read_node_gpus())
    simulations.simulate_run(claimed, cluster.now)
    run.refresh_from_db()
    assert (run.state, run.result) == (State.CANCELLED, None)
    with pytest.raises(LabRunHasEnded):
        cancel_run(run, now=cluster.now)


@pytest.mark.parametrize(
    ("end", "state", "words"),
    [("cancel", State.CANCELLED, ""), ("time", State.FAILED, "It took longer than two hours")],
)
def test_the_process_of_a_run_that_is_cancelled_or_takes_too_long_is_killed(
    cluster: Lab, end: str, state: str, words: str
) -> None:
    run = asked(cluster)
    claimed = claim_run(cluster.now)
    assert claimed
    process = subprocess.Popen(["sh", "-c", "sleep 3600 & wait"], start_new_session=True)
    if end == "cancel":
        cancel_run(run, now=cluster.now)
    follow(process, claimed, longest=timedelta(0))
    run.refresh_from_db()
    assert (process.returncode, run.state, run.message.startswith(words)) == (-signal.SIGKILL, state, True)
    wait_for("its child has ended, too", lambda: process.pid not in process_groups())


def process_groups() -> list[int]:
    """Of all processes but zombies."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, _, group, *_ = path.read_text().rpartition(")")[2].split()
            found += [int(group)] if state != "Z" else []
    return found


def test_a_process_that_ends_with_a_fault_is_lost(cluster: Lab) -> None:
    run = asked(cluster)
    claimed = claim_run(cluster.now)
    assert claimed
    follow(subprocess.Popen(["sh", "-c", "exit 3"], start_new_session=True), claimed)
    run.refresh_from_db()
    assert run.state == State.QUEUED


def test_a_run_whose_process_was_killed_is_begun_again_once_and_then_has_failed(cluster: Lab) -> None:
    run = asked(cluster)
    for _ in range(MOST_TRIES):
        claimed = claim_run(cluster.now)
        assert claimed == run
        assert claimed
        note_lost(claimed, cluster.now, "died with signal 9")
    run.refresh_from_db()
    assert (run.state, run.message) == (State.FAILED, "Its process was lost. died with signal 9")


def test_a_run_that_is_lost_with_its_scheduler_is_begun_again_and_the_first_process_writes_no_more(
    cluster: Lab,
) -> None:
    run = asked(cluster)
    lost = claim_run(cluster.now)
    assert lost
    assert claim_run(cluster.now + SILENT / 2) is None
    again = claim_run(cluster.now + 2 * SILENT)
    assert again == run
    simulations.end_run(lost, State.FAILED, message="too late")
    run.refresh_from_db()
    assert (run.state, run.message, run.tries) == (State.RUNNING, "", 2)


# -- memory ------------------------------------------------------------------------------------------------------

ALLOCATE = "input(); bytearray(1 << 30)"


def test_the_process_of_a_run_has_no_more_memory_than_its_limit(settings: Any) -> None:
    settings.MOTLEY_LAB_MEMORY_MIB = 512
    process = subprocess.Popen([sys.executable, "-c", ALLOCATE], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    limit_memory(process.pid)
    _, told = process.communicate(b"\n")
    assert (process.returncode, b"MemoryError" in told) == (1, True)


@pytest.mark.parametrize("part", ["the run", "a policy"])
def test_a_run_that_reaches_its_memory_limit_says_so(
    cluster: Lab, monkeypatch: pytest.MonkeyPatch, settings: Any, part: str
) -> None:
    settings.MOTLEY_LAB_MEMORY_MIB = 600
    if part == "the run":
        monkeypatch.setattr(simulations, "read_history", _out_of_memory)
    else:
        monkeypatch.setattr(Comparison, "run", _failing)
    run = simulated(cluster, asked(cluster))
    assert (run.state, "It reached its memory limit of 600 MiB: choose fewer days" in run.message) == (
        State.FAILED,
        True,
    )


def _out_of_memory(*_: Any, **__: Any) -> None:
    raise MemoryError


def _failing(comparison: Comparison, _: int) -> Iterator[Any]:
    """As the process of each simulation tells it."""
    for task in comparison.tasks:
        comparison.failed[task.policy, task.seed] = FailedRun("_ArrayMemoryError: Unable to allocate 9 GiB")
        yield RunUpdate[Any](0, result=comparison.failed[task.policy, task.seed])


# -- nodes and words ---------------------------------------------------------------------------------------------


def test_nodes_of_the_usual_size_are_added_and_taken_first() -> None:
    there = {"a100": [4, 8, 8], "t4": [1]}
    assert cluster_words(with_node_changes(there, {"a100": 2})) == "a100=1x4,a100=4x8,t4=1x1"
    assert cluster_words(with_node_changes(there, {"a100": -1, "t4": -1})) == "a100=1x4,a100=1x8"


def test_the_summary_warns_where_the_simulation_is_far_from_what_happened() -> None:
    policies = [{"policy": "srtf", "figures": {"avg_jct_h": 1.0}}]
    near = summary("fifo", {"avg_jct_h": 2.0}, 0.04, policies)
    assert "1 h, 50% less than with the current policy, fifo" in near
    assert "rely" not in near
    assert "do not rely on small differences" in summary("fifo", {"avg_jct_h": 2.0}, -0.4, policies)
