"""Gavel's traces, throughputs and recorded runs, and the simulator set up as Gavel's was."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocation.policies.parameters import Policy
from simulation.clock.progress import FixedRates
from simulation.clock.run import SimulatedRound, Simulation
from simulation.clock.state import State
from simulation.cluster import Cluster
from simulation.rules.gavel import GavelRules
from simulation.traces.gavel import read_gavel
from simulation.workloads.jobs import Jobs
from simulation.workloads.rate_sources import read_gavel_table
from tests.reference import reference

ROUND_S = 360.0


def gavel_reference() -> Path:
    return reference("gavel")


def golden(name: str) -> dict[str, Any]:
    return json.loads((gavel_reference() / "golden" / f"{name}.json").read_text())


def expected(trace: str, policy: str) -> dict[str, Any]:
    """The simulated result of the original; by ECOS, its default, where a solver decides."""
    runs = json.loads((gavel_reference() / "expected.json").read_text())["simulations"]
    usual = {"trace": f"{trace}.trace", "policy": policy, "solver": "ECOS", "seed": 0, "round_s": 360}
    return next(run for run in runs if usual.items() <= run.items())


def cluster_words(cluster: str) -> str:
    """Gavel's `2:2:2` in our words."""
    return "v100={},p100={},k80={}".format(*cluster.split(":"))


@dataclass
class Run:
    """A trace under Gavel's rules, and its rounds: their times, and which jobs ran on which type."""

    simulation: Simulation
    rounds: list[tuple[float, dict[str, str]]]
    gpu_types: tuple[str, ...]

    @classmethod
    def of(
        cls,
        trace: str,
        cluster: str,
        policy: Policy,
        *,
        shuffled: bool = False,
        lend: bool = True,
        packed: bool = False,
    ) -> "Run":
        named = Cluster.parse(cluster_words(cluster))
        machines = named.of_types(sorted(named.gpu_types)).pooled
        fill = [machines.gpu_types.index(gpu_type) for gpu_type in named.gpu_types]
        lines = (gavel_reference() / "traces" / f"{trace}.trace").read_text().splitlines()
        table = read_gavel_table(gavel_reference() / "simulation_throughputs.json")
        jobs = Jobs.of(read_gavel(lines).jobs, machines, table, beside=table.rate_beside if packed else None)
        shuffle = random.Random(5).shuffle if shuffled else None
        rounds = GavelRules(policy, ROUND_S, fill, shuffle, lend)
        run = cls(
            Simulation(State.before(jobs, machines, [0, 0, 0], FixedRates(jobs, whole_steps=True)), rounds),
            [],
            machines.gpu_types,
        )
        run.simulation.watch = run.note
        return run

    def note(self, done: SimulatedRound) -> None:
        jobs = self.simulation.state.jobs
        types = jobs.configurations.gpu_type[done.configurations].tolist()
        named = {jobs.names[i]: self.gpu_types[j] for i, j in zip(done.rows.tolist(), types, strict=True)}
        self.rounds.append((done.began_s, named))

    def jct_s(self) -> dict[str, float]:
        state = self.simulation.run()
        return dict(zip(state.jobs.names, (state.finish_s - state.jobs.arrival_s).tolist(), strict=True))
