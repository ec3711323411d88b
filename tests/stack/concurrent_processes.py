"""Several processes on one database, each of which does something at the same moment as the others.

Nothing of the service is imported here: a rival learns which database is meant before it does that.
"""

import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

RIVALS = 4
PATIENCE_S = 120
Deed = tuple[Any, ...]
"""The name of a function of concurrent_actions, and what it takes."""


@dataclass(frozen=True)
class Done:
    """What came of a deed: its answer, or the name of the exception that it raised."""

    answer: Any = None
    raised: str = ""
    text: str = ""


class Arena:
    """Rivals that live as long as the arena: to start one takes longer than a hundred meetings."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        spawning = multiprocessing.get_context("spawn")
        barrier = self._barrier = spawning.Barrier(RIVALS)  # kept: it would be gone before they come to it
        pipes = [spawning.Pipe() for _ in range(RIVALS)]
        self._orders = [ours for ours, _ in pipes]
        told = dict(environment)
        self._rivals = [spawning.Process(target=_live, args=(told, end, barrier), daemon=True) for _, end in pipes]
        for rival in self._rivals:
            rival.start()

    def meet(self, *deeds: Deed) -> list[Done]:
        """Do all at once, each in a process of its own; what came of each."""
        whole: list[Deed] = [*deeds, *[("nothing",)] * (RIVALS - len(deeds))]
        for orders, deed in zip(self._orders, whole, strict=True):
            orders.send(deed)
        return [_received(orders) for orders in self._orders][: len(deeds)]

    def ask(self, name: str, *words: Any) -> Any:
        """Done by one of them, the others looking on."""
        (done,) = self.meet((name, *words))
        assert not done.raised, f"{name}: {done.raised}: {done.text}"
        return done.answer

    def close(self) -> None:
        for orders in self._orders:
            orders.send(None)
        for rival in self._rivals:
            rival.join(PATIENCE_S)
            rival.kill()


def raised(done: Sequence[Done]) -> list[str]:
    """The exceptions, in order of their names; an empty one for each that went well."""
    return sorted(one.raised for one in done)


@contextmanager
def an_arena(environment: Mapping[str, str]) -> Iterator[Arena]:
    arena = Arena(environment)
    try:
        yield arena
    finally:
        arena.close()


def _received(orders: Connection) -> Done:
    assert orders.poll(PATIENCE_S), "a rival is stuck: a deadlock?"
    done: Done = orders.recv()
    return done


def _live(environment: Mapping[str, str], orders: Connection, barrier: Barrier) -> None:
    os.environ |= environment
    import django  # noqa: PLC0415 - now that the environment says which database

    django.setup()
    from tests.stack import concurrent_actions  # noqa: PLC0415

    while (deed := orders.recv()) is not None:
        barrier.wait()
        orders.send(_done(getattr(concurrent_actions, deed[0]), deed[1:]))


def _done(do: Any, words: Sequence[Any]) -> Done:
    try:
        return Done(do(*words))
    except Exception as error:
        return Done(raised=type(error).__name__, text=str(error))
