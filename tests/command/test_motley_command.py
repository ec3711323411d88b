"""The commands about jobs: what they find, print and exit with."""

import io
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from django.utils import timezone
from rich.console import Console

from accounting_app.gpu_watch.minutes import store_readings
from cluster_app.models import Gpu
from engines.protocol import GpuReading
from insight_app.models import JobForecast
from jobs_app.models import Job
from jobs_app.tokens import JobToken
from motley_command import lookup
from motley_command.tables.job_columns import COLUMNS
from motley_command.tables.jobs import _rates_table, short_ids
from tests.live_service import Live
from tests.motley_command import Motley
from tests.service_lab import UNTIL_LET_GO

State = Job.State


def test_ps_lists_the_jobs_that_have_not_finished(service: Live, motley: Motley) -> None:
    service.add("waits")
    service.add("holds", held=True)
    service.add("over", state=State.FAILED)
    assert motley("ps", "-o", "name").stdout.split() == service.ids("holds", "waits")


def test_ps_of_all_lists_the_finished_too(service: Live, motley: Motley) -> None:
    service.add("waits")
    service.add("over", state=State.FAILED)
    assert motley("ps", "--all", "-o", "name").stdout.split() == service.ids("over", "waits")


def test_ps_finds_jobs_by_what_is_known_of_them(service: Live, motley: Motley) -> None:
    service.add("resnet", tags={"sweep": "1"}, command="python train.py")
    service.add("bert", tags={"sweep": "2"})
    (resnet,) = service.ids("resnet")
    by_command = ["--command", "Train.py"]
    for arguments in (
        ["res"],
        ["--tag", "sweep=1"],
        ["sweep=1"],
        ["res", "--owner", "ada", "--since", "1h"],
        by_command,
    ):
        assert motley("ps", *arguments, "-o", "name").stdout.split() == [resnet]


@pytest.mark.parametrize("since", ["yesterdayish", "999999d"])
def test_a_time_that_ps_cannot_read_is_named_with_its_option_and_examples(motley: Motley, since: str) -> None:
    refused = motley("ps", "--since", since)
    assert refused.exit_code == 2
    assert f"--since {since}: there is no such time. Write 2h, yesterday, 2026-12-01 or" in refused.stderr


@pytest.mark.parametrize(("since", "found"), [("2020-01-01", 1), ("2020-01-01T08:00:00Z", 1), ("2035-01-01", 0)])
def test_ps_lists_the_jobs_since_a_date_or_time(service: Live, motley: Motley, since: str, found: int) -> None:
    service.add("resnet")
    assert len(motley("ps", "--since", since, "-o", "name").stdout.split()) == found


def test_a_date_without_a_zone_is_that_of_this_machine(
    service: Live, motley: Motley, zone: Callable[[str], None]
) -> None:
    Job.objects.filter(pk=service.add("resnet").pk).update(created_at=datetime(2025, 1, 1, 2, tzinfo=UTC))
    found = {}
    for name in ("UTC-12", "UTC+12"):  # POSIX: hours to add for UTC
        zone(name)
        found[name] = len(motley("ps", "--since", "2025-01-01", "-o", "name").stdout.split())
    assert found == {"UTC-12": 1, "UTC+12": 0}
    assert "in the zone of this machine" in " ".join(motley("ps", "--help", COLUMNS="300").stdout.split())


def test_ps_says_when_there_is_more(service: Live, motley: Motley) -> None:
    for name in ("a", "b", "c"):
        service.add(name)
    result = motley("ps", "--limit", "2", "-o", "name")
    assert (result.stdout.split(), "--limit" in result.stderr) == (service.ids("c", "b"), True)


def test_ps_says_what_a_person_wants_to_know(service: Live, motley: Motley) -> None:
    job = service.add("resnet", total_steps=2000, step=1200, state=State.RUNNING)
    service.attempt(job, gpu_count=4)
    lines = motley("ps").stdout.splitlines()
    assert lines[0].split() == ["NAME", "ID", "TEAM", "STATE", "GPUS", "PROGRESS", "AGE", "REASON"]
    for words in ("resnet", "vision", "running", "4 a100", "1,200/2,000 (60%)"):
        assert words in lines[1]


