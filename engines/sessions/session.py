"""Session in a rank, as the job's user: a command, with a terminal or with pipes, or connections to a port of the node.

Its standard input and output are frames. At the end of its input it ends what it has started.
"""

import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import IO, Any, NoReturn, TypedDict, cast

from engines.linux import die_with, die_with_parent, forbid_new_privileges, network_here
from engines.sessions.frames import BrokenFrame, Frames, Kind
from engines.supervision.processes import shell_code

READ_BYTES = 64 * 1024
NOT_FOUND = 127
CONNECT_WITHIN_S = 10.0
END_WITHIN_S = 1.0
POLL_MS = 500
MOST_CONNECTIONS = 256
"""Open at once in one session. Two commands that lead to each other open one after the other for ever."""
TOO_MANY = (
    f"{MOST_CONNECTIONS} connections to port {{0}} of the job's node are open, the most of one session: close some. If "
    "you opened few, another motley port listens there and leads back to this one"
)
LEADS_BACK = (
    "port {0} of the job's node is this command's own: it runs on that machine, and nothing of the job listens there. "
    "Name another port of this machine, or take a free one with :{0}"
)


class SessionPlan(TypedDict):
    """Environment, working folder and user of the job's processes on the node."""

    env: dict[str, str]
    workdir: str
    user: list[int] | None


class ClientGone(Exception):
    """The input of the session has ended."""


def serve(plan: SessionPlan) -> None:
    """Become the job's user, and serve the client's requests."""
    _become(plan["user"], plan["workdir"])
    frames = Frames(sys.stdin.buffer, sys.stdout.buffer)
    first = frames.receive()
    if first is None or first.kind is not Kind.REQUEST:
        return
    request: dict[str, Any] = json.loads(first.data)
    if request.get("port") is not None:
        Forwarding(frames, int(request["port"])).run()
    else:
        argv = request["argv"] or [_shell()]
        code = _run(frames, argv, plan["env"], request["terminal"])
        frames.send(Kind.EXIT, str(code).encode())


def _become(user: list[int] | None, workdir: str) -> None:
    if user is not None:
        uid, gid, *groups = user
        os.setgroups(groups)
        os.setgid(gid)
        os.setuid(uid)
    forbid_new_privileges()
    die_with_parent(signal.SIGKILL)  # after setuid, which clears it
    with suppress(OSError):
        os.chdir(workdir)


def _shell() -> str:
    return next(path for path in ("/bin/bash", "/bin/sh") if os.access(path, os.X_OK))


def _run(frames: Frames, argv: list[str], env: Mapping[str, str], terminal: Mapping[str, Any] | None) -> int:
    """Run a command and return its exit code."""
    try:
        if terminal is not None:
            return _run_with_terminal(frames, argv, {**env, "TERM": str(terminal["term"])}, terminal)
        return _run_with_pipes(frames, argv, env)
    except OSError as error:
        frames.send(Kind.ERROR, f"{argv[0]}: {error.strerror}\n".encode())
        return NOT_FOUND


# -- a command with a terminal -----------------------------------------------------------------------------------


