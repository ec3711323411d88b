"""Slurm's own commands and options: squeue, scancel, sacct, sinfo, scontrol, srun."""

import pytest

from jobs_app.models import Job
from tests.live_service import Live
from tests.motley_command import Motley

FINISHED = {"state": Job.State.SUCCEEDED, "exit_code": 0}


def test_squeue_lists_unfinished_jobs_by_its_own_filters(service: Live, motley: Motley) -> None:
    service.add("waits")
    service.add("runs", state=Job.State.RUNNING)
    service.add("done", **FINISHED)
    names = ("-h", "-o", "%j")
    assert sorted(motley("squeue", *names).stdout.split()) == ["runs", "waits"]
    assert motley("squeue", *names, "-t", "PD").stdout.split() == ["waits"]
    assert sorted(motley("squeue", *names, "-t", "PD,R", "--me").stdout.split()) == ["runs", "waits"]
    assert motley("squeue", *names, "-n", "runs").stdout.split() == ["runs"]
    assert motley("squeue", *names, "-u", "nobody-else").stdout.split() == []
    assert motley("squeue", *names, "-j", "waits,done").stdout.split() == ["waits", "done"]
    assert [line.split()[1] for line in motley("squeue", "-h").stdout.splitlines()] == ["runs", "waits"]
    assert motley("squeue", "--start").stdout.splitlines()[0].split()[:2] == ["NAME", "ID"]


def test_the_default_format_of_squeue_is_understood(service: Live, motley: Motley) -> None:
    service.add("waits")
    shown = motley("squeue", "-o", "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R")
    assert (shown.exit_code, "waits" in shown.stdout, "NODE_COUNT" in shown.stdout) == (0, True, True)


def test_scancel_cancels_by_name_user_and_state(service: Live, motley: Motley) -> None:
    for name in ("a", "b", "c"):
        service.add(name)
    assert motley("scancel", "-n", "a").exit_code == 0
    assert {job.name: job.state for job in service.jobs} == {"a": "cancelled", "b": "queued", "c": "queued"}
    assert motley("scancel", "b").exit_code == 0
    assert motley("scancel", "--me", "-t", "PENDING").exit_code == 0
    assert {job.state for job in service.jobs} == {"cancelled"}
    refused = motley("scancel")
    assert (refused.exit_code, "name jobs, or --me" in refused.stderr) == (2, True)


def test_sacct_lists_finished_jobs_in_its_columns(service: Live, motley: Motley) -> None:
    service.add("done", **FINISHED)
    shown = motley("sacct", "-P", "-X", "-o", "JobName%20,State,ExitCode").stdout.splitlines()
    assert shown == ["JobName%20|State|ExitCode", "done|succeeded|0"]
    assert "ACCOUNT" not in motley("sacct").stdout
    assert "no column maxrss" in motley("sacct", "-o", "MaxRSS").stderr


def test_scontrol_shows_and_holds(service: Live, motley: Motley) -> None:
    service.add("waits")
    assert "waits" in motley("scontrol", "show", "job", "waits").stdout
    assert motley("scontrol", "hold", "waits").exit_code == 0
    assert service.jobs[0].held
    assert motley("scontrol", "release", "waits").exit_code == 0
    assert "n1" in motley("scontrol", "show", "node", "n1").stdout
    assert "motley change" in motley("scontrol", "update", "jobid=1").stderr


def test_nodes_are_shown_by_name(motley: Motley) -> None:
    assert [line.split()[0] for line in motley("nodes", "n1").stdout.splitlines()[1:]] == ["n1"]
    assert motley("sinfo", "-N").stdout == motley("nodes").stdout
    missing = motley("nodes", "nowhere")
    assert (missing.exit_code, "no node nowhere" in missing.stderr) == (4, True)


@pytest.mark.parametrize("name", ["srun", "salloc"])
def test_what_needs_a_terminal_on_the_node_says_what_there_is(motley: Motley, name: str) -> None:
    result = motley(name, "--pty", "bash")
    assert (result.exit_code, "motley exec JOB" in result.stderr) == (2, True)


def test_releasing_an_array_releases_what_is_held(service: Live, motley: Motley) -> None:
    assert motley("submit", "--name", "arr", "--array", "0-2", "--", "true").exit_code == 0
    assert motley("hold", "arr").exit_code == 0
    assert motley("release", "arr[1]").exit_code == 0
    released = motley("release", "arr")
    assert (released.exit_code, [job.held for job in service.jobs]) == (0, [False] * 3)
    again = motley("release", "arr")
    assert (again.exit_code, again.stdout.strip()) == (0, "arr: none of its tasks is held.")
