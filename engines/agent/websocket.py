"""Client side of a WebSocket (RFC 6455) for sessions: an agent has the standard library alone."""

import base64
import os
import secrets
import struct
import threading
from contextlib import suppress
from enum import IntEnum
from http.client import HTTPConnection, HTTPResponse
from socket import SO_RCVTIMEO, SOL_SOCKET, socket
from typing import BinaryIO

LARGEST_MESSAGE = 2 << 20
SILENT_S = 60.0
"""The service pings every 20 s: one that says nothing for so long is gone, as where a machine has lost its power."""
SHORT, LONG = 126, 127
"""Lengths in the first byte that stand for one of two or eight bytes."""
FINAL, MASKED = 0x80, 0x80


class Opcode(IntEnum):
    CONTINUATION = 0x0
    TEXT = 0x1
    BINARY = 0x2
    CLOSE = 0x8
    PING = 0x9
    PONG = 0xA


class NoWebSocket(Exception):
    """The service did not open it, or has closed it otherwise than the protocol says."""


class WebSocket:
    """An open WebSocket: one thread receives, several may send."""

    def __init__(self, connection: socket, answer: HTTPResponse) -> None:
        self._connection, self._answer = connection, answer
        self._incoming: BinaryIO = answer.fp  # it may hold what came with the answer
        """Closed with the answer, which is kept for that."""
        self._sending = threading.Lock()
        self._may_send = True

    @classmethod
    def open(cls, connection: HTTPConnection, path: str, token: str) -> "WebSocket":
        """Open one on a connection that is not yet used; raises `NoWebSocket`, `OSError` and `HTTPException`."""
        connection.request("GET", path, headers=_headers(token))
        answer: HTTPResponse = connection.getresponse()
        if answer.status != 101:
            raise NoWebSocket(f"the service answered {answer.status}: {answer.read(500).decode(errors='replace')}")
        _end_receiving_after(connection.sock, SILENT_S)
        return cls(connection.sock, answer)

    def receive(self) -> bytes | None:
        """The next message; None when the service has closed."""
        message = b""
        while (frame := self._frame()) is not None:
            opcode, data, is_final = frame
            if opcode == Opcode.PING:
                self._send(Opcode.PONG, data)
            elif opcode == Opcode.CLOSE:
                return None
            elif opcode != Opcode.PONG:
                message += data
                if is_final:
                    return message
        return None

    def send(self, data: bytes) -> None:
        self._send(Opcode.BINARY, data)

    def say_end(self) -> None:
        """Say that no more comes. The service answers by its own end when it has taken what was sent."""
        if self._may_send:
            self._may_send = False
            with suppress(OSError):
                self._send(Opcode.CLOSE, struct.pack(">H", 1000))

    def drop_the_rest(self) -> None:
        """Receive until the service has closed: to close before that would take what is under way with it, where
        something of the service has not been received here (RFC 1122, 4.2.2.13)."""
        with suppress(OSError, NoWebSocket):
            while self.receive() is not None:
                pass

    def close(self) -> None:
        """Say that no more comes, and end the connection."""
        self.say_end()
        with suppress(OSError):
            self._connection.shutdown(2)
        self._connection.close()

    def _send(self, opcode: Opcode, data: bytes) -> None:
        mask = os.urandom(4)
        with self._sending:
            self._connection.sendall(_header(opcode, len(data)) + mask + masked(data, mask))

    def _read(self, size: int) -> bytes:
        """So many bytes; fewer at the end of the connection, and where nothing has come for too long."""
        return self._incoming.read(size) or b""

    def _frame(self) -> tuple[int, bytes, bool] | None:
        """Opcode, data and whether it is the last of its message; None at the end of the connection."""
        head = self._read(2)
        if len(head) < 2:
            return None
        length = head[1] & 0x7F
        if length in (SHORT, LONG):
            size = 2 if length == SHORT else 8
            length = int.from_bytes(self._read(size), "big")
        if length > LARGEST_MESSAGE:
            raise NoWebSocket(f"a message of {length} bytes")
        data = self._read(length)
        return (head[0] & 0x0F, data, bool(head[0] & FINAL)) if len(data) == length else None


def _end_receiving_after(connection: socket, seconds: float) -> None:
    """Limit the wait for bytes. Python's own time-outs would limit sending, too: a client may be slow to read."""
    connection.settimeout(None)
    connection.setsockopt(SOL_SOCKET, SO_RCVTIMEO, struct.pack("@ll", *divmod(int(seconds * 1_000_000), 1_000_000)))


def masked(data: bytes, mask: bytes) -> bytes:
    """The data with each byte combined with one of the mask, as clients send it."""
    count = len(data)
    whole = int.from_bytes(data, "big") ^ int.from_bytes((mask * (count // 4 + 1))[:count], "big")
    return whole.to_bytes(count, "big")


def _headers(token: str) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {token}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(secrets.token_bytes(16)).decode(),
    }


def _header(opcode: Opcode, length: int) -> bytes:
    first = FINAL | opcode
    if length < SHORT:
        return bytes([first, MASKED | length])
    if length < 1 << 16:
        return bytes([first, MASKED | SHORT]) + struct.pack(">H", length)
    return bytes([first, MASKED | LONG]) + struct.pack(">Q", length)
