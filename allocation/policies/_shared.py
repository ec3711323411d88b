"""Columns and rules that several policies use: steps left, cost per hour, smallest gangs."""

from numpy import arange, isfinite, maximum, where, zeros, zeros_like

from allocation.decision import Decision, Status
from allocation.problem import Problem
from allocation.types import Floats

FREE = 1e-2
"""Assumed price of a GPU without one, as a fraction of the lowest price."""


def steps_left(problem: Problem) -> Floats:
    """Remaining steps (m,), at least one second's; a job of unknown length is as long as the longest known one."""
    r, p = problem.remaining_steps, problem.base_rate
    known = isfinite(r)
    longest_s = maximum(where(known, r / p, 0).max(initial=0), 1)
    return maximum(where(known, r, longest_s * p), p)


def dollars_per_hour(problem: Problem) -> Floats:
    """Dollars per hour of each configuration (K,), more than 0."""
    price = problem.price_per_gpu_hour
    least = price[price > 0].min(initial=1 / FREE) if (price > 0).any() else 1 / FREE
    cost: Floats = where(price > 0, price, FREE * least) @ problem.usage
    return cost


def steps_per_dollar(problem: Problem) -> Floats:
    """Weighted steps/s per dollar/h of each configuration (m, K)."""
    per_dollar: Floats = problem.rate * problem.weight[:, None] / dollars_per_hour(problem)
    return per_dollar


def on_base_gangs(problem: Problem, y: Floats) -> Floats:
    """Shares (m, K) from shares of types (m, n), each in the job's fastest configuration of its fewest replicas."""
    X, rows = zeros_like(problem.rate), arange(len(y))
    for j, used in enumerate(problem.usage):
        smallest = (problem.rate > 0) & (used == problem.gpus) & (problem.replicas == problem.base_replicas[:, None])
        k0 = where(smallest, problem.rate, 0).argmax(axis=1)
        X[rows, k0] += where(smallest.any(axis=1), y[:, j], 0)
    return X


def base_gangs(problem: Problem) -> Floats:
    """GPUs (m, n) of each type that the fewest replicas of each job take: base_gpus where a replica is one GPU."""
    gpus: Floats = problem.base_replicas[:, None] * problem.gpus_per_replica
    return gpus


def decision_by_rule(problem: Problem, X: Floats) -> Decision:
    """Decision of shares (m, K) that a rule gives: no prices; the objective is the worst-off job's normalised rate."""
    T, g, w, p = problem.rate, problem.base_gpus, problem.weight, problem.base_rate
    worst = (g / (w * p) * (T * X).sum(axis=1)).min()
    return Decision.of_shares(X, prices=zeros(problem.capacity.size), objective=worst, status=Status.RULE, dust=0)
