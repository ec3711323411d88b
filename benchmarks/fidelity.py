"""The same jobs through the live service and through the simulator: `python -m benchmarks.fidelity`.

The service runs on emulated nodes of this machine, with jobs that are processes; their attempts are read over REST.
With `--training` they are elastic, with tuned batches, and hybrid-parallel, and the simulator runs by
`--knowledge service`.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.fidelity_figures import Record, breakdown, live_figures, table
from benchmarks.fidelity_jobs import CLUSTER, cluster_words, fidelity_jobs, spec_of, write_trace
from benchmarks.fidelity_training import training_jobs, training_spec, write_recordings, write_training_trace
from benchmarks.live_service import UNFINISHED, live_service
from motley_client import Client
from simulation.clock.service_training import SERVICE
from simulation.scenario.scenario import Scenario
from simulation.scenario.setting import read_seeds
from simulation.traces.trace import TraceJob

POLICIES = ("motley", "max_min_fairness")
ROUND_S, MIN_RUN_S = 5.0, 10.0
SET_UP_S = 2.0
"""What the processes of a job take before its first step."""
START_S = 2.75
"""From the decision, or the moment when the GPUs are free, to the first step on two cores, by the breakdown."""


class Delays(NamedTuple):
    """What starts, stops and events take in the service, as options of the simulator."""

    first_start_s: float = 0.0
    release_s: float = 0.0
    event_delay_s: float | None = None


SIMULATED = {"by defaults": Delays(), "with the delays": Delays(START_S, release_s=0.9, event_delay_s=0.6)}


class Kind(NamedTuple):
    """Jobs of the comparison: how they are made, told to the service, and told to the simulator."""

    jobs: Callable[[int, float, int], list[TraceJob]]
    spec: Callable[..., Mapping[str, Any]]
    options: Callable[[Sequence[TraceJob], Path], tuple[Path, Mapping[str, Any]]]
    """Writes the trace; returns its path, and the options of the simulation."""


def _options_of_rates(jobs: Sequence[TraceJob], folder: Path) -> tuple[Path, Mapping[str, Any]]:
    trace, table_of_rates = write_trace(jobs, folder)
    return trace, {"format_name": "csv", "throughputs": table_of_rates, "restart_s": START_S}


def _options_of_training(jobs: Sequence[TraceJob], folder: Path) -> tuple[Path, Mapping[str, Any]]:
    profiles = write_recordings(folder / "applications", restart_s=START_S)
    return write_training_trace(jobs, folder), {"format_name": "sia", "profiles": profiles, "knowledge": SERVICE}


CONSTANT = Kind(fidelity_jobs, spec_of, _options_of_rates)
TRAINING = Kind(training_jobs, training_spec, _options_of_training)

SIMULATIONS, SPREAD_S = 5, 0.2
"""One assignment that differs changes all later ones: the mean over so many delays of events, evenly within the spread,
is compared, for a live run's delays are spread by the scheduler's tick.
"""
POLL_S = 2.0


def main() -> None:
    asked = _arguments()
    kind = TRAINING if asked.training else CONSTANT
    runs = [(seed, kind.jobs(asked.jobs, asked.within, seed)) for seed in asked.seeds]
    for policy in asked.policies:
        records = [recorded(policy, kind, jobs, asked.record, seed) for seed, jobs in runs]
        live = mean_of([live_figures(record) for record in records])
        simulated = {
            words: mean_of([mean_figures(policy, kind, jobs, delays) for _, jobs in runs])
            for words, delays in SIMULATED.items()
        }
        lines = [*table(policy, live, simulated), *(line for record in records for line in breakdown(record))]
        sys.stdout.writelines(line + "\n" for line in lines)
        sys.stdout.flush()


def mean_of(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The means of their figures."""
    return {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", type=lambda text: text.split(","), default=list(POLICIES))
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--within", type=float, default=180, help="seconds in which all jobs arrive")
    parser.add_argument("--seeds", type=read_seeds, default=[0], help="of the jobs; figures are means: 0-2")
    parser.add_argument("--training", action="store_true", help="elastic, tuned and hybrid-parallel jobs")
    parser.add_argument("--record", type=Path, help="folder of what REST told; a policy found there is not run again")
    return parser.parse_args()


# -- the service ------------------------------------------------------------------------------------------------


def recorded(policy: str, kind: Kind, jobs: Sequence[TraceJob], folder: Path | None, seed: int) -> Record:
    """What the service did with the jobs, from the folder or of a new run."""
    path = folder / f"{policy}-{seed}.json" if folder else None
    if path and path.exists():
        found: Record = json.loads(path.read_text())
        return found
    measured = {"MOTLEY_MEASURE_RATES": "false"}  # the simulator starts no job elsewhere to measure it
    with live_service(CLUSTER, policy=policy, round_s=ROUND_S, min_run_s=MIN_RUN_S, **measured) as client:
        record = run_live(client, kind, jobs)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record))
    return record


def run_live(client: Client, kind: Kind, jobs: Sequence[TraceJob]) -> Record:
    """Submit the jobs when they arrive, and wait for their ends."""
    began, ids = time.monotonic(), []
    for job in jobs:
        time.sleep(max(began + job.arrival_s - time.monotonic(), 0))
        ids.append(client.submit(kind.spec(job, set_up_s=SET_UP_S, restore_s=START_S))["id"])
    while next(client.jobs(state=UNFINISHED, fields=["id"]), None):
        time.sleep(POLL_S)
    return {
        "jobs": [{**client.job(job), "attempts": list(client.attempts(job))} for job in ids],
        "rounds": list(client.rounds()),
    }


# -- the simulator ----------------------------------------------------------------------------------------------


def mean_figures(policy: str, kind: Kind, jobs: Sequence[TraceJob], delays: Delays) -> dict[str, float]:
    """Mean figures over the spread of the event delay; of one simulation where events cause no rounds."""
    if delays.event_delay_s is None:
        return simulated_figures(policy, kind, jobs, delays)
    around = delays.event_delay_s + np.linspace(-SPREAD_S / 2, SPREAD_S / 2, SIMULATIONS)
    runs = [
        simulated_figures(policy, kind, jobs, delays._replace(event_delay_s=delay_s)) for delay_s in around.tolist()
    ]
    return {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}


def simulated_figures(policy: str, kind: Kind, jobs: Sequence[TraceJob], delays: Delays) -> dict[str, float]:
    """The figures of `live_figures` by the simulator."""
    with tempfile.TemporaryDirectory() as name:
        trace, options = kind.options(jobs, Path(name))
        scenario = Scenario(
            cluster=cluster_words(),
            rules="service",
            round_s=ROUND_S,
            min_run_s=MIN_RUN_S,
            first_start_s=delays.first_start_s,
            release_s=delays.release_s,
            event_delay_s=delays.event_delay_s,
            **options,
        )
        run = scenario.prepare(trace, policy, seed=0)
        run.finish(lambda _: None)
    state = run.simulation.state
    jct_s = state.finish_s - state.jobs.arrival_s
    return {
        "mean_jct_s": float(jct_s.mean()),
        "median_jct_s": float(np.median(jct_s)),
        "makespan_s": float(state.finish_s.max()),
        "restarts": float(state.restarts.mean()),
    }


if __name__ == "__main__":
    main()
