r"""Response of each job to given prices: its cost to go, in closed form, and the bound that follows.

At prices p per GPU-second each job is alone (Lagrangian relaxation), and its own dual has one variable:

.. math::
    \alpha_i = \arg\max_{\alpha \le \kappa_i^{\text{late}}}\ \alpha - \textstyle\sum_q \ell_{iq}
    \max\left(0,\ \max_k (\alpha - \kappa_{iq}) f_{ik} - p_{t(q)} u_{\cdot k}\right), \qquad f = T / S

It is concave and piecewise linear; the point where the tangents at both ends of a bracket meet is tried next (Kelley's
cutting planes in one dimension), so that it ends at the exact maximum.
"""

import numpy as np

from allocation.plan.reduction import JobBlock
from allocation.types import Floats, Ints

MOST_TANGENTS = 60
EXACT = 1e-12


def respond(block: JobBlock, prices: Floats, pieces: int, start: Floats | None = None) -> tuple[Floats, Floats]:
    """Cost to go alpha (b,) of each row at prices (T, n) per GPU-second, and its part (b,) of the bound."""
    cost = block.usage @ np.repeat(prices, pieces, axis=0).T
    low, high = np.zeros(len(block.rows)), block.late.copy()
    low_value, low_slope = low.copy(), np.ones(len(low))
    high_value, high_slope = _tangent(block, cost, np.arange(len(low)), high)
    best, alpha = high_value.copy(), high.copy()
    asked = np.clip(block.late if start is None else start, low, high)
    open_rows = np.flatnonzero(high_slope < 0)
    for _ in range(MOST_TANGENTS):
        if not open_rows.size:
            break
        i, at = open_rows, asked[open_rows]
        value, slope = _tangent(block, cost, i, at)
        better = value > best[i]
        best[i[better]], alpha[i[better]] = value[better], at[better]
        rises = slope > 0
        for end, end_value, end_slope, mine in (
            (low, low_value, low_slope, rises),
            (high, high_value, high_slope, ~rises),
        ):
            end[i[mine]], end_value[i[mine]], end_slope[i[mine]] = at[mine], value[mine], slope[mine]
        span = low_slope[i] - high_slope[i]
        asked[i] = (high_value[i] - low_value[i] + low_slope[i] * low[i] - high_slope[i] * high[i]) / span
        most = low_value[i] + low_slope[i] * (asked[i] - low[i])
        open_rows = i[(most - best[i] > EXACT * np.abs(most)) & (slope != 0)]
    return alpha, np.maximum(best, 0)


def respond_to_no_prices(block: JobBlock) -> tuple[Floats, Floats]:
    """Seconds x (b, Q, V) of each row where GPUs cost nothing, and cost of the piece (b,) in which its work ends.

    It runs in its fastest configuration, as early as it can.
    """
    fastest = block.speed.argmax(axis=1)[:, None]
    speed = np.take_along_axis(block.speed, fastest, axis=1)
    done = np.minimum(np.cumsum(block.length * speed, axis=1), 1)
    x = np.zeros((*block.length.shape, block.speed.shape[1]))
    np.put_along_axis(x, fastest[:, None], (np.diff(done, axis=1, prepend=0) / speed)[..., None], axis=2)
    ends = (done < 1).sum(axis=1)
    return x, np.append(block.cost, block.late[:, None], axis=1)[np.arange(len(ends)), ends]


def _tangent(block: JobBlock, cost: Floats, rows: Ints, alpha: Floats) -> tuple[Floats, Floats]:
    """Value and slope (r,) of the dual of some rows at alpha (r,); cost (b, V, Q) is that of GPUs per second."""
    net, speed = alpha[:, None] - block.cost[rows], block.speed[rows]
    if speed.shape[1] == 1:  # rows of one configuration have nothing to choose
        top = net * speed - cost[rows, 0]
    else:
        gain = net[:, None, :] * speed[:, :, None] - cost[rows]
        pick = gain.argmax(axis=1)
        top = np.take_along_axis(gain, pick[:, None, :], axis=1)[:, 0]
        speed = np.take_along_axis(speed, pick, axis=1)
    is_run = top > 0
    length = np.where(is_run, block.length[rows], 0)
    value = alpha - (length * np.where(is_run, top, 0)).sum(axis=1)
    slope = 1 - (length * speed).sum(axis=1)
    return value, slope
