"""Published statistics of real clusters' jobs, and distributions fitted to them.

Gangs are powers of two, of sizes g with probability proportional to g to a power; the times that jobs of one gang run
are log-normal, cut at the longest, and their median grows by a power of the gang. The four unknowns follow from
four published figures: the mean gang, the mean and the median time, and the GPU time of all jobs together.
"""

from dataclasses import dataclass
from functools import cached_property
from math import log, sqrt

import numpy as np
import scipy

from allocation.types import Floats, Ints


@dataclass(frozen=True, kw_only=True)
class PublishedStatistics:
    """Published statistics of a cluster's GPU jobs; gpu_s is the mean GPU time of a job."""

    source: str
    mean_gpus: float
    most_gpus: int
    mean_s: float
    median_s: float
    longest_s: float
    gpu_s: float
    daily: float
    """Relative excess of the arrival rate at the busiest hour over its mean."""
    busiest_h: float

    @cached_property
    def gangs(self) -> Ints:
        """Gang sizes."""
        sizes: Ints = np.left_shift(1, np.arange(self.most_gpus.bit_length(), dtype=np.int64))
        return sizes

    @cached_property
    def gang_share(self) -> Floats:
        """Probability of each gang size."""

        def share(power: float) -> Floats:
            weight = self.gangs.astype(float) ** -power
            of_all: Floats = weight / weight.sum()
            return of_all

        power: float = scipy.optimize.brentq(lambda power: float(share(power) @ self.gangs) - self.mean_gpus, 0.0, 20.0)
        return share(power)

    @cached_property
    def times(self) -> "Times":
        """Distribution of durations."""
        start = [log(self.median_s), 0.5, sqrt(2 * log(self.mean_s / self.median_s))]
        middle, growth, deviation = scipy.optimize.least_squares(self._misfit, start).x.tolist()
        return Times(middle, growth, deviation, self.longest_s)

    def _misfit(self, unknown: Floats) -> Floats:
        middle, growth, deviation = unknown.tolist()
        times, share = Times(middle, growth, deviation, self.longest_s), self.gang_share
        means, below = times.mean_s(self.gangs), times.share_below(self.median_s, self.gangs)
        return np.array(
            [
                share @ means / self.mean_s - 1,
                2 * (share @ below) - 1,
                share @ (self.gangs * means) / self.gpu_s - 1,
            ]
        )


@dataclass(frozen=True)
class Times:
    """Truncated log-normal durations by gang size g: the logarithm has mean middle + growth log g."""

    middle: float
    growth: float
    deviation: float
    longest_s: float

    def draw(self, gangs: Ints, chance: np.random.Generator) -> Floats:
        """Draw a duration for each gang, in seconds."""
        logs = self._middle(gangs) + self.deviation * chance.standard_normal(len(gangs))
        times: Floats = np.exp(np.minimum(logs, log(self.longest_s)))
        return times

    def mean_s(self, gangs: Ints) -> Floats:
        """Mean of the truncated distribution."""
        middle, s, most = self._middle(gangs), self.deviation, log(self.longest_s)
        within = np.exp(middle + s**2 / 2) * scipy.special.ndtr((most - middle - s**2) / s)
        mean: Floats = within + self.longest_s * scipy.special.ndtr((middle - most) / s)
        return mean

    def share_below(self, time_s: float, gangs: Ints) -> Floats:
        share: Floats = scipy.special.ndtr((log(time_s) - self._middle(gangs)) / self.deviation)
        return share

    def _middle(self, gangs: Ints) -> Floats:
        middle: Floats = self.middle + self.growth * np.log(gangs)
        return middle


PHILLY_DAILY, PHILLY_BUSIEST_H = 0.29, 5.0
"""First harmonic of the arrival hours of the 82,247 Philly jobs that Sia kept (CC-BY-4.0), in the trace's clock.

The other publications show a daily pattern without figures: this one is used for them.
"""

PUBLISHED: dict[str, PublishedStatistics] = {
    "philly": PublishedStatistics(
        source="Microsoft's Philly, 112,956 jobs: AcmeTrace, cluster_summary.csv (CC-BY-4.0)",
        mean_gpus=1.928,
        most_gpus=128,
        mean_s=18_006.055,
        median_s=874.0,
        longest_s=4_240_676.0,
        gpu_s=(2_210_176_414 + 2_025_326_056 + 2_659_215_061) / 112_956,
        daily=PHILLY_DAILY,
        busiest_h=PHILLY_BUSIEST_H,
    ),
    "helios": PublishedStatistics(
        source="SenseTime's Helios, 1,580,464 jobs with GPUs: HeliosArtifact (MIT) and AcmeTrace (CC-BY-4.0)",
        mean_gpus=3.716,
        most_gpus=2048,
        mean_s=6_651.681,
        median_s=206.0,
        longest_s=4_320_009.0,
        gpu_s=(39_994_296_320 + 30_715_109_125 + 7_288_334_702) / 1_580_464,
        daily=PHILLY_DAILY,
        busiest_h=PHILLY_BUSIEST_H,
    ),
    "acme": PublishedStatistics(
        source="Shanghai AI Laboratory's Seren, 663,813 jobs with GPUs: AcmeTrace, cluster_summary.csv (CC-BY-4.0)",
        mean_gpus=5.68,
        most_gpus=1024,
        mean_s=1_414.335,
        median_s=122.0,
        longest_s=1_209_604.0,
        gpu_s=(4_560_592_618 + 14_274_584_510 + 2_675_447_459) / 663_813,
        daily=PHILLY_DAILY,
        busiest_h=PHILLY_BUSIEST_H,
    ),
}
