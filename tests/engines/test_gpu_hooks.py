"""Hooks before and after jobs: run for each GPU, beside no job, and a GPU on which one fails is named."""

import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from engines.local.engine import LocalEngine
from engines.protocol import NodeLaunch, Phase, SiteReason, StopReason
from engines.site_command import SiteCommand, fault_of, split_command
from engines.supervision.gpu_hooks import GpuHooks
from engines.supervision.isolation import Isolation
from tests.engines.engine_lab import Lab, until

TWO_GPUS = [NodeLaunch("n1", {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b", "MOTLEY_JOB_ID": "7", "SECRET_OF_JOB": "x"})]


class HookLab(Lab):
    hooks = GpuHooks()

    def another_engine(self) -> LocalEngine:
        return LocalEngine(self.root, declared=["n1"], hooks=self.hooks, isolation=Isolation.SUBREAPER)


@pytest.fixture
def lab_with(place: Path) -> Iterator[Callable[..., HookLab]]:
    labs = []

    def make(**hooks: Any) -> HookLab:
        lab = type("Hooked", (HookLab,), {"hooks": GpuHooks(**hooks)})(place)
        labs.append(lab)
        return lab

    yield make
    for lab in labs:
        lab.stop_all()


def script(place: Path, text: str) -> str:
    path = place / "hook"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_hook_runs_once_for_each_gpu_before_the_job_and_knows_no_variable_of_it(
    place: Path, lab_with: Callable[..., HookLab]
) -> None:
    hook = script(place, f'echo "$1 $CUDA_VISIBLE_DEVICES $MOTLEY_HOOK $MOTLEY_JOB_ID$SECRET_OF_JOB" >> {place}/seen')
    lab = lab_with(before=f"{hook} {{gpu}}")
    attempt = lab.run(f"cat {place}/seen", tasks=TWO_GPUS)
    assert sorted(lab.output(attempt).decode().splitlines()) == ["GPU-a GPU-a before 7", "GPU-b GPU-b before 7"]
    assert lab.report(attempt).faulty_gpus == {}


def test_a_gpu_on_which_it_fails_is_named_with_its_output_and_the_job_does_not_start(
    place: Path, lab_with: Callable[..., HookLab]
) -> None:
    hook = script(place, 'echo "row remap pending"; test "$1" != GPU-b')
    lab = lab_with(before=f"{hook} {{gpu}}", after=f"touch {place}/after")
    attempt = lab.run(f"touch {place}/started", tasks=TWO_GPUS)
    report = lab.report(attempt)
    assert report.faulty_gpus == {"GPU-b": "exit code 1: row remap pending"}
    assert (report.reason, report.started_at, report.proven_gone) == (SiteReason.GPU_FAULT, None, True)
    assert report.message == "The site's hook before the job failed on GPU-b: exit code 1: row remap pending"
    assert not (place / "started").exists()
    assert not (place / "after").exists()


def test_a_hook_that_takes_too_long_is_killed_with_what_it_started(
    place: Path, lab_with: Callable[..., HookLab]
) -> None:
    lab = lab_with(before=script(place, "sleep 1000 & sleep 1000"), timeout_s=0.2)
    assert lab.report(lab.run("true", tasks=TWO_GPUS)).faulty_gpus == dict.fromkeys(
        ("GPU-a", "GPU-b"), "its time was up"
    )
    assert lab.left_over() == []


def test_a_hook_that_is_not_there_fails(lab_with: Callable[..., HookLab]) -> None:
    lab = lab_with(before="/no/such/hook {gpu}")
    faults = lab.report(lab.run("true", tasks=TWO_GPUS)).faulty_gpus
    assert "No such file or directory" in faults["GPU-a"]


def test_the_hook_after_the_job_runs_when_nothing_is_left_of_it_and_its_fault_is_not_the_jobs(
    place: Path, lab_with: Callable[..., HookLab]
) -> None:
    lab = lab_with(after=script(place, f"kill -0 $(cat {place}/pid) 2>/dev/null && echo lives; exit 3"))
    report = lab.report(lab.run(f"setsid sleep 1000 & echo $! > {place}/pid", tasks=TWO_GPUS))
    assert (report.phase, report.exit_code, report.reason) == (Phase.ENDED, 0, None)
    assert report.faulty_gpus == dict.fromkeys(("GPU-a", "GPU-b"), "exit code 3")


def test_an_attempt_that_is_stopped_while_its_hook_runs_never_starts(
    place: Path, lab_with: Callable[..., HookLab]
) -> None:
    lab = lab_with(before=script(place, f"touch {place}/begun; sleep 1000"))
    attempt = lab.launch(f"touch {place}/started", tasks=TWO_GPUS)
    until((place / "begun").exists)
    lab.engine.stop(attempt, reason=StopReason.CANCEL, grace=timedelta(0))
    report = lab.end_of(attempt)
    assert (report.started_at, report.message) == (None, "The attempt was stopped before it started.")
    assert (report.faulty_gpus, lab.left_over()) == ({}, [])
    assert not (place / "started").exists()


def test_emulated_gpus_have_no_hooks(place: Path, lab_with: Callable[..., HookLab]) -> None:
    lab = lab_with(before="false", after="false")
    attempt = lab.run("true", tasks=[NodeLaunch("n1", {"CUDA_VISIBLE_DEVICES": "0,1"})])
    assert (lab.report(attempt).exit_code, lab.report(attempt).faulty_gpus) == (0, {})


def test_a_value_is_one_word_whatever_is_in_it() -> None:
    assert split_command("check --gpu {gpu} 'a b'", gpu="x; rm -rf $HOME") == [
        "check",
        "--gpu",
        "x; rm -rf $HOME",
        "a b",
    ]


class Unkillable(subprocess.Popen[bytes]):
    """A process in uninterruptible sleep, as one that waits for a driver: it does not end, whoever waits."""

    def wait(self, timeout: float | None = None) -> int:
        assert timeout is not None, "this would wait for ever"
        raise subprocess.TimeoutExpired(self.args, timeout)


def test_a_command_that_even_a_kill_does_not_end_is_waited_for_no_longer_than_a_while() -> None:
    process = Unkillable(["/bin/sleep", "60"], start_new_session=True)
    command = SiteCommand(process, BytesIO(), 0.0)
    assert command.is_over
    assert fault_of(*command.end()) == "its time was up"
    subprocess.Popen.wait(process)
