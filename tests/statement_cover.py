"""The fewest quick tests that send a database every statement that no other test of `make test` sends it.

`python -m tests.statement_cover` runs the tests that use the database on a private PostgreSQL, records the statements
of each, with constants and the lengths of lists left out, and writes tests/statement_cover.txt, by greedy cover: quick
tests that `make test` runs on PostgreSQL as well; and tests/statement_known.txt, the functions of all quick ones.
pytest takes this module as a plugin that records.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.tiers import ON_POSTGRESQL, SLOW, STATEMENT_COVER, STATEMENT_KNOWN, WHOLE_ON_POSTGRESQL

FOLDER = "MOTLEY_TEST_STATEMENTS"
"""Environment variable: where each worker writes `test<TAB>statement` lines."""
CONSTANT = re.compile(r"'[^']*'|\b\d+\b")
REPEATED = (
    (re.compile(r"%s(?:, %s)+"), "%s"),
    (re.compile(r"\(%s\)(?:, \(%s\))+"), "(%s)"),
    (re.compile(r"(WHEN (\S.*?) THEN %s )(?:WHEN \2 THEN %s )+"), r"\1"),
)
"""What is as long as what it is about: lists, rows to insert, and cases of an update of many rows."""
SPARED = ("SAVEPOINT", "RELEASE SAVEPOINT", "ROLLBACK", "TRUNCATE", "SET ")


def normalised(statement: str) -> str:
    """The statement without what one call of the same code has other than another."""
    plain = CONSTANT.sub("0", " ".join(statement.split()))
    for pattern, once in REPEATED:
        plain = pattern.sub(once, plain)
    return plain


def greedy_cover(sent: Mapping[str, frozenset[str]], anyway: frozenset[str] = frozenset()) -> list[str]:
    """Tests that together send all statements: each time the one that adds most, and of equals the first by name.

    Statements that are sent `anyway`, by tests that run there all the same, need none.
    """
    missing = frozenset[str]().union(*sent.values()) - anyway
    chosen = list[str]()
    while missing:
        best = min(sent, key=lambda test: (-len(sent[test] & missing), test))
        chosen.append(best)
        missing -= sent[best]
    return sorted(chosen)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record what the test, its fixtures and its requests send on this thread."""
    if FOLDER not in os.environ:
        return (yield)
    found = set[str]()

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if not sql.startswith(SPARED):
            found.add(normalised(sql))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        result = yield
    name = item.nodeid.removeprefix("tests/").split("@")[0]
    with (Path(os.environ[FOLDER]) / f"{os.getpid()}.tsv").open("a") as lines:
        lines.writelines(f"{name}\t{statement}\n" for statement in found)
    return result


def recorded(folder: Path) -> dict[str, frozenset[str]]:
    sent = dict[str, set[str]]()
    for path in folder.glob("*.tsv"):
        for line in path.read_text().splitlines():
            test, _, statement = line.partition("\t")
            sent.setdefault(test, set()).add(statement)
    return {test: frozenset(statements) for test, statements in sent.items()}


def main() -> int:
    """Write the list; words are pytest's, as `-n 2`. The exit code is pytest's."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.private_servers", sys.executable, "-m", "pytest", "-q"]
        options = ["-p", "tests.statement_cover", "-p", "no:randomly", "-m", "database and not thorough", *sys.argv[1:]]
        folders = [f"tests/{name}" for name in ON_POSTGRESQL]
        done = subprocess.run([*command, *options, *folders], env=os.environ | {FOLDER: folder}, check=False)
        sent = recorded(Path(folder))
    if sent and done.returncode in (0, 1):  # a failed test, too, was recorded as far as it came
        run_there = {test for test in sent if test.startswith((*SLOW, *WHOLE_ON_POSTGRESQL))}
        quick = {test: statements for test, statements in sent.items() if test not in run_there}
        anyway = frozenset[str]().union(*(sent[test] for test in run_there))
        cover = greedy_cover(quick, anyway)
        STATEMENT_COVER.write_text("".join(f"{test}\n" for test in cover))
        STATEMENT_KNOWN.write_text("".join(f"{name}\n" for name in sorted({test.split("[")[0] for test in quick})))
        more = len(frozenset[str]().union(*quick.values()) - anyway)
        print(
            f"{len(run_there)} tests send {len(anyway)} statements, {len(cover)} of {len(quick)} quick ones {more} more"
        )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
