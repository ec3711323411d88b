"""Files of a job on a server, read by the server's agent over a connection that it opens for each question.

The view waits at a socket, as the client's end of a session does (`connections_app.agents.sessions`): a line asks for
a folder or a file, a line answers, and the bytes of a file follow as they are asked for. What a machine has sent of a
job's checkpoints is here, as one archive, which stays when the machine has forgotten the job.
"""

import json
import os
import socket
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from threading import Lock
from time import monotonic
from typing import Any
from uuid import UUID

from connections_app.agents.sessions import new_socket
from connections_app.agents.uploads import checkpoints_of
from engines.agent.codec import BadMessage, decode
from engines.agent.files import Answer, Question
from engines.job_files import MOST_BYTES
from engines.protocol import EngineError, JobFile, NoSuchFile, OpenedFile
from engines.sessions.meeting import listened

WAIT_S = 12.0
"""For the agent and its answer: longer than the longest pause between two of its messages."""
SILENT_S = 20
"""Without a byte of a file for so long, the server is gone."""
ARCHIVE = "checkpoints.tar.gz"
LONGEST_LINE = 4 << 20
"""A list of the most names that a folder is read for, each of 255 bytes that are no letters: some 2 MB."""
IMPOSSIBLE = "The server {} told a size that no file has: look at its agent, or ask an administrator."
NOT_OPENED = "The server {} did not answer: its agent is busy, or of another release. Try again."
MOST_WAITING, MOST_FOR_A_SERVER = 4, 3
"""Each keeps a thread of this web process, until the answer is here. One person has two (`server_files`)."""
waiting: Counter[str] = Counter()
"""Questions that wait, by server."""
changing = Lock()


def list_at(server: str, attempt: int, job: str, path: str) -> list[JobFile]:
    """Content of a folder of the job on this server; raises `EngineError`."""
    with _asked(server, attempt, Question(job, path, is_folder=True)) as (connection, answer):
        connection.close()
        return list(answer.files)


def open_at(server: str, attempt: int, job: str, path: str) -> OpenedFile:
    """Open a file of the job on this server; its bytes come as they are read. Raises `EngineError`."""
    with _asked(server, attempt, Question(job, path, is_folder=False)) as (connection, answer):
        return OpenedFile(connection.detach(), answer.size, is_remote=True)


@contextmanager
def _asked(server: str, attempt: int, question: Question) -> Iterator[tuple[socket.socket, Answer]]:
    """The connection that the agent has opened, and its answer."""
    until_s = monotonic() + WAIT_S
    with ExitStack() as connected:
        with a_place_for(server):
            try:
                connection = listened(new_socket(attempt, 0, of_files=True), wait_s=WAIT_S)
            except OSError:
                raise EngineError(NOT_OPENED.format(server)) from None
            connected.enter_context(connection)
            answer = answer_to(connection, question, server, until_s)
        yield connection, answer


@contextmanager
def a_place_for(server: str) -> Iterator[None]:
    """One of the few places for questions, fewer for one server; raises `EngineError` where all are taken."""
    with changing:
        if waiting.total() >= MOST_WAITING or waiting[server] >= MOST_FOR_A_SERVER:
            raise EngineError("Files on servers are being read by several at once: try again in a few seconds.")
        waiting[server] += 1
    try:
        yield
    finally:
        with changing:
            waiting[server] -= 1
            if not waiting[server]:
                del waiting[server]


def answer_to(connection: socket.socket, question: Question, server: str, until_s: float) -> Answer:
    """The answer to the question; raises `EngineError` for one that says what is wrong, or does not come by then."""
    try:
        connection.sendall(question.line())
        answer = decode(Answer, _read_line(connection, until_s))
    except (OSError, ValueError, BadMessage):
        raise EngineError(NOT_OPENED.format(server)) from None
    connection.settimeout(None)  # its descriptor is read as it is
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", SILENT_S, 0))
    if answer.is_missing:
        raise NoSuchFile
    if answer.fault:
        raise EngineError(answer.fault)
    if not all(0 <= size <= MOST_BYTES for size in (answer.size, *(one.size for one in answer.files))):
        raise EngineError(IMPOSSIBLE.format(server))
    return answer


def _read_line(connection: socket.socket, until_s: float) -> Mapping[str, Any]:
    """The first line, byte by byte behind a look ahead: what follows it belongs to the file."""
    line = bytearray()
    while not line.endswith(b"\n"):
        connection.settimeout(max(until_s - monotonic(), 0.001))
        ahead = connection.recv(65536, socket.MSG_PEEK)
        if not ahead or len(line) > LONGEST_LINE:
            raise ValueError("no line")
        line += connection.recv(ahead.find(b"\n") + 1 or len(ahead))
    found: Mapping[str, Any] = json.loads(line)
    return found


def archive_of(job: UUID) -> JobFile | None:
    """The archive of the job's checkpoints that its machines have sent; None: there is none."""
    try:
        status = checkpoints_of(job).stat()
    except FileNotFoundError:
        return None
    return JobFile(ARCHIVE, False, True, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))


def open_archive(job: UUID) -> OpenedFile:
    """Open that archive; a later one that takes its place leaves this one as it is."""
    try:
        descriptor = os.open(checkpoints_of(job), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NoSuchFile from None
    return OpenedFile(descriptor, os.fstat(descriptor).st_size)
