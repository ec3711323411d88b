"""The papers' formulas, word for word, for a modelling language: what share policies are compared with."""

import cvxpy as cp
import numpy as np

EXACT = {"solver": cp.CLARABEL, "tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}


def fits(problem, X):
    """Time and capacity; nothing where a job cannot run."""
    used = problem.usage @ cp.sum(X, axis=0)
    return [cp.sum(X, axis=1) <= 1, used <= problem.capacity, X[problem.rate == 0] == 0]


def worst_off(problem, a):
    """The highest level that all rates a reach, in their own unit."""
    unit = np.median(a[a > 0])
    X = cp.Variable(a.shape, nonneg=True)
    worst = cp.min(cp.sum(cp.multiply(a / unit, X), axis=1))
    return unit * cp.Problem(cp.Maximize(worst), fits(problem, X)).solve(**EXACT)


def highest_of(problem, a, i, *, least):
    """The highest level of one job while all others keep what they must have."""
    X = cp.Variable(a.shape, nonneg=True)
    unit = a.max(axis=1)
    rates = cp.sum(cp.multiply(a / unit[:, None], X), axis=1)
    return unit[i] * cp.Problem(cp.Maximize(rates[i]), [*fits(problem, X), rates >= least / unit]).solve(**EXACT)


def max_min_fairness(problem):
    """Gavel, section 4.1."""
    return worst_off(problem, problem.rate * (problem.base_gpus / (problem.weight * problem.base_rate))[:, None])


def max_min_fairness_agnostic(problem):
    """The same, with replicas in place of rates."""
    g, units = problem.base_gpus, problem.gpus_per_replica
    replicas = np.array([[sum(u / units[i]) for u in problem.usage.T] for i in range(len(units))])
    T = np.where(problem.rate > 0, replicas, 0)
    T /= np.where(T > 0, T, np.inf).min(axis=1)[:, None]
    has_base = np.array([[(T[i, u > 0] == 1).any() for u in problem.usage] for i in range(len(T))])
    p = (has_base / units * units.min(axis=1, where=has_base, initial=9)[:, None]) @ problem.capacity
    p /= problem.capacity.sum()
    return worst_off(problem, T * (g / (problem.weight * p))[:, None])


def makespan(problem):
    """Gavel, section 4.2; what is unknown is as long as the longest known."""
    r, p = problem.remaining_steps, problem.base_rate
    longest_s = max([1, *(r / p)[np.isfinite(r)]])
    steps = np.maximum(np.where(np.isfinite(r), r, longest_s * p), p)
    return 1 / worst_off(problem, problem.rate / steps[:, None])


def finish_times_reach(problem, rho):
    """Largest feasible multiple of the rates that give every job Themis' rho: if it is 1 or more, rho is feasible.

    Gavel writes rho itself into a program, which conic solvers end inexactly; this is the same, solved for the rates.
    Where a length is unknown, it is the limit for an endless job.
    """
    T, p, c, m = problem.rate, problem.base_rate, problem.capacity, len(problem.weight)
    S = p * np.minimum(1, c.sum() / (m * problem.base_gpus))
    r = np.maximum(problem.remaining_steps, p)
    known = np.isfinite(r)
    left_s = rho * (problem.isolated_s + np.where(known, r, 0) / S) - problem.age_s
    if (known & (left_s <= 0)).any():
        return 0.0
    return worst_off(problem, T / np.where(known, np.where(known, r, 0) / np.where(known, left_s, 1), S / rho)[:, None])


def most(problem, b, *further):
    unit = np.median(b[b > 0])
    X = cp.Variable(b.shape, nonneg=True)
    value = cp.sum(cp.multiply(b / unit, X))
    return unit * cp.Problem(cp.Maximize(value), fits(problem, X) + [rule(X) for rule in further]).solve(**EXACT)


def max_sum_throughput(problem):
    """Gavel, section 4.2."""
    return most(problem, problem.rate * problem.weight[:, None])


def dollars(problem):
    price = problem.price_per_gpu_hour
    least = min(price[price > 0], default=100)
    return np.where(price > 0, price, least / 100) @ problem.usage


def min_cost(problem):
    """Gavel's program: steps per dollar."""
    return most(problem, problem.rate * problem.weight[:, None] / dollars(problem))


def rates_in_time(problem):
    r, d = problem.remaining_steps, problem.deadline_s
    bound = np.isfinite(r) & np.isfinite(d) & (d > 0)
    wanted = np.where(bound, np.where(bound, r, 0) / np.where(bound, d, 1), 0)
    return np.where(wanted <= problem.rate.max(axis=1), wanted, 0)


def min_cost_slo(problem):
    """The same, of the allocations that meet the deadlines; None where they cannot all be met."""
    T, wanted = problem.rate, rates_in_time(problem)
    bound = wanted > 0
    X = cp.Variable(T.shape, nonneg=True)
    b = T * problem.weight[:, None] / dollars(problem)
    unit = np.median(b[b > 0])
    rules = fits(problem, X)
    if bound.any():
        rules.append(cp.sum(cp.multiply(T / np.where(bound, wanted, 1)[:, None], X), axis=1)[bound] >= 1)
    task = cp.Problem(cp.Maximize(cp.sum(cp.multiply(b / unit, X))), rules)
    value = task.solve(**EXACT)
    return unit * value if task.status == cp.OPTIMAL else None