def test_ps_says_of_a_job_that_has_ended_on_which_gpus_it_ran(service: Live, motley: Motley) -> None:
    job = service.add("resnet", state=State.SUCCEEDED, finished_at=timezone.now(), attempt_count=1)
    service.attempt(job, gpu_count=4, state="ended", outcome="succeeded", ended_at=timezone.now())
    assert "4 a100" in motley("ps", "--all").stdout
    assert motley("ps", "--all", "-o", "type,nodes").stdout.split() == ["TYPE", "NODES", "a100", "n1"]


def test_ps_says_why_a_job_waits_and_for_what(service: Live, motley: Motley) -> None:
    service.lab.node("n2", "v100")
    reasons = [{"code": "insufficient_gpus", "detail": "needs 8, 3 are free", "numbers": {}}]
    service.add(reasons=reasons, gpus={"min": 1, "max": 4}, gpu_types=["a100", "v100"])
    out = motley("ps").stdout
    assert ("needs 8, 3 are free" in out, "1-4 a100|v100" in out) == (True, True)


def test_ps_says_when_jobs_start_or_are_done_and_how_old_that_is(service: Live, motley: Motley) -> None:
    now, job, runs = timezone.now(), service.add("waits"), service.add("runs", state=State.RUNNING)
    service.add("new")
    start = {f"start_{name}": now + timedelta(seconds=s) for name, s in (("low", 150), ("median", 270), ("high", 570))}
    end = {f"finish_{name}": now + timedelta(days=1, hours=h) for h, name in enumerate(("low", "median", "high"))}
    JobForecast.objects.create(job=job.pk, made_at=now, **start, place=1, queue=2)
    JobForecast.objects.create(job=runs.pk, made_at=now, **end, place=0, queue=2)
    shown = " ".join(motley("ps").stdout.split())
    assert re.search(r"FORECAST \(\w+\) \d+s AGO", shown)
    assert "starts in about 4m (2m to 9m)" in shown
    low, median, high = (f"{at.astimezone():%a %H:%M}" for at in end.values())
    assert f"done at {median} ({low} to {high})" in shown


def test_ps_and_explain_call_overdue_what_every_quantile_of_the_forecast_has_passed(
    service: Live, motley: Motley
) -> None:
    now, waits, runs = timezone.now(), service.add("waits"), service.add("runs", state=State.RUNNING)
    times = [now - timedelta(minutes=minutes) for minutes in (30, 20, 10)]
    start, end = (
        {f"{event}_{name}": at for name, at in zip(("low", "median", "high"), times, strict=True)}
        for event in ("start", "finish")
    )
    JobForecast.objects.create(job=waits.pk, made_at=now, **start, place=1, queue=2)
    JobForecast.objects.create(job=runs.pk, made_at=now, **end, place=0, queue=2)
    listed = motley("ps").stdout
    assert "starts at any time (10m overdue)" in listed
    assert "done at any time (10m overdue)" in listed
    said = " ".join(motley("explain", "waits").stdout.split())
    assert "a start is expected at any time (10m overdue)" in said


def test_ps_has_one_zone_which_its_heading_names(service: Live, motley: Motley, zone: Callable[[str], None]) -> None:
    zone("Asia/Tokyo")
    now, runs = timezone.now(), service.add("runs", state=State.RUNNING)
    until = {"code": "begin_time", "detail": "It is not started before 2030-01-01 18:00 UTC.", "numbers": {}}
    service.add("waits", reasons=[until])
    ends = {f"finish_{name}": now + timedelta(hours=1) for name in ("low", "median", "high")}
    JobForecast.objects.create(job=runs.pk, made_at=now, **ends, place=0, queue=1)
    shown = " ".join(motley("ps").stdout.split())
    assert "FORECAST (JST)" in shown
    assert "It is not started before 2030-01-02 03:00 JST." in shown
    said = " ".join(motley("explain", "waits").stdout.split())
    assert "2030-01-02 03:00 JST" in said


@pytest.mark.parametrize("changed", [{"state": State.STARTING}, {"state": State.RUNNING}, {"held": True}])
def test_a_start_that_was_forecast_before_the_job_was_held_or_started_is_left_out(
    service: Live, motley: Motley, changed: dict[str, object]
) -> None:
    now, job = timezone.now(), service.add("waits")
    start = {f"start_{name}": now for name in ("low", "median", "high")}
    JobForecast.objects.create(job=job.pk, made_at=now, **start, place=1, queue=1)
    assert "starts now" in motley("ps").stdout
    Job.objects.filter(pk=job.pk).update(**changed)
    assert "starts" not in motley("ps").stdout


