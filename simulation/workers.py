"""Many runs at once, each in a process of its own: one that fails, or is killed, costs no other."""

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
"""Does a task, and says now and then how far it is."""

STOPPING_S = 5.0
"""How long a process may take to end before it is killed."""


@dataclass(frozen=True)
class Failed:
    """Why there is no result."""

    reason: str


@dataclass(frozen=True)
class News(Generic[Result]):
    """Of a task, by its place in the list: how far it is, or what came of it."""

    place: int
    progress: int | None = None
    result: Result | Failed | None = None


def run_all(work: Work[Task, Result], tasks: Sequence[Task], *, at_once: int) -> Generator[News[Result]]:
    """Do all tasks, so many at once, and tell of each; if the iterator is closed, every process is ended."""
    waiting, running = list(enumerate(tasks)), dict[Connection, tuple[int, BaseProcess]]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                place, task = waiting.pop(0)
                pipe, process = _start(work, task)
                running[pipe] = (place, process)
                yield News(place, progress=0)
            for pipe in [ready for ready in wait(list(running)) if isinstance(ready, Connection)]:
                place, process = running[pipe]
                news: News[Result] = _news(place, pipe, process)
                if news.result is not None:
                    del running[pipe]
                    process.join()
                yield news
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
    """What a process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; it is the program that ends its processes
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        result: Result | Failed = work(task, lambda done: pipe.send(News[Any](0, progress=done)))
    except Exception as error:  # whatever it is, it is told with the results of the others
        result = Failed(_in_words(error))
    pipe.send(News(0, result=result))


def _end_with_parent() -> None:
    """A parent that was killed cannot end its processes."""
    if parent := parent_process():
        wait([parent.sentinel])
        os._exit(1)


def _in_words(error: Exception) -> str:
    said = str(error).strip()
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _news(place: int, pipe: Connection, process: BaseProcess) -> News[Result]:
    try:
        told: News[Result] = pipe.recv()
    except EOFError:
        process.join()
        return News(place, result=Failed(_of_exit(process.exitcode or 0)))
    return News(place, told.progress, told.result)


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
