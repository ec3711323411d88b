"""Mean completion times where of each workload only a few rates are measured: `python -m benchmarks.profiling`.

Jobs made as Gavel makes its own, on 60 GPUs of three types, by the service's rules. Policies are told completed rates
(`estimation.completion`): of each workload, its own measured cells, chosen one after the other by what they gain
(`estimation.profiling`), and all rates of the other workloads; the truth moves the jobs. Needs the reference data, see
CONTRIBUTING.md.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from allocation.solvers.linear_program import divert_native_output
from allocation.types import Floats, Ints
from benchmarks.completion import REPORTS, Rates
from benchmarks.contention import difference
from benchmarks.generated_traces import gavel_table, like_gavel
from estimation.completion import Cells, RateFactors, factors_of
from estimation.gpu_specifications import GPU_SPECIFICATIONS
from estimation.profile import Knowledge, Measured, Measurement, Place
from estimation.profiling import ProbeBudget, choose_cell
from estimation.rates import Machines, workload_rates
from simulation.clock.progress import FixedRates
from simulation.cluster import Cluster
from simulation.scenario.scenario import Scenario
from simulation.traces.trace import Program
from simulation.workloads.jobs import Jobs
from simulation.workloads.rate_sources import RateTable, read_gavel_table

CLUSTER = "v100=5x4,p100=5x4,k80=5x4"
POLICIES = ("motley", "max_min_fairness", "srtf", "max_sum_throughput")


@dataclass(frozen=True)
class Told:
    """What a policy is told: so many measured cells, and the others from other workloads or by the specification."""

    cells: int
    completed: bool = True
    new_model: bool = False
    """Other batches of the workload's model are not known either."""
    drawn: bool = False
    """The cells are drawn and not chosen."""


ALL = "all rates"
TOLD: Mapping[str, Told | None] = {
    ALL: None,
    **{f"specification, cells: {cells}": Told(cells, completed=False) for cells in (0, 1, 2)},
    **{f"completion, cells: {cells}": Told(cells) for cells in (0, 1, 2)},
    "completion, cells drawn: 2": Told(2, drawn=True),
    **{f"completion, new model, cells: {cells}": Told(cells, new_model=True) for cells in (0, 1, 2)},
}


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    asked = _arguments()
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(asked.processes) as pool:
        traces = like_gavel(Path(folder), asked.jobs, asked.per_hour, CLUSTER)
        runs = list(product(asked.policies, asked.told, traces))
        figures = dict(zip(runs, pool.map(run, *zip(*runs, strict=True)), strict=True))
    sys.stdout.write("| policy | told | mean JCT, h | to all rates |\n| --- | --- | ---: | ---: |\n")
    for policy, told in product(asked.policies, asked.told):
        mine, right = ([figures[policy, one, trace] for trace in traces] for one in (told, ALL))
        mean = float(np.mean([one["avg_jct_h"] for one in mine]))
        sys.stdout.write(f"| `{policy}` | {told} | {mean:.3f} | {difference(mine, right)} |\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", type=lambda text: text.split(";"), default=POLICIES, help="apart by ;")
    parser.add_argument("--told", type=lambda text: [ALL, *text.split(";")], default=list(TOLD), help="rows apart by ;")
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--per-hour", type=float, default=5)
    parser.add_argument("--processes", type=int, default=1)
    return parser.parse_args()


def run(policy: str, name: str, trace: Path) -> dict[str, Any]:
    """The figures of one run."""
    scenario = Scenario(format_name="csv", cluster=CLUSTER, throughputs=gavel_table(), restart_s=10)
    ready, told = scenario.prepare(trace, policy, seed=0), TOLD[name]
    state = ready.simulation.state
    if told is not None:
        rates = told_rates(state.jobs, told, Cluster.parse(CLUSTER), read_gavel_table(gavel_table()))
        state.work = FixedRates(state.jobs, told=rates)
    return ready.finish(lambda _: None)


