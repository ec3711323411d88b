r"""Hours that more GPUs would save, or fewer cost, from the price of the first of them.

A price is the slope: by how many hours jobs end earlier, added up, for each hour of one more GPU. Summed up over some
time it is P hours for each GPU, but at the c GPUs alone that there are. With more of them prices fall, with fewer they
rise; they are taken to fall with the power b + 1 of their number, so that c' GPUs save

.. math::
    \int_c^{c'} P \left(\frac{c}{x}\right)^{b + 1} dx = \frac{P c}{b} \left(1 - \left(\frac{c}{c'}\right)^b\right)

How near that is to simulations: `python -m benchmarks.node_savings`.
"""

POWER = 2.0
"""How prices fall, b."""


def hours_saved(per_gpu_h: float, *, gpus: int, more: int) -> float:
    """Hours saved by so many more GPUs than there are; negative with fewer. per_gpu_h, P: by the first."""
    return float(per_gpu_h * gpus / POWER * (1 - (gpus / (gpus + more)) ** POWER))
