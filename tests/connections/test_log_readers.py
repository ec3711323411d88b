"""Readers of logs against a plain model: mixtures of sizes, rates, streams, ranks and bytes, in parts and tails."""

import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from connections_app.logs import line_buffer, merged, reading, stream, tail
from connections_app.logs.download import merged_blocks
from connections_app.logs.line_buffer import LineBuffer
from connections_app.logs.lines import search
from connections_app.logs.merged import Line, LogPart, ends_of, read_all, read_merged, start_of
from connections_app.logs.reading import LATE, AttemptLog, start_of_last_lines
from connections_app.logs.tail import last_parts, read_tail
from engines.output_order import ORDERED, RECORD_BYTES
from engines.protocol import Stream
from jobs_app.models import Attempt
from tests.connections.written_log import ERR, OUT, ModelLine, Write, WrittenLog, model_lines
from tests.hypothesis_examples import examples

SIZES = [
    (module, name, getattr(module, name))
    for module, names in {
        line_buffer: ["LONGEST_LINE_BYTES"],
        merged: ["LONGEST_LINE_BYTES", "PART_BYTES", "PART_RECORDS", "PART_LINES"],
        tail: ["RECORDS", "BLOCK_BYTES"],
        reading: ["BLOCK_BYTES"],
    }.items()
    for name in names
]
"""As they are."""
RANKS = 3
Told = tuple[int, int, Stream, bytes]


