"""What a made-up trace is to be like: the options of the generator."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import typer

from simulation.cluster import Cluster
from simulation.gpu_types import REFERENCE
from simulation.likeness import LIKENESSES
from simulation.setting import InvalidSetting, read_throughputs
from simulation.throughputs import Table, Throughputs
from simulation.trace import Program

GAVEL, SIA = "gavel", "sia"
ORIGINALS = (*LIKENESSES, GAVEL, SIA)
GAVEL_MOST_GPUS = 8
WHEN, WHAT = {"rich_help_panel": "When they come: --per-hour or --load"}, {"rich_help_panel": "What they are like"}

HOW_MANY = "say how many jobs come: either --per-hour 20, or --load 0.9 --cluster v100=8x4"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The options; checked once, by check."""

    like: Annotated[str, typer.Option(metavar="ORIGINAL", help=f"Whose jobs they are like: {', '.join(ORIGINALS)}.")]
    jobs: Annotated[int, typer.Option(min=1, max=10_000_000, metavar="N", help="How many.")]
    per_hour: Annotated[
        float | None, typer.Option(min=1e-6, metavar="N", help="How many come in an hour, on the mean.", **WHEN)
    ] = None
    load: Annotated[
        float | None,
        typer.Option(
            min=1e-6, metavar="PART", help="In place of it: their work, as a part of what --cluster can do.", **WHEN
        ),
    ] = None
    cluster: Annotated[
        str | None,
        typer.Option(metavar="TYPE=NODESxGPUS,…", help="For --load; and no job wants more than all of a type.", **WHEN),
    ] = None
    daily: Annotated[
        float | None,
        typer.Option(min=0, max=1, metavar="PART", help="How much more comes at the busiest hour; 0: none.", **WHEN),
    ] = None
    most_gpus: Annotated[int | None, typer.Option(min=1, metavar="N", help="No job wants more.", **WHAT)] = None
    elastic: Annotated[
        float,
        typer.Option(
            min=0, max=1, metavar="PART", help="Jobs that may run on a quarter to four times their GPUs.", **WHAT
        ),
    ] = 0
    deadlines: Annotated[
        float,
        typer.Option(
            min=0, max=1, metavar="PART", help="Jobs with a deadline, after 1.2, 2 or 10 times their duration.", **WHAT
        ),
    ] = 0
    urgent: Annotated[
        float, typer.Option(min=0, max=1, metavar="PART", help="Jobs that weigh 5 in place of 1.", **WHAT)
    ] = 0
    teams: Annotated[
        int,
        typer.Option(
            min=0, max=1000, metavar="N", help="The second has half the jobs of the first, the third a third.", **WHAT
        ),
    ] = 0
    workloads: Annotated[
        str | None, typer.Option(metavar="NAME,…", help="Programs. Default: those of --throughputs, or none.", **WHAT)
    ] = None
    throughputs: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="Rates in Gavel's JSON, to run the trace with, too.",
            **WHAT,
        ),
    ] = None
    reference: Annotated[
        str,
        typer.Option(metavar="TYPE", help="The GPU type on which a job runs as long as the original says.", **WHAT),
    ] = REFERENCE

    def check(self) -> None:
        """Refuse what means nothing, or is not enough."""
        if self.like not in ORIGINALS:
            raise InvalidSetting(f"'{self.like}' is no original; there are {', '.join(ORIGINALS)}")
        if self.like == SIA:
            self._check_of_sia()
            return
        if (self.per_hour is None) == (self.load is None):
            raise InvalidSetting(HOW_MANY)
        if self.load is not None and self.cluster is None:
            raise InvalidSetting("--load is of a cluster: say --cluster v100=8x4, too")
        if self.like == GAVEL and self.workloads is not None:
            raise InvalidSetting("Gavel's jobs bring their own workloads")
        if not self.rates_known:
            raise InvalidSetting(f"nothing of {self.throughputs or self.workloads} runs on {self.reference}")

    def _check_of_sia(self) -> None:
        """Its format has no other columns, and its jobs are as long as the applications that were recorded."""
        others = (self.load, self.elastic, self.deadlines, self.urgent, self.teams, self.workloads, self.most_gpus)
        if self.per_hour is None or any(others):
            raise InvalidSetting("of Sia's jobs --jobs, --per-hour and --daily can be said, and how many come must be")

    @cached_property
    def truth(self) -> Throughputs:
        """Rates, by which durations become steps: those of the table, or of the data sheets of GPUs."""
        return read_throughputs(self.throughputs, "csv")

    @cached_property
    def machines(self) -> Cluster:
        return Cluster.parse(self.cluster or "")

    @cached_property
    def programs(self) -> tuple[str | None, ...]:
        """The workloads that jobs may have; None: of which nothing is known."""
        if self.workloads is not None:
            return tuple(name.strip() for name in self.workloads.split(","))
        return tuple(self.truth.rates) if isinstance(self.truth, Table) else (None,)

    def rate(self, workload: str | None, gpus: int, gpu_type: str | None = None) -> float:
        """Give steps/s of a gang on one node."""
        return self.truth.rate(Program(workload), gpu_type or self.reference, (gpus,))

    @property
    def rates_known(self) -> bool:
        return any(self.rate(workload, 1) > 0 for workload in self.programs)

    @cached_property
    def limit(self) -> int:
        """The largest gang, a power of two that is not above any of the limits."""
        limits = [GAVEL_MOST_GPUS if self.like == GAVEL else LIKENESSES[self.like].most_gpus]
        limits += [self.most_gpus] if self.most_gpus else []
        limits += [int(self.machines.capacity.max())] if self.cluster is not None else []
        gang = 1 << (min(limits).bit_length() - 1)
        while gang > 1 and not any(self.rate(workload, gang) > 0 for workload in self.programs):
            gang //= 2
        return gang
