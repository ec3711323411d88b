"""The commands about nodes, GPU types, rates, shares, rounds and the policy."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from accounting_app.models import DailyUsage, TeamMonth
from cluster_app.models import Engine, GpuType, Node, Storage
from connections_app.agents.program import program_digest
from connections_app.models import Agent
from jobs_app.models import Budget, TeamQuota, Throughput
from simulation.traces.motley_csv import read_motley_csv
from tests.live_service import Live
from tests.motley_command import Motley


def test_nodes_says_what_is_free(service: Live, motley: Motley) -> None:
    (_, row) = motley("nodes").stdout.splitlines()
    assert row.split() == ["n1", "a100", "(emulated)", "4", "4", "ready", "0", "64", "512", "GiB", "local"]


def test_nodes_are_cordoned_drained_and_resumed(service: Live, staff: Motley) -> None:
    service.lab.running(service.add("a", command="sleep 600"))
    assert staff("cordon", "n1", "--reason", "new fan").stdout.startswith("n1: cordoned, 1 job")
    assert staff("drain", "n1", "-r", "new fan").stdout.startswith("n1: draining, 1 job")
    assert "new fan" in staff("nodes", "--state", "draining").stdout
    assert staff("resume", "n1").stdout == "n1: ready\n"


def test_an_empty_node_is_drained_at_once(service: Live, staff: Motley) -> None:
    assert staff("drain", "n1", "-r", "new fan", "--wait").stdout.splitlines()[-1] == "n1: draining, empty"


def test_servers_are_listed_and_shown_with_what_is_to_be_mended(service: Live, motley: Motley, staff: Motley) -> None:
    now, local = timezone.now(), Engine.objects.get(name="local")
    findings = [{"name": "disk", "passed": False, "said": "1 GiB are free: free some."}]
    joined = {"digest": "n1", "join_digest": "n1", "join_expires_at": now, "joined_at": now, "heard_at": now}
    of_site = {"site": True, "join_trusted": True, "trusted": True, "engine": local}
    Agent.objects.create(name="n1", **joined, **of_site, release="0.1.9", program="0" * 12, findings=findings)
    (_, row) = staff("server", "list").stdout.splitlines()
    assert row.split()[:2] + row.split()[3:] == ["n1", "connected", "0.1.9", "(old)", "ready", "4", "0", "disk"]
    shown = staff("server", "show", "n1").stdout
    assert "4 of 4 a100 are free" in shown
    assert "FAIL  1 GiB are free: free some." in shown
    assert staff("server", "drain", "n1", "-r", "new fan").stdout.startswith("n1: drain")
    assert staff("server", "resume", "n1").stdout == "n1: ready\n"
    assert motley("server", "show", "n1").exit_code == 4
    Agent.objects.update(update_to=program_digest(), update_fault=f"The program {program_digest()} was not heard.")
    assert staff("server", "update", "n1").stdout == "n1 tries the update again: motley server show n1\n"
    assert (Agent.objects.get().update_fault, Agent.objects.get().update_tries) == ("", 1)
    assert motley("server", "update", "n1").exit_code == 3
    assert motley("server", "revoke", "n1").exit_code == 3
    assert staff("server", "revoke", "n1").stdout.startswith("n1: revoked; its jobs are stopped")
    assert Agent.objects.get().revoked_at is not None
    assert staff("server", "revoke", "nowhere").exit_code == 4
    assert "revoked" in staff("server", "list").stdout
    assert staff("retire", "n1", "-r", "sold").exit_code == 0
    assert "n1" not in staff("server", "list").stdout


def test_who_may_not_see_the_servers_is_not_told_that_there_are_none(service: Live, motley: Motley) -> None:
    assert motley("server", "list").stdout.startswith("No servers: motley server add")
    servers = Engine.objects.create(name="servers", kind=Engine.Kind.SERVERS)
    Node.objects.update(engine=servers)
    assert motley("server", "list").stdout.startswith("Administrators see the servers")


def test_a_server_with_jobs_is_revoked_when_an_administrator_agrees(
    service: Live, motley: Motley, staff: Motley
) -> None:
    """Its jobs would be stopped: without a terminal `--yes` says that this is meant."""
    now, local = timezone.now(), Engine.objects.get(name="local")
    joined = {"digest": "n1", "join_digest": "n1", "join_expires_at": now, "joined_at": now, "heard_at": now}
    Agent.objects.create(name="n1", **joined, site=True, join_trusted=True, trusted=True, engine=local)
    service.lab.running(service.add("a", command="sleep 600"))
    assert motley("server", "revoke", "n1").exit_code == 4
    refused = staff("server", "revoke", "n1")
    assert refused.exit_code != 0
    assert "1 job on n1 would be stopped: motley drain n1 --reason ... --wait" in refused.stderr
    assert Agent.objects.get().revoked_at is None
    assert staff("server", "revoke", "n1", "--yes").exit_code == 0
    assert Agent.objects.get().revoked_at is not None


def test_what_takes_a_node_away_needs_a_reason_and_an_administrator(motley: Motley, staff: Motley) -> None:
    assert staff("drain", "n1").exit_code == 2
    assert staff("drain", "nowhere", "-r", "new fan").exit_code == 4
    assert motley("drain", "n1", "-r", "new fan").exit_code == 3


def test_types_says_what_each_can_do(motley: Motley) -> None:
    (headings, row) = motley("types").stdout.splitlines()
    assert (headings.split()[0], row.split()[:4]) == ("GPU", ["a100", "4", "4", "40"])


def test_storage_says_which_engine_has_it_and_administrators_the_path(motley: Motley, staff: Motley) -> None:
    assert motley("storage").stdout.startswith("No storage has been named")
    Storage.objects.create(name="data", engine_id="local", gpu_type=GpuType.objects.get(), path="/mnt/data")
    assert motley("storage").stdout.splitlines()[1].split() == ["data", "local", "a100", "-"]
    assert staff("storage").stdout.splitlines()[1].split() == ["data", "local", "a100", "/mnt/data"]
    assert motley("storage", "-o", "name").stdout == "data\n"


def test_rates_says_what_was_measured(service: Live, motley: Motley) -> None:
    Throughput.objects.create(
        team=service.lab.team(), workload="resnet", gpu_type=GpuType.objects.get(), gpus=4, nodes=1,
        steps_per_second=24.125, reports=7,
    )  # fmt: skip
    out = motley("rates", "--gpu-type", "a100").stdout
    for words in ("resnet", "vision", "4 a100", "24.1"):
        assert words in out


def test_share_says_what_a_team_was_entitled_to_and_got(service: Live, motley: Motley) -> None:
    service.lab.team("nlp")
    (headings, row) = motley("share").stdout.splitlines()
    assert headings.split()[:5] == ["TEAM", "WEIGHT", "ENTITLED", "DELIVERED", "RATIO"]
    assert row.split()[:4] == ["vision", "1", "0.0%", "0.0%"]


def test_share_says_the_quotas_of_a_team_and_what_they_cost(service: Live, motley: Motley) -> None:
    TeamQuota.objects.create(team=service.lab.team(), gpu_type=GpuType.objects.get(), gpus=2, borrowing_limit=1)
    row = motley("share").stdout.splitlines()[-1]
    assert row.split() == ["vision", "a100", "2", "0", "0", "1", "all", "not", "known"]


def test_share_names_the_budget_of_a_team_that_has_one(service: Live, motley: Motley) -> None:
    Budget.objects.create(team=service.lab.team(), gpu_hours=10, period="quarter", kind="hard")
    (headings, row) = motley("share").stdout.splitlines()
    assert "BUDGET USED  REFERENCE GPU-HOURS  " in headings
    for words in ("0%", "0 of 10", "quarter", "jobs wait"):
        assert words in row


def test_usage_says_the_gpu_hours_of_a_month_and_of_a_day(service: Live, motley: Motley) -> None:
    for day in (3, 4):
        DailyUsage.objects.create(
            team=service.lab.team(), gpu_type=GpuType.objects.get(), day=date(2026, 5, day), gpu_s=5400, work_gpu_s=3600
        )
    asked = ("usage", "--since", "2026-05-01", "--until", "2026-05-31")
    assert motley(*asked).stdout.splitlines()[1].split()[:5] == ["2026-05", "vision", "a100", "3", "2"]
    of_days = motley(*asked, "--by", "day").stdout.splitlines()
    assert [line.split()[0] for line in of_days[1:]] == ["2026-05-04", "2026-05-03", "total"]
    assert "No GPU was used" in motley("usage", "--since", "2025-01-01", "--until", "2025-01-31").stdout


def test_share_of_all_teams_is_for_staff(service: Live, staff: Motley) -> None:
    service.lab.team("nlp")
    assert staff("share", "-o", "name").stdout.split() == ["nlp", "vision"]


def test_rounds_says_how_well_each_was_decided(service: Live, motley: Motley) -> None:
    service.add()
    service.lab.round()
    row = motley("rounds").stdout.splitlines()[1]
    for words in ("max_min_fairness", "optimal", "ms"):
        assert words in row


def test_one_round_lists_the_gpus_of_each_job(service: Live, motley: Motley) -> None:
    job = service.add()
    service.lab.round()
    (number,) = motley("rounds", "--limit", "1", "-o", "name").stdout.split()
    assert json.loads(motley("rounds", number, "-o", "json").stdout)["number"] == int(number)
    out = motley("rounds", number).stdout
    assert (str(job.pk) in out, "1 a100" in out) == (True, True)


def test_the_policy_is_shown_chosen_and_put_back(service: Live, staff: Motley) -> None:
    first = staff("policy", "history", "-o", "name").stdout.split()[0]
    assert staff("policy", "show", "-o", "name").stdout == "max_min_fairness\n"
    times = ("--round-length", "30", "--min-run", "60", "--solve-limit", "0.25", "--cpu-memory", "tune")
    chosen = staff("policy", "set", "fifo", *times, "--note", "to compare")
    for words in (
        "fifo",
        "round length 30 s",
        "minimum run time 60 s",
        "solver time limit 25% of",
        "CPUs and memory tune",
        "to compare",
        "root",
    ):
        assert words in " ".join(chosen.stdout.split())
    assert "* fifo" in " ".join(staff("policy", "list").stdout.split())
    assert "to compare" in staff("policy", "history").stdout
    assert staff("policy", "undo", first, "-o", "name").stdout == "max_min_fairness\n"


def test_a_policy_is_listed_in_full_with_what_its_parameters_take(service: Live, staff: Motley) -> None:
    out = " ".join(staff("policy", "list", "las").stdout.split())
    for words in ("Choose it ", "--param queues whole number from 1 to 16, default 4:", "Tiresias"):
        assert words in out
    assert staff("policy", "list", "lottery").exit_code == 2


def test_parameters_are_chosen_shown_and_kept_while_the_policy_stays(service: Live, staff: Motley) -> None:
    staff("policy", "set", "las", "--param", "queues=2", "--param", "promote=0")
    shown = json.loads(staff("policy", "set", "las", "--min-run", "60", "-o", "json").stdout)
    assert shown["parameters"] == {"first_limit_gpu_s": 3250.0, "queues": 2, "promote": 0.0}
    assert "queues=2" in staff("policy", "history").stdout
    assert json.loads(staff("policy", "set", "fifo", "-o", "json").stdout)["parameters"] == {}


def test_a_number_is_taken_as_it_is_printed(service: Live, staff: Motley) -> None:
    staff("policy", "set", "las", "--param", "first_limit_gpu_s=1e+09", "--param", "promote=1.5e2")
    shown = json.loads(staff("policy", "show", "-o", "json").stdout)["parameters"]
    assert (shown["first_limit_gpu_s"], shown["promote"]) == (1e9, 150.0)


def test_a_parameter_said_twice_is_refused(service: Live, staff: Motley) -> None:
    result = staff("policy", "set", "las", "--param", "queues=2", "--param", "queues=3")
    assert (result.exit_code, "--param queues is given 2 times" in result.stderr) == (2, True)


def test_a_faulty_parameter_is_named_with_what_it_may_be(service: Live, staff: Motley) -> None:
    result = staff("policy", "set", "las", "--param", "queues=99", "--param", "p=1")
    assert result.exit_code == 2
    assert "queues must be from 1 to 16." in result.stderr
    assert "p is unknown: this policy has first_limit_gpu_s, queues, promote." in " ".join(result.stderr.split())


@pytest.mark.parametrize("arguments", [["fifi"], ["fifo", "--param", "x=1"], ["fifo", "--round-length", "0"]])
def test_a_policy_that_cannot_be_is_refused_with_its_field(staff: Motley, arguments: list[str]) -> None:
    result = staff("policy", "set", *arguments)
    assert (result.exit_code, result.stderr.startswith("Error: ")) == (2, True)
    assert "/" not in result.stderr.split(":")[1]


def test_only_an_administrator_chooses_a_policy(motley: Motley) -> None:
    assert motley("policy", "set", "fifo").exit_code == 3


def test_windows_of_nodes_are_added_listed_and_deleted(service: Live, motley: Motley, staff: Motley) -> None:
    times = ("--from", "now+1hour", "--to", "now+3hours", "-r", "new fans")
    cron = f"0 2 * * {(timezone.now() + timedelta(days=3)).isoweekday() % 7}"  # not before the first has ended
    assert motley("window", "add", "n1", *times).exit_code == 3
    made = staff("window", "add", "n1", *times, "--cron", cron).stdout
    assert made.endswith("is added: maintenance, new fans.\n")
    reserved = staff("window", "reserve", "--team", "vision", "--gpu-type", "a100", "--gpus", "2", *times)
    assert reserved.stdout.endswith("is added: reservation, new fans.\n")
    (headings, first, second) = motley("window", "list").stdout.splitlines()
    assert headings.split() == ["WINDOW", "KIND", "OF", "BEGINS", "ENDS", "AGAIN", "REASON"]
    assert ("n1" in first, f"{cron} UTC" in first, "2 a100 for vision" in second) == (True, True, True)
    for number in motley("window", "list", "-o", "name").stdout.split():
        assert staff("window", "delete", number).exit_code == 0
    assert motley("window", "list").stdout.startswith("No windows")
    assert staff("window", "add", "n1", "--from", "soon", "--to", "16:00", "-r", "fan").exit_code == 2


def test_windows_are_listed_with_date_and_time(motley: Motley, staff: Motley) -> None:
    times = ("--from", "2031-11-26T22:00+00:00", "--to", "2031-11-26T23:30+00:00")
    assert staff("window", "add", "n1", *times, "-r", "new fans").exit_code == 0
    begin, end = (datetime(2031, 11, 26, *at, tzinfo=UTC).astimezone() for at in ((22, 0), (23, 30)))
    (_, line) = motley("window", "list").stdout.splitlines()
    assert f"{begin:%Y-%m-%d %H:%M %Z}  {end:%Y-%m-%d %H:%M %Z}  once" in line


def test_history_is_exported_as_a_trace(service: Live, motley: Motley, tmp_path: Path) -> None:
    job = service.add(state="succeeded", ran_s=60, step=30)
    service.attempt(job, state="ended", outcome="succeeded", ended_at=job.finished_at, started_at=job.created_at)
    file = tmp_path / "week.csv"
    assert motley("history", "export", "-o", str(file)).stdout.startswith(f"{file}: a trace")
    (found,) = read_motley_csv(file.read_text().splitlines()).jobs
    assert (found.name, found.total_steps) == (str(job.pk), 30)
    both = motley("history", "export", "-o", str(file), "--days", "3", "--from", "2026-01-01")
    assert (both.exit_code, "--from" in both.stderr) == (2, True)


def test_a_report_and_usage_tell_small_times_as_the_page_does(service: Live, motley: Motley) -> None:
    its = {"team": service.lab.team(), "gpu_type": GpuType.objects.get(), "day": date(2026, 5, 3)}
    DailyUsage.objects.create(**its, gpu_s=90, work_gpu_s=60, watched_gpu_s=90, idle_gpu_s=51.48)
    TeamMonth.objects.create(team=its["team"], month=date(2026, 5, 1), failed=1, failed_gpu_s=1)
    report = motley("report", "--month", "2026-05").stdout
    for words in ("0.0167 reference GPU-hours in 0.025 GPU-hours", "0.0143 GPU-hours", "< 0.001 GPU-hours"):
        assert words in report
    usage = motley("usage", "--since", "2026-05-01", "--until", "2026-05-31").stdout.splitlines()
    assert usage[1].split()[3:5] == ["0.025", "0.0167"]


def test_report_says_what_a_team_had_in_a_month(service: Live, motley: Motley) -> None:
    its = {"team": service.lab.team(), "gpu_type": GpuType.objects.get()}
    DailyUsage.objects.create(**its, day=date(2026, 5, 3), gpu_s=5400, work_gpu_s=3600)
    members = {str(service.lab.user().pk): [5400, 3600]}
    TeamMonth.objects.create(
        team=its["team"], month=date(2026, 5, 1), succeeded=3, started=3, wait_s=60, wait_p95_s=300, members=members
    )
    out = motley("report", "--month", "2026-05").stdout
    for words in ("1 reference GPU-hours in 1.5 GPU-hours", "3 succeeded", "60s in the mean", "ada", "100%"):
        assert words in out
    assert motley("report", "--month", "2026-05", "-o", "name").stdout == "vision\n"
    assert "No job ran or ended in 2025-01" in motley("report", "--month", "2025-01").stdout
