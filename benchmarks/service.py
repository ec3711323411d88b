"""The service under load, on a PostgreSQL of its own: `python -m benchmarks.service [--only rounds lists]`.

Each measure has a fresh database and a process of its own. Nothing else should run on the machine.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, read, table, write
from benchmarks.servers import postgresql

MEASURES = (
    "rounds",
    "different-rounds",
    "sia-rounds",
    "motley-rounds",
    "large-rounds",
    "submissions",
    "pages",
    "lists",
    "sweeps",
    "timeline",
)

TIMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Of all processors together, as /proc/stat has them."""
UNWANTED = ("idle", "iowait")


def main() -> None:
    arguments = _arguments()
    if arguments.inside:
        _measure(arguments.inside, Path(arguments.json), arguments.plans)
        return
    if "submissions" in arguments.only and shutil.which("wrk") is None:
        raise SystemExit("wrk not found, which sends the submissions: apt-get install wrk, or choose others by --only.")
    figures: list[Figure] = []
    for name in arguments.only:
        measured = _in_its_own_process(name, arguments.plans)
        figures += measured
        if not arguments.json:  # at once: what follows takes minutes
            print(table(measured), flush=True)
    if arguments.json:
        print(json.dumps([asdict(figure) for figure in figures], indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=MEASURES)
    parser.add_argument("--json", nargs="?", const=True, help="JSON instead of the table")
    parser.add_argument("--plans", type=Path, help="write the plans of the lists there")
    parser.add_argument("--inside", choices=MEASURES, help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_its_own_process(name: str, plans: Path | None) -> list[Figure]:
    with postgresql() as database, tempfile.TemporaryDirectory(prefix="motley-bench-") as folder:
        environment = {"MOTLEY_DATABASE": database, "MOTLEY_VAR": folder, "MOTLEY_LOG_LEVEL": "WARNING"}
        environment |= {"DJANGO_SETTINGS_MODULE": "config.settings", "MOTLEY_HOSTS": "testserver,127.0.0.1"}
        found = Path(folder, "figures.json")
        options = ["--plans", str(plans.absolute())] if plans else []
        command = [sys.executable, "-m", "benchmarks.service", "--inside", name, "--json", str(found), *options]
        stolen = _watch_thefts()
        subprocess.run(command, check=True, env=os.environ | environment)
        return [
            *read(found),
            Figure(f"{name}: processor time that other guests of the machine got", 100 * stolen(), "%"),
        ]


def _watch_thefts() -> Callable[[], float]:
    """Gives the share of the processors' time that was wanted from now on and that the hypervisor gave to others."""
    began = _ticks()

    def stolen() -> float:
        spent = {name: ticks - began[name] for name, ticks in _ticks().items()}
        wanted = sum(ticks for name, ticks in spent.items() if name not in UNWANTED)
        return spent["steal"] / wanted if wanted else 0.0

    return stolen


def _ticks() -> dict[str, int]:
    first, *_ = Path("/proc/stat").read_text().splitlines()
    return dict(zip(TIMES, map(int, first.split()[1:]), strict=False))


def _measure(name: str, found: Path, plans: Path | None) -> None:
    import django  # the settings read the environment when they are imported
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    call_command("collectstatic", verbosity=0, interactive=False)
    write(_measures(plans)[name](), found)


def _measures(plans: Path | None) -> dict[str, Callable[[], Sequence[Figure]]]:
    from benchmarks import (
        measure_large,
        measure_lists,
        measure_pages,
        measure_rounds,
        measure_submissions,
        measure_sweeps,
        measure_timeline,
    )

    return {
        "rounds": partial(measure_rounds.measure, all_different=False),
        "different-rounds": partial(measure_rounds.measure, all_different=True),
        "sia-rounds": partial(measure_rounds.measure, all_different=True, elastic=True, policy="sia"),
        "motley-rounds": partial(measure_rounds.measure, all_different=True, elastic=True, policy="motley"),
        "large-rounds": measure_large.measure,
        "submissions": measure_submissions.measure,
        "pages": measure_pages.measure,
        "sweeps": measure_sweeps.measure,
        "timeline": measure_timeline.measure,
        "lists": partial(measure_lists.measure, plans),
    }


if __name__ == "__main__":
    main()
