"""How a gang is spread over nodes: the GPUs that each node can serve, and the fewest nodes that hold the gang.

The rounds, the explanations and the check of a submitted job all decide by these functions.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from allocation.types import Ints

ROUNDING = 1e-9
"""Added before a quotient is rounded down: 0.3 / 0.1 serves three GPUs."""


def servable_gpus(
    gpus: npt.ArrayLike,
    cpus: npt.ArrayLike,
    memory_mib: npt.ArrayLike,
    *,
    cpus_per_gpu: npt.ArrayLike,
    memory_per_gpu_mib: npt.ArrayLike,
) -> Ints:
    """GPUs of a gang that each node (N,) can serve, limited by the CPUs and the memory needed for each GPU."""
    most = np.asarray(gpus, dtype=float)
    for left, needed in ((cpus, cpus_per_gpu), (memory_mib, memory_per_gpu_mib)):
        each = np.asarray(needed, dtype=float)
        if (each > 0).any():
            fed = np.full(np.broadcast(left, each).shape, np.inf)
            np.divide(left, each, out=fed, where=each > 0)
            most = np.minimum(most, np.floor(fed + ROUNDING))
    whole: Ints = np.maximum(most, 0).astype(np.int64)
    return whole


def holds_equal_parts(servable: Sequence[int], gang: int, nodes: int) -> bool:
    """Whether so many nodes can each serve an equal part of the gang."""
    return sum(gpus >= gang // nodes for gpus in servable) >= nodes


def fewest_nodes(node_gpus: Sequence[int], gang: int) -> int | None:
    """Smallest number of these nodes that holds the gang in equal parts, or None."""
    divisors = (d for d in range(1, min(gang, len(node_gpus)) + 1) if gang % d == 0)
    return next((d for d in divisors if holds_equal_parts(node_gpus, gang, d)), None)


def fewest_uneven_nodes(node_gpus: Sequence[int], gang: int) -> int | None:
    """Smallest number of these nodes that holds the gang when each may serve as many GPUs as it has, or None."""
    held = np.cumsum(sorted(node_gpus, reverse=True))
    return int(np.searchsorted(held, gang)) + 1 if held.size and held[-1] >= gang else None
