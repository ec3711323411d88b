"""A whole round on SQLite, split by step: `python -m benchmarks.round --jobs 2000 --gpus 2000`.

Half the jobs run and half wait, as in a busy cluster; the engine's processes are left out, because it is the round
that is measured. The first round places everything, the following ones find a tenth of the jobs replaced.
"""

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="motley-bench-") as folder:
        os.environ |= {"DJANGO_SETTINGS_MODULE": "config.settings", "MOTLEY_VAR": folder, "MOTLEY_LOG_LEVEL": "WARNING"}
        import django  # the settings read the environment when they are imported

        django.setup()
        from benchmarks.a_round import Bench

        bench = Bench(jobs=arguments.jobs, gpus=arguments.gpus, seed=arguments.seed, all_different=True)
        if arguments.quotas:
            bench.add_quotas()
        rounds = [bench.round() for _ in range(arguments.rounds)]
        database_mib = Path(folder, "motley.sqlite3").stat().st_size / 2**20
    _print(rounds, database_mib, as_json=arguments.json)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--gpus", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=4, help="the first places all, the others are the median")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quotas", action="store_true", help="each team has its part of each GPU type")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _print(rounds: list[dict[str, float]], database_mib: float, *, as_json: bool) -> None:
    first, later = rounds[0], rounds[1:]
    median = {step: statistics.median(r[step] for r in later) for step in first} if later else first
    if as_json:
        print(json.dumps({"first": first, "median": median, "database_mib": round(database_mib, 1)}))
        return
    print(f"{'step':12}{'first round':>12}{'later rounds':>14}   (seconds; later: median of {len(later)})")
    for step in first:
        print(f"{step:12}{first[step]:12.3f}{median[step]:14.3f}")


if __name__ == "__main__":
    main()
