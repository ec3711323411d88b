"""Files of jobs on this server, for the service: a line asks, a line answers, and the bytes of a file follow.

The service asks over a WebSocket that the agent opens. The bytes of a file are sent piece by piece, each once a line
says which: the agent answers pings between them. The service ends the connection, because it may not yet have read all.
"""

import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from engines.agent.codec import decode, encode
from engines.agent.websocket import WebSocket
from engines.local.engine import LocalEngine
from engines.protocol import EngineError, JobFile, NoSuchFile, OpenedFile

BLOCK_BYTES = 64 * 1024
LONGEST_LINE = 64 * 1024
LIST_WITHIN_S = 5.0
"""The service does not wait much longer."""
BUSY = "Another folder is being listed on this server: try again in a few seconds."
listing = threading.Lock()
"""One folder at a time: the agent has other work, too."""


@dataclass(frozen=True)
class Question:
    """For the content of a folder of a job, or for a file."""

    job: str
    path: str
    is_folder: bool

    def line(self) -> bytes:
        return json.dumps(encode(self)).encode() + b"\n"


@dataclass(frozen=True)
class Answer:
    """To a question: the content of the folder, or the size of the file."""

    files: Sequence[JobFile] = ()
    size: int = 0
    is_missing: bool = False
    """There is no such file or folder."""
    fault: str = ""
    """Why it cannot be read; empty: it can."""

    def line(self) -> bytes:
        return json.dumps(encode(self), ensure_ascii=False).encode(errors="replace") + b"\n"


def serve_files(engine: LocalEngine, websocket: WebSocket) -> None:
    """Answer the one question of this connection."""
    question = decode(Question, json.loads(_read_line(websocket)))
    try:
        if question.is_folder:
            _say(Answer(files=_listed(engine, question)), websocket)
            return
        opened = engine.open_file(question.job, question.path)
    except NoSuchFile:
        _say(Answer(is_missing=True), websocket)
        return
    except EngineError as error:
        _say(Answer(fault=str(error)), websocket)
        return
    try:
        _send_file(opened, websocket)
    finally:
        os.close(opened.descriptor)


def _listed(engine: LocalEngine, question: Question) -> list[JobFile]:
    if not listing.acquire(timeout=LIST_WITHIN_S):
        raise EngineError(BUSY)
    try:
        return engine.list_files(question.job, question.path)
    finally:
        listing.release()


def _say(answer: Answer, websocket: WebSocket) -> None:
    """Give the whole answer, and wait until the service has read it."""
    line = answer.line()
    for at in range(0, len(line), BLOCK_BYTES):
        websocket.send(line[at : at + BLOCK_BYTES])
    while websocket.receive() is not None:
        pass


def _send_file(opened: OpenedFile, websocket: WebSocket) -> None:
    """Send the size, and the pieces that are asked for then, until the service has all that it wants.

    Those of a file that has shrunk end early.
    """
    websocket.send(Answer(size=opened.size).line())
    while wanted := _read_line(websocket):
        at, end = map(int, wanted.split())
        while at < end:
            if not (data := os.pread(opened.descriptor, min(BLOCK_BYTES, end - at), at)):
                return
            websocket.send(data)
            at += len(data)


def _read_line(websocket: WebSocket) -> bytes:
    """One line, which may come in several messages; empty at the end."""
    line = b""
    while not line.endswith(b"\n"):
        data = websocket.receive()
        if data is None or len(line) > LONGEST_LINE:
            return b""
        line += data
    return line
