"""Several processes at the same rows at the same moment, on SQLite and on PostgreSQL: nothing is lost or done twice."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise

import pytest

from tests.private_servers import postgresql, private_folder
from tests.stack.concurrent_processes import RIVALS, Arena, an_arena, raised

MEETINGS = 25
GPUS = 4


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """Rivals at a database with one node of four GPUs."""
    with ExitStack() as stack:
        folder = stack.enter_context(private_folder("motley-arena-"))
        own = f"sqlite:///{folder}/motley.sqlite3"
        address = own if request.param == "sqlite" else stack.enter_context(postgresql())
        environment = {"MOTLEY_DATABASE": address, "MOTLEY_VAR": str(folder), "MOTLEY_ENGINE_ROOT": f"{folder}/engine"}
        arena = stack.enter_context(an_arena(environment))
        arena.ask("prepare", GPUS)
        yield arena


@pytest.fixture(autouse=True)
def _cleared(arena: Arena) -> None:
    arena.ask("clear")


# -- people and attempts --------------------------------------------------------------------------------------------


def test_a_cancel_is_never_lost(arena: Arena) -> None:
    """A person, the end of an attempt that would be tried again, and a round that takes its GPUs."""
    for _ in range(MEETINGS):
        job, attempt = arena.ask("running")
        done = arena.meet(("end", attempt, 75), ("make_room", job, attempt), ("cancel", job))
        assert set(raised(done)) <= {"", "AttemptIsNotLive"}
        assert arena.ask("state", job) == ("cancelled", False)
        arena.ask("clear")


def test_a_hold_is_never_lost(arena: Arena) -> None:
    for _ in range(MEETINGS):
        job, attempt = arena.ask("running")
        arena.meet(("end", attempt, 75), ("make_room", job, attempt), ("hold", job))
        assert arena.ask("state", job) == ("queued", True)
        arena.ask("clear")


def test_who_cancels_a_job_that_succeeds_at_that_moment_hears_which_it_was(arena: Arena) -> None:
    for _ in range(MEETINGS):
        job, attempt = arena.ask("running")
        _, cancelled = arena.meet(("end", attempt, 0), ("cancel", job))
        expected = "succeeded" if cancelled.raised == "JobIsFinished" else "cancelled"
        assert (cancelled.raised in ("", "JobIsFinished"), arena.ask("state", job)[0]) == (True, expected)
        arena.ask("clear")


def test_an_attempt_begins_once(arena: Arena) -> None:
    for _ in range(MEETINGS):
        job, attempt = arena.ask("launched")
        done = arena.meet(*[("begin", attempt)] * RIVALS)
        assert (sum(one.answer for one in done), arena.ask("events", job, "started")) == (1, 1)
        arena.ask("clear")


def test_an_attempt_ends_once_and_its_failure_counts_once(arena: Arena) -> None:
    for _ in range(MEETINGS):
        job, attempt = arena.ask("running")
        done = arena.meet(*[("end", attempt, 1)] * RIVALS)
        assert raised(done) == ["", *["AttemptIsNotLive"] * (RIVALS - 1)]
        assert (arena.ask("column", job, "failures"), arena.ask("events", job, "finished")) == (1, 1)
        arena.ask("clear")


def test_of_holds_and_releases_one_is_last(arena: Arena) -> None:
    job = arena.ask("submit")
    for _ in range(MEETINGS):
        done = arena.meet(("hold", job), ("release", job), ("hold", job), ("release", job))
        assert set(raised(done)) <= {"", "JobIsNotHeld"}
        state, held = arena.ask("state", job)
        assert (state, arena.ask("column", job, "reason") == "held") == ("queued", held)


# -- rounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("deed", "outcome"), [("cancel", ("cancelled", False)), ("hold", ("queued", True))])
def test_what_a_person_does_while_a_round_commits_counts(arena: Arena, deed: str, outcome: tuple[str, bool]) -> None:
    for turn in range(MEETINGS):
        job = arena.ask("submit")
        number = arena.ask("open_round", "one")
        arena.ask("decide_on", number)
        committed, done = arena.meet(("commit", "one"), (deed, job))
        assert (turn, committed.raised, done.raised) == (turn, "", "")
        assert (arena.ask("state", job), arena.ask("live_attempts", job)) == (outcome, 0)
        arena.ask("clear")


def test_of_rounds_with_one_number_one_is_committed(arena: Arena) -> None:
    """As if the lease had failed altogether: the GPUs are given out once all the same."""
    for _ in range(MEETINGS):
        job = arena.ask("submit", {"gpus": GPUS})
        number = arena.ask("open_round", "one")
        arena.meet(*[("decide_on", number)] * RIVALS)
        done = arena.meet(*[("commit", "one")] * RIVALS)
        assert raised(done) == ["", *["IntegrityError"] * (RIVALS - 1)]
        arena.meet(*[("grant",)] * RIVALS)
        assert (arena.ask("live_attempts", job), arena.ask("holders_of_gpus")) == (1, [1] * GPUS)
        arena.ask("clear")


def test_of_several_who_claim_a_gpu_one_gets_it(arena: Arena) -> None:
    for _ in range(MEETINGS):
        _, attempt = arena.ask("launched")
        arena.ask("end", attempt, 0)
        arena.ask("grant")  # its GPU is free
        attempts = [arena.ask("attempt_without_gpu") for _ in range(RIVALS)]
        done = arena.meet(*[("claim", attempt) for attempt in attempts])
        assert (raised(done), arena.ask("holders_of_gpus")) == (["", *["IntegrityError"] * (RIVALS - 1)], [1])
        arena.ask("clear")


def test_there_are_never_two_holders_of_the_lease(arena: Arena) -> None:
    done = arena.meet(*[("strive", 60)] * RIVALS)
    assert raised(done) == [""] * RIVALS
    spans = sorted((begun, until, name) for one in done for name, begun, until in one.answer)
    assert len({name for _, _, name in spans}) > 1
    assert [(a, b) for a, b in pairwise(spans) if a[2] != b[2] and a[1] > b[0]] == []


# -- submissions ----------------------------------------------------------------------------------------------------


def test_a_submission_that_is_repeated_at_the_same_moment_is_done_once(arena: Arena) -> None:
    token = arena.ask("token")
    body = {"name": "once", "team": "vision", "command": "true", "gpus": 1}
    for turn in range(MEETINGS):
        done = arena.meet(*[("post", token, f"key-{turn}", body)] * RIVALS)
        assert raised(done) == [""] * RIVALS
        made = {job for status, job in (one.answer for one in done) if status == 201}
        assert ({one.answer[0] for one in done} <= {201, 409}, len(made), arena.ask("jobs")) == (True, 1, turn + 1)


def test_a_child_of_a_failed_job_is_cancelled_once(arena: Arena) -> None:
    for _ in range(MEETINGS):
        _, child = arena.ask("failed_with_child")
        done = arena.meet(*[("settle",)] * (RIVALS - 1), ("hold", child))
        assert set(raised(done)) <= {"", "JobIsFinished"}
        assert (arena.ask("state", child)[0], arena.ask("events", child, "finished")) == ("cancelled", 1)
        arena.ask("clear")
