"""Merged log: both streams of real jobs in the order in which they were written, its tail, and following it."""

import pytest

from connections_app.engine_registry import engine_named
from connections_app.logs.line_buffer import LONGEST_LINE_BYTES
from connections_app.logs.lines import shown
from connections_app.logs.merged import LogPart, Position, read_merged, start_of
from connections_app.logs.reading import AttemptLog
from connections_app.logs.tail import read_tail
from engines.attempt_files import AttemptFolder
from engines.output_order import ORDERED, RECORD_BYTES
from engines.protocol import Stream
from jobs_app.models import Attempt, Job
from tests.connections.written_log import WrittenLog
from tests.service_lab import UNTIL_LET_GO, Lab

OUT, ERR = ORDERED


def merged(out: bytes, err: bytes, *sizes: tuple[int, int], over: bool = True) -> LogPart:
    """The log in one part, from records at 1, 2, … seconds."""
    order = "".join(f"{1000 * n:013d} {a:012d} {b:012d}\n" for n, (a, b) in enumerate(sizes, 1)).encode()
    log = WrittenLog({(0, OUT): out, (0, ERR): err, (0, Stream.ORDER): order}, over=over)
    return read_merged(log.reader(), start_of([0], ORDERED), streams=ORDERED)


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
    """The records say more than the bytes that are there: of a log that comes from another machine."""
    log = WrittenLog({(0, OUT): b"a\n", (0, ERR): b"x\n"})
    sizes = ((0, 0), (2, 0), (2, 2), (4, 2))
    log.files[0, Stream.ORDER] = "".join(f"{1:013d} {a:012d} {b:012d}\n" for a, b in sizes).encode()
    part = read_merged(log.reader(), start_of([0], ORDERED), streams=ORDERED)
    assert (words(part), part.has_more) == (["a", "x"], False)
    assert part.positions == {0: Position(2 * RECORD_BYTES, (2, 2))}
    log.files |= {(0, OUT): b"a\nb\n", (0, ERR): b"x\ny\n"}
    assert words(read_merged(log.reader(), part.positions, streams=ORDERED)) == ["b", "y"]


# -- real jobs ---------------------------------------------------------------------------------------------------

BOTH = "for n in 1 2 3; do echo out $n; sleep 0.05; echo err $n >&2; sleep 0.05; done"


@pytest.fixture
def cluster(lab: Lab) -> Lab:
    lab.node("n1", gpus=2)
    return lab


def attempt_of(job: Job) -> Attempt:
    return job.attempts.get()


def all_of(attempt: Attempt, *streams: Stream) -> LogPart:
    return read_merged(AttemptLog(attempt), start_of([0], streams or ORDERED), streams=streams or ORDERED)


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
    found = words(read_tail(AttemptLog(both), [0], streams=ORDERED, limit=limit))
    assert len(found) == len(expected)
    assert all(line.startswith(word) for line, word in zip(found, expected, strict=True))


def test_the_tail_of_one_long_stream(cluster: Lab) -> None:
    attempt = attempt_of(cluster.until_state(cluster.submit("seq 1 20000"), Job.State.SUCCEEDED))
    found = words(read_tail(AttemptLog(attempt), [0], streams=ORDERED, limit=30))
    assert found == ["19996", "19997", "19998", "19999", "20000"]


def test_a_log_is_read_in_parts_to_its_end(cluster: Lab) -> None:
    attempt = attempt_of(cluster.until_state(cluster.submit("seq 1 100000; echo bad >&2"), Job.State.SUCCEEDED))
    part, found = all_of(attempt), []
    while not part.is_complete:
        found += words(part)
        part = read_merged(AttemptLog(attempt), part.positions, streams=ORDERED)
    assert [*found, *words(part)] == [*map(str, range(1, 100_001)), "bad"]


def test_a_running_job_is_followed_from_where_one_was(cluster: Lab) -> None:
    job = cluster.submit(f"echo one; printf half; {UNTIL_LET_GO}; echo ' whole'")
    cluster.until_state(job, Job.State.RUNNING)
    first = cluster.until(lambda: _with_unfinished(all_of(attempt_of(job))))
    assert (words(first), [line.data for line in first.unfinished]) == (["one"], [b"half"])
    cluster.let_go(job)
    cluster.until_state(job, Job.State.SUCCEEDED)
    assert words(read_merged(AttemptLog(attempt_of(job)), first.positions, streams=ORDERED)) == ["half whole"]


def test_an_attempt_from_before_the_records_were_kept(both: Attempt) -> None:
    folder: AttemptFolder = engine_named("local")._root.attempt(both.pk)  # type: ignore[attr-defined]
    folder.log(Stream.ORDER, 0).unlink()
    part = all_of(both)
    assert words(part) == ["out 1", "out 2", "out 3", "err 1", "err 2", "err 3"]
    assert not part.is_ordered
    assert words(read_tail(AttemptLog(both), [0], streams=ORDERED, limit=1000)) == words(part)


def test_a_long_line_is_cut_and_its_length_is_known() -> None:
    line = b"x" * (10 * LONGEST_LINE_BYTES + 1)
    log = WrittenLog({(0, OUT): line + b"\nend\n"}, over=True).reader()
    assert words(read_tail(log, [0], streams=ORDERED, lines=1)) == ["end"]
    last = read_tail(log, [0], streams=ORDERED, lines=2).lines
    assert [(len(one.data), one.length) for one in last] == [(LONGEST_LINE_BYTES, len(line)), (3, 3)]
    (shown_line, _) = shown(last)
    assert [piece.text for piece in shown_line.pieces][1:] == [f" … {len(line):,} bytes"]


def test_a_progress_bar_of_an_hour_shows_its_last_state() -> None:
    log = WrittenLog({(0, OUT): b"".join(b"\r%d %%" % n for n in range(200_000))})
    part = read_tail(log.reader(), [0], streams=ORDERED, limit=1000)
    assert [line.text for line in shown(part.unfinished)] == ["199999 %"]
