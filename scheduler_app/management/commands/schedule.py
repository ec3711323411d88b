"""The scheduler loop of the embedded mode."""

import logging
import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import OperationalError, close_old_connections
from django.utils import timezone

from scheduler_app.round.lease import holder_name, release_lease
from scheduler_app.round.tick import tick

log = logging.getLogger(__name__)


class Command(BaseCommand):
    help = "Runs the scheduler until it is stopped. Of several, the one that holds the lease works; the others wait."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--interval", type=float, default=0.5, help="Seconds between two ticks.")
        parser.add_argument("--once", action="store_true", help="Run one tick and exit.")

    def handle(self, *args: Any, **options: Any) -> None:
        holder = holder_name()
        asked_to_stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: asked_to_stop.set())
        try:
            while not asked_to_stop.is_set():
                self._step(holder)
                if options["once"]:
                    break
                asked_to_stop.wait(options["interval"])
        finally:
            release_lease(holder, timezone.now())

    def _step(self, holder: str) -> None:
        try:
            tick(holder, timezone.now())
        except OperationalError:
            log.exception("the database did not answer; the next tick tries again")
            close_old_connections()
