"""Every policy where teams contend for GPUs: `python -m benchmarks.contention`; `--only d1.0 --policies motley,srtf`.

The simulator by the service's rules (Sia's workloads by Sia's), three seeds; the scenarios are in
`benchmarks/contention_scenarios.py`, recorded traces in `MOTLEY_REFERENCE` or `../shared/reference`. Figures are means
over the traces of a scenario; p99 and worst values are means of each trace's. The last column is the difference of mean
JCT to `motley`, with the 95 % interval of a paired bootstrap over the traces.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from allocation.policies import POLICIES
from allocation.solvers.linear_program import divert_native_output
from benchmarks.contention_scenarios import Contention, scenarios
from simulation.clock.run import SimulatedRound
from simulation.clock.state import State
from simulation.scenario.scenario import Scenario
from simulation.scenario.setting import read_seeds

COLUMNS = {
    "JCT mean": ("avg_jct_h", "{:.3f}"),
    "median": ("median_jct_h", "{:.3f}"),
    "p99": ("p99_jct_h", "{:.2f}"),
    "makespan": ("makespan_h", "{:.2f}"),
    "overhead": ("overhead", "{:.1%}"),
    "restarts": ("restarts_per_job", "{:.1f}"),
    "restarts p99": ("restarts_p99", "{:.0f}"),
    "first wait": ("first_wait", "{:.2f}"),
    "share error": ("team_share_error", "{:.1%}"),
    "rho p99": ("rho_p99", "{:.2f}"),
    "worst": ("rho_worst", "{:.2f}"),
    "third turns": ("early_third_turns", "{:.0f}"),
    "share gap": ("share_gap", "{:.1%}"),
}
"""Column → figure and format; times in hours."""
FAIR_QUEUE = "fifo"
"""Its longest wait before a first run is the unit of the column `first wait`."""
BASE = "motley"
DRAWS = 10_000
"""Resamples of the bootstrap."""
SETTLED_S = 300.0
"""Contended time after which the share gap counts."""

Figures = Mapping[str, Any]


class Run(NamedTuple):
    """One run: scenario, policy with its parameters, trace, and the seed of what is random."""

    scenario: str
    policy: str
    options: Scenario
    trace: Path
    seed: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """Names of the scenario, policy and trace."""
        return self.scenario, self.policy, self.trace.name


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    asked = _arguments()
    with tempfile.TemporaryDirectory() as name:
        chosen = {key: one for key, one in scenarios(asked.seeds).items() if _is_asked(key, asked.only)}
        policies = list(dict.fromkeys([*asked.policies, FAIR_QUEUE]))
        runs = _runs(chosen, policies, Path(name))
        found = performed(runs, asked.json, asked.processes)
    for key, one in chosen.items():
        figures = {
            policy: [found[r.key] for r in runs if (r.scenario, r.policy) == (key, policy)] for policy in policies
        }
        sys.stdout.writelines(line + "\n" for line in table(f"({key}) {one.title}", figures, asked.policies))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), help="scenarios, by key or its first letter")
    parser.add_argument("--policies", type=lambda text: text.split(";"), default=list(POLICIES), help="apart by ;")
    parser.add_argument("--seeds", type=read_seeds, default=[0, 1, 2])
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument(
        "--json", type=Path, help="append the figures of each run there; runs found there are not repeated"
    )
    return parser.parse_args()


def _is_asked(key: str, only: Sequence[str] | None) -> bool:
    return only is None or key in only or key[0] in only


def _runs(chosen: Mapping[str, Contention], policies: Sequence[str], folder: Path) -> list[Run]:
    return [
        Run(key, policy, one.options(folder), trace)
        for key, one in chosen.items()
        for trace in one.traces(folder)
        for policy in policies
    ]


def performed(runs: Sequence[Run], record: Path | None, processes: int) -> dict[tuple[str, ...], dict[str, Any]]:
    """The figures of each run, read from the record or found and appended to it."""
    lines = record.read_text().splitlines() if record and record.exists() else []
    found = {tuple(row["run"]): row["figures"] for row in map(json.loads, lines)}
    with ProcessPoolExecutor(processes) as pool:
        left = {pool.submit(perform, run): run for run in runs if run.key not in found}
        for future in as_completed(left):
            key = left[future].key
            found[key] = future.result()
            if record:
                with record.open("a") as file:
                    file.write(json.dumps({"run": key, "figures": found[key]}) + "\n")
    return found


def perform(run: Run) -> dict[str, Any]:
    """The figures of one run, or why it failed."""
    prepared = run.options.prepare(run.trace, run.policy, seed=run.seed)
    state = prepared.simulation.state
    turns = Turns(state)
    try:
        figures = prepared.finish(turns.see)
    except Exception as error:  # a policy that stalls is a result of the comparison
        return {"failed": f"{type(error).__name__}: {error}"}
    rho = {f"rho_{name}": value for name, value in figures["rho"].items()}
    return figures | rho | {"early_third_turns": turns.early_thirds, "share_gap": _share_gap(state)}


@dataclass(eq=False)
class Turns:
    """Counts third turns that began while a job submitted no later had never run."""

    state: State
    early_thirds: int = 0
    turns: np.ndarray[Any, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.turns = np.zeros(len(self.state.left), dtype=np.int64)

    def see(self, seen: SimulatedRound) -> None:
        """Count the turns that began in this round."""
        began = seen.rows[self.state.since_s[seen.rows] == seen.began_s]
        self.turns[began] += 1
        third = began[self.turns[began] == 3]
        never = self.state.active[np.isnan(self.state.began_s[self.state.active])]
        oldest_s = self.state.jobs.arrival_s[never].min(initial=np.inf)
        self.early_thirds += int((self.state.jobs.arrival_s[third] >= oldest_s).sum())


def _share_gap(state: State) -> float | None:
    """Largest |delivered - entitled| of a team since the beginning, at any time after five minutes with demand."""
    ledger = state.teams
    if not ledger.ends_s:
        return None
    seconds = np.array(ledger.seconds)[:, None]
    passed_s = np.cumsum(seconds, axis=0)
    behind = np.abs(np.cumsum((np.array(ledger.delivered) - np.array(ledger.entitled)) * seconds, axis=0)) / passed_s
    contended = passed_s[:, 0] > SETTLED_S
    return float(behind[contended].max(initial=0))


def table(title: str, of: Mapping[str, Sequence[Figures]], policies: Sequence[str]) -> Iterator[str]:
    """Lines of a scenario's table in Markdown."""
    yield f"\n### {title}\n"
    yield "| policy | " + " | ".join(COLUMNS) + f" | JCT to `{BASE}` |"
    yield "| --- |" + " ---: |" * (len(COLUMNS) + 1)
    base = of[BASE] if BASE in policies else of[policies[0]]
    for policy in policies:
        failed = next((found["failed"] for found in of[policy] if "failed" in found), None)
        yield f"| `{policy}` | " + (f"{failed[:80]} |" if failed else _row(of[policy], of[FAIR_QUEUE], base))


