"""Any part of the full stack may be killed: rounds go on, no job is lost or run twice, no GPU is double-booked."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest
from django.utils import timezone

from motley_client.errors import Conflict
from tests.deployment import wait_for
from tests.stack.composed import Member, Stack

ROUND_S = 5.0
"""Of tests that look at one round."""
MUCH_WORK = 150
"""Jobs that wait: they make a round long enough to be met in the middle."""


@pytest.fixture(autouse=True)
def _sound(stack: Stack) -> Iterator[None]:
    """Each test leaves all members running, and no GPU was ever held by two."""
    yield
    for name in ("postgres", "redis", "worker", "rounds", "beat"):
        if not stack.members[name].running:
            stack.members[name].start()
            stack.healthy(name)
    for job in list(stack.client.jobs(state=["queued", "starting", "running"])):
        with suppress(Conflict):  # it has just ended
            stack.client.cancel(job["id"])
    assert stack.overlaps() == 0


def decide_every(stack: Stack, length_s: float, *, min_run_s: float = 0) -> None:
    """Unless rounds are so long already, which the database says: a process of Django takes as long as a test."""
    newest = "select round_length_s, min_run_s from scheduler_app_policysetting order by id desc limit 1"
    if stack.sql(newest) != [(length_s, min_run_s)]:
        stack.decide_every(length_s, min_run_s=min_run_s)


def last_round(stack: Stack) -> datetime:
    """When the newest committed round began; the beginning of time if there is none."""
    ((began,),) = stack.sql("select max(started_at) from scheduler_app_round where result = 'committed'")
    return began or datetime.min.replace(tzinfo=timezone.get_current_timezone())


def wait_for_a_round_after(stack: Stack, moment: datetime) -> datetime:
    return wait_for("rounds go on", lambda: (began := last_round(stack)) > moment and began)


def test_rounds_resume_within_two_periods_after_redis_was_killed(stack: Stack) -> None:
    decide_every(stack, ROUND_S, min_run_s=300)
    redis = stack.members["redis"]
    wait_for_a_round_after(stack, datetime.min.replace(tzinfo=timezone.get_current_timezone()))
    redis.kill()
    killed = timezone.now()
    wait_for("rounds stand still", lambda: timezone.now() - max(last_round(stack), killed) > timedelta(seconds=ROUND_S))

    for address in ("login/", "api/v1/jobs", "jobs"):
        answer = httpx.get(f"{stack.url}/{address}", headers={"Authorization": f"Bearer {stack.token}"}, timeout=30)
        assert answer.status_code in (200, 302), address

    redis.start()
    stack.healthy("redis")
    back = timezone.now()
    assert wait_for_a_round_after(stack, back) - back < timedelta(seconds=2 * ROUND_S)


def test_what_redis_was_told_survives_its_death(stack: Stack) -> None:
    """The append-only file: a trigger on its way is not lost, though the next one would do as well."""
    redis = stack.members["redis"]
    ask = ["redis-cli", "-p", stack.ports["6379"], "--no-auth-warning", "-a", stack.given["REDIS_PASSWORD"]]
    assert answer_of(ask, "set", "kept", "yes") == "OK"
    time.sleep(1.1)  # what is written is given to the disk once a second
    redis.kill()
    redis.start()
    stack.healthy("redis")
    assert answer_of(ask, "get", "kept") == "yes"


def answer_of(command: list[str], *words: str) -> str:
    return subprocess.run([*command, *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("time_number", range(3))
def test_after_a_worker_was_killed_in_mid_round_the_next_round_is_right(stack: Stack, time_number: int) -> None:
    decide_every(stack, ROUND_S, min_run_s=300)
    jobs = [stack.sample(name=f"job-{n}", steps=60, rate=20, gpus=1 + n % 2, gpu_types=["a100"]) for n in range(6)]
    stack.submit("true", gpus=4, gpu_types=["t4"], array={"start": 1, "end": MUCH_WORK})
    opened = stop_in_mid_round(stack, stack.members["rounds"])
    stack.members["rounds"].kill()
    stack.members["rounds"].start()
    for job in jobs:
        done = stack.wait_for_state(job, "succeeded")
        assert [attempt["outcome"] for attempt in done["attempts"]] == ["succeeded"]
        assert stack.trace(job) == list(range(1, 61))
    with stack.database() as database:
        written = database.execute("select count(*) from scheduler_app_round where number = %s", [opened])
        assert written.fetchone() == (0,)


def test_jobs_that_end_with_their_workers_container_run_again(stack: Stack) -> None:
    job = stack.sample(steps=600, rate=40, gpu_types=["a100"])
    wait_for("a checkpoint is there", lambda: stack.client.job(job)["progress"]["step"] > 60)
    stack.members["worker"].kill()
    stack.end_jobs()
    stack.members["worker"].start()
    done = stack.wait_for_state(job, "succeeded")
    assert [attempt["outcome"] for attempt in done["attempts"]] == ["lost", "succeeded"]
    assert set(stack.trace(job)) == set(range(1, 601))


def test_the_watchdog_says_when_beat_is_dead_and_when_it_is_back(stack: Stack) -> None:
    beat = stack.members["beat"]
    decide_every(stack, 1)
    wait_for("all is well", lambda: scheduler_health(stack) == 200)
    beat.kill()
    wait_for("the silence is noticed", lambda: scheduler_health(stack) == 503)
    assert timezone.now() - last_round(stack) > timedelta(seconds=3)
    beat.start()
    wait_for("it is well again", lambda: scheduler_health(stack) == 200)


def scheduler_health(stack: Stack) -> int:
    return httpx.get(f"{stack.url}/healthz/scheduler", timeout=30).status_code


@pytest.mark.parametrize(("name", "loop"), [("rounds", 1), pytest.param("worker", 2, marks=pytest.mark.thorough)])
def test_of_two_workers_one_schedules_and_the_other_takes_over_when_it_is_killed(
    stack: Stack, name: str, loop: int
) -> None:
    two = [stack.members[name], stack.another(name)]
    decide_every(stack, 1)
    first = holder_among(stack, two, loop)
    job = stack.submit("sleep 1")
    stack.wait_for_state(job, "succeeded")
    killed = timezone.now()
    first.kill()
    assert holder_among(stack, [member for member in two if member is not first], loop)
    wait_for_a_round_after(stack, killed)
    first.start()


def holder_among(stack: Stack, workers: list[Member], loop: int) -> Member:
    """Whose process holds the lease of that loop, as soon as one of these does."""

    def found() -> Member | None:
        with stack.database() as database, suppress(ProcessLookupError):
            row = database.execute(
                "select holder from scheduler_app_schedulerlease where id = %s and expires_at > now()", [loop]
            ).fetchone()
            group = os.getpgid(int(row[0].split(":")[2])) if row else None
            return next((w for w in workers if w.server.process and w.server.process.pid == group), None)
        return None

    return wait_for("one of them holds the lease", found)


def test_all_go_on_by_themselves_after_the_database_was_restarted(stack: Stack) -> None:
    postgres = stack.members["postgres"]
    job = stack.submit('while [ ! -e "$MOTLEY_CHECKPOINT_DIR/go" ]; do sleep 0.05; done; echo 1 >> trace.txt')
    stack.wait_for_state(job, "running")
    postgres.server.end(signal.SIGINT)
    postgres.start()
    stack.healthy("postgres")
    back = timezone.now()
    wait_for_a_round_after(stack, back)
    assert httpx.get(f"{stack.url}/login/", timeout=30).status_code == 200
    stack.let_go(job)
    done = stack.wait_for_state(job, "succeeded")
    assert len(done["attempts"]) == 1
    assert stack.trace(job) == [1]


def stop_in_mid_round(stack: Stack, worker: Member) -> int:
    """The worker stands still between the opening of a round and its commit; the number of that round."""

    def stopped() -> int | None:
        number = open_round(database)
        if number is None:
            return None
        worker.tell(signal.SIGSTOP)
        time.sleep(0.1)  # what the database had been told already is done
        if open_round(database) == number:
            return number
        worker.tell(signal.SIGCONT)
        return None

    with stack.database() as database:
        return wait_for("the worker is in the middle of a round", stopped, pause_s=0.001)


def open_round(database: psycopg.Connection[Any]) -> int | None:
    """The round that was opened and not yet written."""
    row = database.execute(
        "select token from scheduler_app_schedulerlease where id = 1 and token >"
        " (select coalesce(max(number), 0) from scheduler_app_round)"
    ).fetchone()
    return row[0] if row else None
