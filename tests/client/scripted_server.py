"""A server that says over real HTTP what it was told to: what the real service cannot be made to answer."""

import json
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "mt_secret"


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any


@dataclass
class Answer:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


CUT = Answer(0, b"")
"""No answer at all: the connection breaks after the request has arrived."""


def answer(body: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(body).encode(), {"Content-Type": "application/json"})


def problem(status: int, detail: str, *, retry_after: int | None = None, **more: object) -> Answer:
    body = {"type": "about:blank", "title": "No", "status": status, "detail": detail, **more}
    headers = {"Content-Type": "application/problem+json"}
    return Answer(
        status, json.dumps(body).encode(), headers | ({} if retry_after is None else {"Retry-After": str(retry_after)})
    )


class Script:
    """The answers, in order, the last of them again and again; and the requests that came."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[Request] = []
        self.on_request: Callable[[], object] = lambda: None
        self.url = ""

    def next_answer(self, request: Request) -> Answer:
        self.requests.append(request)
        self.on_request()
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def handler_for(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            answer = script.next_answer(self.request_read())
            if answer is CUT:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(answer.status)
            for name, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        def request_read(self) -> Request:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            told = json.loads(body) if body else None
            return Request(self.command, parts.path, parse_qs(parts.query), dict(self.headers), told)

        do_GET = do_POST = do_PATCH = handle_any  # noqa: N815 - the names that http.server calls

        def log_message(self, *_: object) -> None:
            pass

    return Handler
