"""`motley submit`: what it sends, says and exits with."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from client_conditions import TIMEOUT_S, wait_until
from contract_service import Service, job_id
from motley_command import Motley


def sent(service: Service) -> dict[str, Any]:
    (request,) = (request for request in service.requests if request.method == "POST")
    return request.body


def test_submit_of_options_sends_what_they_say(service: Service, motley: Motley) -> None:
    options = "--gpus 4 --name resnet --gpu-type a100 --gpu-type v100 --team vision --total-steps 9 --weight 0.5"
    more = "--time-limit 48h --retries 3 --env A=1 --env B=x=y --tag project=imagenet --not-preemptible"
    motley("submit", *options.split(), *more.split(), "--", "python", "train.py", "--epochs", "90")
    assert sent(service) == {
        "name": "resnet",
        "command": ["python", "train.py", "--epochs", "90"],
        "gpus": 4,
        "gpu_types": ["a100", "v100"],
        "team": "vision",
        "total_steps": 9,
        "weight": 0.5,
        "time_limit": "48h",
        "retries": 3,
        "env": {"A": "1", "B": "x=y"},
        "tags": {"project": "imagenet"},
        "preemptible": False,
    }


def test_a_command_of_one_word_is_a_line_for_the_shell(service: Service, motley: Motley) -> None:
    motley("submit", "--name", "a", "--", "python a.py && python b.py")
    assert sent(service)["command"] == "python a.py && python b.py"


def test_dashes_within_the_command_belong_to_it(service: Service, motley: Motley) -> None:
    motley("submit", "--name", "a", "--", "torchrun", "--", "--gpus", "2")
    assert sent(service)["command"] == ["torchrun", "--", "--gpus", "2"]


def test_a_range_of_gpus_makes_the_job_elastic(service: Service, motley: Motley) -> None:
    motley("submit", "--name", "a", "--gpus", "1-16", "--", "true")
    assert sent(service)["gpus"] == {"min": 1, "max": 16}


def test_submit_of_a_file_sends_what_it_says(service: Service, motley: Motley, tmp_path: Path) -> None:
    spec = {"name": "resnet", "command": "true", "rates": {"v100": {1: 10.2}}, "after": [{"job": "x", "on": "end"}]}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(spec))
    motley("submit", str(tmp_path / "job.yaml"))
    assert sent(service) == json.loads(json.dumps(spec))


def test_words_and_dates_of_a_file_stay_what_was_written(service: Service, motley: Motley) -> None:
    text = "command: 'true'\ndeadline: 2026-12-01T12:00:00Z\nafter: [{job: x, on: success}]\nname: 010\nretries: 3\n"
    motley("submit", "-", typed=text)
    assert sent(service) == {
        "command": "true",
        "deadline": "2026-12-01T12:00:00Z",
        "after": [{"job": "x", "on": "success"}],
        "name": "010",
        "retries": 3,
    }


def test_options_beside_a_file_replace_its_fields_and_join_its_tags(service: Service, motley: Motley) -> None:
    text = "{name: a, command: 'true', gpus: 1, tags: {x: '1', y: '1'}}"
    motley("submit", "-", "--gpus", "8", "--tag", "y=2", typed=text)
    assert sent(service) == {"name": "a", "command": "true", "gpus": 8, "tags": {"x": "1", "y": "2"}}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--name", "a"], "What should run?"),
        (["python", "train.py"], "No such file"),
        (["--gpus", "many", "--", "true"], "--gpus many: give a number"),
        (["--env", "A", "--", "true"], "--env A: give it as NAME=VALUE"),
        (["-"], "does not describe a job"),
    ],
)
def test_what_cannot_be_a_job_is_a_usage_error(motley: Motley, arguments: list[str], words: str) -> None:
    result = motley("submit", *arguments, typed="just words")
    assert (result.exit_code, words in result.stderr) == (2, True)


def test_submit_says_which_commands_come_next(service: Service, motley: Motley) -> None:
    out = motley("submit", "--name", "a", "--", "true").stdout
    (job,) = service.jobs
    for command in ("logs -f", "show   ", "cancel "):
        assert f"motley {command} {job['id']}" in out


def test_submit_for_a_script_prints_the_id_alone(service: Service, motley: Motley) -> None:
    assert motley("submit", "-o", "name", "--name", "a", "--", "true").stdout == f"{job_id(1)}\n"


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ({"state": "succeeded", "exit_code": 0}, 0),
        ({"state": "failed", "exit_code": 42}, 42),
        ({"state": "failed", "exit_code": None}, 1),
        ({"state": "timed_out", "exit_code": 0}, 1),
    ],
)
def test_submit_and_wait_exits_as_the_job_does(
    service: Service, motley: Motley, end: dict[str, Any], code: int
) -> None:
    service.on_request = lambda: [job.update(end) for job in service.jobs]
    assert motley("submit", "--wait", "--name", "a", "--", "true").exit_code == code


def test_ctrl_c_while_waiting_detaches_says_so_and_cancels_nothing(service: Service, motley: Motley) -> None:
    process = motley.start("submit", "--wait", "--name", "a", "--", "true")
    wait_until(lambda: len(service.requests) > 1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, b"Detached: a goes on." in errors) == (130, True)
    assert {request.path for request in service.requests if request.method == "POST"} == {"/api/v1/jobs"}