def test_a_rate_that_is_not_known_says_what_types_are_compared_by() -> None:
    used = {
        "gpu_type": "a100",
        "gpus": 1,
        "nodes": 1,
        "rate": None,
        "source": "assumed",
        "relative": 2.9,
        "share": None,
    }
    said = Console(width=200, file=io.StringIO(), record=True)
    said.print(_rates_table([used]))  # type: ignore[list-item]
    shown = said.export_text()
    assert all(words in shown for words in ("not known", "assumed", "2.9x"))


def test_ps_of_nothing_says_so(motley: Motley) -> None:
    assert motley("ps").stdout == "No jobs.\n"


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_json_and_yaml_are_the_answers_of_the_service(
    service: Live, motley: Motley, form: str, read: Callable[[str], list[dict[str, object]]]
) -> None:
    job = service.add(tags={"a": "1"})
    (answer,) = read(motley("ps", "-o", form).stdout)
    assert (answer["id"], answer["state"], answer["spec"]["tags"]) == (str(job.pk), "queued", {"a": "1"})  # type: ignore[index]


def test_show_tells_all_of_a_job(service: Live, motley: Motley) -> None:
    job = service.add("resnet", message="Runs.", work_lost_gpu_s=12, tags={"project": "imagenet"})
    service.attempt(job)
    out = motley("show", "resnet").stdout
    for words in ("ada (vision)", "Runs.", "12 GPU-seconds", "1 a100", "project=imagenet"):
        assert words in out


def test_show_tells_the_cpus_and_memory_that_a_round_has_chosen(service: Live, motley: Motley) -> None:
    job = service.add("resnet")
    service.attempt(job, cpus_per_gpu=6, memory_per_gpu_mib=65_536, cpu_memory="tuned", peak_memory_mib=12_595)
    shown = motley("show", "resnet").stdout
    assert "6 CPUs, 65,536 MiB per GPU (tuned)" in shown
    assert "12.3 GiB at most on one node" in shown
    assert "It has 6 CPUs and 64 GiB of memory per GPU" in " ".join(motley("explain", "resnet").stdout.split())


def test_show_tells_what_was_read_of_the_gpus_of_a_job(service: Live, motley: Motley) -> None:
    attempt = service.attempt(
        service.add("resnet"), state="running", gpu_energy_j=7200.0, idle_gpus=1, idle_since=timezone.now()
    )
    assert "UTILIZATION" not in motley("show", "resnet").stdout
    gpu = Gpu.objects.all()[0]
    store_readings([GpuReading(gpu.pk, 80.0, 4096.0, 250.0, 83.0, 0)], {gpu.pk: attempt.pk}, timezone.now())
    shown = motley("show", "resnet").stdout
    (line,) = (line.split() for line in shown.splitlines() if "°C" in line)
    assert line == [gpu.node.name, str(gpu.index), "80%", "4", "GiB", "250", "W", "83", "°C", "0"]
    assert ("2 Wh" in shown, "1 of 1 GPUs, for " in shown) == (True, True)


def test_show_tells_when_a_job_starts_and_ends(service: Live, motley: Motley) -> None:
    job = service.add("resnet")
    assert "starts" not in motley("show", "resnet").stdout
    # half a minute from the next one: what is shown depends on no second
    start = dict(zip(("low", "median", "high"), (150, 270, 570), strict=True))
    moments = {f"start_{name}": timezone.now() + timedelta(seconds=seconds) for name, seconds in start.items()}
    JobForecast.objects.create(
        job=job.pk, made_at=timezone.now(), **moments, gpu_type="a100", type_part=1.0, place=8, queue=25
    )
    shown = " ".join(motley("show", "resnet").stdout.split())
    assert "starts in about 4m (2m to 9m) on a100; 8 of 25 that wait (forecast " in shown
    assert "ends in more than 3d" in shown


def test_a_task_of_an_array_shows_itself_by_its_own_token(service: Live, home: dict[str, str]) -> None:
    task = service.lab.submit(name="grid", array={"start": 0, "end": 1})
    attempt = service.attempt(task, state="running")
    within = Motley({**home, "MOTLEY_URL": service.url, "MOTLEY_TOKEN": JobToken.issue(attempt.pk)})
    shown = within("show", str(task.pk))
    assert (shown.exit_code, "grid" in shown.stdout) == (0, True), shown.output


