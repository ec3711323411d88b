"""Options of the trace generator."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import typer

from simulation.cluster import Cluster
from simulation.scenario.published_statistics import PUBLISHED
from simulation.scenario.setting import InvalidSetting, read_throughputs
from simulation.traces.trace import Program
from simulation.workloads.rate_sources import REFERENCE, RateSource, RateTable

GAVEL, SIA = "gavel", "sia"
ORIGINALS = (*PUBLISHED, GAVEL, SIA)
GAVEL_MOST_GPUS = 8
WHEN, WHAT = {"rich_help_panel": "Arrivals: --per-hour or --load"}, {"rich_help_panel": "Jobs"}

HOW_MANY = "the arrival rate is missing: use --per-hour 20, or --load 0.9 --cluster v100=8x4"


@dataclass(frozen=True, kw_only=True)
class GeneratorOptions:
    """Options of the trace generator; `check` validates them."""

    like: Annotated[str, typer.Option(metavar="ORIGINAL", help=f"Cluster to resemble: {', '.join(ORIGINALS)}.")]
    jobs: Annotated[int, typer.Option(min=1, max=10_000_000, metavar="N", help="Number of jobs.")]
    per_hour: Annotated[
        float | None, typer.Option(min=1e-6, metavar="N", help="Mean number of arrivals per hour.", **WHEN)
    ] = None
    load: Annotated[
        float | None,
        typer.Option(
            min=1e-6,
            metavar="PART",
            help="Instead of --per-hour: work of the jobs over the capacity of --cluster.",
            **WHEN,
        ),
    ] = None
    cluster: Annotated[
        str | None,
        typer.Option(metavar="TYPE=NODESxGPUS,…", help="Cluster for --load; it also limits the gang sizes.", **WHEN),
    ] = None
    daily: Annotated[
        float | None,
        typer.Option(min=0, max=1, metavar="PART", help="Amplitude of the daily pattern, 0 to 1; 0: none.", **WHEN),
    ] = None
    most_gpus: Annotated[int | None, typer.Option(min=1, metavar="N", help="Largest gang.", **WHAT)] = None
    elastic: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="PART",
            help="Fraction of elastic jobs, which run on a quarter to four times their GPUs.",
            **WHAT,
        ),
    ] = 0
    deadlines: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="PART",
            help="Fraction of jobs with a deadline after 1.2, 2 or 10 times their duration.",
            **WHAT,
        ),
    ] = 0
    urgent: Annotated[
        float, typer.Option(min=0, max=1, metavar="PART", help="Fraction of jobs with weight 5 instead of 1.", **WHAT)
    ] = 0
    teams: Annotated[
        int,
        typer.Option(
            min=0, max=1000, metavar="N", help="Number of teams; the k-th has 1/k of the first one's jobs.", **WHAT
        ),
    ] = 0
    workloads: Annotated[
        str | None, typer.Option(metavar="NAME,…", help="Workloads. Default: those of --throughputs, or none.", **WHAT)
    ] = None
    throughputs: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="Table of rates in Gavel's JSON format; also needed to run the trace.",
            **WHAT,
        ),
    ] = None
    reference: Annotated[
        str,
        typer.Option(metavar="TYPE", help="GPU type to which the published durations apply.", **WHAT),
    ] = REFERENCE

    def check(self) -> None:
        """Validate the options; InvalidSetting names the first invalid or missing one."""
        if self.like not in ORIGINALS:
            raise InvalidSetting(f"unknown cluster '{self.like}'; choose from {', '.join(ORIGINALS)}")
        if self.like == SIA:
            self._check_of_sia()
            return
        if (self.per_hour is None) == (self.load is None):
            raise InvalidSetting(HOW_MANY)
        if self.load is not None and self.cluster is None:
            raise InvalidSetting("--load needs --cluster, for example --cluster v100=8x4")
        if self.like == GAVEL and self.workloads is not None:
            raise InvalidSetting("--workloads cannot be used with Gavel's jobs, which have workloads of their own")
        if not self.rates_known:
            raise InvalidSetting(f"no workload of {self.throughputs or self.workloads} runs on {self.reference}")

    def _check_of_sia(self) -> None:
        """Refuse options that Sia's format has no column for; durations come from the recorded applications."""
        others = (self.load, self.elastic, self.deadlines, self.urgent, self.teams, self.workloads, self.most_gpus)
        if self.per_hour is None or any(others):
            raise InvalidSetting("Sia's jobs take --jobs, --per-hour (required) and --daily only")

    @cached_property
    def truth(self) -> RateSource:
        """Rates that convert durations to steps: from the table, or from the GPU types' data sheets."""
        return read_throughputs(self.throughputs, "csv")

    @cached_property
    def machines(self) -> Cluster:
        return Cluster.parse(self.cluster or "")

    @cached_property
    def programs(self) -> tuple[str | None, ...]:
        """Workloads of the jobs; None: unknown."""
        if self.workloads is not None:
            return tuple(name.strip() for name in self.workloads.split(","))
        return tuple(self.truth.rates) if isinstance(self.truth, RateTable) else (None,)

    def rate(self, workload: str | None, gpus: int, gpu_type: str | None = None) -> float:
        """Rate of a gang on one node in steps/s."""
        return self.truth.rate(Program(workload), gpu_type or self.reference, (gpus,))

    @property
    def rates_known(self) -> bool:
        return any(self.rate(workload, 1) > 0 for workload in self.programs)

    @cached_property
    def limit(self) -> int:
        """Largest gang: the largest power of two within all limits."""
        limits = [GAVEL_MOST_GPUS if self.like == GAVEL else PUBLISHED[self.like].most_gpus]
        limits += [self.most_gpus] if self.most_gpus else []
        limits += [int(self.machines.capacity.max())] if self.cluster is not None else []
        gang = 1 << (min(limits).bit_length() - 1)
        while gang > 1 and not any(self.rate(workload, gang) > 0 for workload in self.programs):
            gang //= 2
        return gang
