"""Questions to a driver that may hang: nobody waits for ever, and threads do not pile up."""

from threading import Event, Thread, active_count

import pytest

from engines.driver_questions import DriverIsLate, DriverQuestions
from tests.engines.engine_lab import until

LONG_S = 60.0


def test_an_answer_or_an_error_comes_back() -> None:
    driver = DriverQuestions()
    assert driver.ask(lambda: 7, patience_s=LONG_S) == 7
    with pytest.raises(ZeroDivisionError):
        driver.ask(lambda: 1 // 0, patience_s=LONG_S)


def test_while_an_answer_is_owed_nothing_more_is_asked_and_afterwards_it_is() -> None:
    driver, answers, asked = DriverQuestions(), Event(), []
    with pytest.raises(DriverIsLate):
        driver.ask(answers.wait, patience_s=0)
    before = active_count()
    for _ in range(5):
        with pytest.raises(DriverIsLate):
            driver.ask(lambda: asked.append(1), patience_s=LONG_S)
    assert (asked, active_count()) == ([], before)
    answers.set()
    assert until(lambda: _answer(driver)) == 7


def _answer(driver: DriverQuestions) -> int | None:
    try:
        return driver.ask(lambda: 7, patience_s=LONG_S)
    except DriverIsLate:
        return None


def test_a_question_that_gets_no_thread_leaves_the_driver_free(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = DriverQuestions()

    def no_more(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", no_more)
        with pytest.raises(RuntimeError):
            driver.ask(lambda: 7, patience_s=LONG_S)
    assert driver.ask(lambda: 7, patience_s=LONG_S) == 7
