"""Registry of the policies, each a pure function of a problem; a new policy is one file and one line here."""

from dataclasses import dataclass

from allocation.policies.allox import allox
from allocation.policies.fifo import fifo
from allocation.policies.fifo_fastest import fifo_fastest
from allocation.policies.finish_time_fairness import finish_time_fairness
from allocation.policies.finish_time_fairness import plain_program as plain_finish_time_fairness
from allocation.policies.hadar import hadar
from allocation.policies.hadar import plain_program as plain_hadar
from allocation.policies.hierarchical_fairness import hierarchical_fairness
from allocation.policies.hierarchical_fairness import plain_program as plain_hierarchical_fairness
from allocation.policies.isolated import isolated
from allocation.policies.las import las
from allocation.policies.makespan import makespan
from allocation.policies.makespan import plain_program as plain_makespan
from allocation.policies.max_min_fairness import max_min_fairness
from allocation.policies.max_min_fairness import plain_program as plain_max_min_fairness
from allocation.policies.max_min_fairness_agnostic import max_min_fairness_agnostic
from allocation.policies.max_min_fairness_agnostic import plain_program as plain_max_min_fairness_agnostic
from allocation.policies.max_sum_throughput import max_sum_throughput
from allocation.policies.max_sum_throughput import plain_program as plain_max_sum_throughput
from allocation.policies.min_cost import min_cost
from allocation.policies.min_cost import plain_program as plain_min_cost
from allocation.policies.min_cost_slo import min_cost_slo
from allocation.policies.min_cost_slo import plain_program as plain_min_cost_slo
from allocation.policies.motley import motley
from allocation.policies.motley import plain_program as plain_motley
from allocation.policies.parameters import Policy
from allocation.policies.proportional import proportional
from allocation.policies.qssf import qssf
from allocation.policies.sia import plain_program as plain_sia
from allocation.policies.sia import sia
from allocation.policies.slearn import slearn
from allocation.policies.srtf import srtf


@dataclass(frozen=True)
class Registered:
    """A policy and the properties that its callers need."""

    policy: Policy
    timeless: bool = False
    """Whether the decision is independent of the time that jobs waited and ran, and of their remaining work."""
    strict_queue: bool = False
    """Whether the first job that does not fit stops the queue, so that idle GPUs are not lent to other jobs."""
    keeps_running: bool = False
    """Whether a running job keeps its GPUs to its end: it never leaves a GPU type on which it is slow."""


REGISTRY: dict[str, Registered] = {
    "motley": Registered(motley),
    "max_min_fairness": Registered(max_min_fairness, timeless=True),
    "hierarchical_fairness": Registered(hierarchical_fairness, timeless=True),
    "finish_time_fairness": Registered(finish_time_fairness),
    "sia": Registered(sia),
    "hadar": Registered(hadar),
    "makespan": Registered(makespan),
    "max_sum_throughput": Registered(max_sum_throughput, timeless=True),
    "min_cost": Registered(min_cost, timeless=True),
    "min_cost_slo": Registered(min_cost_slo),
    "allox": Registered(allox, keeps_running=True),
    "qssf": Registered(qssf, strict_queue=True, keeps_running=True),
    "slearn": Registered(slearn, strict_queue=True, keeps_running=True),
    "srtf": Registered(srtf),
    "las": Registered(las),
    "fifo": Registered(fifo, timeless=True, strict_queue=True, keeps_running=True),
    "fifo_fastest": Registered(fifo_fastest, timeless=True, strict_queue=True),
    "proportional": Registered(proportional, timeless=True),
    "isolated": Registered(isolated, timeless=True),
    "max_min_fairness_agnostic": Registered(max_min_fairness_agnostic, timeless=True),
}

POLICIES: dict[str, Policy] = {name: registered.policy for name, registered in REGISTRY.items()}
KEEP_RUNNING = frozenset(name for name, registered in REGISTRY.items() if registered.keeps_running)

PLAIN_PROGRAMS: dict[str, Policy] = {
    "finish_time_fairness": plain_finish_time_fairness,
    "hadar": plain_hadar,
    "hierarchical_fairness": plain_hierarchical_fairness,
    "makespan": plain_makespan,
    "max_min_fairness": plain_max_min_fairness,
    "max_min_fairness_agnostic": plain_max_min_fairness_agnostic,
    "max_sum_throughput": plain_max_sum_throughput,
    "min_cost": plain_min_cost,
    "min_cost_slo": plain_min_cost_slo,
    "motley": plain_motley,
    "sia": plain_sia,
}
"""Plain programs by policy; that of `hadar`, a greedy rule, is the integer program that it approximates."""