def test_explain_gives_every_reason_and_the_rates(service: Live, motley: Motley) -> None:
    service.add("late", held=True)
    service.lab.round()
    out = motley("explain", "late").stdout
    assert ("held" in out, "SHARE OF TIME" in out or "No rates" in out) == (True, True)


def test_explain_of_a_job_that_has_ended_names_its_runs(service: Live, motley: Motley) -> None:
    job = service.add("over")
    assert motley("cancel", "over").exit_code == 0
    out = motley("explain", "over").stdout
    assert f"motley attempts {job.pk} lists its runs" in " ".join(out.split())
    assert "No rates" not in out


@pytest.mark.parametrize(("message", "stream"), [("exit code 1", "stderr"), ("The setup failed with exit.", "setup")])
def test_explain_of_a_job_that_failed_says_where_its_error_messages_are(
    service: Live, motley: Motley, message: str, stream: str
) -> None:
    service.lab.round()
    job = service.add("bad", state=State.FAILED, message=message, exit_code=1, attempt_count=1)
    service.attempt(job, state="ended", outcome="failed", ended_at=timezone.now())
    lines = motley("explain", "bad").stdout.splitlines()
    assert lines[-1] == f"For its error messages: motley logs --stream {stream} {job.pk}"
    assert [line for line in lines if "round" in line] == []


@pytest.mark.parametrize("verb", ["explain", "show"])
def test_what_a_job_waits_for_is_said_once(service: Live, motley: Motley, verb: str) -> None:
    service.add("first", gpus=4, command=UNTIL_LET_GO, preemptible=False)
    service.lab.round()
    job = service.add("late", gpus=4)
    service.lab.round()
    job.refresh_from_db()
    assert job.message
    said = " ".join(motley(verb, "late").stdout.split())
    assert (said.count(job.message), "message" in said) == (1, False), said


def test_explain_says_where_a_job_is_in_the_queue_and_when_it_is_expected_to_start(
    service: Live, motley: Motley
) -> None:
    job, now = service.add("late"), timezone.now()
    assert "that wait" not in motley("explain", "late").stdout
    start = {f"start_{name}": now + timedelta(seconds=s) for name, s in (("low", 150), ("median", 270), ("high", 570))}
    JobForecast.objects.create(job=job.pk, made_at=now, **start, place=8, queue=25)
    said = " ".join(motley("explain", "late").stdout.split())
    assert "8th of 25 that wait;" in said
    assert "a start is expected in about 4m (2m to 9m) (forecast" in said


def test_show_and_explain_say_how_probably_a_job_meets_its_deadline(service: Live, motley: Motley) -> None:
    now = timezone.now()
    job = service.add("late", deadline=now + timedelta(hours=1))
    JobForecast.objects.create(
        job=job.pk, made_at=now, start_low=now, place=1, queue=1, deadline=job.deadline, in_time=0.874
    )
    assert "met with probability 0.87" in motley("show", "late").stdout
    assert "met with probability 0.87 (forecast" in " ".join(motley("explain", "late").stdout.split())


def test_explain_says_how_long_a_job_still_runs(service: Live, motley: Motley) -> None:
    service.add("late-2", held=True)
    service.lab.succeeded("late-1", 7300, 7300)
    said = " ".join(motley("explain", "late-2").stdout.split())
    assert "about 2h of running time (" in said
    assert "from 2 similar jobs of" in said


def test_explain_says_what_would_start_a_job_if_it_is_asked(service: Live, motley: Motley) -> None:
    service.add("late", held=True)
    assert "The job is held: release it." not in motley("explain", "late").stdout
    assert "The job is held: release it." in motley("explain", "late", "--would-start").stdout


def test_events_and_attempts_tell_the_story_of_a_job(service: Live, motley: Motley) -> None:
    job = service.add("resnet")
    service.attempt(job, gpu_count=3)
    motley("change", "resnet", "--weight", "0.5")
    events = motley("events", "resnet").stdout
    assert ("changed" in events, "weight 1 → 0.5" in events, "ada" in events) == (True, True, True)
    assert "3 a100" in motley("attempts", "resnet").stdout


