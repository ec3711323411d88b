"""Jobs with deadlines on a cluster that has recorded spot machines: `python -m benchmarks.spot_deadlines`.

Jobs made as Gavel makes its own on nodes of 4 GPUs of one type, by the service's rules, due after 1.03, 1.1 or 1.5
times their duration unless `--due` says otherwise. Four nodes (`--stable`) are stable; each of nine others is up as one
of SkyPilot's nine zones was in the second half of its record, and is known by the first half. Spot machines cost a
third. Jobs save every half hour. Placement knows nothing of it, the losses, the deadlines as well, and the prices as
well. Needs the reference data, see CONTRIBUTING.md.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from allocation.solvers.linear_program import divert_native_output
from allocation.types import Floats
from benchmarks.intermittence import Zone, zones
from benchmarks.problems import reference
from simulation.clock.node_failures import RecordedFailures
from simulation.clock.round_rules import PlannedRound
from simulation.clock.state import State
from simulation.rules.service import ServiceRules
from simulation.scenario.scenario import Scenario
from simulation.workloads.rate_sources import read_gavel_table

SPOT, GPUS = 9, 4
POLICIES, SEEDS = ("motley", "srtf"), (0, 1, 2)
STABLE_UP_S = 90 * 24 * 3600.0
PRICES = (3.0, 1.0)
"""Price of a GPU-hour on stable and on spot nodes."""
CHECKPOINT_S, RESTART_S = 1800.0, 60.0
PLACEMENTS: Mapping[str, Mapping[str, bool]] = {
    "tight alone": {"losses": False, "deadlines": False, "prices": False},
    "losses": {"losses": True, "deadlines": False, "prices": False},
    "losses, deadlines": {"losses": True, "deadlines": True, "prices": False},
    "losses, deadlines, prices": {"losses": True, "deadlines": True, "prices": True},
}
FIGURES = ("deadline_rate", "avg_jct_h", "lost_gpu_hours", "price")


@dataclass(eq=False)
class PricedRules(ServiceRules):
    """The service's rules, and what the GPUs cost that they gave."""

    price_of_nodes: Floats | None = None
    spent: float = 0.0
    _paid_until_s: float = 0.0

    def plan(self, state: State, *, changed: bool) -> PlannedRound:
        assert self.price_of_nodes is not None
        per_hour = float(self.price_of_nodes[self._gpu_node][self._owner >= 0].sum())
        self.spent += per_hour * (state.now_s - self._paid_until_s) / 3600
        self._paid_until_s = state.now_s
        return super().plan(state, changed=changed)


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    asked, found = _arguments(), zones()
    sys.stdout.write("| policy | placement knows | deadlines met | mean JCT, h | lost GPU-hours | price |\n")
    sys.stdout.write("| --- | --- | ---: | ---: | ---: | ---: |\n")
    with tempfile.TemporaryDirectory() as folder:
        traces = generated(Path(folder), asked)
        for policy in asked.policies:
            for name, knows in PLACEMENTS.items():
                runs = [
                    run(policy, trace, seed, found, stable=asked.stable, **knows)
                    for seed, trace in zip(SEEDS, traces, strict=True)
                ]
                met, *others = (fmean(one[figure] for one in runs) for figure in FIGURES)
                cells = " | ".join(f"{value:.2f}" for value in others)
                sys.stdout.write(f"| `{policy}` | {name} | {100 * met:.1f} % | {cells} |\n")
                sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=80)
    parser.add_argument("--per-hour", type=float, default=2)
    parser.add_argument("--stable", type=int, default=4)
    parser.add_argument("--due", type=float, nargs="+", default=[1.03, 1.1, 1.5])
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    return parser.parse_args()


def cluster(stable: int) -> str:
    return f"v100={stable + SPOT}x{GPUS}"


def generated(folder: Path, asked: argparse.Namespace) -> Sequence[Path]:
    like = ["--like", "gavel", "--jobs", str(asked.jobs), "--per-hour", str(asked.per_hour)]
    like += ["--cluster", cluster(asked.stable)]
    where = ["--seeds", f"{SEEDS[0]}-{SEEDS[-1]}", "--out", str(folder / "{seed}.csv")]
    command = [sys.executable, "-m", "simulation", "generate", *like, "--throughputs", str(_rates()), *where]
    subprocess.run(command, check=True, capture_output=True)
    traces = sorted(folder.iterdir())
    for seed, trace in zip(SEEDS, traces, strict=True):
        _set_deadlines(trace, asked.due, np.random.default_rng(seed))
    return traces


def _set_deadlines(trace: Path, due: Sequence[float], rng: np.random.Generator) -> None:
    with trace.open(newline="") as file:
        jobs = list(csv.DictReader(file))
    rates = read_gavel_table(_rates()).rates
    for job in jobs:
        duration_s = float(job["total_steps"]) / rates[job["workload"]]["v100", int(job["gpus"])]
        due_s = float(job["arrival_s"]) + rng.choice(due) * duration_s
        job["deadline_s"] = f"{due_s:.3f}"
    with trace.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(jobs[0]))
        writer.writeheader()
        writer.writerows(jobs)


def run(
    policy: str,
    trace: Path,
    seed: int,
    found: Sequence[Zone],
    *,
    stable: int,
    losses: bool,
    deadlines: bool,
    prices: bool,
) -> Mapping[str, Any]:
    """The figures of one run; spot nodes are up at the same times with every placement."""
    scenario = Scenario(
        format_name="csv", cluster=cluster(stable), throughputs=_rates(), restart_s=RESTART_S, checkpoint_s=CHECKPOINT_S
    )
    ready = scenario.prepare(trace, policy, seed=seed)
    before = ready.simulation.rounds
    assert isinstance(before, ServiceRules)
    rules = PricedRules(
        **{field.name: getattr(before, field.name) for field in fields(before) if field.init and field.name[0] != "_"}
    )
    rules.node_failures = failures(found, stable)
    rules.places_by_loss, rules.places_by_deadline = losses, deadlines
    rules.price_of_nodes = np.repeat(PRICES, (stable, SPOT))
    rules.node_price = rules.price_of_nodes if prices else None
    ready.simulation.rounds = rules
    return {**ready.finish(lambda _: None), "price": rules.spent}


def failures(found: Sequence[Zone], stable: int) -> RecordedFailures:
    """Stable nodes never fail; each spot node is up as its zone was."""
    up_s = [STABLE_UP_S] * stable + [zone.known.interruptions.mean_up_s for zone in found]
    recorded = [list(zip(zone.up.start.tolist(), zone.up.end.tolist(), strict=True)) for zone in found]
    return RecordedFailures(np.array(up_s), [*([] for _ in range(stable)), *recorded])


def _rates() -> Path:
    return reference() / "gavel" / "simulation_throughputs.json"


if __name__ == "__main__":
    main()
