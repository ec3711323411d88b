"""The commands about jobs, nodes and rounds: what they find, print and exit with."""

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from client_conditions import TIMEOUT_S
from contract_service import Service, attempt_answer, job_id
from motley_command import Motley


def test_ps_lists_the_jobs_that_have_not_finished(service: Service, motley: Motley) -> None:
    for state in ("queued", "running", "failed"):
        service.add(state=state)
    assert motley("ps", "-o", "name").stdout.split() == [job_id(2), job_id(1)]


def test_ps_of_all_lists_the_finished_too(service: Service, motley: Motley) -> None:
    for state in ("queued", "failed"):
        service.add(state=state)
    assert motley("ps", "--all", "-o", "name").stdout.split() == [job_id(2), job_id(1)]


def test_ps_says_what_a_person_wants_to_know(service: Service, motley: Motley) -> None:
    progress = {"step": 1200, "total_steps": 2000, "rate": 24.125, "at": "2026-01-01T00:00:00Z"}
    service.add(name="resnet", gpu_type="a100", gpu_count=4, progress=progress)
    lines = motley("ps").stdout.splitlines()
    assert lines[0].split() == ["NAME", "ID", "TEAM", "STATE", "GPUS", "PROGRESS", "AGE", "WHY"]
    for words in ("resnet", "vision", "running", "4 a100", "1,200/2,000 (60%)"):
        assert words in lines[1]


def test_ps_says_why_a_job_waits_and_for_what(service: Service, motley: Motley) -> None:
    reasons = [{"code": "insufficient_gpus", "detail": "needs 8, 3 are free", "numbers": {}}]
    spec = {"gpus": {"min": 1, "max": 16}, "gpu_types": ["a100", "v100"]}
    service.add(state="queued", reasons=reasons, spec=spec)
    out = motley("ps").stdout
    assert ("needs 8, 3 are free" in out, "1-16 a100|v100" in out) == (True, True)


def test_ps_of_nothing_says_so(motley: Motley) -> None:
    assert motley("ps").stdout == "No jobs.\n"


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_json_and_yaml_are_the_answers_of_the_service(
    service: Service, motley: Motley, form: str, read: Callable[[str], object]
) -> None:
    service.add(new_field="kept")
    assert read(motley("ps", "-o", form).stdout) == service.jobs


def test_show_tells_all_of_a_job(service: Service, motley: Motley) -> None:
    ended = attempt_answer(1, state="ended", outcome="preempted", exit_code=75)
    service.add(name="resnet", message="Runs.", attempts=[ended, attempt_answer(2)], work_lost_gpu_seconds=12)
    out = motley("show", "resnet").stdout
    for words in ("ada (vision)", "Runs.", "preempted", "75", "12 GPU-seconds"):
        assert words in out


def test_nodes_says_what_is_free(service: Service, motley: Motley) -> None:
    node = {"name": "n1", "gpu_type": "v100", "gpus": 8, "free_gpus": 3, "state": "ready", "reason": ""}
    service.nodes = [{**node, "emulated": True, "engine": "local", "cpus": 64, "memory_mib": 262144, "labels": {}}]
    (_, row) = motley("nodes").stdout.splitlines()
    assert row.split() == ["n1", "v100", "(emulated)", "3", "8", "ready", "64", "256", "GiB", "local"]


def a_round(number: int) -> dict[str, Any]:
    counts = {"jobs": 118, "starts": 3, "stops": 2, "moves": 1}
    solved = {"objective": 1.0, "bound": 1.0, "gap": 0.0002, "solve_seconds": 0.041, "status": "optimal"}
    when = {"number": number, "started_at": "2026-01-01T00:00:00Z", "policy": "max_min_fairness"}
    return {**when, **counts, **solved, "prices": {"a100": 0.31}}