def test_a_comment_is_among_the_events_of_the_job(service: Live, motley: Motley) -> None:
    service.add("resnet")
    assert motley("comment", "resnet", "loss is NaN").exit_code == 0
    assert re.search(r"commented +ada +loss is NaN", motley("events", "resnet").stdout)
    assert "text: " in motley("comment", "resnet", " ").stderr
    (said,) = [one for one in json.loads(motley("events", "resnet", "-o", "json").stdout) if one["kind"] == "commented"]
    assert motley("comment", "resnet", "--delete", str(said["id"])).exit_code == 0
    assert "NaN" not in motley("events", "resnet").stdout
    assert "Give the text" in motley("comment", "resnet").stderr


@pytest.mark.parametrize("typed", ["resnet", "resn", "ID", "PART OF ID", "a name = with words"])
def test_a_job_is_found_by_name_prefix_or_id(service: Live, motley: Motley, typed: str) -> None:
    service.add("bert")
    wanted = str(service.add("resnet" if typed.startswith("resn") else "a name = with words").pk)
    typed = {"ID": wanted, "PART OF ID": wanted[:24]}.get(typed, typed)
    assert motley("show", typed, "-o", "name").stdout == f"{wanted}\n"


def test_a_whole_name_goes_before_a_longer_one(service: Live, motley: Motley) -> None:
    service.add("resnet")
    service.add("resnet50")
    assert motley("show", "resnet", "-o", "name").stdout.split() == service.ids("resnet")


def test_a_name_used_again_is_the_run_that_goes_on(service: Live, motley: Motley) -> None:
    jobs = [service.add("resnet", state=state) for state in (State.FAILED, State.QUEUED, State.SUCCEEDED)]
    assert motley("show", "resnet", "-o", "name").stdout == f"{jobs[1].pk}\n"


def test_a_whole_name_is_found_however_many_newer_ones_begin_so(
    service: Live, motley: Motley, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "MAX_CANDIDATES", 2)
    wanted = service.add("train")
    for name, state in (("train", State.SUCCEEDED), ("train-1", State.QUEUED), ("train", State.FAILED)) * 2:
        service.add(name, state=state)
    assert motley("cancel", "train").exit_code == 0
    wanted.refresh_from_db()
    assert [wanted.state, *(job.state for job in service.jobs if job.name == "train-1")] == [
        "cancelled",
        *["queued"] * 2,
    ]


def test_an_array_is_not_taken_for_another_of_its_name_that_has_more_tasks(
    service: Live, motley: Motley, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "MAX_CANDIDATES", 2)
    for size in (1, 3):
        service.lab.submit(name="sweep", array={"start": 0, "end": size})
    result = motley("cancel", "sweep")
    assert (result.exit_code, {job.state for job in service.jobs}) == (2, {State.QUEUED})


def test_an_ambiguous_name_is_a_usage_error_with_the_candidates(service: Live, motley: Motley) -> None:
    service.add("resnet50")
    service.add("resnet18")
    result = motley("cancel", "resnet")
    assert result.exit_code == 2
    assert ("resnet50" in result.stderr, "resnet18" in result.stderr) == (True, True)
    assert {job.state for job in service.jobs} == {State.QUEUED}


def test_verbs_are_done_to_every_job_named(service: Live, motley: Motley) -> None:
    service.add("a")
    service.add("b")
    assert motley("hold", "a", "b").stdout.count(": held") == 2
    assert {job.held for job in service.jobs} == {True}
    assert motley("release", "a", "b").exit_code == 0
    assert {job.held for job in service.jobs} == {False}
    assert motley("cancel", "a", "b").stdout.count(": cancelled") == 2


def test_a_running_job_is_put_back_in_the_queue(service: Live, motley: Motley) -> None:
    job = service.add("a", command="sleep 600")
    service.lab.running(job)
    assert motley("requeue", "a").stdout == f"a ({job.pk}): stopping\n"
    service.lab.until(lambda: len(service.lab.attempts(job)) == 2)


def test_a_job_that_cannot_be_cancelled_does_not_keep_the_others_from_it(service: Live, motley: Motley) -> None:
    service.add("over", state=State.SUCCEEDED)
    service.add("goes on")
    result = motley("cancel", "over", "goes on")
    assert (result.exit_code, service.jobs[0].state) == (5, State.CANCELLED)
    assert "already" in result.stderr


