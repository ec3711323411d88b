"""Sia's applications, workloads and recorded runs, and the simulator set up as Sia's was."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from allocation.policies import POLICIES
from allocation.policies.parameters import Policy, with_parameters
from simulation.clock.round_rules import RoundRules
from simulation.clock.run import Simulation
from simulation.cluster import Cluster
from simulation.rules.sia import SiaRules
from simulation.scenario.setting import begin
from simulation.traces.sia import read_sia
from simulation.traces.trace import Trace
from simulation.workloads.applications import ApplicationProfiles
from tests.reference import reference

CLUSTER = Cluster.parse("aws=6x4,dgx-ext=2x8,rtx=3x8")
ROUND_S = 60.0
HEADER = "name,time,application,num_replicas,batch_size"


def sia() -> Policy:
    """With what the published code rounds."""
    return with_parameters(POLICIES["sia"], {"rounded": True, "gap": 1e-4})


def recorded(name: str) -> Any:
    return json.loads((reference("sia") / f"{name}.json").read_text())


def expected(run: str) -> dict[str, Any]:
    result: dict[str, Any] = recorded("expected")["runs"][run]
    return result


@cache
def profiles() -> ApplicationProfiles:
    return ApplicationProfiles(reference("sia") / "apps")


def workload(name: str, category: str = "adaptive") -> Trace:
    lines = (reference("sia") / "workloads" / f"{name}.csv").read_text().splitlines()
    return read_sia(lines, category=category)


def simulation(trace: Trace, rounds: RoundRules, cluster: Cluster = CLUSTER, knowledge: str = "own") -> Simulation:
    return Simulation(begin(trace, cluster, profiles(), rounds, None, knowledge=knowledge), rounds)


def run(trace: Trace, policy: Policy, round_s: float = ROUND_S, *, knowledge: str = "own") -> Simulation:
    """The whole trace, by Sia's rules."""
    whole = simulation(trace, SiaRules(policy, round_s), knowledge=knowledge)
    whole.run()
    return whole


def one_job(job: dict[str, Any]) -> Trace:
    """A workload of this job alone."""
    return read_sia([HEADER, ",".join(str(job[name]) for name in HEADER_NAMES)])


HEADER_NAMES: Sequence[str] = HEADER.split(",")
