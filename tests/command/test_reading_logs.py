"""Logs as the command and the client read them: whole, the last lines, and of jobs that print without an end."""

import itertools
from collections.abc import Callable, Sequence
from threading import Lock

import pytest
from django.utils import timezone

from connections_app.logs import reading
from engines.output_order import ORDERED
from engines.protocol import LogChunk, Stream
from jobs_app.models import Attempt, Job
from motley_client import Client
from motley_client.responses import LogLine
from motley_command.mcp_server import _last
from tests.connections.written_log import ERR, OUT, Write, WrittenLog
from tests.live_service import Live
from tests.motley_command import Motley

BEGIN_MS = 1_800_000_000_000


class Growing(WrittenLog):
    """The log of a job that prints faster than it is read."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lock, self.numbers = Lock(), itertools.count()

    def logs(self, attempt: int, stream: Stream, rank: int, offset: int, limit: int = 65536) -> LogChunk:
        with self.lock:
            number = next(self.numbers)
            text = b"".join(b"%d %d\n" % (number, n) for n in range(5000))
            self.write(Write(BEGIN_MS + number, 0, ORDERED[number % 2], text))
            return super().logs(attempt, stream, rank, offset, limit)


Show = Callable[..., str]


@pytest.fixture
def show(service: Live, monkeypatch: pytest.MonkeyPatch) -> Show:
    """A job whose attempt has this log."""

    def job_with(log: WrittenLog, *, ranks: int = 1) -> str:
        over = (
            {"state": Attempt.State.ENDED, "outcome": Attempt.Outcome.SUCCEEDED, "ended_at": timezone.now()}
            if log.over
            else {}
        )
        job = service.add("talker", state=Job.State.SUCCEEDED if log.over else Job.State.RUNNING)
        service.attempt(job, nodes=[f"n{n}" for n in range(ranks)], launched_at=timezone.now(), **over)
        monkeypatch.setattr(reading, "engine_named", lambda _: log)
        return str(job.pk)

    return job_with


def texts(lines: Sequence[LogLine]) -> list[str]:
    return ["".join(piece["text"] for piece in line["pieces"]) for line in lines]


def seq(last: int) -> WrittenLog:
    """As `seq` writes: far more than a part between two records."""
    log = WrittenLog(over=True)
    numbers = [b"%d\n" % n for n in range(1, last + 1)]
    for n in range(0, last, 100_000):
        log.write(Write(BEGIN_MS + n, 0, OUT, b"".join(numbers[n : n + 100_000])))
    return log


def test_the_last_lines_of_a_long_log_are_its_last_ones(show: Show, client: Client, motley: Motley) -> None:
    job = show(seq(200_000))
    for lines in (1, 50, 30_000):
        wanted = [str(n) for n in range(200_001 - lines, 200_001)]
        assert texts(list(client.log_lines(job, tail=lines))) == wanted
        assert texts(list(client.follow_log_lines(job, tail=lines))) == wanted
    assert motley("logs", "talker", "-n", "2").stdout == "199999\n200000\n"


def test_the_last_lines_of_one_stream_may_be_more_than_one_answer(show: Show, client: Client) -> None:
    log = WrittenLog(over=True)
    log.write(Write(BEGIN_MS, 0, OUT, b"before\n" + b"x" * 3_000_000 + b"\nlast\n"))
    job = show(log)
    assert b"".join(client.read_logs(job, tail=2)) == b"x" * 3_000_000 + b"\nlast\n"
    assert b"".join(client.follow_logs(job, tail=2)) == b"x" * 3_000_000 + b"\nlast\n"
    assert b"".join(client.read_logs(job)) == log.files[0, OUT]


def test_a_very_long_line_is_cut_and_its_length_said(show: Show, client: Client) -> None:
    log = WrittenLog(over=True)
    log.write(Write(BEGIN_MS, 0, OUT, b"x" * 200_000 + b"\n" + b"y" * 5_000_000 + b"\nend\n"))
    job = show(log)
    cut = [f"{letter * 65536} … {length:,} bytes" for letter, length in (("x", 200_000), ("y", 5_000_000))]
    assert texts(list(client.log_lines(job))) == [*cut, "end"]
    assert texts(list(client.log_lines(job, tail=1))) == ["end"]
    assert texts(list(client.follow_log_lines(job))) == [*cut, "end"]


def test_what_a_job_prints_meanwhile_is_left_to_those_who_follow(show: Show, client: Client) -> None:
    job = show(Growing())
    assert next(client.read_logs(job))
    assert sum(1 for _ in client.read_logs(job)) < 100
    assert sum(1 for _ in client.log_lines(job)) > 0
    assert len(list(client.log_lines(job, tail=3))) == 3


@pytest.mark.parametrize("ranks", [1, 3])
def test_both_streams_of_all_ranks_come_by_time_however_different_their_rates(
    show: Show, client: Client, ranks: int
) -> None:
    log, wanted = WrittenLog(over=True), []
    for second in range(30):
        for rank in range(ranks):
            lines = [f"{second} {rank} {number} {'.' * 20}" for number in range(1 if rank else 2000)]
            text = "".join(f"{line}\n" for line in lines).encode()
            log.write(Write(BEGIN_MS + 10_000 * second + rank, rank, ERR if rank else OUT, text))
            wanted += lines
    job = show(log, ranks=ranks)
    assert texts(list(client.log_lines(job))) == wanted
    assert texts(list(client.log_lines(job, tail=2500))) == wanted[-2500:]


def test_an_assistant_is_given_what_it_can_read() -> None:
    lines = ["x" * 900 for _ in range(1000)]
    given = _last(iter(lines)).splitlines()
    assert given[0] == f"({1000 - len(given) + 1} earlier lines are left out)"
    assert 90_000 < sum(map(len, given)) < 101_000
