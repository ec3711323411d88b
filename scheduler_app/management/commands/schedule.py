"""The scheduler loop of the embedded mode."""

import logging
import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import OperationalError, close_old_connections
from django.utils import timezone

from scheduler_app.holder import own_name
from scheduler_app.lease import release_lease
from scheduler_app.services import tick

log = logging.getLogger(__name__)


class Command(BaseCommand):
    help = "Schedules until it is told to stop. Two at once are safe: one works, the other waits."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--interval", type=float, default=0.5, help="Seconds between looks at the engines.")
        parser.add_argument("--once", action="store_true", help="One look, and a round if one is due.")

    def handle(self, *args: Any, **options: Any) -> None:
        holder = own_name()
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
            log.exception("the database did not answer; trying again")
            close_old_connections()
