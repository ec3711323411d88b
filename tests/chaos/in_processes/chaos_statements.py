"""Faults between two statements of the scheduler and the engine.

Their modules are compiled with a call before each statement. A campaign arms a fault by a file; one process takes it at
a statement of the module that the file names, counts as many statements as it says, and then does what it says.
"""

import ast
import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

MODULES = {
    *(
        f"scheduler_app.round.{name}"
        for name in ("tick", "lease", "reconcile", "attempt_reports", "run_round", "dispatch")
    ),
    *(f"scheduler_app.round.{name}" for name in ("inputs", "commit", "archive", "set_aside")),
    *(f"jobs_app.lifecycle.{name}" for name in ("attempts", "attempt_endings", "dependencies")),
    *("engines.local.engine", "engines.attempt_files"),
}
OF_SERVERS = {
    *(f"scheduler_app.round.{name}" for name in ("tick", "reconcile", "attempt_reports", "dispatch", "commit")),
    *(f"jobs_app.lifecycle.{name}" for name in ("attempts", "attempt_endings")),
    *("connections_app.agents.engine", "connections_app.agents.gangs"),
}
"""Where jobs run on servers of the site."""
FAILING = "engines.local.engine"
"""Where an error of the disk is raised."""
CALL = "__before_statement__"
PLACE = os.environ.get("CHAOS_STRIKES", "")


class Armed:
    """The fault that this process has taken, and how many statements are left until it strikes."""

    fault: dict[str, Any] | None = None
    left = 0


def before(module: str, line: int) -> None:
    if Armed.fault is None:
        if not os.access(PLACE, os.F_OK) or not _take(module):
            return
    elif _counts(module):
        Armed.left -= 1
    if Armed.left <= 0 and _counts(module):
        _strike(f"{module}:{line}")


def _counts(module: str) -> bool:
    return Armed.fault is None or Armed.fault["kind"] != "fails" or module == FAILING


def _take(module: str) -> bool:
    """Take the armed fault if it is for this module: by a rename, so that no two processes do."""
    with suppress(OSError, ValueError):
        with open(PLACE) as file:  # noqa: PTH123 - pathlib is not loaded yet
            fault = json.load(file)
        if fault["module"] == module:
            os.rename(PLACE, f"{PLACE}.taken")  # noqa: PTH104
            Armed.fault, Armed.left = fault, fault["statements"]
            return True
    return False


def _strike(where: str) -> None:
    fault, Armed.fault = Armed.fault, None
    assert fault is not None
    with open(f"{PLACE}.new", "w") as file:  # noqa: PTH123
        json.dump({**fault, "pid": os.getpid(), "where": where}, file)
    os.rename(f"{PLACE}.new", f"{PLACE}.struck")  # noqa: PTH104
    ACTS[fault["kind"]](fault)


def _fail(fault: dict[str, Any]) -> None:
    raise OSError(errno.EIO, "Input/output error, by the campaign")


ACTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "killed": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "stopped": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "slow": lambda fault: time.sleep(fault["seconds"]),
    "fails": _fail,
}


class WithCalls(SourceFileLoader):
    """Loads a module with a call before each statement; no cached file of it is read or written."""

    def path_stats(self, path: str) -> Any:
        raise OSError

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:  # type: ignore[override]
        tree = ast.parse(data, path)
        for block in list(_blocks(tree)):
            block[:] = [part for statement in block for part in (*_call(statement), statement)]
        return super().source_to_code(tree, path)

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        setattr(module, CALL, lambda line: before(name, line))
        super().exec_module(module)


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """All bodies but those of modules and classes."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef):
            blocks = (getattr(node, name, None) for name in ("body", "orelse", "finalbody"))
            yield from (block for block in blocks if isinstance(block, list))


def _call(statement: ast.stmt) -> list[ast.stmt]:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return []  # a docstring
    name = ast.Name(CALL, ast.Load())
    call = ast.Expr(ast.Call(name, [ast.Constant(statement.lineno)], []))
    return [ast.fix_missing_locations(ast.copy_location(call, statement))]


class Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in MODULES | OF_SERVERS else None
        if spec is not None and spec.origin is not None:
            spec.loader = WithCalls(fullname, spec.origin)
        return spec


def install() -> None:
    """In the processes of the scheduler's loops alone."""
    if PLACE and {"schedule", "worker"} & {*sys.orig_argv}:
        sys.meta_path.insert(0, Finder())
