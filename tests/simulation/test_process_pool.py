"""Tasks in processes of their own: what fails, or is killed, costs no other."""

import os
import signal

from simulation.clock.process_pool import FailedRun, run_all


def work(task: str, tell) -> str:
    if task == "raise":
        raise ValueError("no such thing")
    if task == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    tell(3)
    return task.upper()


def results(*tasks: str, at_once: int = 2):
    return {news.place: news.result for news in run_all(work, tasks, at_once=at_once) if news.result is not None}


def test_a_task_that_raises_or_is_killed_costs_no_other():
    found = results("one", "raise", "die", "two")
    assert (found[0], found[3]) == ("ONE", "TWO")
    assert found[1] == FailedRun("ValueError: no such thing")
    assert "was killed" in found[2].reason


def test_how_far_a_task_is_comes_before_what_came_of_it():
    told = [(news.progress, news.result) for news in run_all(work, ["one"], at_once=1)]
    assert told == [(0, None), (3, None), (None, "ONE")]


def test_leaving_early_ends_every_process():
    news = run_all(work, ["one", "two", "three"], at_once=3)
    next(news)
    news.close()
    assert list(news) == []
