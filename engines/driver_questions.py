"""Calls to a driver that may hang: one at a time, each in a thread, with a timeout."""

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Lock, Thread
from typing import TypeVar

Answer = TypeVar("Answer")


class DriverIsLate(Exception):
    """The driver has not answered in time, or still owes the answer to an earlier question."""


class DriverQuestions:
    """Calls the driver, but not while an earlier call hangs, so that threads do not pile up."""

    def __init__(self) -> None:
        self._asking = Lock()
        self._is_late = False

    def ask(self, question: Callable[[], Answer], *, patience_s: float) -> Answer:
        """The answer, or what the question raises; raises `DriverIsLate` after `patience_s`.

        While a late answer is outstanding, it raises at once.
        """
        if not self._asking.acquire(timeout=0 if self._is_late else patience_s):
            self._is_late = True
            raise DriverIsLate
        answer: Future[Answer] = Future()
        try:
            Thread(target=self._answer, args=(question, answer), daemon=True).start()
        except RuntimeError:  # no more threads now
            self._asking.release()
            raise
        if not wait([answer], timeout=patience_s).done:
            self._is_late = True
            raise DriverIsLate
        return answer.result()

    def _answer(self, question: Callable[[], Answer], answer: "Future[Answer]") -> None:
        try:
            found, error = question(), None
        except Exception as raised:
            found, error = None, raised
        self._is_late = False
        self._asking.release()
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(found)  # type: ignore[arg-type]  # no error: it is an answer
