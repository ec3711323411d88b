"""What is possible for each row, close together: a job can use few of all configurations, and the others take time."""

import numpy as np

from allocation.arrays import Floats, Ints


def possible(value: Floats) -> tuple[Ints, Floats]:
    """For each row of value (m, K), where it is more than 0: up to V columns, after nothing, which fills up the rest.

    names, values (m, 1 + V): which they are in (nothing, columns), and the value there; of nothing, 0.
    """
    is_possible = value > 0
    held = is_possible.sum(axis=1)[:, None]
    place = np.arange(1 + held.max(initial=0))
    filled = (place > 0) & (place <= held)
    names, values = np.zeros(filled.shape, dtype=np.int64), np.zeros(filled.shape)
    names[filled], values[filled] = is_possible.nonzero()[1] + 1, value[is_possible]
    return names, values
