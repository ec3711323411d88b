"""The policies: each a pure function of a problem; to add one is one file and one line here."""

from allocation.parameters import Policy
from allocation.policies.allox import allox
from allocation.policies.fifo import fifo
from allocation.policies.fifo_fastest import fifo_fastest
from allocation.policies.finish_time_fairness import finish_time_fairness
from allocation.policies.hadar import hadar
from allocation.policies.hierarchical_fairness import hierarchical_fairness
from allocation.policies.isolated import isolated
from allocation.policies.las import las
from allocation.policies.makespan import makespan
from allocation.policies.max_min_fairness import max_min_fairness
from allocation.policies.max_min_fairness_agnostic import max_min_fairness_agnostic
from allocation.policies.max_sum_throughput import max_sum_throughput
from allocation.policies.min_cost import min_cost
from allocation.policies.min_cost_slo import min_cost_slo
from allocation.policies.motley import motley
from allocation.policies.proportional import proportional
from allocation.policies.sia import sia
from allocation.policies.srtf import srtf

POLICIES: dict[str, Policy] = {
    "max_min_fairness": max_min_fairness,
    "hierarchical_fairness": hierarchical_fairness,
    "finish_time_fairness": finish_time_fairness,
    "motley": motley,
    "sia": sia,
    "hadar": hadar,
    "makespan": makespan,
    "max_sum_throughput": max_sum_throughput,
    "min_cost": min_cost,
    "min_cost_slo": min_cost_slo,
    "allox": allox,
    "srtf": srtf,
    "las": las,
    "fifo": fifo,
    "fifo_fastest": fifo_fastest,
    "proportional": proportional,
    "isolated": isolated,
    "max_min_fairness_agnostic": max_min_fairness_agnostic,
}
