"""Folder of a job, as its team reads it: its content and its files, from the engine of the latest launched attempt."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.http import StreamingHttpResponse
from django.utils.http import content_disposition_header

from cluster_app.models import Engine
from connections_app.engine_registry import engine_named
from connections_app.long_requests import server_files
from engines.protocol import JobFile, NoSuchFile, OpenedFile
from jobs_app.models import Job
from web.rest.downloads import byte_range_of, is_range_request

BLOCK_BYTES = 256 * 1024
PIECE_BYTES = 1 << 20
"""Of a file on a server, what is on its way at once: the relay keeps it for a slow reader, and pings pass."""
AS_IT_IS = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
"""Headers that keep a browser from interpreting what a job wrote."""


def take_place(job: Job, reader: int) -> Callable[[], None]:
    """Count a person's request for files that a server has to answer; returns what gives the place back.

    Raises `TooManyLongRequests`. What the service reads itself takes none.
    """
    launched = job.attempts.exclude(launched_at=None).last()
    name = launched.engine if launched is not None else ""
    if not Engine.objects.filter(name=name, kind=Engine.Kind.SERVERS).exists():
        return lambda: None
    return server_files.take(reader)


@contextmanager
def a_place(job: Job, reader: int) -> Iterator[None]:
    """Such a place for a while."""
    give_back = take_place(job, reader)
    try:
        yield
    finally:
        give_back()


def open_for(job: Job, path: str, reader: int) -> tuple[OpenedFile, Callable[[], None]]:
    """A file of the job, and what is called when it is closed. Raises `EngineError` and `TooManyLongRequests`."""
    give_back = take_place(job, reader)
    try:
        return open_file(job, path), give_back
    except BaseException:
        give_back()
        raise


def list_folder(job: Job, path: str) -> list[JobFile]:
    """Content of a folder; empty for the empty path while the job has no folder. Raises `EngineError`."""
    launched = job.attempts.exclude(launched_at=None).last()
    try:
        if launched is None:
            raise NoSuchFile
        return engine_named(launched.engine).list_files(str(job.pk), path)
    except NoSuchFile:
        if path:
            raise
        return []


def open_file(job: Job, path: str) -> OpenedFile:
    """Open a file of the job; raises `EngineError`."""
    launched = job.attempts.exclude(launched_at=None).last()
    if launched is None:
        raise NoSuchFile
    return engine_named(launched.engine).open_file(str(job.pk), path)


class FileBlocks:
    """Bytes of a file, by default up to its size when it was opened, for it may grow meanwhile. The server closes it.

    A generator alone would not do: one that was never started does not run its `finally`.
    """

    def __init__(
        self,
        opened: OpenedFile,
        *,
        start: int = 0,
        end: int | None = None,
        when_closed: Callable[[], None] = lambda: None,
    ) -> None:
        self._opened, self._when_closed = opened, when_closed
        self._start, self._end = start, opened.size if end is None else end
        self._asked_to = start
        self._is_open = True

    def __iter__(self) -> Iterator[bytes]:
        at = self._start
        while at < self._end and (data := self._read(at)):
            at += len(data)
            yield data

    def _read(self, at: int) -> bytes:
        """Some of the bytes that begin there; of a file on a server they come one after the other, as asked for."""
        descriptor, size = self._opened.descriptor, min(BLOCK_BYTES, self._end - at)
        if not self._opened.is_remote:
            return os.pread(descriptor, size, at)
        if at == self._asked_to:
            self._asked_to = min(at + PIECE_BYTES, self._end)
            os.write(descriptor, f"{at} {self._asked_to}\n".encode())
        return os.read(descriptor, size)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self._opened.descriptor)
            self._when_closed()


def download(
    opened: OpenedFile, name: str, asked: str = "", *, when_closed: Callable[[], None]
) -> StreamingHttpResponse:
    """The file as an attachment, or the range of it that the header `Range` asks for; closes it where that fails."""
    try:
        part = byte_range_of(asked, opened.size) if is_range_request(asked) else None
        start, end = (part.start, part.end) if part else (0, opened.size)
        blocks = FileBlocks(opened, start=start, end=end, when_closed=when_closed)
        headers = AS_IT_IS | {
            "Content-Length": str(end - start),
            "Content-Disposition": content_disposition_header(as_attachment=True, filename=name.rstrip("\n")) or "",
        }
        headers |= {"Content-Range": part.content_range} if part else {}
        status = 206 if part else 200
        return StreamingHttpResponse(blocks, status=status, content_type="application/octet-stream", headers=headers)
    except BaseException:
        os.close(opened.descriptor)
        when_closed()
        raise