@pytest.fixture(autouse=True)
def _small_parts() -> Iterator[None]:
    """Parts, blocks and lines of a few bytes, so that a short log has many of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_buffer, "LONGEST_LINE_BYTES", 6)
        patch.setattr(merged, "LONGEST_LINE_BYTES", 6)
        patch.setattr(merged, "PART_BYTES", 9)
        patch.setattr(merged, "PART_RECORDS", 3)
        patch.setattr(merged, "PART_LINES", 4)
        patch.setattr(tail, "RECORDS", 2)
        patch.setattr(tail, "BLOCK_BYTES", 5)
        patch.setattr(reading, "BLOCK_BYTES", 5)
        yield


@st.composite
def writes(draw: Any, *, most: int = 25) -> list[Write]:
    """What ranks wrote, by time; every write has its own time, so that the order of lines is known."""
    found, at_ms = [], 1_800_000_000_000
    for _ in range(draw(st.integers(0, most))):
        at_ms += draw(st.sampled_from([1, 300, 1500]))
        data = draw(st.text("ab\n\n\r", max_size=12)).encode()
        if data:
            found.append(Write(at_ms, draw(st.integers(0, RANKS - 1)), draw(st.sampled_from(ORDERED)), data))
    return found


def written(all_writes: Sequence[Write], *, over: bool = True) -> WrittenLog:
    log = WrittenLog(over=over)
    for one in all_writes:
        log.write(one)
    return log


def visible(data: bytes) -> bytes:
    """What a terminal shows of a line in the end."""
    return data.rstrip(b"\r").rpartition(b"\r")[2]


def told(lines: Sequence[Line]) -> list[Told]:
    return [(line.at_ms, line.rank, line.stream, visible(line.data)) for line in lines]


def expected(lines: Sequence[ModelLine]) -> list[Told]:
    return [(line.at_ms, line.rank, line.stream, visible(line.data)[:6]) for line in lines]


def without_time(lines: Sequence[Told]) -> list[tuple[Any, ...]]:
    return sorted(line[1:] for line in lines)


def collected(parts: Iterator[LogPart]) -> list[Line]:
    """All lines, those without an end last."""
    found: list[Line] = []
    for part in parts:
        found += part.lines
        assert part.has_more or part.is_complete or part.unfinished is not None
    return [*found, *part.unfinished]


def check(lines: Sequence[Line], all_writes: Sequence[Write], streams: Sequence[Stream]) -> None:
    """They are all of the log. A line without an end comes at the end of its stream, whenever that is."""
    ended, begun = model_lines(all_writes, streams)
    ends = {(line.rank, line.stream): line for line in lines}
    unfinished = [ends[one.rank, one.stream] for one in begun]
    assert told([line for line in lines if line not in unfinished]) == expected(ended)
    assert sorted(line[1:] for line in told(unfinished)) == sorted(line[1:] for line in expected(begun))


def places(lines: Sequence[Line]) -> list[tuple[int, Stream, int]]:
    return [(line.rank, line.stream, line.end) for line in lines]


ALL = range(RANKS)


@given(data=st.lists(st.text("ab\n\r", max_size=15).map(str.encode), max_size=8))
@examples(500)
def test_a_line_is_what_a_terminal_shows_of_it_however_it_is_received(data: list[bytes]) -> None:
    buffer = LineBuffer(0, 0)
    lines = [line for piece in data for line in buffer.take(piece)]
    *ended, rest = b"".join(data).split(b"\n")
    assert [visible(line.data)[:6] for line in lines] == [visible(line)[:6] for line in ended]
    assert visible(buffer.head)[:6] == visible(rest)[:6]
    for line, whole in zip(lines, ended, strict=True):
        returns = len(whole) - len(whole.rstrip(b"\r"))
        assert (len(line.data) < line.length) == (len(visible(whole)) + returns > 6)


STREAMS = st.sampled_from([ORDERED, (OUT,), (ERR,)])


@given(writes(), STREAMS)
@examples(500)
def test_parts_have_all_lines_in_their_order(all_writes: list[Write], streams: tuple[Stream, ...]) -> None:
    log = written(all_writes).reader()
    parts = read_all(log, start_of(ALL, streams), streams=streams, until=ends_of(log, ALL, streams))
    check(collected(parts), all_writes, streams)


@given(writes(most=15), STREAMS, st.data())
@examples(300)
def test_a_log_that_is_followed_gives_each_line_once(
    all_writes: list[Write], streams: tuple[Stream, ...], data: st.DataObject
) -> None:
    """Whatever of it is there at each look, as of a machine that sends its logs stream by stream."""
    whole, there = written(all_writes), WrittenLog()
    reader, positions, found = there.reader(), start_of(ALL, streams), dict[tuple[int, Stream], list[Line]]()
    for look in range(200):
        for key, content in whole.files.items():
            size = len(there.files.get(key, b""))
            more = data.draw(st.integers(size, len(content))) if look < 5 else len(content)
            there.files[key] = content[: more - more % RECORD_BYTES if key[1] is Stream.ORDER else more]
        there.over = look >= 5
        part = read_merged(reader, positions, streams=streams)
        for line in part.lines:
            found.setdefault((line.rank, line.stream), []).append(line)
        if part.is_complete:
            break
        positions = dict(part.positions)
    assert part.is_complete
    ended, begun = model_lines(all_writes, streams)
    for rank in ALL:
        for of in streams:
            own = [line[3] for line in (*expected(ended), *expected(begun)) if line[1:3] == (rank, of)]
            assert [line[3] for line in told(found.get((rank, of), []))] == own


CHOICES = st.sampled_from([(ALL, ORDERED), ([0], ORDERED), ([0], (OUT,)), ([1], (ERR,))])


@given(writes(), CHOICES, st.integers(1, 12), st.booleans())
@examples(500)
def test_the_last_lines_are_exactly_so_many(
    all_writes: list[Write], choice: tuple[Sequence[int], tuple[Stream, ...]], lines: int, over: bool
) -> None:
    log, (ranks, streams) = written(all_writes, over=over).reader(), choice
    ends = ends_of(log, ranks, streams)
    whole = collected(read_all(log, start_of(ranks, streams), streams=streams, until=ends))
    found = collected(last_parts(log, ranks, streams=streams, lines=lines))
    assert places(found) == places(whole)[-lines:]


@given(writes(), st.data(), st.integers(1, 12), st.booleans())
@examples(300)
def test_a_log_that_was_cut_anywhere_is_read_to_its_end(
    all_writes: list[Write], data: st.DataObject, lines: int, over: bool
) -> None:
    """As of a machine that was lost, or a disk that was full: each file ends somewhere, the records too."""
    log = written(all_writes, over=over)
    for key, content in log.files.items():
        log.files[key] = content[: data.draw(st.integers(0, len(content)))]
    ends = ends_of(log.reader(), ALL, ORDERED)
    whole = collected(read_all(log.reader(), start_of(ALL, ORDERED), streams=ORDERED, until=ends))
    for rank in ALL:
        for of in ORDERED:
            content = log.files.get((rank, of), b"")
            found = [line for line in whole if (line.rank, line.stream) == (rank, of)]
            pieces = content.split(b"\n")
            assert [visible(line.data) for line in found] == [
                visible(piece)[:6] for piece in (pieces if pieces[-1] else pieces[:-1])
            ]
    found = collected(last_parts(log.reader(), ALL, streams=ORDERED, lines=lines))
    assert len(found) == min(lines, len(whole))
    downloaded = b"".join(merged_blocks(log.reader(), ORDERED, ends))
    assert sorted(downloaded) == sorted(b"".join(log.files.get((rank, of), b"") for rank in ALL for of in ORDERED))


@given(writes(), CHOICES, st.integers(1, 40))
@examples(300)
def test_the_last_bytes_are_whole_lines_and_one_at_least(
    all_writes: list[Write], choice: tuple[Sequence[int], tuple[Stream, ...]], limit: int
) -> None:
    log, (ranks, streams) = written(all_writes, over=False).reader(), choice
    ends = ends_of(log, ranks, streams)
    whole = collected(read_all(log, start_of(ranks, streams), streams=streams, until=ends))
    part = read_tail(log, ranks, streams=streams, limit=limit)
    found = [*part.lines, *part.unfinished]
    assert bool(found) == bool(whole)
    assert set(places(found)) <= set(places(whole))
    if len(ranks) == 1:
        assert places(found) == places(whole)[len(whole) - len(found) :]
        ended = [one for one in all_writes if one.rank == ranks[0] and one.stream in streams]
        sizes = [len(line.data) + 1 for line in model_lines(ended, streams)[0]]
        assert sum(sizes[len(sizes) - len(part.lines) :][1:]) <= limit


@given(st.text("ab\n\r", max_size=40).map(str.encode), st.integers(1, 8))
@examples(300)
def test_the_last_lines_of_one_stream_begin_where_they_do(content: bytes, lines: int) -> None:
    log = WrittenLog({(0, OUT): content}).reader()
    start = start_of_last_lines(log, OUT, rank=0, lines=lines)
    whole = [line + b"\n" for line in content.split(b"\n")]
    last = [line for line in (*whole[:-1], whole[-1][:-1]) if line]
    assert content[start:] == b"".join(last[-lines:])


# -- what could not be read before -------------------------------------------------------------------------------


def test_a_record_of_a_size_that_the_log_never_reached_hides_nothing() -> None:
    """As after a full disk: an order record says more bytes than there are."""
    log = WrittenLog(over=True)
    log.files = {(0, OUT): b"before\n", (0, ERR): b"the cause\n"}
    sizes = [(0, 0), (5071, 0), (7, 0)]
    records = [f"{1_800_000_000_000 + n:013d} {out:012d} {err:012d}\n" for n, (out, err) in enumerate(sizes)]
    for last in (2, 3):
        log.files[0, Stream.ORDER] = "".join(records[:last]).encode()
        part = read_merged(log.reader(), start_of([0], ORDERED), streams=ORDERED)
        assert [(line.data, line.length) for line in part.lines] == [(b"before", 6), (b"the ca", 9)]
        assert part.is_complete


def test_the_end_of_a_lost_machine_s_log_is_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its engine never says that the log is complete."""
    log = WrittenLog({(0, OUT): b"a\n"})
    reader = log.reader()
    assert not reader.read(OUT, 0, 0, 10).eof
    attempt = Attempt(pk=1, state=Attempt.State.ENDED, ended_at=timezone.now())
    engine: Any = log
    assert not AttemptLog(attempt, engine).read(OUT, 0, 0, 10).eof
    attempt.ended_at = timezone.now() - 2 * LATE
    assert AttemptLog(attempt, engine).read(OUT, 0, 0, 10).eof
    assert not AttemptLog(attempt, engine).read(OUT, 0, 0, 1).eof


