"""In which order a rank's streams were received: the records that are kept beside its logs."""

import os
from pathlib import Path

import pytest

from engines.output_order import ORDERED, RECORD_BYTES, OutputOrder, parse_order
from engines.protocol import Stream


class Clock:
    at_s = 1_800_000_000.0

    def __call__(self) -> float:
        return self.at_s


def records(path: Path, *grown: tuple[Stream, int, int], limit_bytes: int = 10_000, pause_s: float = 0.125) -> list:
    clock, sizes = Clock(), dict.fromkeys(ORDERED, 0)
    order = OutputOrder(path, lambda: list(sizes.values()), limit_bytes=limit_bytes, clock=clock)
    for stream, before, after in grown:
        sizes[stream] = before
        order.note(stream)
        sizes[stream] = after
        clock.at_s += pause_s
    order.close()
    return parse_order(path.read_bytes())


def test_a_switch_between_streams_is_recorded_and_more_of_the_same_is_not(tmp_path: Path) -> None:
    out, err = Stream.STDOUT, Stream.STDERR
    found = records(tmp_path / "order", (out, 0, 5), (out, 5, 9), (err, 0, 3), (out, 9, 10))
    assert [record.sizes for record in found] == [(0, 0), (9, 0), (9, 3)]
    assert [record.at_ms - 1_800_000_000_000 for record in found] == [0, 250, 375]


def test_a_stream_that_goes_on_is_recorded_each_second(tmp_path: Path) -> None:
    grown = [(Stream.STDOUT, n, n + 1) for n in range(5)]
    assert [r.sizes for r in records(tmp_path / "order", *grown, pause_s=0.5)] == [(0, 0), (2, 0), (4, 0)]


def test_records_end_at_their_limit(tmp_path: Path) -> None:
    grown = [(Stream.STDOUT, n, n + 1) for n in range(5)]
    found = records(tmp_path / "order", *grown, pause_s=2, limit_bytes=3 * RECORD_BYTES + 1)
    assert len(found) == 3


def test_what_is_no_record_is_left_out() -> None:
    good = b"1800000000000 000000000001 000000000002\n"
    assert [r.sizes for r in parse_order(good + b"x" * RECORD_BYTES + good + good[:7])] == [(1, 2), (1, 2)]


def test_a_record_with_a_time_that_is_no_date_is_left_out() -> None:
    """A machine that joined sends the records of what runs there."""
    late = b"%025d 000000 000000\n" % 10**17
    assert len(late) == RECORD_BYTES
    assert parse_order(late) == []


def test_times_do_not_go_back_with_the_clock(tmp_path: Path) -> None:
    grown = [(Stream.STDOUT, n, n + 1) for n in range(3)]
    at_ms = [record.at_ms for record in records(tmp_path / "order", *grown, pause_s=-5)]
    assert at_ms == [1_800_000_000_000] * 3


def test_a_record_that_the_disk_takes_in_part_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    parts = iter([40, 7, 40])
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[: next(parts)]))
    grown = [(Stream.STDOUT, n, n + 1) for n in range(3)]
    assert [record.sizes for record in records(tmp_path / "order", *grown, pause_s=2)] == [(0, 0), (2, 0)]
