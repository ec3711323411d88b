"""Process pool: each run in a process of its own, so that one that fails or is killed affects no other."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess, parent_process
from typing import Any, Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

Work = Callable[[Task, Callable[[int], None]], Result]
"""Performs a task and reports its progress from time to time."""

STOPPING_S = 5.0
"""Time that a process has to terminate before it is killed."""


@dataclass(frozen=True)
class FailedRun:
    """A run without a result, and the reason."""

    reason: str


@dataclass(frozen=True)
class RunUpdate(Generic[Result]):
    """Progress or result of the task at this place of the list."""

    place: int
    progress: int | None = None
    result: Result | FailedRun | None = None


def run_all(work: Work[Task, Result], tasks: Sequence[Task], *, at_once: int) -> Generator[RunUpdate[Result]]:
    """Run all tasks, at most `at_once` in parallel, and yield updates; closing the iterator ends every process."""
    waiting, running = list(enumerate(tasks)), dict[Connection, tuple[int, BaseProcess]]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                place, task = waiting.pop(0)
                pipe, process = _start(work, task)
                running[pipe] = (place, process)
                yield RunUpdate(place, progress=0)
            for pipe in [ready for ready in wait(list(running)) if isinstance(ready, Connection)]:
                place, process = running[pipe]
                update: RunUpdate[Result] = _news(place, pipe, process)
                if update.result is not None:
                    del running[pipe]
                    process.join()
                yield update
    finally:
        _end(process for _, process in running.values())


def _start(work: Work[Task, Result], task: Task) -> tuple[Connection, BaseProcess]:
    # A server that has loaded everything forks the processes: the program itself has threads, and must not fork.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__module__])
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_do, args=(work, task, theirs), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _do(work: Work[Task, Result], task: Task, pipe: Connection) -> None:
    """Main function of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; it is the program that ends its processes
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        result: Result | FailedRun = work(task, lambda done: pipe.send(RunUpdate[Any](0, progress=done)))
    except Exception as error:  # whatever it is, it is told with the results of the others
        result = FailedRun(_in_words(error))
    pipe.send(RunUpdate(0, result=result))


def _end_with_parent() -> None:
    """End this process when its parent has been killed, which could not end it."""
    if parent := parent_process():
        wait([parent.sentinel])
        os._exit(1)


def _in_words(error: Exception) -> str:
    said = str(error).strip()
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _news(place: int, pipe: Connection, process: BaseProcess) -> RunUpdate[Result]:
    try:
        told: RunUpdate[Result] = pipe.recv()
    except EOFError:
        process.join()
        return RunUpdate(place, result=FailedRun(_of_exit(process.exitcode or 0)))
    return RunUpdate(place, told.progress, told.result)


def _of_exit(code: int) -> str:
    if code == -signal.SIGKILL:
        return "its process was killed: the machine may be short of memory; try fewer --processes"
    return f"its process ended by {signal.Signals(-code).name}" if code < 0 else f"its process ended with exit {code}"


def _end(processes: Iterator[BaseProcess]) -> None:
    ending = list(processes)
    for process in ending:
        process.terminate()
    for process in ending:
        process.join(STOPPING_S)
        if process.is_alive():
            process.kill()
            process.join()
