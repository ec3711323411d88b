"""Merged log: both streams of real jobs in the order in which they were written, its tail, and following it."""

from dataclasses import replace

import pytest

from connections_app.engine_registry import engine_named
from connections_app.logs.merged import (
    LONGEST_LINE_BYTES,
    LogPart,
    Position,
    RawPart,
    merge_streams,
    read_merged,
    read_tail,
    start_of,
)
from engines.attempt_files import AttemptFolder
from engines.output_order import ORDERED, RECORD_BYTES, OrderRecord
from engines.protocol import LogChunk, Stream
from jobs_app.models import Attempt, Job
from tests.service_lab import UNTIL_LET_GO, Lab

OUT, ERR = ORDERED


def raw(out: bytes, err: bytes, *sizes: tuple[int, int], over: bool = True) -> RawPart:
    chunks = [LogChunk(data, 0, len(data), len(data), eof=over) for data in (out, err)]
    records = [OrderRecord(1000 * n, at) for n, at in enumerate(sizes, 1)]
    return RawPart(chunks, records, has_more_records=False)


def merged(out: bytes, err: bytes, *sizes: tuple[int, int], over: bool = True) -> LogPart:
    return merge_streams(raw(out, err, *sizes, over=over), Position(0, (0, 0)), rank=0, streams=ORDERED)


def words(part: LogPart) -> list[str]:
    return [line.data.decode() for line in part.lines]


def test_lines_stand_in_the_order_in_which_their_ends_were_received() -> None:
    part = merged(b"a\nb\nc\n", b"x\ny\n", (0, 0), (2, 0), (2, 2), (4, 2), (4, 4))
    assert words(part) == ["a", "x", "b", "y", "c"]
    assert [line.at_ms for line in part.lines] == [1000, 2000, 3000, 4000, 5000]
    assert part.is_complete
    assert part.is_ordered


def test_a_line_in_two_halves_is_one_line() -> None:
    part = merged(b"begin end\n", b"between\n", (0, 0), (6, 0), (6, 8))
    assert words(part) == ["between", "begin end"]


def test_without_records_standard_output_comes_first_and_it_is_said() -> None:
    part = merged(b"a\n", b"x\n")
    assert words(part) == ["a", "x"]
    assert not part.is_ordered


def test_an_unfinished_line_is_read_again() -> None:
    part = merged(b"a\nhalf", b"", (0, 0), over=False)
    assert (words(part), [line.data for line in part.unfinished]) == (["a"], [b"half"])
    assert part.positions == {0: Position(0, (2, 0))}
    assert not part.is_complete


def test_what_was_not_read_yet_waits_for_the_next_part() -> None:
    """The records say more than the bytes that were read: of a log that is long, or comes from another machine."""
    first = raw(b"a\n", b"x\n", (0, 0), (2, 0), (2, 2), (4, 2), over=False)
    part = merge_streams(first, Position(0, (0, 0)), rank=0, streams=ORDERED)
    assert words(part) == ["a", "x"]
    assert part.positions == {0: Position(2 * RECORD_BYTES, (2, 2))}
    chunks = [LogChunk(b"b\n", 2, 4, 4, eof=True), LogChunk(b"y\n", 2, 4, 4, eof=True)]
    rest = replace(first, chunks=chunks, records=first.records[2:])
    assert words(merge_streams(rest, part.positions[0], rank=0, streams=ORDERED)) == ["b", "y"]


# -- real jobs ---------------------------------------------------------------------------------------------------

BOTH = "for n in 1 2 3; do echo out $n; sleep 0.05; echo err $n >&2; sleep 0.05; done"


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    lab.node("n1", gpus=2)
    return lab


def attempt_of(job: Job) -> Attempt:
    return job.attempts.get()


def all_of(attempt: Attempt, *streams: Stream) -> LogPart:
    return read_merged(attempt, start_of([0], streams or ORDERED), streams=streams or ORDERED)


def _with_unfinished(part: LogPart) -> LogPart | None:
    return part if part.lines and part.unfinished else None


