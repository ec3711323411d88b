r"""Partitioned optimisation (POP): split a round at random into parts, decide each, and combine the shares.

Each of k parts has its part of the jobs and :math:`1/k` of the capacity. The combined shares are feasible, and
nearly optimal where each part resembles the whole: many jobs, none of which needs much of a part.

References
----------
.. [1] Narayanan et al., SOSP 2021, "Solving Large-Scale Granular Resource Allocation Problems Efficiently with POP",
   section 3.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from allocation.decision import Decision, Status
from allocation.policies.parameters import Policy
from allocation.problem import Problem
from allocation.time_budget import TimeBudget
from allocation.types import Ints

MOMENT_S = 1e-3
"""Least time limit of a part once the round's time limit has passed."""

Together = Callable[[Sequence[float]], float]
"""Combines the parts' objectives: `sum` for work or cost, `min` for a level."""


class NotDivisible(ValueError):
    """The round cannot be split into so many parts, or the policy's decisions cannot be combined."""


def in_parts(policy: Policy, parts: int, *, together: Together = sum, seed: int = 0) -> Policy:
    """The policy that decides in so many parts, or fewer if there are too few jobs or GPUs."""
    return lambda problem: decide_in_parts(
        problem, policy, parts=min(parts, most_parts(problem)), together=together, seed=seed
    )


def decide_in_parts(
    problem: Problem, policy: Policy, *, parts: int, together: Together = sum, seed: int = 0
) -> Decision:
    """Decide each part on its own and combine the shares.

    Parameters
    ----------
    problem : Problem
        Any; pairs of jobs that fall into different parts are dropped.
    policy : of shares.
    parts : 1 is the policy itself.
    together : combines the objectives.
    seed : of the random split.

    Returns
    -------
    Decision
        shares X (m, K); prices (n,) the mean of the parts'; bound infinite, because parts prove none for the whole;
        status `rule`, or `limit` if the time limit passed: each part gets an equal part of the time left.

    Raises
    ------
    NotDivisible
        More parts than jobs or than the GPUs suffice for; a policy that assigns configurations.
    SolverFailed
        As the policy.
    """
    if parts == 1:
        return policy(problem)
    _refuse_too_many(problem, parts)
    deadline, decided = TimeBudget.of(problem), list[Decision]()
    rows_of = split_jobs(problem, parts, np.random.default_rng(seed))
    for number, (rows, capacity) in enumerate(zip(rows_of, split_capacity(problem.capacity, parts), strict=True)):
        time_s = max(deadline.left_s() / (parts - number), MOMENT_S)
        decided.append(policy(part_of(problem, rows, capacity, solve_limit_s=time_s)))
    return _together(problem, rows_of, decided, together)


def most_parts(problem: Problem) -> int:
    """The most parts such that each job has a configuration that fits into every part; at most one per job."""
    used = problem.usage > 0
    times = problem.capacity[:, None] // np.maximum(problem.usage, 1)
    room = np.where(used, times, len(problem.weight)).min(axis=0)
    return int(np.where(problem.rate > 0, room, 0).max(axis=1).min(initial=len(problem.weight)))


def split_jobs(problem: Problem, parts: int, rng: np.random.Generator) -> list[Ints]:
    """Rows of each part, by stratified random sampling: neighbours by gang size and weight go to different parts."""
    jobs = len(problem.weight)
    turn = np.lexsort((rng.random(jobs), problem.weight, problem.base_gpus))
    dealt = rng.random((-(-jobs // parts), parts)).argsort(axis=1).ravel()[:jobs]
    return [np.sort(turn[dealt == part]) for part in range(parts)]


def split_capacity(capacity: Ints, parts: int) -> Ints:
    """Whole GPUs (parts, n), as equal as possible; remainders of different types go to different parts."""
    each, over = capacity // parts, capacity % parts
    first = np.cumsum(over) - over
    has_more = (np.arange(parts)[:, None] - first) % parts < over
    split: Ints = each + has_more
    return split


def part_of(problem: Problem, rows: Ints, capacity: Ints, *, solve_limit_s: float) -> Problem:
    """The round of these jobs on this capacity, with the normaliser and weights of the whole round."""
    part = problem.subset(rows)
    fits = (problem.usage <= capacity[:, None]).all(axis=0)
    return replace(part, capacity=capacity, rate=np.where(fits, part.rate, 0), solve_limit_s=solve_limit_s)


def shares_out(policy: Policy) -> bool:
    """Whether the policy answers with shares, found by asking it about a round of one job."""
    return policy(Problem.of([[1.0]], [[1]], [1])).shares is not None


def _refuse_too_many(problem: Problem, parts: int) -> None:
    jobs, most = len(problem.weight), most_parts(problem)
    if not 1 <= parts <= jobs:
        raise NotDivisible(f"{jobs} jobs cannot be split into {parts} parts")
    if parts > most:
        raise NotDivisible(
            f"with {parts} parts, a part has too few GPUs for the gang of some job; use at most {most} parts"
        )


def _together(problem: Problem, rows_of: list[Ints], decided: list[Decision], together: Together) -> Decision:
    shares = np.zeros(problem.rate.shape)
    for rows, decision in zip(rows_of, decided, strict=True):
        if decision.shares is None:
            raise NotDivisible("the policy assigns configurations; only shares of time can be combined")
        shares[rows] = decision.shares
    late = any(decision.status == Status.LIMIT for decision in decided)
    return Decision.of_shares(
        shares,
        prices=np.mean([decision.prices for decision in decided], axis=0),
        objective=together([decision.objective for decision in decided]),
        bound=np.inf,
        status=Status.LIMIT if late else Status.RULE,
        solve_seconds=sum(decision.solve_seconds for decision in decided),
    )
