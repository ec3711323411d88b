"""Servers that notifications go to, in this process: HTTP that keeps what was posted, SMTP that keeps mail."""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from django.contrib.auth.models import User

from jobs_app.models import NotificationTarget
from jobs_app.notifications.targets import add_target


def webhook_of(actor: User) -> NotificationTarget:
    """A target of which only the row matters."""
    return add_target(
        NotificationTarget.Kind.WEBHOOK, "https://example.org/hook", ["job_ended"], team=None, actor=actor
    ).target


@dataclass
class Received:
    """What an HTTP server was sent, and the statuses with which it answers next; then 200."""

    port: int = 0
    statuses: list[int] = field(default_factory=list)
    location: str = ""
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/s3cret-path"

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.bodies]


@contextmanager
def http_server() -> Iterator[Received]:
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.headers.append({name.lower(): value for name, value in self.headers.items()})
            received.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(received.statuses.pop(0) if received.statuses else 200)
            if received.location:
                self.send_header("Location", received.location)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def do_GET(self) -> None:
            received.bodies.append(b'"a redirect was followed"')
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.port = server.server_address[1]
    with _served(server):
        yield received


@dataclass
class Mailbox:
    """Mail that an SMTP server has taken: recipients and text of each."""

    port: int = 0
    mails: list[tuple[list[str], str]] = field(default_factory=list)
    refuses: bool = False

    @property
    def url(self) -> str:
        return f"mailto://127.0.0.1:{self.port}?from=motley@example.org&smtp=127.0.0.1&mode=insecure"


@contextmanager
def smtp_server() -> Iterator[Mailbox]:
    box = Mailbox()

    class Handler(socketserver.StreamRequestHandler):
        """As much of SMTP (RFC 5321) as one client needs."""

        def handle(self) -> None:
            recipients: list[str] = []
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline().decode().strip():
                verb = line.partition(" ")[0].upper()
                if verb == "QUIT":
                    break
                if verb == "RCPT":
                    recipients.append(line.partition(":")[2].strip("<> "))
                if verb == "DATA":
                    self._take(recipients)
                elif verb == "RCPT" and box.refuses:
                    self.wfile.write(b"550 no\r\n")
                else:
                    self.wfile.write(b"250 ok\r\n")

        def _take(self, recipients: list[str]) -> None:
            self.wfile.write(b"354 go on\r\n")
            lines = []
            while (line := self.rfile.readline().decode()) != ".\r\n":
                lines.append(line)
            box.mails.append((recipients, "".join(lines)))
            self.wfile.write(b"250 ok\r\n")

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    box.port = server.server_address[1]
    with _served(server):
        yield box


@contextmanager
def _served(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
