"""Where to cut next: between the best prices so far and those that the cuts suggest (in-out separation).

Cuts between the two tell more than cuts far out: so a fraction of them is enough.

References
----------
.. [1] Ben-Ameur and Neto, Networks 2007, "Acceleration of cutting-plane and column generation algorithms: Applications
   to network design".
"""

import numpy as np

from allocation.arrays import Floats

PATIENCE = 40
"""After so many cuts that prove nothing, the suggested prices themselves."""


def between(best: Floats, suggested: Floats, *, steady: float, stalled: int) -> Floats:
    """Prices (n,) so far back from those suggested to the best, 0 to 1, of those types that have one in the former.

    stalled: cuts since one has proved anything.
    """
    back = steady if stalled < PATIENCE else 0.0
    return np.where(suggested > 0, back * best + (1 - back) * suggested, 0)