def told_rates(jobs: Jobs, told: Told, cluster: Cluster, table: RateTable) -> Floats:
    """Rates (kinds, K) of jobs of which so many cells are measured by workload; 0 where a job cannot run."""
    on = jobs.configurations
    machines = Machines([GPU_SPECIFICATIONS[name].spec for name in cluster.gpu_types], on.usage, on.nodes)
    places: list[Place] = list(zip(on.gpu_type.tolist(), on.gpus.tolist(), on.nodes.tolist(), strict=True))
    truth = {workload: _rates(table, workload, jobs, cluster) for workload in table.rates}
    believed = np.zeros(jobs.kind_rate.shape)
    for workload in {program.workload or "" for program in jobs.programs}:
        kinds = [k for k, program in enumerate(jobs.programs) if program.workload == workload]
        able = jobs.kind_rate[kinds] > 0
        others = [rates for name, rates in truth.items() if not _unknown(name, workload, told)]
        factors = factors_of(machines.speed, others)
        assert factors is not None
        rng = np.random.default_rng(list(workload.encode())) if told.drawn else None
        gangs = [np.flatnonzero(row) for row in able]
        wanted = Workload(factors, places, jobs.kind_rate[kinds].max(axis=0), gangs, rng)
        measured = {places[k]: Measurement(float(wanted.rate[k]), REPORTS) for k in wanted.measured(told.cells)}
        known = Knowledge(Measured(measured))
        rates, _ = workload_rates(machines, known, factors if told.completed else None)
        believed[kinds] = np.where(able, rates, 0)
    return believed


@dataclass(frozen=True, eq=False)
class Workload:
    """A workload's true rates (K,) in steps/s, 0: none of its jobs can run there, and the choices of its gangs."""

    factors: RateFactors
    places: Sequence[Place]
    rate: Floats
    choices: Sequence[Ints]
    rng: np.random.Generator | None
    """Draws the cells to measure; None: they are chosen."""

    def measured(self, cells: int) -> list[int]:
        """The cells that are measured, in the order in which they are chosen."""
        if self.rng:
            return [int(k) for k in self.rng.choice(np.flatnonzero(self.rate), cells, replace=False)]
        chosen: list[int] = []
        for _ in range(cells):
            chosen.append(self._next(chosen))
        return chosen

    def _next(self, chosen: Sequence[int]) -> int:
        """The cell worth most, or else the one that is believed the fastest: a job will run there anyway."""
        possible = np.flatnonzero(self.rate)
        cells = Cells.of([self.places[k] for k in possible.tolist()])
        beliefs = self.factors.beliefs(Cells.of([self.places[k] for k in chosen]), self.rate[list(chosen)], cells)
        among = [np.flatnonzero(np.isin(possible, choice)) for choice in self.choices]
        found = choose_cell(beliefs, cells, among, np.ones(len(possible)), budget=ProbeBudget())
        left = np.where(np.isin(possible, chosen), -np.inf, beliefs.mean)
        return int(possible[left.argmax() if found is None else found])


def _rates(table: RateTable, workload: str, jobs: Jobs, cluster: Cluster) -> Rates:
    """Its rates on all configurations of the cluster on which the table has some."""
    on = jobs.configurations
    columns = zip(on.gpu_type.tolist(), on.gpus.tolist(), on.nodes.tolist(), jobs.placements, strict=True)
    rates = {
        (j, gpus, nodes): table.rate(Program(workload), cluster.gpu_types[j], placement)
        for j, gpus, nodes, placement in columns
    }
    return {place: rate for place, rate in rates.items() if rate > 0}


def _unknown(name: str, workload: str, told: Told) -> bool:
    return name == workload or (told.new_model and _model(name) == _model(workload))


def _model(workload: str) -> str:
    return workload.partition(" (")[0]


if __name__ == "__main__":
    main()