def _run_with_terminal(frames: Frames, argv: list[str], env: Mapping[str, str], terminal: Mapping[str, Any]) -> int:
    child, master = pty.fork()
    if child == 0:
        _execute(argv, env)
    _resize(master, terminal)
    threading.Thread(target=_feed_terminal, args=(frames, master, child), daemon=True).start()
    with suppress(OSError):  # EIO: the last process has closed the terminal
        while data := _read_when_ready(master):
            frames.send(Kind.DATA, data)
    return shell_code(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _read_when_ready(master: int) -> bytes:
    while True:
        select.select([master], [], [])
        with suppress(BlockingIOError):  # it does not block, since it is written to without blocking
            return os.read(master, READ_BYTES)


def _execute(argv: list[str], env: Mapping[str, str]) -> NoReturn:
    try:
        die_with_parent(signal.SIGKILL)
        os.execvpe(argv[0], argv, dict(env))  # noqa: S606 - a list is executed as it is
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\r\n".encode())
    os._exit(NOT_FOUND)


def _feed_terminal(frames: Frames, master: int, child: int) -> None:
    try:
        with suppress(BrokenFrame, ClientGone):
            while (frame := frames.receive()) is not None:
                if frame.kind is Kind.RESIZE:
                    with suppress(ValueError, KeyError, TypeError, struct.error):  # what is no size changes nothing
                        _resize(master, json.loads(frame.data))
                elif frame.kind is Kind.DATA:
                    _write_while_connected(master, frame.data)
    finally:
        _end_group(child)


def _resize(master: int, size: Mapping[str, Any]) -> None:
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", int(size["rows"]), int(size["columns"]), 0, 0))


# -- a command with pipes ----------------------------------------------------------------------------------------


def _run_with_pipes(frames: Frames, argv: list[str], env: Mapping[str, str]) -> int:
    with subprocess.Popen(  # noqa: S603 - the user's own command, as the user's job would run it
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(env),
        start_new_session=True,
        preexec_fn=partial(die_with, os.getpid(), signal.SIGKILL),  # noqa: PLW1509 - there is one thread as yet
    ) as child:
        threading.Thread(target=_feed_pipe, args=(frames, child), daemon=True).start()
        pumps = [
            threading.Thread(target=_pump, args=(frames, kind, stream))
            for kind, stream in ((Kind.DATA, child.stdout), (Kind.ERROR, child.stderr))
        ]
        for pump in pumps:
            pump.start()
        for pump in pumps:
            pump.join()
        return shell_code(int(child.wait()))


def _pump(frames: Frames, kind: Kind, stream: IO[bytes]) -> None:
    while data := os.read(stream.fileno(), READ_BYTES):
        frames.send(kind, data)


def _feed_pipe(frames: Frames, child: "subprocess.Popen[bytes]") -> None:
    stdin = cast("IO[bytes]", child.stdin)
    try:
        with suppress(BrokenFrame, ClientGone):
            while (frame := frames.receive()) is not None:
                with suppress(BrokenPipeError, ValueError):  # it reads no more, or its input was ended before
                    if frame.kind is Kind.DATA:
                        _write_while_connected(stdin.fileno(), frame.data)
                    elif frame.kind is Kind.END:
                        stdin.close()
    finally:
        _end_group(child.pid)


def _write_while_connected(descriptor: int, data: bytes) -> None:
    """Write all, or raise `ClientGone` if the client goes while nobody reads it."""
    os.set_blocking(descriptor, False)
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    poll.register(
        sys.stdin.fileno(), select.POLLRDHUP
    )  # its end only: a socket has this for its peer's, a pipe POLLHUP
    while data:
        for ready, events in poll.poll(POLL_MS):
            if ready == descriptor:
                with suppress(BlockingIOError):
                    data = data[os.write(descriptor, data) :]
            elif events:
                raise ClientGone


def _end_group(group: int) -> None:
    """End the command of a disconnected client: by SIGHUP, as a closed terminal does, then by SIGKILL."""
    for number in (signal.SIGHUP, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(group, number)
        time.sleep(END_WITHIN_S)


# -- a port ------------------------------------------------------------------------------------------------------


class Forwarding:
    """Connections to one port of the node, multiplexed over the frames of one session."""

    def __init__(self, frames: Frames, port: int) -> None:
        self._frames = frames
        self._port = port
        self._open: dict[int, socket.socket] = {}
        self._half_closed: set[int] = set()
        self._closing = threading.Lock()

    def run(self) -> None:
        """Serve until the client ends the session."""
        while (frame := self._frames.receive()) is not None:
            if frame.kind is Kind.OPEN:
                self._connect(frame.connection, frame.data)
            elif frame.connection in self._open:
                self._deliver(frame.kind, frame.connection, frame.data)

    def _connect(self, number: int, listener: bytes) -> None:
        if len(self._open) >= MOST_CONNECTIONS:
            self._frames.send(Kind.ERROR, TOO_MANY.format(self._port).encode(), number)
            return
        is_the_clients = self._leads_back(listener)
        try:  # the client listens on 127.0.0.1 alone: the job may still on ::1
            host = "::1" if is_the_clients else "localhost"
            connection = socket.create_connection((host, self._port), CONNECT_WITHIN_S)
        except OSError as error:
            text = f"nothing answers on port {self._port} of the job's node: {error.strerror or error}"
            self._frames.send(Kind.ERROR, (LEADS_BACK.format(self._port) if is_the_clients else text).encode(), number)
            return
        connection.settimeout(None)
        self._open[number] = connection
        threading.Thread(target=self._pump, args=(number, connection), daemon=True).start()

    def _leads_back(self, listener: bytes) -> bool:
        """Whether our port of 127.0.0.1 is the one that the client listens on: we would connect to it without end."""
        with suppress(ValueError, KeyError, TypeError):  # of an older client
            told = json.loads(listener)
            return bool(told["port"] == self._port and told["network"] and told["network"] == network_here())
        return False

    def _deliver(self, kind: Kind, number: int, data: bytes) -> None:
        with suppress(OSError):  # it is closed: the pump says so
            if kind is Kind.DATA:
                self._open[number].sendall(data)
            elif kind is Kind.END:
                self._open[number].shutdown(socket.SHUT_WR)
        if kind is Kind.END:
            self._note_end(number)

    def _pump(self, number: int, connection: socket.socket) -> None:
        with suppress(OSError):
            while data := connection.recv(READ_BYTES):
                self._frames.send(Kind.DATA, data, number)
        self._frames.send(Kind.END, b"", number)
        self._note_end(number)

    def _note_end(self, number: int) -> None:
        """Close the connection once both directions have ended."""
        with self._closing:
            if number in self._half_closed:
                self._half_closed.discard(number)
                self._open.pop(number).close()
            else:
                self._half_closed.add(number)
