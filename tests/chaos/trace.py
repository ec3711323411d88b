"""Trace of a violation: the events of its job and the faults around them, in the order of time."""

import re
import time
from typing import Any

from tests.chaos.watch import say
from tests.deployment import Deployment

JOB = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
MOST_LINES = 40
BEFORE_S = 5.0
EVENTS = """
from jobs_app.models import JobEvent
events = JobEvent.objects.filter(job={job!r}).order_by("pk")
answer = [(event.at.timestamp(), f"{{event}}, attempt {{event.attempt}}") for event in events]
"""


class Trace:
    """What the campaign did, and when."""

    def __init__(self) -> None:
        self._noted: list[tuple[float, str]] = []

    def note(self, what: str) -> None:
        say(what)
        self._noted.append((time.time(), what))

    def of(self, violation: str, service: Deployment) -> str:
        """The violation with the last faults before its job's last event, or before the end if it is of no job."""
        found = JOB.search(violation)
        events: list[Any] = service.python(EVENTS.format(job=found[0])) if found else []
        began, ended = (events[0][0] - BEFORE_S, events[-1][0]) if events else (0.0, float("inf"))
        around = [(at, what) for at, what in self._noted if began <= at <= ended]
        lines = sorted([*around, *((at, f"    {text}") for at, text in events)], key=lambda line: line[0])
        shown = (f"{time.strftime('%H:%M:%S', time.localtime(at))} {what}" for at, what in lines[-MOST_LINES:])
        return "\n  ".join([violation, *shown])