@pytest.fixture
def both(cluster: Lab) -> Attempt:
    """It wrote to both streams in turn."""
    return attempt_of(cluster.until_state(cluster.submit(BOTH), Job.State.SUCCEEDED))


def test_both_streams_of_a_job_are_merged(both: Attempt) -> None:
    part = all_of(both)
    assert words(part) == ["out 1", "err 1", "out 2", "err 2", "out 3", "err 3"]
    assert [line.stream for line in part.lines] == [OUT, ERR] * 3
    times = [line.at_ms for line in part.lines]
    assert times == sorted(times)
    assert both.started_at.timestamp() * 1000 - 1000 <= times[0] <= both.ended_at.timestamp() * 1000 + 1000


def test_one_stream_alone(both: Attempt) -> None:
    assert words(all_of(both, ERR)) == ["err 1", "err 2", "err 3"]


@pytest.mark.parametrize(
    ("limit", "expected"), [(12, ["out 3", "err 3"]), (17, ["out 3", "err 3"]), (1000, 3 * ["out", "err"])]
)
def test_the_tail_has_whole_lines(both: Attempt, limit: int, expected: list[str]) -> None:
    found = words(read_tail(both, [0], streams=ORDERED, limit=limit))
    assert len(found) == len(expected)
    assert all(line.startswith(word) for line, word in zip(found, expected, strict=True))


def test_the_tail_of_one_long_stream(cluster: Lab) -> None:
    attempt = attempt_of(cluster.until_state(cluster.submit("seq 1 20000"), Job.State.SUCCEEDED))
    found = words(read_tail(attempt, [0], streams=ORDERED, limit=30))
    assert found == ["19996", "19997", "19998", "19999", "20000"]


def test_a_log_is_read_in_parts_to_its_end(cluster: Lab) -> None:
    attempt = attempt_of(cluster.until_state(cluster.submit("seq 1 100000; echo bad >&2"), Job.State.SUCCEEDED))
    part, found = all_of(attempt), []
    while not part.is_complete:
        found += words(part)
        part = read_merged(attempt, part.positions, streams=ORDERED)
    assert [*found, *words(part)] == [*map(str, range(1, 100_001)), "bad"]


def test_a_running_job_is_followed_from_where_one_was(cluster: Lab) -> None:
    job = cluster.submit(f"echo one; printf half; {UNTIL_LET_GO}; echo ' whole'")
    cluster.until_state(job, Job.State.RUNNING)
    first = cluster.until(lambda: _with_unfinished(all_of(attempt_of(job))))
    assert (words(first), [line.data for line in first.unfinished]) == (["one"], [b"half"])
    cluster.let_go(job)
    cluster.until_state(job, Job.State.SUCCEEDED)
    assert words(read_merged(attempt_of(job), first.positions, streams=ORDERED)) == ["half whole"]


def test_an_attempt_from_before_the_records_were_kept(both: Attempt) -> None:
    folder: AttemptFolder = engine_named("local")._root.attempt(both.pk)  # type: ignore[attr-defined]
    folder.log(Stream.ORDER, 0).unlink()
    part = all_of(both)
    assert words(part) == ["out 1", "out 2", "out 3", "err 1", "err 2", "err 3"]
    assert not part.is_ordered
    assert words(read_tail(both, [0], streams=ORDERED, limit=1000)) == words(part)


def test_a_long_line_is_cut_into_several_and_nothing_is_lost() -> None:
    line = b"x" * (2 * LONGEST_LINE_BYTES + 1)
    ended, begun = merged(line + b"\n\n", b""), merged(line, b"", over=False)
    assert [len(one.data) for one in ended.lines] == [LONGEST_LINE_BYTES, LONGEST_LINE_BYTES, 1, 0]
    assert [len(one.data) for one in (*begun.lines, *begun.unfinished)] == [LONGEST_LINE_BYTES, LONGEST_LINE_BYTES, 1]
    assert begun.positions[0].streams == (2 * LONGEST_LINE_BYTES, 0)
