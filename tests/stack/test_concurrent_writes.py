"""Several processes at the same rows at the same moment, on SQLite and on PostgreSQL: nothing is lost or done twice."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise

import pytest

from tests.hypothesis_examples import part
from tests.migrated_database import copy_migrated_file, fill_migrated
from tests.private_servers import postgresql, private_folder
from tests.stack.concurrent_processes import PROCESSES, ConcurrentProcesses, raised, started_processes

pytestmark = pytest.mark.more_examples


def repetitions() -> range:
    """As many as find a race that is rare; in `make test` as many as find one that is not."""
    return range(max(5, round(25 * part())))


GPUS = 4


DATABASES = ["postgresql", pytest.param("sqlite", marks=pytest.mark.thorough)]
"""Kills of the embedded service are at SQLite in `make test`; several workers are at PostgreSQL."""


@pytest.fixture(scope="module", params=DATABASES)
def processes(request: pytest.FixtureRequest) -> Iterator[ConcurrentProcesses]:
    """Processes on a database with one node of four GPUs."""
    with ExitStack() as stack:
        folder = stack.enter_context(private_folder("motley-concurrent-"))
        own = f"sqlite:///{folder}/motley.sqlite3"
        address = own if request.param == "sqlite" else stack.enter_context(postgresql())
        if request.param == "sqlite":
            copy_migrated_file(folder / "motley.sqlite3")
        else:
            fill_migrated(address)
        environment = {"MOTLEY_DATABASE": address, "MOTLEY_VAR": str(folder), "MOTLEY_ENGINE_ROOT": f"{folder}/engine"}
        processes = stack.enter_context(started_processes(environment))
        processes.run("prepare", GPUS)
        yield processes


@pytest.fixture(autouse=True)
def _cleared(processes: ConcurrentProcesses) -> None:
    processes.run("clear")


# -- users and attempts --------------------------------------------------------------------------------------------


def test_a_cancel_is_never_lost(processes: ConcurrentProcesses) -> None:
    """A person, the end of an attempt that would be tried again, and a round that takes its GPUs."""
    for _ in repetitions():
        job, attempt = processes.run("running")
        done = processes.run_together(("end", attempt, 75), ("make_room", job, attempt), ("cancel", job))
        assert set(raised(done)) <= {"", "AttemptIsNotLive"}
        assert processes.run("state", job) == ("cancelled", False)
        processes.run("clear")


def test_a_hold_is_never_lost(processes: ConcurrentProcesses) -> None:
    for _ in repetitions():
        job, attempt = processes.run("running")
        processes.run_together(("end", attempt, 75), ("make_room", job, attempt), ("hold", job))
        assert processes.run("state", job) == ("queued", True)
        processes.run("clear")


def test_a_cancel_of_a_job_that_succeeds_at_that_moment_reports_the_final_state(processes: ConcurrentProcesses) -> None:
    for _ in repetitions():
        job, attempt = processes.run("running")
        _, cancelled = processes.run_together(("end", attempt, 0), ("cancel", job))
        expected = "succeeded" if cancelled.raised == "JobIsFinished" else "cancelled"
        assert (cancelled.raised in ("", "JobIsFinished"), processes.run("state", job)[0]) == (True, expected)
        processes.run("clear")


def test_an_attempt_begins_once(processes: ConcurrentProcesses) -> None:
    for _ in repetitions():
        job, attempt = processes.run("launched")
        done = processes.run_together(*[("begin", attempt)] * PROCESSES)
        assert (sum(one.answer for one in done), processes.run("events", job, "started")) == (1, 1)
        processes.run("clear")


def test_an_attempt_ends_once_and_its_failure_counts_once(processes: ConcurrentProcesses) -> None:
    for _ in repetitions():
        job, attempt = processes.run("running")
        done = processes.run_together(*[("end", attempt, 1)] * PROCESSES)
        assert raised(done) == ["", *["AttemptIsNotLive"] * (PROCESSES - 1)]
        assert (processes.run("column", job, "failures"), processes.run("events", job, "finished")) == (1, 1)
        processes.run("clear")


def test_of_holds_and_releases_one_is_last(processes: ConcurrentProcesses) -> None:
    job = processes.run("submit")
    for _ in repetitions():
        done = processes.run_together(("hold", job), ("release", job), ("hold", job), ("release", job))
        assert set(raised(done)) <= {"", "JobIsNotHeld"}
        state, held = processes.run("state", job)
        assert (state, processes.run("column", job, "reason") == "held") == ("queued", held)


# -- rounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("action", "outcome"), [("cancel", ("cancelled", False)), ("hold", ("queued", True))])
def test_what_a_person_does_while_a_round_commits_counts(
    processes: ConcurrentProcesses, action: str, outcome: tuple[str, bool]
) -> None:
    for turn in repetitions():
        job = processes.run("submit")
        number = processes.run("open_round", "one")
        processes.run("decide_on", number)
        committed, done = processes.run_together(("commit", "one"), (action, job))
        assert (turn, committed.raised, done.raised) == (turn, "", "")
        assert (processes.run("state", job), processes.run("live_attempts", job)) == (outcome, 0)
        processes.run("clear")


def test_of_rounds_with_one_number_one_is_committed(processes: ConcurrentProcesses) -> None:
    """As if the lease had failed altogether: the GPUs are given out once all the same."""
    for _ in repetitions():
        job = processes.run("submit", {"gpus": GPUS})
        number = processes.run("open_round", "one")
        processes.run_together(*[("decide_on", number)] * PROCESSES)
        done = processes.run_together(*[("commit", "one")] * PROCESSES)
        assert raised(done) == ["", *["IntegrityError"] * (PROCESSES - 1)]
        processes.run_together(*[("grant",)] * PROCESSES)
        assert (processes.run("live_attempts", job), processes.run("holders_of_gpus")) == (1, [1] * GPUS)
        processes.run("clear")


def test_of_several_claims_of_a_gpu_one_succeeds(processes: ConcurrentProcesses) -> None:
    for _ in repetitions():
        _, attempt = processes.run("launched")
        processes.run("end", attempt, 0)
        processes.run("grant")  # its GPU is free
        attempts = [processes.run("attempt_without_gpu") for _ in range(PROCESSES)]
        done = processes.run_together(*[("claim", attempt) for attempt in attempts])
        assert (raised(done), processes.run("holders_of_gpus")) == (["", *["IntegrityError"] * (PROCESSES - 1)], [1])
        processes.run("clear")


def test_there_are_never_two_holders_of_the_lease(processes: ConcurrentProcesses) -> None:
    done = processes.run_together(*[("contend", 60)] * PROCESSES)
    assert raised(done) == [""] * PROCESSES
    spans = sorted((begun, until, name) for one in done for name, begun, until in one.answer)
    assert len({name for _, _, name in spans}) > 1
    assert [(a, b) for a, b in pairwise(spans) if a[2] != b[2] and a[1] > b[0]] == []


# -- submissions ----------------------------------------------------------------------------------------------------


def test_a_submission_that_is_repeated_at_the_same_moment_is_done_once(processes: ConcurrentProcesses) -> None:
    token = processes.run("token")
    body = {"name": "once", "team": "vision", "command": "true", "gpus": 1}
    for turn in repetitions():
        done = processes.run_together(*[("post", token, f"key-{turn}", body)] * PROCESSES)
        assert raised(done) == [""] * PROCESSES
        made = {job for status, job in (one.answer for one in done) if status == 201}
        assert ({one.answer[0] for one in done} <= {201, 409}, len(made), processes.run("jobs")) == (True, 1, turn + 1)


def test_a_child_of_a_failed_job_is_cancelled_once(processes: ConcurrentProcesses) -> None:
    for _ in repetitions():
        _, child = processes.run("failed_with_child")
        done = processes.run_together(*[("settle",)] * (PROCESSES - 1), ("hold", child))
        assert set(raised(done)) <= {"", "JobIsFinished"}
        assert (processes.run("state", child)[0], processes.run("events", child, "finished")) == ("cancelled", 1)
        processes.run("clear")
