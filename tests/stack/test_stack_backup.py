"""A backup of PostgreSQL, taken while the full stack runs."""

from pathlib import Path

from tests.backup_scenario import go_back_to_a_backup
from tests.stack.composed import Stack, a_stack

SERVICES = ("web", "worker", "rounds", "beat")


def test_a_stack_goes_back_to_its_backup_and_no_job_is_run_twice(tmp_path: Path) -> None:
    with a_stack() as stack:
        stack.declare(a100=2)
        go_back_to_a_backup(stack, tmp_path, stop=lambda: _stop(stack), start=lambda: _start(stack))


def _stop(stack: Stack) -> None:
    for name in SERVICES:
        stack.members[name].kill()


def _start(stack: Stack) -> None:
    for name in SERVICES:
        stack.members[name].start()
    for name in SERVICES:
        stack.healthy(name)
