"""Folders of jobs of another service, which this machine worked for before: its new service knows none of them.

A service has a folder removed that it does not know. So what is there when a machine joins another service is noted by
name, is told to nobody, and stays until somebody removes it by hand.
"""

from pathlib import Path
from typing import TypedDict

from engines.attempt_files import read_json, write_json


class Owner(TypedDict):
    """The service whose jobs this machine runs."""

    url: str
    service: str
    """Name of its database; empty: it has not said it, as one of 0.2."""


def leave_to_others(folder: Path, owner: Owner) -> list[str]:
    """Note whose machine this is, and the folders that are there if it was another's; returns these.

    Of folders without an owner nothing is known: they stay, too.
    """
    before: Owner | None = read_json(_owner_path(folder))
    found = [] if before is not None and is_same(before, owner) else _folders(folder)
    if found:
        write_json(_others_path(folder), sorted(jobs_of_others(folder) | {*found}))
    write_json(_owner_path(folder), owner)
    return found


def note_owner(folder: Path, url: str) -> None:
    """Note whose machine this is, where an agent of an older release has not."""
    if not _owner_path(folder).exists():
        write_json(_owner_path(folder), Owner(url=url, service=""))


def is_same(one: Owner, other: Owner) -> bool:
    """Whether both are one service: its address may change, and another may have it later. Pure."""
    if one["service"] and other["service"]:
        return one["service"] == other["service"]
    return one["url"].rstrip("/") == other["url"].rstrip("/")


def jobs_of_others(folder: Path) -> frozenset[str]:
    """Jobs whose folders are another service's."""
    return frozenset(read_json(_others_path(folder)) or ())


def _folders(folder: Path) -> list[str]:
    jobs = folder / "engine" / "jobs"
    return sorted(path.name for path in jobs.iterdir()) if jobs.is_dir() else []


def _owner_path(folder: Path) -> Path:
    return folder / "service.json"


def _others_path(folder: Path) -> Path:
    return folder / "jobs-of-others.json"
