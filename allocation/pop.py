r"""A round split at random into parts that are decided one by one (POP): any policy of shares in less time, for a loss.

Each of k parts has its part of the jobs and :math:`1/k` of the capacity. What the parts decide fits together, and is
nearly as good as one decision where each part is like the whole: many jobs, none of which needs much of a part.

References
----------
.. [1] Narayanan et al., SOSP 2021, "Solving Large-Scale Granular Resource Allocation Problems Efficiently with POP",
   section 3.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from allocation.arrays import Ints
from allocation.deadline import Deadline
from allocation.decision import Decision
from allocation.parameters import Policy
from allocation.problem import Problem
from allocation.solve import Status

MOMENT_S = 1e-3
"""What a part has at least when the round's time is over."""

Together = Callable[[Sequence[float]], float]
"""The objectives of the parts → that of the whole: `sum` where work or money is counted, `min` where it is a level."""


class NotDivisible(ValueError):
    """A round that cannot be split so, or a policy whose answers cannot be put together."""


def in_parts(policy: Policy, parts: int, *, together: Together = sum, seed: int = 0) -> Policy:
    """Give the policy that decides in so many parts, or in fewer where the jobs and GPUs do not suffice for them."""
    return lambda problem: decide_in_parts(
        problem, policy, parts=min(parts, most_parts(problem)), together=together, seed=seed
    )


def decide_in_parts(
    problem: Problem, policy: Policy, *, parts: int, together: Together = sum, seed: int = 0
) -> Decision:
    """Decide each part on its own, and put the shares together.

    Parameters
    ----------
    problem : Problem
        Any; pairs of jobs that fall into different parts are dropped.
    policy : of shares.
    parts : 1 is the policy itself.
    together : how their objectives make one.
    seed : of who comes into which part.

    Returns
    -------
    Decision
        shares X (m, K); prices (n,) the mean of the parts'; bound infinite, as parts prove nothing of the whole, and
        status `rule`, or `limit` where the time limit came: each part has its part of what is left of it.

    Raises
    ------
    NotDivisible
        More parts than jobs, or than the GPUs suffice for; a policy that picks.
    SolverFailed
        As the policy.
    """
    if parts == 1:
        return policy(problem)
    _refuse_too_many(problem, parts)
    deadline, decided = Deadline.of(problem), list[Decision]()
    rows_of = split_jobs(problem, parts, np.random.default_rng(seed))
    for number, (rows, capacity) in enumerate(zip(rows_of, split_capacity(problem.capacity, parts), strict=True)):
        time_s = max(deadline.left_s() / (parts - number), MOMENT_S)
        decided.append(policy(part_of(problem, rows, capacity, solve_limit_s=time_s)))
    return _together(problem, rows_of, decided, together)


def most_parts(problem: Problem) -> int:
    """As many as there are jobs, and such that each job has a configuration that every part could hold."""
    used = problem.usage > 0
    times = problem.capacity[:, None] // np.maximum(problem.usage, 1)
    room = np.where(used, times, len(problem.weight)).min(axis=0)
    return int(np.where(problem.rate > 0, room, 0).max(axis=1).min(initial=len(problem.weight)))


def split_jobs(problem: Problem, parts: int, rng: np.random.Generator) -> list[Ints]:
    """The rows of each part: of those next to one another by gang and weight, one for each part, by chance."""
    jobs = len(problem.weight)
    turn = np.lexsort((rng.random(jobs), problem.weight, problem.base_gpus))
    dealt = rng.random((-(-jobs // parts), parts)).argsort(axis=1).ravel()[:jobs]
    return [np.sort(turn[dealt == part]) for part in range(parts)]


def split_capacity(capacity: Ints, parts: int) -> Ints:
    """Whole GPUs (parts, n), of each type as equal as they come; what is over goes round, and is not all one part's."""
    each, over = capacity // parts, capacity % parts
    first = np.cumsum(over) - over
    has_more = (np.arange(parts)[:, None] - first) % parts < over
    split: Ints = each + has_more
    return split


def part_of(problem: Problem, rows: Ints, capacity: Ints, *, solve_limit_s: float) -> Problem:
    """The round of these jobs on this capacity; what one needs at the least, and is worth, it says as in the whole."""
    part = problem.subset(rows)
    fits = (problem.usage <= capacity[:, None]).all(axis=0)
    return replace(part, capacity=capacity, rate=np.where(fits, part.rate, 0), solve_limit_s=solve_limit_s)


def shares_out(policy: Policy) -> bool:
    """Whether the policy shares time out, by its answer to a round of one job."""
    return policy(Problem.of([[1.0]], [[1]], [1])).shares is not None


def _refuse_too_many(problem: Problem, parts: int) -> None:
    jobs, most = len(problem.weight), most_parts(problem)
    if not 1 <= parts <= jobs:
        raise NotDivisible(f"{jobs} jobs cannot be split into {parts} parts")
    if parts > most:
        raise NotDivisible(f"of {parts} parts one has too few GPUs for the gang of some job; {most} parts at most")


def _together(problem: Problem, rows_of: list[Ints], decided: list[Decision], together: Together) -> Decision:
    shares = np.zeros(problem.rate.shape)
    for rows, decision in zip(rows_of, decided, strict=True):
        if decision.shares is None:
            raise NotDivisible("the policy picks configurations; only shares of time can be put together")
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
