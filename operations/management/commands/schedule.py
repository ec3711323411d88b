"""The scheduler's loops outside Celery: the loop of engines and the loop of rounds."""

import logging
import signal
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import DatabaseError, close_old_connections
from django.utils import timezone

from allocation.solvers.linear_program import divert_native_output
from database.damage import REMEDY, is_damage, note_damage
from operations.loops import both_turns, engine_turn, round_turn
from scheduler_app.round.lease import holder_name, release_lease

log = logging.getLogger(__name__)

Turn = Callable[[str, datetime], bool]
TURNS: dict[str, Turn] = {"engines": engine_turn, "rounds": round_turn}
LONGEST_PAUSE_S = 30.0
LAST_TURN_S = 5.0
"""Time that a turn has to end when the process is told to stop; a round that is cut off has written nothing."""


class Command(BaseCommand):
    help = "Runs the scheduler until it is stopped. Of several, the one that holds a loop's lease works; others wait."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--interval", type=float, default=0.5, help="Seconds between two turns of a loop.")
        parser.add_argument("--only", choices=TURNS, help="Run one loop; another process runs the other.")
        parser.add_argument("--once", action="store_true", help="Run one turn of both loops and exit.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["once"]:
            Loop(both_turns, options["interval"]).step()
            return
        divert_native_output()
        turns = [turn for name, turn in TURNS.items() if options["only"] in (None, name)]
        _run_until_told([Loop(turn, options["interval"]) for turn in turns])


class Loop(threading.Thread):
    """Repeats a turn; one that fails is logged, and the next comes after a pause that doubles."""

    def __init__(self, turn: Turn, interval_s: float) -> None:
        super().__init__(name=turn.__name__, daemon=True)
        self._turn = turn
        self._interval_s = self._pause_s = interval_s
        self.stop_requested = threading.Event()

    def run(self) -> None:
        while not self.stop_requested.wait(self._pause_s):
            self._pause_s = self._interval_s if self.step() else min(2 * self._pause_s, LONGEST_PAUSE_S)
        release_lease(holder_name(), timezone.now())

    def step(self) -> bool:
        """Run one turn; returns whether it succeeded."""
        try:
            self._turn(holder_name(), timezone.now())
        except DatabaseError as error:
            _say_of(error)
        except Exception:  # whatever it is: a scheduler that stands still is worse than one that tries again
            log.exception("the turn failed; the next one tries again")
        else:
            return True
        close_old_connections()
        return False


def _say_of(error: DatabaseError) -> None:
    if is_damage(error):
        note_damage()
        log.exception(REMEDY)
    else:
        log.exception("the database did not answer; the next turn tries again")


def _run_until_told(loops: list[Loop]) -> None:
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.set())
    for loop in loops:
        loop.start()
    told.wait()
    for loop in loops:
        loop.stop_requested.set()
    for loop in loops:
        loop.join(LAST_TURN_S)
