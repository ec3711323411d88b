"""Registry of the policies, each a pure function of a problem; a new policy is one file and one line here."""

from dataclasses import dataclass
from enum import StrEnum

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
from allocation.policies.motley_static import motley_static
from allocation.policies.motley_static import plain_program as plain_motley_static
from allocation.policies.parameters import Policy
from allocation.policies.proportional import proportional
from allocation.policies.qssf import qssf
from allocation.policies.sia import plain_program as plain_sia
from allocation.policies.sia import sia
from allocation.policies.slearn import slearn
from allocation.policies.srtf import srtf


class Need(StrEnum):
    """What a decision depends on, and jobs, GPU types or people have to tell."""

    RATES = "rates"
    STEPS_LEFT = "steps left"
    PRICES = "GPU prices"
    DEADLINES = "deadlines"
    WEIGHTS = "weights"
    ARRAYS = "arrays"


class Preempts(StrEnum):
    """When a running job is stopped for others."""

    NEVER = "never"
    IN_TURNS = "in turns, by shares of time"
    BY_RANK = "for jobs that rank higher"
    BY_VALUE = "where it gains more than the restart costs"


OF_AN_OBJECTIVE = "how much one more GPU of the type would have improved the objective"

PRICE_UNIT = "hours that others wait per GPU-hour"
IN_HOURS = (
    f"in {PRICE_UNIT}: how many hours earlier jobs would end, added up, for each hour of one more GPU of the type "
    "(what teams are owed counts as well)"
)


@dataclass(frozen=True)
class Registered:
    """A policy and the properties that its callers need, or that people compare."""

    policy: Policy
    aims_at: str
    preempts: Preempts
    needs: tuple[Need, ...] = ()
    elastic: bool = False
    """Whether it chooses how many GPUs an elastic job has; else that has the fewest that it can run on."""
    timeless: bool = False
    """Whether the decision is independent of the time that jobs waited and ran, and of their remaining work."""
    strict_queue: bool = False
    """Whether the first job that does not fit stops the queue, so that idle GPUs are not lent to other jobs."""
    price_meaning: str = OF_AN_OBJECTIVE
    """What a shadow price of a round is."""

    @property
    def settled(self) -> bool:
        """Whether running jobs stay where they are until a job arrives or ends, a node changes, or a lock expires."""
        return self.preempts is Preempts.NEVER or (self.timeless and self.preempts is not Preempts.IN_TURNS)


