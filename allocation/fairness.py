"""Measures of how fair a schedule was: finish-time fairness of jobs, and Jain's index. Used live and in simulations."""

import numpy as np

from allocation.types import Floats, Ints


def finish_time_ratios(jct_s: Floats, alone_s: Floats, gpus: Floats | Ints) -> Floats:
    r"""Finish-time fairness rho (m,): completion time over the one that a job had alone on 1/N of the cluster.

    .. math::
        \rho_i = \frac{JCT_i}{\sum_j c_j D_{ij} / \sum_j c_j}, \quad j \text{ over the GPU types that can run job } i

    Parameters
    ----------
    jct_s
        Completion time (m,) from submission to end.
    alone_s
        D (m, n): duration alone on C / N_i GPUs, all of type j, N_i being the mean number of active jobs over the life
        of job i; inf where the type cannot run it.
    gpus
        c (n,): GPUs of each type.

    References
    ----------
    .. [1] Jayaram Subramanya et al., SOSP 2023, "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling",
       section 5.
    """
    runs = np.isfinite(alone_s)
    weighted_s = (np.where(runs, alone_s, 0.0) * gpus).sum(axis=1)
    ratios: Floats = jct_s * (runs * gpus).sum(axis=1) / weighted_s
    return ratios


def jain_index(received: Floats) -> float:
    r"""Jain's index :math:`(\sum_t x_t)^2 / (n \sum_t x_t^2)`: 1 if all are equal, 1/n if one has all.

    It is nan if no tenant received anything.
    """
    squares = received.size * float((received**2).sum())
    return float(received.sum() ** 2) / squares if squares else float("nan")
