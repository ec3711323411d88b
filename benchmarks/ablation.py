"""What each ingredient of Motley's policies buys: `python -m benchmarks.ablation`; `--rows 3` the first three only.

Sia's three Philly workloads, from `MOTLEY_REFERENCE` or `../shared/reference`, and five made up like them
(`--only philly`: without these), by Sia's rules on its cluster, with what a service knows (`--knowledge` for another).
Average JCT, and its worst-off jobs, as means over the traces.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from statistics import mean
from typing import Any

from allocation.solvers.linear_program import divert_native_output
from benchmarks.problems import reference
from simulation.clock.service_training import SERVICE
from simulation.scenario.scenario import Scenario
from simulation.scenario.setting import KNOWLEDGE

REFERENCE = reference() / "sia"
CLUSTER = "aws=6x4,dgx-ext=2x8,rtx=3x8"
SEEDS = "0-4"
ROWS = {
    "`sia`, as published": ("sia:rounded=true,gap=0.0001", "own"),
    "… models shared by jobs of an application": ("sia", "shared"),
    "… and its limits and restarts known": ("sia", "informed"),
    "… and what a service knows": ("sia", None),
    "**`motley`**": ("motley", None),
    "… growing at most twofold at once": ("motley:scale_up=2", None),
    "… each job's own models only": ("motley:scale_up=2", "own"),
    "… late hours count as any": ("motley:lateness=0", None),
    "… a change gains one restart": ("motley:repaid=1", None),
    "**`motley_static`**: the present alone": ("motley_static", None),
    "… all jobs count alike": ("motley_static:short_first=0", None),
    "… a first run counts as any": ("motley_static:first_run=0", None),
    "… to begin is worth nothing in itself": ("motley_static:begin=0", None),
}
"""Policy, and what it knows; None: the knowledge that was asked for."""


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=len(ROWS))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--knowledge", choices=KNOWLEDGE, default=SERVICE)
    parser.add_argument("--only", choices=["philly"])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(asked.processes) as pool:
        kinds = {"Philly's three workloads": philly()}
        if asked.only is None:
            kinds[f"made up, seeds {SEEDS}"] = made_up(Path(folder))
        for name, traces in kinds.items():
            sys.stdout.write(f"\n{name}\n\n| | average JCT, h | each | p99 | makespan | worst rho | restarts |\n")
            sys.stdout.write("| --- | ---: | --- | ---: | ---: | ---: | ---: |\n")
            for label, (policy, knowledge) in list(ROWS.items())[: asked.rows]:
                runs = list(pool.map(run, traces, repeat(policy), repeat(knowledge or asked.knowledge)))
                sys.stdout.write(line(label, runs))
                sys.stdout.flush()


def philly() -> Sequence[Path]:
    return [REFERENCE / "workloads" / "philly" / f"workload-{n}.csv" for n in (1, 2, 3)]


def made_up(folder: Path) -> Sequence[Path]:
    like = ["--like", "sia", "--jobs", "160", "--per-hour", "20", "--seeds", SEEDS, "--out", str(folder / "{seed}.csv")]
    subprocess.run([sys.executable, "-m", "simulation", "generate", *like], check=True, capture_output=True)
    return sorted(folder.iterdir())


def run(trace: Path, policy: str, knowledge: str) -> dict[str, Any]:
    """The figures of one run."""
    profiles = REFERENCE / "apps"
    scenario = Scenario(format_name="sia", cluster=CLUSTER, profiles=profiles, knowledge=knowledge, round_s=60)
    return scenario.prepare(trace, policy, seed=0).finish(lambda _: None)


def line(label: str, runs: Sequence[dict[str, Any]]) -> str:
    """A row of the table."""
    average = [figures["avg_jct_h"] for figures in runs]
    p99, makespan, restarts = (mean(f[name] for f in runs) for name in ("p99_jct_h", "makespan_h", "restarts_per_job"))
    rho = mean(figures["rho"]["worst"] for figures in runs)
    each = ", ".join(f"{value:.3f}" for value in average)
    return f"| {label} | {mean(average):.3f} | {each} | {p99:.2f} | {makespan:.2f} | {rho:.2f} | {restarts:.2f} |\n"


if __name__ == "__main__":
    main()
