"""Policies beside the bound that no schedule can beat, on every recorded workload: `python -m benchmarks.bounds`.

`--only philly,generated --policies "sia;motley"` for some. Recorded workloads are in `MOTLEY_REFERENCE` or
`../shared/reference`, and left out where they are not; Sia's run by its rules and `--knowledge service`, others by the
service's. Times in hours; the bound of each trace is `simulation.results.bound`, and *above* how far a figure is from
it. Where a scenario has several traces, the last rows are their means, with the 95 % interval of the difference to the
first policy by paired bootstrap.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from allocation.solvers.linear_program import divert_native_output
from benchmarks.contention import Run, difference, performed
from benchmarks.contention_scenarios import philly_jobs, philly_options, written
from benchmarks.generated_traces import like_sia
from benchmarks.problems import reference
from simulation.clock.service_training import SERVICE
from simulation.results.bound import TraceBound, certified_bound
from simulation.scenario.scenario import Scenario
from simulation.scenario.setting import read_seeds

POLICIES = "sia;motley;motley_static"
SIA_CLUSTER = "aws=6x4,dgx-ext=2x8,rtx=3x8"
GAVEL_CLUSTER = "v100=2x4,p100=4x4,k80=6x4"
HEADER = "| trace | policy | mean | above | median | p99 | makespan | above | restarts | overhead |"


@dataclass(frozen=True)
class Workload:
    """Traces of a kind, and how they are simulated; choices were made by those that are `chosen_by`."""

    title: str
    scenario: Callable[[], Scenario]
    traces: Callable[[Path], Sequence[Path]]


def workloads(seeds: Sequence[int]) -> dict[str, Workload]:
    """All workloads by key; of those that are generated, one trace a seed."""
    sia, gavel = reference() / "sia" / "workloads", reference() / "gavel" / "traces"
    return {
        "philly": Workload("Sia's Philly 1 to 3", _sia, _recorded(sia / "philly", "*.csv")),
        "derived": Workload("Sia's derived workloads", _sia, _recorded(sia / "derived", "philly-*.csv")),
        "generated": Workload(
            "generated like Philly 1 to 3", _sia, lambda folder: like_sia(folder, seeds, name="generated")
        ),
        "gavel": Workload("Gavel's traces, restarts of 60 s", _gavel, _recorded(gavel, "*.trace")),
        "tiresias": Workload("Tiresias' 60 jobs", _tiresias, _recorded(reference() / "traces", "tiresias*.csv")),
        "teams": Workload(
            "five teams, load 1.0", lambda: philly_options(Path()), written("teams", philly_jobs(1.0), seeds)
        ),
    }


def _sia() -> Scenario:
    profiles = reference() / "sia" / "apps"
    return Scenario(format_name="sia", cluster=SIA_CLUSTER, profiles=profiles, knowledge=SERVICE, round_s=60)


def _gavel() -> Scenario:
    rates = reference() / "gavel" / "simulation_throughputs.json"
    timing: dict[str, Any] = {"rules": "service", "round_s": 60, "min_run_s": 300, "restart_s": 60}
    return Scenario(format_name="gavel", cluster=GAVEL_CLUSTER, throughputs=rates, **timing)


def _tiresias() -> Scenario:
    return Scenario(cluster="v100=4x4,t4=4x4", rules="service", round_s=60, min_run_s=300, restart_s=60)


def _recorded(folder: Path, pattern: str) -> Callable[[Path], Sequence[Path]]:
    return lambda _: sorted(folder.glob(pattern))


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    asked = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        for key, one in workloads(asked.seeds).items():
            if asked.only and key not in asked.only:
                continue
            scenario, traces = one.scenario(), one.traces(Path(folder))
            if not traces:
                sys.stdout.write(f"\n### {one.title}\n\nnot here\n")
                continue
            runs = [Run(key, policy, scenario, trace) for trace in traces for policy in asked.policies]
            found = performed(runs, asked.json, asked.processes)
            bounds = {trace.name: certified_bound(scenario, trace) for trace in traces}
            by_policy = {p: [found[r.key] for r in runs if r.policy == p] for p in asked.policies}
            sys.stdout.writelines(line + "\n" for line in table(one.title, by_policy, bounds))
            sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), help="workloads, by key")
    parser.add_argument("--policies", type=lambda text: text.split(";"), default=POLICIES.split(";"), help="apart by ;")
    parser.add_argument("--seeds", type=read_seeds, default=[1000, 1001, 1002], help="of generated workloads")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument(
        "--json", type=Path, help="append the figures of each run there; runs found there are not repeated"
    )
    return parser.parse_args()


def table(
    title: str, by_policy: Mapping[str, Sequence[Mapping[str, Any]]], bounds: Mapping[str, TraceBound]
) -> Iterator[str]:
    """Lines of a workload's table in Markdown: each trace's bound and policies, then the means over the traces."""
    yield f"\n### {title}\n"
    yield HEADER
    yield "| --- | --- |" + " ---: |" * (HEADER.count("|") - 3)
    for place, (trace, bound) in enumerate(bounds.items()):
        yield f"| {trace} | bound | {bound.avg_jct_h or 0:.3f} | | | | {bound.makespan_h or 0:.2f} | | | |"
        for policy, runs in by_policy.items():
            yield f"| | `{policy}` | {_row([runs[place]], [bound])} |"
    if len(bounds) > 1:
        yield from _means(by_policy, list(bounds.values()))


def _means(by_policy: Mapping[str, Sequence[Mapping[str, Any]]], bounds: Sequence[TraceBound]) -> Iterator[str]:
    first = next(iter(by_policy.values()))
    for policy, runs in by_policy.items():
        than_first = difference(runs, first)
        yield f"| mean | `{policy}`{f', {than_first}' if than_first else ''} | {_row(runs, bounds)} |"


def _row(runs: Sequence[Mapping[str, Any]], bounds: Sequence[TraceBound]) -> str:
    if failed := next((run["failed"] for run in runs if "failed" in run), None):
        return str(failed)[:80]
    jct, median, p99, makespan, restarts, overhead = (
        mean(run[name] for run in runs)
        for name in ("avg_jct_h", "median_jct_h", "p99_jct_h", "makespan_h", "restarts_per_job", "overhead")
    )
    least_jct, least_makespan = (mean(getattr(b, name) or 0 for b in bounds) for name in ("avg_jct_h", "makespan_h"))
    return (
        f"{jct:.3f} | {_above(jct, least_jct)} | {median:.3f} | {p99:.2f} | {makespan:.2f} | "
        f"{_above(makespan, least_makespan)} | {restarts:.1f} | {overhead:.1%}"
    )


def _above(value: float, least: float) -> str:
    return f"{value / least - 1:+.0%}" if least > 0 else ""


if __name__ == "__main__":
    main()