def test_change_changes_what_it_is_told_and_joins_the_tags(service: Live, motley: Motley) -> None:
    service.add("a", tags={"x": "1", "y": "1"})
    options = ["--name", "b", "--weight", "0.5", "--time-limit", "48h", "--tag", "y=2", "--tag", "z=3", "--untag", "x"]
    assert motley("change", "a", *options, "--retries", "2").exit_code == 0
    job = service.jobs[0]
    assert (job.name, job.weight, job.time_limit_s, job.retries) == ("b", 0.5, 48 * 3600, 2)
    assert job.tags == {"y": "2", "z": "3"}
    assert motley("change", "b", "--time-limit", "none").exit_code == 0
    assert service.jobs[0].time_limit_s is None


def test_what_a_waiting_job_requests_changes_and_its_variables_are_joined(service: Live, motley: Motley) -> None:
    service.add("a", env={"A": "1", "B": "1"}, gpu_types=["a100"])
    options = ["--command", "python b.py", "--env", "B=2", "--gpus", "1-2", "--gpu-type", "any"]
    assert motley("change", "a", *options).exit_code == 0
    job = service.jobs[0]
    assert (job.command, job.env, job.gpu_types) == ("python b.py", {"A": "1", "B": "2"}, [])
    assert (job.gpus_min, job.gpus_max) == (1, 2)


def test_of_a_finished_job_only_words_change(service: Live, motley: Motley) -> None:
    service.add("a", state=State.FAILED)
    assert motley("change", "a", "--tag", "note=look at this").exit_code == 0
    assert motley("change", "a", "--retries", "2").exit_code == 5
    assert motley("change", "a").exit_code == 2


def test_the_log_is_one_of_both_streams_by_time(service: Live, motley: Motley) -> None:
    """As text; a pipe gets no colours."""
    job = service.add("a", command=r"printf '\033[31mstep 1\033[0m\n'; sleep 0.3; echo oops >&2; sleep 0.3; echo end")
    service.lab.until_state(job, State.SUCCEEDED)
    assert motley("logs", "a").stdout == "step 1\noops\nend\n"
    assert motley("logs", "a", "--tail", "2").stdout == "oops\nend\n"
    followed = motley("logs", "-f", "a")
    assert (followed.exit_code, followed.stdout) == (0, "step 1\noops\nend\n")
    assert "a: succeeded" in followed.stderr


def test_lines_of_a_gang_have_their_ranks(service: Live, motley: Motley) -> None:
    service.lab.node("n2", gpus=4)
    job = service.add("wide", gpus=8, command="echo from $MOTLEY_NODE_RANK")
    service.lab.until_state(job, State.SUCCEEDED)
    assert sorted(motley("logs", "wide").stdout.splitlines()) == ["[0] from 0", "[1] from 1"]
    assert motley("logs", "wide", "--rank", "1").stdout == "from 1\n"


@pytest.mark.thorough
def test_a_log_longer_than_one_part_is_whole_and_an_unfinished_line_is_shown(service: Live, motley: Motley) -> None:
    job = service.add("a", command="seq 60000; printf end")
    service.lab.until_state(job, State.SUCCEEDED)
    assert motley("logs", "a").stdout.split() == [*map(str, range(1, 60001)), "end"]


def test_the_log_of_one_stream_has_the_bytes_that_the_job_wrote(service: Live, motley: Motley) -> None:
    job = service.add("a", command=r"printf '\033[2Jstep 1\r\377\n'; echo oops >&2; echo end")
    service.lab.until_state(job, State.SUCCEEDED)
    assert motley("logs", "a", "--stream", "stdout").stdout_bytes == b"\x1b[2Jstep 1\r\xff\nend\n"
    assert motley("logs", "a", "--stream", "stderr", "--rank", "0", "--attempt", "1").stdout_bytes == b"oops\n"
    assert motley("logs", "a", "--stream", "stdout", "--tail", "1").stdout_bytes == b"end\n"
    followed = motley("logs", "-f", "a", "--stream", "stdout")
    assert (followed.exit_code, followed.stdout_bytes[-4:], "a: succeeded" in followed.stderr) == (0, b"end\n", True)


def test_the_standard_output_of_a_job_that_failed_leads_to_its_standard_error(service: Live, motley: Motley) -> None:
    job = service.add("a", command="echo begun; echo no such file >&2; exit 1")
    service.lab.until_state(job, State.FAILED)
    assert "no such file" in motley("logs", "a").stdout
    shown = motley("logs", "a", "--stream", "stdout")
    assert (shown.stdout_bytes, f"motley logs --stream stderr {job.pk}" in shown.stderr) == (b"begun\n", True)


