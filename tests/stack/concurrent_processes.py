"""Several processes on one database, which perform actions at the same moment.

Nothing of the service is imported here: a process learns which database is meant before it does that.
"""

import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

PROCESSES = 4
PATIENCE_S = 600
Action = tuple[Any, ...]
"""Name of a function of concurrent_actions, and its arguments."""


@dataclass(frozen=True)
class Done:
    """Result of an action: its answer, or the name of the exception that it raised."""

    answer: Any = None
    raised: str = ""
    text: str = ""


class ConcurrentProcesses:
    """Processes that are started once: to start one takes longer than a hundred actions."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        spawning = multiprocessing.get_context("spawn")
        barrier = self._barrier = spawning.Barrier(PROCESSES)  # kept: it would be gone before they come to it
        pipes = [spawning.Pipe() for _ in range(PROCESSES)]
        self._orders = [ours for ours, _ in pipes]
        told = dict(environment)
        self._processes = [spawning.Process(target=_live, args=(told, end, barrier), daemon=True) for _, end in pipes]
        for process in self._processes:
            process.start()

    def run_together(self, *actions: Action) -> list[Done]:
        """Perform all actions at once, each in a process of its own; return their results."""
        whole: list[Action] = [*actions, *[("nothing",)] * (PROCESSES - len(actions))]
        for orders, action in zip(self._orders, whole, strict=True):
            orders.send(action)
        return [_received(orders) for orders in self._orders][: len(actions)]

    def run(self, name: str, *words: Any) -> Any:
        """Perform one action in one process; return its answer."""
        (done,) = self.run_together((name, *words))
        assert not done.raised, f"{name}: {done.raised}: {done.text}"
        return done.answer

    def close(self) -> None:
        for orders in self._orders:
            orders.send(None)
        for process in self._processes:
            process.join(PATIENCE_S)
            process.kill()


def raised(done: Sequence[Done]) -> list[str]:
    """The exceptions, in order of their names; an empty one for each that went well."""
    return sorted(one.raised for one in done)


@contextmanager
def started_processes(environment: Mapping[str, str]) -> Iterator[ConcurrentProcesses]:
    processes = ConcurrentProcesses(environment)
    try:
        yield processes
    finally:
        processes.close()


def _received(orders: Connection) -> Done:
    assert orders.poll(PATIENCE_S), "a process is stuck: a deadlock?"
    done: Done = orders.recv()
    return done


def _live(environment: Mapping[str, str], orders: Connection, barrier: Barrier) -> None:
    os.environ |= environment
    import django  # noqa: PLC0415 - now that the environment says which database

    django.setup()
    from tests.stack import concurrent_actions  # noqa: PLC0415

    while (action := orders.recv()) is not None:
        barrier.wait()
        orders.send(_done(getattr(concurrent_actions, action[0]), action[1:]))


def _done(do: Any, words: Sequence[Any]) -> Done:
    try:
        return Done(do(*words))
    except Exception as error:
        return Done(raised=type(error).__name__, text=str(error))
