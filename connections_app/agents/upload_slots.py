"""Slots of uploads: an agent sends one file of a kind at a time, and all agents together a few archives.

A slot is a locked file, so that it holds in all processes of the web server, and is free when one of them dies.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from connections_app.agents.files import agent_root, make_folder
from connections_app.errors import TooManyUploads
from engines.linux import lock


@contextmanager
def own_slot(agent: int, what: str) -> Iterator[None]:
    """The slot of an agent for this kind of file; raises `TooManyUploads` while it sends another one."""
    with _first_free([_folder() / f"agent-{agent}.{what}"], TooManyUploads(f"This machine is sending {what} already")):
        yield


@contextmanager
def shared_slot(most: int, *, is_last: bool) -> Iterator[None]:
    """One of the slots of all agents; raises `TooManyUploads` while none is free.

    A quarter is kept for last archives: jobs wait for these.
    """
    usable = most if is_last else most - most // 4
    paths = [_folder() / f"slot-{number}" for number in range(usable)]
    with _first_free(paths, TooManyUploads(f"Machines that joined send {usable} archives already, the limit")):
        yield


@contextmanager
def _first_free(paths: list[Path], error: TooManyUploads) -> Iterator[None]:
    for path in paths:
        with path.open("ab") as file:
            if lock(file.fileno()):
                yield
                return
    raise error


def _folder() -> Path:
    folder = agent_root() / "slots"
    make_folder(folder)
    return folder
