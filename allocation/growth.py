"""How much an elastic job may grow at once."""

from numpy import arange, inf, maximum, ones

from allocation.arrays import Bools
from allocation.problem import Problem


def allowed(problem: Problem, scale_up: float) -> Bools:
    """Which configurations (m, K) a job may have: those it can use, that are not too much at once; and what it holds.

    Too much are more than `scale_up` times the GPUs that jobs of its workload ever had, and more than its least gang;
    0: nothing is too much.
    """
    most = maximum(scale_up * problem.most_gpus, problem.base_gpus) if scale_up else ones(len(problem.weight)) * inf
    small = (problem.gpus <= most[:, None]) | (arange(problem.gpus.size) == problem.held[:, None])
    usable: Bools = (problem.rate > 0) & small
    return usable
