"""CPU curve of a workload: throughput by CPUs per GPU, measured by giving its jobs more CPUs at their starts.

The optimistic profiling of Synergy, without a profiling run: CPUs are doubled for as long as that gains enough.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

SURE_REPORTS = 10
"""Progress reports from which on a rate is a point of the curve: until then the same CPUs are tried again."""

GAIN = 0.1
"""Part of the throughput that more CPUs must gain to count: less is taken for noise."""


class CpuSample(NamedTuple):
    """Mean rate of a workload's attempts with one number of CPUs per GPU, all on GPUs of one type and number."""

    cpus_per_gpu: int
    batch_size: int
    steps_per_s: float
    reports: int


def cpu_curve(samples: Iterable[CpuSample]) -> dict[int, float]:
    """Throughput by CPUs per GPU, of the batch size with most reports; it never falls, and rises by 10 % or not at all.

    Rates with fewer than `SURE_REPORTS` reports are left out; {} if none is left.
    """
    by_batch = defaultdict[int, list[CpuSample]](list)
    for sample in samples:
        by_batch[sample.batch_size].append(sample)
    known = max(by_batch.values(), key=lambda listed: sum(sample.reports for sample in listed), default=[])
    curve, level = dict[int, float](), 0.0
    for sample in sorted(known):
        if sample.reports >= SURE_REPORTS and sample.steps_per_s > 0:
            level = sample.steps_per_s if sample.steps_per_s >= (1 + GAIN) * level else level
            curve[sample.cpus_per_gpu] = level
    return curve


def with_next_trial(curve: Mapping[int, float]) -> dict[int, float]:
    """The curve, and twice the most CPUs that were tried at twice the throughput, unless the last trial gained nothing.

    So a job whose demand is read from it measures the next point.
    """
    tried = sorted(curve)
    if not tried or (len(tried) > 1 and curve[tried[-1]] == curve[tried[-2]]):
        return dict(curve)
    most = tried[-1]
    return {**curve, 2 * most: 2 * curve[most]}