def test_a_rank_and_an_attempt_that_there_are_not_are_not_found(service: Live, motley: Motley) -> None:
    service.lab.until_state(service.add("a"), State.SUCCEEDED)
    assert motley("logs", "a", "--rank", "9").exit_code == 4
    assert motley("logs", "a", "--attempt", "9").exit_code == 4


def test_the_log_of_a_job_that_waits_says_why(service: Live, motley: Motley) -> None:
    service.add("a", reasons=[{"code": "insufficient_gpus", "detail": "needs 8, 3 are free", "numbers": {}}])
    assert "needs 8, 3 are free" in motley("logs", "a").stderr


def test_the_progress_of_an_array_is_above_its_jobs_and_with_each(service: Live, motley: Motley) -> None:
    motley("submit", "--name", "sweep", "--gpus", "1", "--array", "0-4", "--", "true")
    first = service.jobs[0]
    Job.objects.filter(pk=first.pk).update(state=State.SUCCEEDED, finished_at=first.created_at)
    assert motley("ps", "--array", str(first.array_id)).stdout.splitlines()[0] == "sweep: 1 of 5 done"
    assert "1 of 5 done" in motley("show", str(first.pk)).stdout


# -- how jobs are named ------------------------------------------------------------------------------------------


def test_ps_shows_the_end_of_ids_by_which_jobs_are_found(service: Live, motley: Motley) -> None:
    jobs = [service.add(name) for name in ("a", "b")]
    for job in jobs:
        tail = str(job.pk)[-8:]
        assert tail in motley("ps").stdout
        assert motley("show", tail, "-o", "name").stdout == f"{job.pk}\n"


def test_ids_with_the_same_end_are_shown_with_more_digits() -> None:
    ids = ["01a210ef-bbfa-70af-ad56-c05e439bbad9", "01a210ef-bbfa-70af-ad56-c05f439bbad9"]
    assert list(short_ids(ids).values()) == ["e439bbad9", "f439bbad9"]


@pytest.fixture
def sweep(service: Live, motley: Motley) -> list[str]:
    """Ids of the tasks of an array, beside a job whose name begins alike."""
    service.add("sweeper")
    motley("submit", "--name", "sweep", "--array", "0-11", "--", "true")
    return [str(pk) for pk in Job.objects.filter(name="sweep").order_by("array_index").values_list("pk", flat=True)]


def test_a_task_of_an_array_is_named_as_it_is_shown(motley: Motley, sweep: list[str]) -> None:
    assert "sweep[3]" in motley("ps").stdout
    assert motley("show", "sweep[3]", "-o", "name").stdout == f"{sweep[3]}\n"
    assert motley("show", "sweep[1]", "-o", "name").stdout == f"{sweep[1]}\n"
    assert motley("show", "sweep[12]").exit_code == 4


def test_a_command_about_one_job_says_that_the_name_is_an_array(motley: Motley, sweep: list[str]) -> None:
    result = motley("logs", "sweep")
    assert (result.exit_code, "sweep is an array: give one of its tasks, e.g. sweep[" in result.stderr) == (2, True)


def test_verbs_are_done_to_all_tasks_of_an_array_that_have_not_finished(motley: Motley, sweep: list[str]) -> None:
    Job.objects.filter(pk=sweep[0]).update(state=State.SUCCEEDED, finished_at=timezone.now())
    assert motley("hold", "sweep").stdout.count(": held") == 11
    array = str(Job.objects.get(pk=sweep[0]).array_id)
    assert motley("release", array).exit_code == 0
    assert motley("scancel", "sweep").stdout.count(": cancelled") == 11
    assert Job.objects.get(name="sweeper").state == State.QUEUED
    assert (motley("wait", "sweep").exit_code, motley("wait", "sweep[0]").exit_code) == (1, 0)
    assert motley("cancel", "sweep").exit_code == 5


def test_of_two_arrays_with_one_name_their_ids_are_shown(service: Live, motley: Motley, sweep: list[str]) -> None:
    motley("submit", "--name", "sweep", "--array", "0-2", "--", "true")
    ids = {str(pk) for pk in Job.objects.filter(name="sweep").values_list("array", flat=True)}
    assert len(ids) == 2
    for words in (["show", "sweep"], ["ps", "--array", "sweep"], ["cancel", "sweep"]):
        refused = motley(*words)
        assert (refused.exit_code, "give the id of one" in refused.stderr) == (2, True)
        assert ids <= set(refused.stderr.split())
    for array in ids:
        assert motley("show", array).exit_code == 0