def test_rounds_says_how_well_each_was_decided(service: Service, motley: Motley) -> None:
    service.rounds = [a_round(812)]
    row = motley("rounds").stdout.splitlines()[1]
    for words in ("812", "max_min_fairness", "118", "0.02%", "41 ms", "optimal", "a100 0.31"):
        assert words in row


def test_one_round_is_an_object_not_a_list(service: Service, motley: Motley) -> None:
    service.rounds = [a_round(2), a_round(1)]
    assert json.loads(motley("rounds", "1", "-o", "json").stdout)["number"] == 1


@pytest.mark.parametrize("typed", ["resnet", "resn", job_id(2)])
def test_a_job_is_found_by_name_prefix_or_id(service: Service, motley: Motley, typed: str) -> None:
    service.add(name="bert")
    service.add(name="resnet")
    assert motley("show", typed, "-o", "name").stdout == f"{job_id(2)}\n"


def test_a_whole_name_goes_before_a_longer_one(service: Service, motley: Motley) -> None:
    service.add(name="resnet")
    service.add(name="resnet50")
    assert motley("show", "resnet", "-o", "name").stdout == f"{job_id(1)}\n"


def test_a_name_used_again_is_the_run_that_goes_on(service: Service, motley: Motley) -> None:
    for state in ("failed", "running", "succeeded"):
        service.add(name="resnet", state=state)
    assert motley("show", "resnet", "-o", "name").stdout == f"{job_id(2)}\n"


def test_an_ambiguous_name_is_a_usage_error_with_the_candidates(service: Service, motley: Motley) -> None:
    service.add(name="resnet50")
    service.add(name="resnet18")
    result = motley("cancel", "resnet")
    assert result.exit_code == 2
    assert ("resnet50" in result.stderr, "resnet18" in result.stderr) == (True, True)
    assert {job["state"] for job in service.jobs} == {"running"}


def test_cancel_cancels_every_job_named(service: Service, motley: Motley) -> None:
    service.add()
    service.add()
    assert motley("cancel", "job-1", "job-2").exit_code == 0
    assert {job["state"] for job in service.jobs} == {"stopping"}


def test_a_job_that_cannot_be_cancelled_does_not_keep_the_others_from_it(service: Service, motley: Motley) -> None:
    service.add(state="succeeded")
    service.add()
    result = motley("cancel", "job-1", "job-2")
    assert (result.exit_code, service.jobs[1]["state"]) == (5, "stopping")
    assert "already succeeded" in result.stderr


def test_logs_are_the_bytes_that_the_job_wrote(service: Service, motley: Motley) -> None:
    service.add(attempts=[attempt_answer(1)])
    service.logs[1] = b"\x1b[2Jstep 1\r\xff\n" * 200
    assert motley("logs", "job-1").stdout_bytes == service.logs[1]


def test_logs_asks_for_the_stream_rank_and_attempt_wanted(service: Service, motley: Motley) -> None:
    service.add(attempts=[attempt_answer(1), attempt_answer(2)])
    motley("logs", "job-1", "--stream", "stderr", "--rank", "3", "--attempt", "1")
    query = service.requests[-1].query
    assert (query["stream"], query["rank"], query["attempt"]) == (["stderr"], ["3"], ["1"])


def test_following_a_log_ends_with_the_job(service: Service, motley: Motley) -> None:
    service.add(state="succeeded", attempts=[attempt_answer(1, state="ended")])
    service.logs[1] = b"done\n"
    result = motley("logs", "-f", "job-1")
    assert (result.exit_code, result.stdout) == (0, "done\n")


def test_ctrl_c_while_following_detaches_says_so_and_cancels_nothing(service: Service, motley: Motley) -> None:
    service.add(attempts=[attempt_answer(1)])
    service.logs[1] = b"step 1\n"
    process = motley.start("logs", "-f", "job-1")
    assert process.stdout is not None
    assert process.stdout.readline() == b"step 1\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, b"Detached: job-1 goes on." in errors) == (0, True)
    assert {request.method for request in service.requests} == {"GET"}
