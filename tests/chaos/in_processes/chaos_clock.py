"""A clock that a campaign sets: `timezone.now` is ahead by the seconds in a file. The monotonic clocks go on."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

CLOCK = "django.utils.timezone"
"""All of the service asks it for the time."""
PLACE = os.environ.get("CHAOS_CLOCK", "")


def ahead() -> timedelta:
    with suppress(OSError, ValueError), open(PLACE) as file:  # noqa: PTH123 - pathlib is not loaded yet
        return timedelta(seconds=float(file.read()))
    return timedelta()


class SetClock(SourceFileLoader):
    """Loads Django's clock, and sets it."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        right = module.now

        def now() -> datetime:
            shown: datetime = right()
            return shown + ahead()

        vars(module)["now"] = now


class Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == CLOCK else None
        if spec is not None and spec.origin is not None:
            spec.loader = SetClock(fullname, spec.origin)
        return spec


def install() -> None:
    if PLACE:
        sys.meta_path.insert(0, Finder())
