"""Synergy's tables on its published sensitivities: `python -m benchmarks.synergy`, as Markdown.

Throughput of the optimum, its bound and the greedy rule where jobs fill a cluster; and completion times on a generated
trace, for the original's is not in the reference data: 100 jobs of one GPU at once, log-normal durations with the mean
and the 99th percentile that it has without queueing, models drawn evenly. `cost` tells what tuning itself takes, alone;
`placement` what it takes to place jobs by their demands, and where engines have booked all CPUs;
`curves` what measured CPU curves come to, start by start; `simulator` completion times on the same traces by Motley's
simulator, with the CPU axis of the published matrices, all data being in memory.
Needs the data, see CONTRIBUTING.md.
"""

import json
import resource
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np

from allocation.cpu_memory.opt import best_shares, fractional_spread, split_jobs
from allocation.cpu_memory.sensitivity import Sensitivity, best_case_demand, sensitivity_of_curve
from allocation.cpu_memory.tune import largest_demand_first, place_and_tune, proportional_shares, tune
from allocation.demands import MIB_PER_GIB, Demands
from allocation.inventory import Inventory
from allocation.problem import Problem
from allocation.rounds.placement import place_gangs
from allocation.solvers.linear_program import divert_native_output
from allocation.types import Floats, Ints
from benchmarks.problems import reference
from estimation.cpu_curve import SURE_REPORTS, CpuSample, cpu_curve, with_next_trial
from simulation.rules.cpu_shares import CpuRule
from simulation.rules.service import ServiceRules
from simulation.scenario.scenario import Scenario
from simulation.traces.motley_csv import write_motley_csv
from simulation.traces.trace import Program, TraceJob

GPUS, NODE = 8, np.array([24.0, 500.0])
"""A node: GPUs, CPUs and GB of memory."""
FULL = (64, 128, 256)
"""Jobs that fill a cluster."""
PLACED = 8_000
BOOKED, BOOKED_GPUS = (100, 200, 300), 4
"""Nodes, and their GPUs, of which all CPUs are booked."""
CLUSTERS = (128, 32)
JOBS, SEEDS = 100, range(5)
MEAN_H, SIGMA = 3.013, 0.461
"""Of the durations with proportional shares; with this deviation the 99th percentile is 7.92 h."""
ROUND_S = 300.0
CURVES, NOISE = 100, 0.03
"""Repetitions of the measurement of a curve, and the standard deviation of a start's rate, relative."""
CLAIMED = {
    (128, "FIFO"): (3.013, 7.92, 2.180, 7.42),
    (128, "SRTF"): (3.013, None, 2.183, None),
    (32, "FIFO"): (5.631, 12.94, 5.083, 10.59),
    (32, "SRTF"): (4.412, 13.09, 4.107, 12.34),
}
"""By the released simulator on its own trace: mean and 99th percentile in hours, proportional and tuned."""

Throughputs = Callable[[Sequence[Sensitivity], int], Floats]
"""Throughput of each running job on so many nodes, 1 being that of its proportional share."""
Order = Callable[[Floats], Ints]
"""Jobs in the order of the queue, of what each has left."""


def main() -> None:
    divert_native_output(sys.stderr.fileno())
    if sys.argv[1:]:
        sys.stdout.write(f"{ALONE[sys.argv[1]]()}\n")
        return
    sys.stdout.write("| jobs and GPUs | optimum, x proportional | bound above it | s | split by the spread | greedy: ")
    sys.stdout.write(" | ".join(FIRST) + " |\n| ---: | ---: | ---: | ---: | ---: |" + " ---: |" * len(FIRST) + "\n")
    for jobs in FULL:
        sys.stdout.write(full_cluster(jobs))
    sys.stdout.write("\n| GPUs, queue | shares | mean JCT, h: claim | found | p99, h: claim | found | mean, x |\n")
    sys.stdout.write("| --- | --- | ---: | ---: | ---: | ---: | ---: |\n")
    for gpus in CLUSTERS:
        for queue in ORDERS:
            sys.stdout.write(completion_times(gpus, queue))
    sys.stdout.write(f"\n{cost()}\n")


