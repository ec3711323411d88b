"""What a trace is run on and how, in the words of the command: its options, written once for every command."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from simulation.cluster import Cluster
from simulation.engine import Simulation
from simulation.formats import FORMATS
from simulation.formats.sia import CATEGORIES
from simulation.gpu_types import REFERENCE
from simulation.running import Run
from simulation.setting import RULES, RULES_OF, Setting, begin, read_prices, read_throughputs, read_trace
from simulation.training import OWN

CLUSTER_HELP = "v100=8x4,p100=16: eight nodes of four V100, sixteen of one P100."
ON_WHAT = {"rich_help_panel": "Trace and cluster"}
HOW = {"rich_help_panel": "Rounds, restarts and failures"}


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The options that all runs of a command have in common; it is small, and goes to other processes as it is."""

    format_name: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help=f"Whose columns the trace has: {', '.join(FORMATS)}.")
    ]
    cluster: Annotated[str, typer.Option(metavar="TYPE=NODESxGPUS,…", help=CLUSTER_HELP)]
    throughputs: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, metavar="FILE", help="Rates of workloads, a table in Gavel's JSON.", **ON_WHAT
        ),
    ] = None
    profiles: Annotated[
        Path | None,
        typer.Option(
            exists=True, file_okay=False, metavar="FOLDER", help="Applications as Sia recorded them.", **ON_WHAT
        ),
    ] = None
    category: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"Of Sia's jobs that name none: {', '.join(CATEGORIES)}.", **ON_WHAT),
    ] = None
    knowledge: Annotated[
        str,
        typer.Option(
            metavar="KNOWLEDGE",
            help="With --profiles, what speed is judged by: a job's own steps; shared, those of all jobs of its "
            "application; service, also the limits of its batch and what its restarts take.",
            **ON_WHAT,
        ),
    ] = OWN
    reference: Annotated[
        str,
        typer.Option(metavar="TYPE", help="The GPU type on which a trace's durations hold.", **ON_WHAT),
    ] = REFERENCE
    prices: Annotated[
        str | None, typer.Option(metavar="TYPE=PRICE,…", help="v100=2.48,t4=0.35: dollars per GPU and hour.", **ON_WHAT)
    ] = None
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out lines that cannot be read, and count them.", **ON_WHAT)
    ] = False
    round_s: Annotated[
        float, typer.Option("--round", min=1, metavar="SECONDS", help="From one decision to the next.", **HOW)
    ] = 360
    rules: Annotated[
        str | None,
        typer.Option(
            metavar="RULES",
            help=f"How rounds come about: {', '.join(RULES)}. Default: service; of Gavel's and Sia's formats theirs.",
            **HOW,
        ),
    ] = None
    shuffle_types: Annotated[
        bool,
        typer.Option("--shuffle-types", help="Gavel's rules: fill GPU types in another order each round.", **HOW),
    ] = False
    mixed_gangs: Annotated[
        bool,
        typer.Option("--mixed-gangs", help="A gang may be on two GPU types, as fast as on the slower.", **HOW),
    ] = False
    restart_s: Annotated[
        float,
        typer.Option("--restart", min=0, metavar="SECONDS", help="Lost by a job that goes on, or moves.", **HOW),
    ] = 0
    checkpoint_s: Annotated[
        float,
        typer.Option("--checkpoint", min=0, metavar="SECONDS", help="From one checkpoint of a job to the next.", **HOW),
    ] = 0
    failures: Annotated[
        str | None,
        typer.Option(
            metavar="UP:DOWN", help="720:4: a node is up for 720 hours and down for four, on the mean.", **HOW
        ),
    ] = None
    parts: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="K",
            help="Decide in so many parts, of jobs split by chance (POP): faster, for a loss.",
            **HOW,
        ),
    ] = 1

    def setting(self, policy: str, seed: int) -> Setting:
        """Read what is about the policy and the rounds, or refuse it."""
        return Setting.read(
            policy=policy,
            rules=self.rules or RULES_OF.get(self.format_name, "service"),
            round_s=self.round_s,
            seed=seed,
            shuffle_types=self.shuffle_types,
            mixed_gangs=self.mixed_gangs,
            failures=self.failures,
            checkpoint_s=self.checkpoint_s,
            parts=self.parts,
        )

    def check(self, policy: str) -> None:
        """Refuse a policy of which nothing is known, or that has no such parameters."""
        self.setting(policy, seed=0).rounds(Cluster.parse(self.cluster))

    def prepare(self, trace: Path, policy: str, seed: int) -> Run:
        """Read everything, and give the run before its first round."""
        setting = self.setting(policy, seed)
        jobs = read_trace(trace, self.format_name, skip_bad=self.skip_bad, category=self.category)
        machines, rounds = setting.rounds(Cluster.parse(self.cluster))
        prices = read_prices(self.prices, machines.gpu_types)
        truth = read_throughputs(self.throughputs, self.format_name, self.profiles)
        state = begin(
            jobs,
            machines,
            truth,
            rounds,
            prices,
            restart_s=self.restart_s,
            knowledge=self.knowledge,
            mixed_gangs=setting.mixed_gangs,
            reference=self.reference,
            packed=setting.packed,
        )
        return Run(Simulation(state, rounds), machines.gpu_types, prices, jobs)
