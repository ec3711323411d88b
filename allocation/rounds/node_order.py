r"""Preference order of nodes for each job: expected cost of running there, and probability of meeting its deadline.

Nodes with about the same rate of losses and price are a class c. A job with W seconds of work left on g nodes of the
class, which loses them at the rate :math:`\lambda = g \lambda_c` (a gang is lost with the first of its nodes), saves
every x seconds and needs s seconds for that and for a restart. With D seconds until a loss is noticed,

.. math::
    x = \min(\sqrt{2 s / \lambda},\ W), \qquad
    E = \frac{W}{x}\, e^{\lambda s} \Big(\frac{1}{\lambda} + D\Big) \big(e^{\lambda (x + s)} - 1\big)

    \sigma^2 = \lambda E \Big(\frac{x^2}{3} + x (D + s) + (D + s)^2\Big), \qquad
    P = \Phi\Big(\frac{d - E}{\sigma}\Big)

are the expected time, its variance with losses as a compound Poisson process, and the probability of being done within
the d seconds until the deadline. The job prefers the class of the least

.. math::
    \rho_c\, E / W + L\, (1 - P)

where :math:`\rho_c` is the price over the mean of the GPU type. Work that is expected to be lost is part of E.

References
----------
.. [1] Daly, Future Generation Computer Systems 2006, "A Higher Order Estimate of the Optimum Checkpoint Interval for
   Restart Dumps".
.. [2] Zhang, Liu and Kim, IEEE TCAD 2024, on intermittence-aware scheduling, for devices without batteries.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import scipy

from allocation.inventory import Inventory
from allocation.problem import Problem
from allocation.types import Bools, Floats, Ints

NOTICED_AFTER_S = 300.0
"""D: a node that is silent for so long is lost (the service's own limit)."""
LATE_COST = 10.0
"""L: a missed deadline counts as much as ten times the work. Our own choice."""
SHORT_OF_SLACK = 0.05
"""Difference in P(finish by deadline) between nodes above which a job is placed before larger gangs. Our choice."""
LEAST_CHECKPOINT_S = 1.0
"""Where a restart is declared to take no time."""
PRICE_STEP, LEAST_PRICE = 1.1, 0.01
"""Classes of prices differ by this factor; a node without a price counts with a hundredth of the mean."""


class Expected(NamedTuple):
    """Expected completion time in seconds, and probability of finishing by the deadline; arrays of one shape."""

    time_s: Floats
    in_time: Floats


def expected_on(
    work_s: Floats, nodes: Floats, loss_rate: Floats, *, checkpoint_s: Floats, deadline_s: Floats
) -> Expected:
    """E and P of the formulas above, for arrays that broadcast. 1 without a deadline, 0 if the work is not known."""
    rate, s, D = nodes * loss_rate, np.maximum(checkpoint_s, LEAST_CHECKPOINT_S), NOTICED_AFTER_S
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        x = np.minimum(np.sqrt(2 * s / rate), np.maximum(work_s, LEAST_CHECKPOINT_S))
        time_s = work_s * np.exp(rate * s) * (1 / rate + D) * np.expm1(rate * (x + s)) / x
        spread_s = np.sqrt(rate * time_s * (x**2 / 3 + x * (D + s) + (D + s) ** 2))
        in_time = scipy.special.ndtr((deadline_s - time_s) / np.maximum(spread_s, LEAST_CHECKPOINT_S))
    known = np.isfinite(time_s)
    return Expected(time_s, np.where(np.isinf(deadline_s), 1.0, np.where(known, in_time, 0.0)))


@dataclass(frozen=True, eq=False)
class NodeOrder:
    """For each job the rank of each node, 0 for those that it prefers: `rank[order[i]]` (N,) for job i.

    order (m,); rank (O, N); short_of_slack (m,): jobs that choose before larger gangs, for they may miss their deadline
    on other nodes.
    """

    order: Ints
    rank: Ints
    short_of_slack: Bools

    @classmethod
    def of(cls, problem: Problem, assignment: Ints, inventory: Inventory) -> Self:
        """Rank nodes for each job in its assigned configuration; those of equal loss rate and price rank equally."""
        classes = NodeClasses.of(inventory)
        m, N = len(assignment), len(inventory.node_type)
        if len(classes.loss_rate) < 2:
            return cls(np.zeros(m, dtype=np.int64), np.zeros((1, N), dtype=np.int64), np.zeros(m, dtype=np.bool_))
        expected, slowdown = _expected(problem, assignment, classes)
        cost = np.round(classes.price * slowdown + LATE_COST * (1 - expected.in_time), 9)
        best_first = np.argsort(cost, axis=1, kind="stable")
        orders, order = np.unique(np.argsort(best_first, axis=1), axis=0, return_inverse=True)
        short = np.ptp(expected.in_time, axis=1) > SHORT_OF_SLACK
        return cls(order.reshape(m), orders[:, classes.of_node], short & (assignment >= 0))


def _expected(problem: Problem, assignment: Ints, classes: "NodeClasses") -> tuple[Expected, Floats]:
    """Of each job on each class (m, C), and E / W; a job without a configuration counts as one of the first."""
    k = np.maximum(assignment, 0)
    rate = np.take_along_axis(problem.rate, k[:, None], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        work_s = np.where(rate > 0, problem.remaining_steps[:, None] / rate, np.inf)
    nodes, s = problem.nodes[k][:, None].astype(float), problem.restart_s[:, None]
    due = problem.deadline_s[:, None]
    known_s = np.clip(work_s, LEAST_CHECKPOINT_S, UNKNOWN_WORK_S)
    slowdown = expected_on(known_s, nodes, classes.loss_rate, checkpoint_s=s, deadline_s=due).time_s / known_s
    return expected_on(work_s, nodes, classes.loss_rate, checkpoint_s=s, deadline_s=due), slowdown


UNKNOWN_WORK_S = 30 * 24 * 3600.0
"""Work that is not known, or longer, is slowed down by losses as much as this."""


class NodeClasses(NamedTuple):
    """Classes of nodes: the class of each node (N,), and losses per second and relative price of each class (C,)."""

    of_node: Ints
    loss_rate: Floats
    price: Floats

    @classmethod
    def of(cls, inventory: Inventory) -> Self:
        """Steadier classes first, and the cheaper first of those that are lost as often."""
        if inventory.node_loss_rate is None and inventory.node_price is None:
            N = len(inventory.node_type)
            return cls(np.zeros(N, dtype=np.int64), np.full(min(N, 1), LEAST_RATE), np.ones(min(N, 1)))
        prices = _price_classes(inventory)
        found, of_node = np.unique(np.stack([inventory.loss_class, prices]), axis=1, return_inverse=True)
        members = np.maximum(np.bincount(of_node.reshape(-1), minlength=found.shape[1]), 1)
        rates = LEAST_RATE + np.zeros(len(of_node)) if inventory.node_loss_rate is None else inventory.node_loss_rate
        sums = np.bincount(of_node.reshape(-1), rates, minlength=found.shape[1])
        return cls(of_node.reshape(-1), sums / members, PRICE_STEP ** found[1].astype(float))


LEAST_RATE = 1e-9
"""Losses per second of nodes of which none is expected: one in thirty years."""


def _price_classes(inventory: Inventory) -> Ints:
    """Logarithm (N,) of each node's price over the mean of its GPU type, in whole steps."""
    price = inventory.node_price
    if price is None:
        return np.zeros(len(inventory.node_type), dtype=np.int64)
    types = inventory.node_type
    mean = np.bincount(types, price) / np.maximum(np.bincount(types), 1)
    of_type = mean[types]
    relative = np.where(of_type > 0, np.maximum(price, LEAST_PRICE * of_type) / np.where(of_type > 0, of_type, 1), 1.0)
    classes: Ints = np.rint(np.log(relative) / np.log(PRICE_STEP)).astype(np.int64)
    return classes
