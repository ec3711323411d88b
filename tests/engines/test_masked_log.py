"""Logs of a rank: secrets masked however the output is split, and limits and order records on a full disk."""

import errno
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.masked_log import LOST, CappedLog, MaskedLog
from engines.output_order import ORDERED, OutputOrder, parse_order, sizes_of
from engines.protocol import Stream
from tests.hypothesis_examples import examples

OUT, ERR = ORDERED


class Written(CappedLog):
    """What a log passes on."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def close(self) -> None:
        pass


def masked(texts: Sequence[str], *writes: bytes) -> bytes:
    written = Written()
    log = MaskedLog(written, texts)
    for data in writes:
        log.write(data)
    log.close()
    return written.data


def model(texts: Sequence[str], data: bytes) -> bytes:
    """Every byte of every occurrence is hidden; occurrences that overlap are one."""
    spans = sorted(
        (found.start(), found.start() + len(text))
        for text in {text.encode() for text in texts}
        for found in re.finditer(b"(?=" + re.escape(text) + b")", data)
    )
    shown, at = b"", 0
    for begin, end in spans:
        if begin >= at or not at:
            shown += data[at:begin] + b"***"
        at = max(at, end)
    return shown + data[at:]


def test_of_two_secrets_that_begin_alike_the_longer_is_masked_whole() -> None:
    texts = ["hunter2secret", "hunter2secretLONGER"]
    assert masked(texts, b"token=hunter2secret", b"LONGER\n") == b"token=***\n"
    assert masked(texts, b"token=hunter2secret", b"LONG\n") == b"token=***LONG\n"
    assert masked(texts, b"token=hunter2secret") == b"token=***"


@given(
    texts=st.lists(st.text("ab", min_size=2, max_size=6), min_size=1, max_size=4),
    writes=st.lists(st.text("abc\n", max_size=12).map(str.encode), max_size=8),
)
@examples(500)
def test_secrets_are_masked_however_the_output_is_split(texts: list[str], writes: list[bytes]) -> None:
    assert masked(texts, *writes) == model(texts, b"".join(writes))


def test_a_run_of_a_secret_is_not_held_back_for_ever() -> None:
    written = Written()
    log = MaskedLog(written, ["aaaaaaaa"])
    for _ in range(100):
        log.write(b"a" * 1000)
    assert len(log._held) < 8
    assert written.data == b"***"


# -- a full disk -------------------------------------------------------------------------------------------------


class Disk:
    """Files of which the disk takes so many bytes more; None: all."""

    def __init__(self) -> None:
        self.free: int | None = None
        self._write = os.write

    def write(self, file: int, data: bytes) -> int:
        if self.free is None:
            return self._write(file, data)
        if not self.free:
            raise OSError(errno.ENOSPC, "full")
        written = self._write(file, data[: self.free])
        self.free -= written
        return written


class Rank:
    """The logs of a rank, as its supervisor writes them."""

    def __init__(self, folder: Path, *, limit_bytes: int = 1000) -> None:
        self.paths = [folder / stream for stream in ORDERED]
        self.order_path = folder / "order"
        self.order = OutputOrder(self.order_path, lambda: sizes_of(self.paths), limit_bytes=100_000)
        self.logs = {
            stream: CappedLog(path, limit_bytes=limit_bytes, grows=self._grows(stream))
            for stream, path in zip(ORDERED, self.paths, strict=True)
        }

    def _grows(self, stream: Stream) -> Callable[[], None]:
        return lambda: self.order.note(stream)

    def read(self) -> tuple[bytes, bytes]:
        out, err = (path.read_bytes() for path in self.paths)
        return out, err

    def sizes(self) -> list[tuple[int, ...]]:
        return [record.sizes for record in parse_order(self.order_path.read_bytes())]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "write", disk.write)
    return disk


def test_records_have_the_sizes_that_a_full_disk_left(tmp_path: Path, disk: Disk) -> None:
    rank = Rank(tmp_path)
    rank.logs[OUT].write(b"before\n")
    disk.free = 40 + 3  # the record, and a part of the output
    rank.logs[ERR].write(b"cut off\n")
    disk.free = None
    rank.logs[OUT].write(b"after\n")
    rank.logs[ERR].write(b"the cause\n")
    assert rank.read() == (b"before\nafter\n", b"cut" + LOST + b"the cause\n")
    assert rank.sizes() == [(0, 0), (7, 0), (7, 3), (13, 3)]


def test_after_a_full_disk_the_limit_holds_and_is_said(tmp_path: Path, disk: Disk) -> None:
    rank = Rank(tmp_path, limit_bytes=10)
    disk.free = 40
    rank.logs[OUT].write(b"x" * 100)
    disk.free = None
    rank.logs[OUT].write(b"y" * 200)
    rank.logs[OUT].write(b"z" * 200)
    assert rank.read()[0] == LOST + b"\n... truncated by Motley at 10 bytes\n"


@given(
    writes=st.lists(
        st.tuples(st.sampled_from(ORDERED), st.integers(0, 60), st.none() | st.integers(0, 150)), max_size=12
    )
)
@examples(200)
def test_whatever_the_disk_takes_records_are_true_and_logs_are_limited(
    writes: list[tuple[Stream, int, int | None]],
) -> None:
    disk = Disk()
    with TemporaryDirectory() as folder, mock.patch("os.write", disk.write):
        rank, seen = Rank(Path(folder), limit_bytes=100), {(0, 0)}
        for stream, size, disk.free in writes:
            rank.logs[stream].write(b"x" * size)
            out, err = rank.read()
            seen.add((len(out), len(err)))
        assert set(rank.sizes()) <= seen
        assert rank.sizes() == sorted(rank.sizes())
        assert all(data.count(b"x") <= 100 for data in rank.read())
