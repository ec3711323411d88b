"""Pages and REST: the front and the servers behind it, until they are told to stop."""

import errno
import re
import socket
from time import monotonic, sleep
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from operations.children import hear_signals, import_what_they_share, run_until_told
from operations.web_programs import folder_of_sockets, listening_at, passed_by_systemd, web_programs

ADDRESS = re.compile(r"\[?([0-9A-Za-z.:]+?)\]?:([0-9]{1,5})")
LEAVES_WITHIN_S = 10.0
"""Time that the front of a command that was killed may still listen there."""


class Command(BaseCommand):
    help = "Serves pages and REST on the sockets of a systemd unit, or on addresses."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--bind", action="append", default=[], metavar="ADDRESS:PORT", help="Without the sockets of systemd."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        told = hear_signals()
        listening = passed_by_systemd() or [_bound(text) for text in options["bind"]]
        if not listening:
            raise CommandError("There is nothing to listen on: start motley-web.socket, or say --bind 127.0.0.1:8000.")
        import_what_they_share()
        with folder_of_sockets() as folder:
            run_until_told(web_programs([sock.fileno() for sock in listening], folder), told)


def _bound(text: str) -> socket.socket:
    found = ADDRESS.fullmatch(text)
    if found is None:
        raise CommandError(f"--bind {text}: write an address and a port, as 127.0.0.1:8000 or [::1]:8000.")
    until = monotonic() + LEAVES_WITHIN_S
    while True:
        try:
            return listening_at(found[1], int(found[2]))
        except (OSError, OverflowError) as error:
            if getattr(error, "errno", None) != errno.EADDRINUSE or monotonic() > until:
                raise CommandError(f"--bind {text}: {error}.") from error
            sleep(0.1)