def full_cluster(jobs: int) -> str:
    """A row of the first table: jobs of one GPU, of models drawn evenly, as many as GPUs."""
    drawn = [models()[i] for i in np.random.default_rng(0).integers(len(models()), size=jobs)]
    nodes, size, floor = jobs // GPUS, np.ones(jobs, dtype=np.int64), np.tile(share(), (jobs, 1))
    began = process_time()
    whole = best_shares(drawn, size, floor, nodes * NODE)
    seconds = process_time() - began
    bound = best_shares(drawn, size, floor, nodes * NODE, whole=False).value
    parts = fractional_spread(size, whole.amount, np.full(nodes, GPUS), np.tile(NODE, (nodes, 1)))
    greedy = " | ".join(f"{_tuned(drawn, nodes, order).mean():.3f}" for order in FIRST.values())
    return (
        f"| {jobs} | {whole.value / jobs:.3f} | {max(bound / whole.value - 1, 0):.3%} | {seconds:.2f}"
        f" | {split_jobs(parts)} | {greedy} |\n"
    )


def completion_times(gpus: int, queue: str) -> str:
    """Rows of the second table: one per rule that shares CPUs and memory, over all seeds."""
    mean, late, tuned_mean, tuned_late = CLAIMED[gpus, queue]
    claims = {"proportional": (mean, late), "tuned": (tuned_mean, tuned_late)}
    text, base = "", 0.0
    for name, rule in RULES.items():
        hours = np.array([simulate(trace(seed), gpus // GPUS, ORDERS[queue], rule) for seed in SEEDS]) / 3600
        found, p99 = hours.mean(), np.percentile(hours, 99, axis=1).mean()
        base = base or found
        claimed = [f"{x:.3f}" if x else "" for x in claims.get(name, (None, None))]
        text += f"| {gpus}, {queue} | {name} | {claimed[0]} | {found:.3f} ({_range(hours.mean(axis=1))})"
        text += f" | {claimed[1]} | {p99:.2f} | {base / found:.2f} |\n"
    return text


def _range(values: Floats) -> str:
    return f"{values.min():.2f} to {values.max():.2f}"


def cost() -> str:
    """CPU time and memory of tuning jobs that are placed at random, as many as GPUs: the first round of a service."""
    before_mib = _peak_mib()
    gpus = np.zeros((PLACED, PLACED // GPUS), dtype=np.int64)
    rng = np.random.default_rng(0)
    gpus[np.arange(PLACED), rng.permutation(np.repeat(np.arange(PLACED // GPUS), GPUS))] = 1
    drawn = [models()[i] for i in rng.integers(len(models()), size=PLACED)]
    began = process_time()
    demand = np.array([best_case_demand(job, share()) for job in drawn])
    order = largest_demand_first(gpus.sum(axis=1), demand)
    shares = tune(gpus, np.tile(share(), (PLACED, 1)), demand, np.tile(NODE, (PLACED // GPUS, 1)), order)
    seconds = process_time() - began
    reached = fmean(job.at(amount) for job, amount in zip(drawn, shares.amount, strict=True))
    used = f"{seconds:.1f} s of CPU time and {_peak_mib() - before_mib:.0f} MiB"
    return f"{PLACED} placed jobs on {PLACED // GPUS} nodes are tuned in {used}, to {reached:.3f} x proportional."


def placement() -> str:
    """CPU time of placing as many jobs as GPUs, by their GPUs alone, and by the demands of twelve models, or of each.

    The last is the worst case: no two jobs have the same demand, and nodes are searched for each.
    """
    rng, one = np.random.default_rng(0), np.ones(PLACED, dtype=np.int64)
    usual = np.array([best_case_demand(models()[i], share()) for i in rng.integers(len(models()), size=PLACED)])
    own = usual * rng.uniform(0.9, 1.1, usual.shape)
    problem = Problem.of(np.ones((PLACED, 1)), [[1]], [PLACED], nodes=[1])
    text = "| demands | CPU s of placing |\n| --- | ---: |\n"
    for name, amount in (("none", None), ("of twelve models", usual), ("all different", own)):
        inventory = _full_cluster(amount)
        began = process_time()
        assert (place_gangs(problem, one - 1, inventory) >= 0).all()
        text += f"| {name} | {process_time() - began:.2f} |\n"
    return f"{text}\n{_placement_where_all_is_booked()}"


def _placement_where_all_is_booked() -> str:
    """CPU time of a round that finds no CPU for any of its jobs, as many as GPUs, which ask for none, or some for two.

    Either on all nodes nothing is left, or on each one CPU, which one job gets.
    """
    text = "| nodes | CPUs left on each | jobs ask for | CPU s of placing | with `tune` |\n"
    text += "| ---: | ---: | --- | ---: | ---: |\n"
    for nodes in BOOKED:
        for left in (0.0, 1.0):
            for name, asked in (("nothing", (0.0,)), ("nothing, or two CPUs", (0.0, 2.0))):
                found = [_booked_s(nodes, left, asked, tuned=tuned) for tuned in (False, True)]
                text += f"| {nodes} | {left:.0f} | {name} | {found[0]:.2f} | {found[1]:.2f} |\n"
    return text


def _booked_s(nodes: int, left: float, asked: Sequence[float], *, tuned: bool) -> float:
    jobs = nodes * BOOKED_GPUS
    problem = Problem.of(np.ones((jobs, 1)), [[1]], [jobs], nodes=[1])
    columns = {"node_cpus": np.full(nodes, left), "node_least": np.tile([1.0, 0.0], (nodes, 1))}
    demands = _demands(nodes, np.zeros((jobs, 2))) if tuned else None
    inventory = replace(
        _cluster(nodes, BOOKED_GPUS), **columns, cpus_per_gpu=np.resize(asked, jobs).astype(float), demands=demands
    )
    began = process_time()
    placed = place_gangs(problem, np.zeros(jobs, dtype=np.int64), inventory)
    assert np.count_nonzero(placed >= 0) == left * nodes
    return process_time() - began


def _full_cluster(amount: Floats | None) -> Inventory:
    """Nodes with as many GPUs as jobs, which demand so much (m, 2) per GPU."""
    nodes = PLACED // GPUS
    return replace(_cluster(nodes, GPUS), demands=None if amount is None else _demands(nodes, amount))


def _demands(nodes: int, amount: Floats) -> Demands:
    jobs = len(amount)
    shares = np.tile(share(), (nodes, 1))
    return Demands(share=shares, profile=np.arange(jobs), amount=amount[:, None], held=np.zeros((jobs, 2)))


def _cluster(nodes: int, gpus: int) -> Inventory:
    """Idle nodes with as many GPUs as jobs, which ask for no CPUs."""
    none = np.zeros(nodes * gpus)
    return Inventory(
        gpu_node=np.repeat(np.arange(nodes), gpus),
        node_type=np.zeros(nodes, dtype=np.int64),
        holder=np.full(none.size, -1),
        releasing=none > 0,
        node_cpus=np.full(nodes, NODE[0]),
        node_memory_mib=np.full(nodes, NODE[1] * MIB_PER_GIB),
        cpus_per_gpu=none,
        memory_per_gpu_mib=none,
        uneven=none > 0,
    )


def measured_curves() -> str:
    """Rows of a table: each model's jobs start alone on a node, one after the other, with what was measured before.

    A start's rate is the model's throughput with all data in memory, times a noise of 3 % per start.
    """
    head = "| model | starts | CPUs per GPU, mean | throughput, x proportional | best possible |\n"
    rows = [_measured_curve(name, model) for name, model in zip(names(), models(), strict=True)]
    return head + "| --- | ---: | ---: | ---: | ---: |\n" + "".join(rows)


def _measured_curve(name: str, model: Sensitivity) -> str:
    runs = [_starts(model, np.random.default_rng(seed)) for seed in range(CURVES)]
    cpus, most = [starts[-1] for starts in runs], np.array([model.cpus.max(), model.memory_gib.max()])
    reached = fmean(model.at(np.array([last, most[1]])) for last in cpus)
    base, best = (model.at(np.array([given, most[1]])) for given in (share()[0], most[0]))
    until = fmean(len(starts) - 1 for starts in runs)
    return f"| {name} | {until:.1f} | {fmean(cpus):.1f} | {reached / base:.2f} | {best / base:.2f} |\n"


def _starts(model: Sensitivity, rng: np.random.Generator) -> list[float]:
    """CPUs per GPU of each start, until the same is asked for again."""
    most = np.array([model.cpus.max(), NODE[1]])
    given, samples = [float(share()[0])], list[CpuSample]()
    while len(given) < 2 or given[-1] != given[-2]:
        rate = model.at(np.array([given[-1], model.memory_gib.max()])) * rng.normal(1, NOISE)
        samples.append(CpuSample(int(given[-1]), 1, rate, SURE_REPORTS))
        curve = sensitivity_of_curve(with_next_trial(cpu_curve(samples)), share(), most=most)
        given.append(float(best_case_demand(curve, share())[0]))
    return given


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@dataclass(frozen=True)
class Trace:
    """Jobs that are there from the beginning: seconds with the proportional share (m,), and their models."""

    duration_s: Floats
    jobs: Sequence[Sensitivity]


@cache
def trace(seed: int) -> Trace:
    rng = np.random.default_rng(seed)
    drawn = rng.lognormal(0, SIGMA, JOBS)
    kinds = rng.integers(len(models()), size=JOBS)
    return Trace(drawn * MEAN_H * 3600 / drawn.mean(), [models()[kind] for kind in kinds])


def simulated() -> str:
    """Rows of a table: mean completion times under FIFO by Motley's simulator, over all seeds."""
    text = "| GPUs | CPUs | placed by | mean JCT, h | mean, x |\n| ---: | --- | --- | ---: | ---: |\n"
    with TemporaryDirectory(prefix="motley-synergy-") as folder:
        for gpus in CLUSTERS:
            base = 0.0
            for rule, places in SIMULATED:
                hours = np.array([_simulated(Path(folder), gpus, rule, seed, places=places) for seed in SEEDS])
                base, by = base or hours.mean(), "GPUs and CPUs" if places else "GPUs"
                text += (
                    f"| {gpus} | {rule} | {by} | {hours.mean():.3f} ({_range(hours)}) | {base / hours.mean():.2f} |\n"
                )
    return text


def _simulated(folder: Path, gpus: int, rule: CpuRule, seed: int, *, places: bool) -> float:
    """Mean hours to completion of one trace; whether jobs are placed by their demand for CPUs, too."""
    path, drawn = folder / f"{seed}.csv", trace(seed)
    jobs = [
        TraceJob(name=str(i), arrival_s=0, gangs=(1,), duration_s=float(seconds), program=_program(model))
        for i, (seconds, model) in enumerate(zip(drawn.duration_s, drawn.jobs, strict=True))
    ]
    path.write_text("".join(write_motley_csv(jobs)))
    cluster = f"v100={gpus // GPUS}x{GPUS}"
    scenario = Scenario(
        format_name="csv", cluster=cluster, round_s=ROUND_S, cpu_memory=rule, cpus_per_gpu=float(share()[0])
    )
    ready = scenario.prepare(path, "fifo", seed)
    rules = ready.simulation.rounds
    assert isinstance(rules, ServiceRules)
    rules.cpu_shares = rules.cpu_shares and replace(rules.cpu_shares, places=places)
    return float(ready.finish(lambda _: None)["avg_jct_h"])


def _program(model: Sensitivity) -> Program:
    """With the model's curve where all data is in memory; whole numbers of CPUs alone."""
    points = zip(model.cpus.tolist(), model.throughput[:, -1].tolist(), strict=True)
    return Program(cpu_curve=tuple((int(cpus), rate) for cpus, rate in points if cpus >= 1 and cpus == int(cpus)))


def names() -> list[str]:
    return list(_published()["models"])


@cache
def models() -> list[Sensitivity]:
    """The twelve published matrices."""
    data = _published()
    cpus, memory = (np.array(data["_axes"][name], float) for name in ("rows_cpu_per_gpu", "cols_mem_gb_per_gpu"))
    matrices = (np.array(m["tput_matrix_rel_to_proportional"], float) for m in data["models"].values())
    return [Sensitivity(cpus, memory, matrix) for matrix in matrices]


@cache
def _published() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((reference() / "traces" / "synergy_sensitivity_1gpu.json").read_text())
    return found


def share() -> Floats:
    """The proportional share of a GPU (2,)."""
    one: Floats = proportional_shares(NODE[None, :], np.array([GPUS]))[0]
    return one


def simulate(trace: Trace, nodes: int, order: Order, rule: Throughputs) -> Floats:
    """Completion times (m,) in seconds, where each round runs the first of the queue that fit, placed anew."""
    left, done, now = trace.duration_s.copy(), np.zeros(JOBS), 0.0
    known: dict[tuple[int, ...], Floats] = {}
    while (left > 0).any():
        queue = order(left)
        running = queue[left[queue] > 0][: nodes * GPUS]
        jobs = tuple(running.tolist())
        if jobs not in known:
            known[jobs] = rule([trace.jobs[i] for i in jobs], nodes)
        ends_s = left[running] / known[jobs]
        done[running] = now + ends_s
        left[running] = np.where(ends_s <= ROUND_S, 0, left[running] - ROUND_S * known[jobs])
        now += ROUND_S
    return done


def proportional(jobs: Sequence[Sensitivity], nodes: int) -> Floats:
    return np.ones(len(jobs))


def tuned(jobs: Sequence[Sensitivity], nodes: int) -> Floats:
    return _tuned(jobs, nodes, largest_demand_first)


def _tuned(jobs: Sequence[Sensitivity], nodes: int, first: Callable[[Ints, Floats], Ints]) -> Floats:
    """Throughputs by the greedy rule, which serves jobs in this order."""
    size, floor = np.ones(len(jobs), dtype=np.int64), np.tile(share(), (len(jobs), 1))
    demand = np.array([best_case_demand(job, share()) for job in jobs])
    cluster = {"capacity": np.tile(NODE, (nodes, 1)), "node_gpus": np.full(nodes, GPUS)}
    _, shares = place_and_tune(size, floor, demand, **cluster, order=first(size, demand))
    return np.array([job.at(amount) for job, amount in zip(jobs, shares.amount, strict=True)])


def optimal(jobs: Sequence[Sensitivity], nodes: int) -> Floats:
    """Throughputs of the linear relaxation: the largest sum that any rule could reach in this round."""
    size, floor = np.ones(len(jobs), dtype=np.int64), np.tile(share(), (len(jobs), 1))
    return best_shares(jobs, size, floor, nodes * NODE, whole=False).throughput


FIRST: dict[str, Callable[[Ints, Floats], Ints]] = {
    "largest demand first": largest_demand_first,
    "as drawn": lambda size, _: np.arange(size.size),
    "smallest first": lambda size, demand: largest_demand_first(size, demand)[::-1],
}
SIMULATED = ((CpuRule.PROPORTIONAL, False), (CpuRule.TUNE, False), (CpuRule.TUNE, True), (CpuRule.OPT, False))
ALONE = {"cost": cost, "curves": measured_curves, "placement": placement, "simulator": simulated}
RULES: dict[str, Throughputs] = {"proportional": proportional, "tuned": tuned, "optimal": optimal}
ORDERS: dict[str, Order] = {"FIFO": lambda left: np.arange(left.size), "SRTF": np.argsort}


if __name__ == "__main__":
    main()