def _row(runs: Sequence[Figures], fair_queue: Sequence[Figures], base: Sequence[Figures]) -> str:
    waits = [
        mine["longest_first_wait_h"] / max(fair["longest_first_wait_h"], 1e-9)
        for mine, fair in zip(runs, fair_queue, strict=True)
    ]
    rows = [{**found, "first_wait": wait} for found, wait in zip(runs, waits, strict=True)]
    cells = [_cell([row[name] for row in rows], form) for name, form in COLUMNS.values()]
    return " | ".join(cells) + f" | {difference(runs, base)} |"


def _cell(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return form.format(np.mean(known)) if known else ""


def difference(mine: Sequence[Figures], base: Sequence[Figures]) -> str:
    """Difference of the mean JCT in percent, with its 95 % interval by paired bootstrap over traces."""
    if mine is base or any("failed" in one for one in base):
        return ""
    a, b = (np.array([one["avg_jct_h"] for one in runs]) for runs in (mine, base))
    drawn = np.random.default_rng(0).integers(len(a), size=(DRAWS, len(a)))
    ratio = 100 * (a[drawn].mean(axis=1) / b[drawn].mean(axis=1) - 1)
    low, high = np.percentile(ratio, (2.5, 97.5))
    return f"{100 * (a.mean() / b.mean() - 1):+.1f} % ({low:+.1f} to {high:+.1f})"


if __name__ == "__main__":
    main()