REGISTRY: dict[str, Registered] = {
    "motley": Registered(
        motley,
        "early completions by a plan of the coming hours, and each team's share",
        Preempts.BY_VALUE,
        (Need.RATES, Need.STEPS_LEFT, Need.WEIGHTS),
        elastic=True,
        price_meaning=IN_HOURS,
    ),
    "motley_static": Registered(
        motley_static,
        "early completions by what jobs save now, and each team's share",
        Preempts.BY_VALUE,
        (Need.RATES, Need.STEPS_LEFT, Need.WEIGHTS),
        elastic=True,
    ),
    "max_min_fairness": Registered(
        max_min_fairness,
        "the most work for the job that is worst off",
        Preempts.IN_TURNS,
        (Need.RATES, Need.WEIGHTS),
        elastic=True,
        timeless=True,
    ),
    "hierarchical_fairness": Registered(
        hierarchical_fairness,
        "the most work for the team that is worst off",
        Preempts.IN_TURNS,
        (Need.RATES, Need.WEIGHTS),
        elastic=True,
        timeless=True,
    ),
    "finish_time_fairness": Registered(
        finish_time_fairness,
        "no job later than on GPUs of its own",
        Preempts.IN_TURNS,
        (Need.RATES, Need.STEPS_LEFT),
        elastic=True,
    ),
    "sia": Registered(
        sia, "the most goodput of elastic jobs", Preempts.BY_VALUE, (Need.RATES, Need.WEIGHTS), elastic=True
    ),
    "hadar": Registered(
        hadar,
        "one figure of your choice, at heavy load",
        Preempts.BY_VALUE,
        (Need.RATES, Need.STEPS_LEFT, Need.WEIGHTS),
        elastic=True,
    ),
    "makespan": Registered(
        makespan, "the earliest end of the last job", Preempts.IN_TURNS, (Need.RATES, Need.STEPS_LEFT), elastic=True
    ),
    "max_sum_throughput": Registered(
        max_sum_throughput,
        "the most steps in total",
        Preempts.IN_TURNS,
        (Need.RATES, Need.WEIGHTS),
        elastic=True,
        timeless=True,
    ),
    "min_cost": Registered(
        min_cost,
        "the most steps for the money",
        Preempts.IN_TURNS,
        (Need.RATES, Need.PRICES, Need.WEIGHTS),
        elastic=True,
        timeless=True,
    ),
    "min_cost_slo": Registered(
        min_cost_slo,
        "the most steps for the money, within deadlines",
        Preempts.IN_TURNS,
        (Need.RATES, Need.STEPS_LEFT, Need.PRICES, Need.DEADLINES, Need.WEIGHTS),
        elastic=True,
    ),
    "allox": Registered(
        allox, "a low mean completion time, without preemption", Preempts.NEVER, (Need.RATES, Need.STEPS_LEFT)
    ),
    "qssf": Registered(
        qssf,
        "a low mean completion time, by lengths of earlier jobs",
        Preempts.NEVER,
        (Need.RATES, Need.STEPS_LEFT),
        strict_queue=True,
    ),
    "slearn": Registered(
        slearn,
        "a low mean completion time of arrays, by samples of their tasks",
        Preempts.NEVER,
        (Need.RATES, Need.STEPS_LEFT, Need.ARRAYS),
        strict_queue=True,
    ),
    "srtf": Registered(
        srtf,
        "a low mean completion time, the shortest job first",
        Preempts.BY_RANK,
        (Need.RATES, Need.STEPS_LEFT),
        elastic=True,
    ),
    "las": Registered(las, "early ends of short jobs of unknown length", Preempts.BY_RANK),
    "fifo": Registered(fifo, "a plain queue, the oldest job first", Preempts.NEVER, timeless=True, strict_queue=True),
    "fifo_fastest": Registered(
        fifo_fastest,
        "the oldest job on the fastest GPUs",
        Preempts.BY_RANK,
        (Need.RATES,),
        elastic=True,
        timeless=True,
        strict_queue=True,
    ),
    "proportional": Registered(
        proportional, "each team's part of every GPU type", Preempts.IN_TURNS, (Need.WEIGHTS,), timeless=True
    ),
    "isolated": Registered(isolated, "a baseline: an equal part for each job", Preempts.IN_TURNS, timeless=True),
    "max_min_fairness_agnostic": Registered(
        max_min_fairness_agnostic,
        "a baseline: equal GPU time, whatever the speed",
        Preempts.IN_TURNS,
        (Need.WEIGHTS,),
        elastic=True,
        timeless=True,
    ),
}

POLICIES: dict[str, Policy] = {name: registered.policy for name, registered in REGISTRY.items()}
KEEP_RUNNING = frozenset(name for name, registered in REGISTRY.items() if registered.preempts is Preempts.NEVER)

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
    "motley_static": plain_motley_static,
    "sia": plain_sia,
}
"""Plain programs by policy; that of `hadar`, a greedy rule, is the integer program that it approximates."""


def price_meaning(policy: str) -> str:
    """What a shadow price of a round under this policy is; the round may be of long ago, and the policy gone."""
    return REGISTRY[policy].price_meaning if policy in REGISTRY else OF_AN_OBJECTIVE


def prices_in_hours(policy: str) -> bool:
    """Whether the prices of its rounds are hours that others wait per GPU-hour."""
    return policy in REGISTRY and REGISTRY[policy].price_meaning == IN_HOURS