@given(writes(), st.booleans())
@examples(300)
def test_a_download_has_the_bytes_that_were_written(all_writes: list[Write], over: bool) -> None:
    log = written(all_writes, over=over).reader()
    found = b"".join(merged_blocks(log, ORDERED, ends_of(log, ALL, ORDERED)))
    ended, begun = model_lines(all_writes)
    if not over:
        assert found == b"".join([*(line.data + b"\n" for line in ended), *(line.data for line in begun)])
    of_one = [one for one in all_writes if one.rank == 0]
    log = written(of_one, over=over).reader()
    found = b"".join(merged_blocks(log, ORDERED, ends_of(log, [0], ORDERED)))
    ended, begun = model_lines(of_one)
    assert found == b"".join([*(line.data + b"\n" for line in ended), *(line.data for line in begun)])


@given(st.lists(st.sampled_from(["a", "ß", "日", "🙂", "\n", "\r\n"]), max_size=60), st.integers(4, 9))
@examples(300)
def test_events_cut_no_line_that_fits_a_block_and_no_character(characters: list[str], block: int) -> None:
    data, held, events = "".join(characters).encode(), b"", list[bytes]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "BLOCK_BYTES", block)
        for at in range(0, len(data) + 1, block):
            whole, held = stream.whole_lines(held + data[at : at + block], last=at + block > len(data))
            events += [whole] if whole else []
    assert b"".join(events) == data
    for event in events:
        event.decode()
        assert event.endswith(b"\n") or event == events[-1] or b"\n" not in event


# -- 64 MiB ------------------------------------------------------------------------------------------------------

MIB = 1 << 20


@pytest.fixture
def _usual_parts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in SIZES:
            patch.setattr(module, name, value)
        yield


@pytest.mark.usefixtures("_usual_parts")
@pytest.mark.parametrize(
    "line", [b"x" * 8191 + b"\n", b"x" * (64 * MIB), b"y" * 9 + b"\r"], ids=["lines", "one line", "a progress bar"]
)
def test_a_log_of_64_mib_takes_a_few_mib_of_memory(line: bytes) -> None:
    content = line * (64 * MIB // len(line)) + b"\nend\n"
    log = WrittenLog({(0, OUT): content}, over=True, most=MIB).reader()
    ends = ends_of(log, [0], ORDERED)
    tracemalloc.start()
    try:
        assert sum(map(len, merged_blocks(log, ORDERED, ends))) == len(content)
        assert [one.data for one in read_tail(log, [0], streams=ORDERED, lines=1).lines] == [b"end"]
        assert len(read_tail(log, [0], streams=ORDERED, lines=2).lines) == 2
        hits = search(log, "END", start_of([0], ORDERED), streams=ORDERED, within_s=600)
        assert ([one.text for one in hits.lines], hits.is_whole) == (["end"], True)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()
