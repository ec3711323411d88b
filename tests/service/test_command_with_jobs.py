"""The `motley` command beside a service whose jobs really run: waiting, following, and leaving them alone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deployment import wait_for
from tests.service.running_service import Service

JOB = ("--gpus", "1", "--team", "vision")
UNTIL_LET_GO = 'echo begun; while [ ! -e "$MOTLEY_CHECKPOINT_DIR/go" ]; do sleep 0.05; done; echo let go'
TIMEOUT_S = 300


@pytest.fixture
def service(four_gpus: Service) -> Service:
    return four_gpus


@contextmanager
def started(service: Service, *words: str) -> Iterator[subprocess.Popen[str]]:
    login = {"MOTLEY_URL": service.url, "MOTLEY_TOKEN": service.token, "HOME": "/nonexistent"}
    with subprocess.Popen(
        [str(Path(sys.executable).parent / "motley"), *words], env={"PATH": os.environ["PATH"], **login},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def motley(service: Service, *words: str) -> tuple[int, str, str]:
    with started(service, *words) as process:
        out, errors = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, errors


def submitted(service: Service, name: str, command: str, *options: str) -> str:
    code, out, errors = motley(service, "submit", "-J", name, *JOB, "-o", "name", *options, "--", command)
    assert code == 0, errors
    return out.strip()


@pytest.mark.parametrize(("command", "code"), [("true", 0), ("exit 42", 42), ("kill -9 $$", 137)])
def test_submit_and_wait_exits_as_the_job_does(service: Service, command: str, code: int) -> None:
    found, out, errors = motley(service, "submit", "--wait", "-J", "ends", *JOB, "--", command)
    assert found == code, errors
    assert "Submitted ends" in out
    assert "ends: " in errors


def test_a_job_out_of_time_is_a_failure_without_an_exit_code_of_its_own(service: Service) -> None:
    spec = ["--time-limit", "1s", "--set", "checkpoint={grace_seconds: 1}"]
    code, _, errors = motley(service, "submit", "--wait", "-J", "slow", *JOB, *spec, "--", "sleep 600")
    assert (code != 0, "timed_out" in errors) == (True, True)


def test_waiting_for_several_exits_as_the_first_that_failed(service: Service) -> None:
    jobs = [submitted(service, "one", "true"), submitted(service, "two", "exit 7")]
    code, _, errors = motley(service, "wait", *jobs)
    assert (code, "one: succeeded" in errors, "two: failed" in errors) == (7, True, True)


def test_waiting_for_an_array_waits_for_all_of_it(service: Service) -> None:
    command = 'exit "$MOTLEY_ARRAY_INDEX"'
    code, _, errors = motley(service, "submit", "--wait", "-J", "array", *JOB, "--array", "0-2", "--", command)
    assert (code in {1, 2}, errors.count("]: failed"), errors.count("array[0]: succeeded")) == (True, 2, 1)


def test_following_ends_with_the_job_and_says_how_it_ended(service: Service) -> None:
    job = submitted(service, "follow", UNTIL_LET_GO)
    with started(service, "logs", "-f", "follow") as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "begun\n"
        service.let_go(job)
        out, errors = following.communicate(timeout=TIMEOUT_S)
    assert (following.returncode, out, "follow: succeeded" in errors) == (0, "let go\n", True)


def test_following_a_job_that_waits_says_why(service: Service) -> None:
    job = submitted(service, "parent", UNTIL_LET_GO)
    submitted(service, "child", "echo hello", "--after", "parent")
    with started(service, "logs", "-f", "child") as following:
        assert following.stderr is not None
        assert following.stderr.readline().startswith("child: queued. ")
        service.let_go(job)
        assert following.communicate(timeout=TIMEOUT_S)[0] == "hello\n"


@pytest.mark.parametrize(
    ("words", "code"), [(["logs", "-f"], 0), (["wait"], 130), (["submit", "--wait", *JOB, "-J"], 130)]
)
def test_ctrl_c_detaches_says_so_and_cancels_nothing(service: Service, words: list[str], code: int) -> None:
    name = f"goes-on-{words[0]}"
    if words[0] == "submit":
        command = (*words, name, "--", UNTIL_LET_GO)
    else:
        submitted(service, name, UNTIL_LET_GO)
        command = (*words, name)
    with started(service, *command) as process:
        job = wait_for(f"{name} runs", lambda: next(service.client.jobs(q=name, state=["running"]), None))
        said = process.stdout if words[0] == "logs" else process.stderr
        assert said is not None
        said.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, f"Detached: {name} continues." in errors) == (code, True)
    assert service.client.job(job["id"])["state"] == "running"
    service.let_go(job["id"])
    assert service.client.wait(job["id"])["state"] == "succeeded"
