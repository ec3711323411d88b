"""Repeats the tests that failed, alone and once: `python -m tests.repeat_failed`, after a run of pytest in .ci/run.

A test that passes now is told as FLAKY, and fails the run no more. More failures than a few are no accident and are not
repeated (docs/decisions/0102).
"""

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
MOST = 3


def main() -> int:
    failed = failed_tests(FAILED.read_text() if FAILED.exists() else "{}")
    if len(failed) > MOST:
        print("too many to be repeated:", *failed, sep="\n", flush=True)
        return 1
    if not failed:
        print("no test failed: what did is said above", flush=True)
        return 1
    print("repeated alone, once:", *failed, sep="\n", flush=True)
    if subprocess.run([sys.executable, "-m", "pytest", "-n0", *failed], check=False).returncode != 0:
        return 1
    print(*(f"FLAKY {name}: it failed and then passed; find the cause" for name in failed), sep="\n", flush=True)
    return 0


def failed_tests(cached: str) -> list[str]:
    """Ids of the tests in pytest's cache, without the group that xdist appends to them."""
    return sorted(_without_group(name) for name in json.loads(cached))


def _without_group(name: str) -> str:
    before, _, group = name.rpartition("@")
    return name if not before or "]" in group else before


if __name__ == "__main__":
    sys.exit(main())