def test_show_of_an_array_lists_its_tasks(motley: Motley, sweep: list[str]) -> None:
    assert motley("show", "sweep").stdout.startswith("sweep: ")
    assert motley("show", "sweep", "-o", "name").stdout.split() == sweep[::-1]
    assert motley("ps", "--array", "sweep", "-o", "name").stdout.split() == sweep[::-1]


# -- words and columns of other schedulers -----------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["ls", "list", "jobs", "queue"])
def test_other_names_for_ps(service: Live, motley: Motley, verb: str) -> None:
    service.add("a")
    assert motley(verb, "-o", "name").stdout.split() == service.ids("a")


def test_other_names_for_other_verbs(service: Live, motley: Motley) -> None:
    assert motley("run", "--name", "a", "--", "true").exit_code == 0
    assert [motley(verb, "a", "-o", "name").stdout.split() for verb in ("status", "describe")] == [service.ids("a")] * 2
    assert motley("kill", "a").stdout.endswith(": cancelled\n")
    assert "--watch needs a terminal" in motley("top").stderr
    assert "kill, delete, stop, rm, remove = cancel" in " ".join(motley("--help").stdout.split())


@pytest.mark.parametrize("verb", ["requeu", "cancl", "releas", "drains", "resum", "clon"])
def test_a_misspelt_verb_is_never_taken_for_one_that_does_harm(motley: Motley, verb: str) -> None:
    result = motley(verb, "a")
    assert (result.exit_code, "Did you mean" in result.stderr) == (2, False), result.stderr


def test_a_misspelt_verb_that_only_looks_is_suggested(motley: Motley) -> None:
    assert "Did you mean 'logs'?" in motley("logz").stderr
    assert "Did you mean 'list'?" in motley("policy", "lst").stderr


@pytest.mark.parametrize("columns", ["name,state,gpus,owner", "%.8j %T %b %u"])
def test_ps_has_the_columns_that_are_asked_for(service: Live, motley: Motley, columns: str) -> None:
    service.add("resnet", gpus=2)
    headings, line = motley("ps", "-o", columns).stdout.splitlines()
    assert headings.split() == ["NAME", "STATE", "GPUS", "OWNER"]
    assert line.split() == ["resnet", "queued", "2", "any", "ada"]
    assert len(motley("ps", "--no-headings", "-o", columns).stdout.splitlines()) == 1


def test_every_column_is_shown_of_a_job(service: Live, motley: Motley) -> None:
    job = service.add("resnet", state=State.RUNNING, started_at=timezone.now())
    service.attempt(job)
    result = motley("ps", "-o", ",".join(COLUMNS))
    assert result.stdout.splitlines()[0].split() == [name.upper() for name in COLUMNS], result.output


def test_an_unknown_column_is_answered_with_all(motley: Motley) -> None:
    result = motley("ps", "-o", "name,colour")
    assert (result.exit_code, "no column colour. Columns: name, id," in result.stderr) == (2, True)


def test_ps_knows_the_states_of_slurm_and_me(service: Live, motley: Motley) -> None:
    service.add("waits")
    service.lab.submit(name="of another", owner=service.lab.user("bob", "vision"))
    assert motley("ps", "-t", "PENDING", "-u", "me", "-o", "name").stdout.split() == service.ids("waits")
    assert motley("ps", "--me", "-o", "name").stdout.split() == service.ids("waits")
    refused = motley("ps", "--state", "asleep")
    assert (refused.exit_code, "States: queued, starting" in refused.stderr) == (2, True)


def test_show_says_what_runs_and_within_which_limits(service: Live, motley: Motley) -> None:
    options = ["--time-limit", "2:00:00", "--retries", "3", "--env", "LR=0.1", "--workdir", "/data"]
    assert motley("submit", *options, "--", "python", "train.py", "--name", "a b").exit_code == 0
    shown = [" ".join(line.split()) for line in motley("show", "train").stdout.splitlines()]
    expected = ["command python train.py --name 'a b'", "folder /data", "environment LR", "time limit 2h", "retries 3"]
    assert [line for line in expected if line not in shown] == []
    assert "0.1" not in " ".join(shown)
