"""Options of a simulation, shared by the commands `run` and `compare`, and the run that they describe."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Self

import typer

from estimation.durations import DurationHistory
from simulation.clock.metrics import figures_of
from simulation.clock.run import SimulatedRound, Simulation
from simulation.clock.sampled_arrays import SampledArrays
from simulation.clock.service_training import SERVICE
from simulation.clock.state import State
from simulation.clock.training import OWN
from simulation.cluster import Cluster
from simulation.rules.cpu_shares import CpuRule
from simulation.scenario.setting import (
    RULES,
    RULES_OF,
    InvalidSetting,
    Setting,
    begin,
    read_given_rates,
    read_prices,
    read_throughputs,
    read_trace,
    recognise_format,
)
from simulation.scenario.team_limits import (
    read_begin,
    read_budgets,
    read_most_gpus,
    read_quotas,
    team_budgets,
    team_quotas,
)
from simulation.traces.formats import FORMATS
from simulation.traces.sia import CATEGORIES
from simulation.traces.trace import LeftOut, Trace, spelled_as
from simulation.workloads.rate_sources import REFERENCE, BySpeed, RateSource, data_sheet
from simulation.workloads.wrong_estimates import WrongEstimates

CLUSTER_HELP = "For example v100=8x4,p100=16: eight nodes of four V100, sixteen of one P100."
ON_WHAT = {"rich_help_panel": "Trace and cluster"}
TOLD = {"rich_help_panel": "Errors in what policies are told"}
HOW = {"rich_help_panel": "Rounds, restarts and failures"}

Watcher = Callable[[SimulatedRound], None]


@dataclass(frozen=True, eq=False)
class TraceRun:
    """A simulation that is ready to run, and what its metrics need besides."""

    simulation: Simulation
    gpu_types: Sequence[str]
    prices: Sequence[float] | None
    trace: Trace
    notes: Sequence[str] = ()
    """What a reader of the figures has to know: assumptions, and jobs that were left out."""

    @property
    def total(self) -> int:
        """Number of jobs that can run and so will finish."""
        return int(self.simulation.state.jobs.runnable.sum())

    def finish(self, watch: Watcher) -> dict[str, Any]:
        """Run to the end, calling the watcher after every round; returns the metrics."""
        began = perf_counter()
        self.simulation.watch = watch
        self.simulation.run()
        wall_s = perf_counter() - began
        decided_s = self.simulation.decided_s
        figures = figures_of(
            self.simulation.state, self.gpu_types, decided_s=decided_s, wall_s=wall_s, prices=self.prices
        )
        counted = {"skipped": self.trace.skipped, "rounded_up": self.trace.rounded_up}
        return {**figures, **counted, "left_out": {why.value: self.trace.left_out.get(why, 0) for why in LeftOut}}


def notes_of(trace: Trace, truth: RateSource) -> list[str]:
    """Assumptions about rates, and jobs that were left out, as sentences."""
    notes = []
    if isinstance(truth, BySpeed) and truth.taken_as_reference:
        names = ", ".join(sorted(truth.taken_as_reference))
        remedy = "motley simulate --rates FILE gives speeds"
        notes.append(f"No data sheet of {names} is known: taken to be as fast as a {REFERENCE} ({remedy}).")
    if left_out := {why: count for why, count in trace.left_out.items() if count}:
        counts = ", ".join(f"{count:,} {_words(why)}" for why, count in left_out.items())
        notes.append(f"Jobs of the trace that are left out: {counts}.")
    return notes


def _words(why: LeftOut) -> str:
    return why.value.replace("_", " ").replace("gpus", "GPUs")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Options that all runs of a command share; small enough to be sent to other processes."""

    cluster: Annotated[str, typer.Option(metavar="TYPE=NODESxGPUS,…", help=CLUSTER_HELP)]
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help=f"Format of the trace: {', '.join(FORMATS)}. Default: recognised by its first line.",
        ),
    ] = None
    rates: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="Speeds of GPU types as CSV or YAML: gpu_type,speed; or workload,gpu_type,steps_per_s.",
            **ON_WHAT,
        ),
    ] = None
    throughputs: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="Table of workloads' rates in Gavel's JSON format.",
            **ON_WHAT,
        ),
    ] = None
    profiles: Annotated[
        Path | None,
        typer.Option(
            exists=True, file_okay=False, metavar="FOLDER", help="Folder of applications recorded by Sia.", **ON_WHAT
        ),
    ] = None
    category: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help=f"Category of Sia's jobs that name none: {', '.join(CATEGORIES)}.", **ON_WHAT
        ),
    ] = None
    knowledge: Annotated[
        str,
        typer.Option(
            metavar="KNOWLEDGE",
            help="With --profiles, what estimates are based on: own: a job's own steps; shared: those of all jobs of "
            "its application; informed: also its batch limits and true restart times; service: what the service would "
            "have heard from the jobs by then.",
            **ON_WHAT,
        ),
    ] = OWN
    reference: Annotated[
        str,
        typer.Option(metavar="TYPE", help="GPU type to which the trace's durations apply.", **ON_WHAT),
    ] = REFERENCE
    prices: Annotated[
        str | None,
        typer.Option(metavar="TYPE=PRICE,…", help="Dollars per GPU-hour, for example v100=2.48,t4=0.35.", **ON_WHAT),
    ] = None
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip invalid lines and count them.", **ON_WHAT)] = False
    round_s: Annotated[float, typer.Option("--round", min=1, metavar="SECONDS", help="Length of a round.", **HOW)] = 360
    rules: Annotated[
        str | None,
        typer.Option(
            metavar="RULES",
            help=f"Rules of rounds: {', '.join(RULES)}. Default: service; Gavel's and Sia's formats: their own.",
            **HOW,
        ),
    ] = None
    shuffle_types: Annotated[
        bool,
        typer.Option("--shuffle-types", help="With Gavel's rules: shuffle the order of GPU types each round.", **HOW),
    ] = False
    mixed_gangs: Annotated[
        bool,
        typer.Option("--mixed-gangs", help="Allow gangs on two GPU types, at the speed of the slower.", **HOW),
    ] = False
    restart_s: Annotated[
        float,
        typer.Option(
            "--restart", min=0, metavar="SECONDS", help="Time that a job loses when it is restarted or moved.", **HOW
        ),
    ] = 0
    first_start_s: Annotated[
        float,
        typer.Option(
            "--first-start",
            min=0,
            metavar="SECONDS",
            help="By the service's rules: time from the decision to the first step of a job that never ran.",
            **HOW,
        ),
    ] = 0
    release_s: Annotated[
        float,
        typer.Option(
            "--release",
            min=0,
            metavar="SECONDS",
            help="By the service's rules: time from the decision until GPUs that a running job leaves are free.",
            **HOW,
        ),
    ] = 0
    event_delay_s: Annotated[
        float | None,
        typer.Option(
            "--event-delay",
            min=0,
            metavar="SECONDS",
            help="By the service's rules: a round begins so long after a job arrives or ends, too. Default: none does.",
            **HOW,
        ),
    ] = None
    checkpoint_s: Annotated[
        float,
        typer.Option("--checkpoint", min=0, metavar="SECONDS", help="Interval between checkpoints of a job.", **HOW),
    ] = 0
    min_run_s: Annotated[
        float,
        typer.Option(
            "--min-run",
            min=0,
            metavar="SECONDS",
            help="Time that a started job keeps its GPUs; at least half a round.",
            **HOW,
        ),
    ] = 0
    failures: Annotated[
        str | None,
        typer.Option(metavar="UP:DOWN", help="Mean hours that nodes are up and down, for example 720:4.", **HOW),
    ] = None
    cpu_memory: Annotated[
        str,
        typer.Option(
            "--cpu-memory",
            metavar="RULE",
            help="How CPUs of nodes are shared out, by jobs' CPU curves: proportional; tune, as the service's setting; "
            "opt, a bound of any rule.",
            **HOW,
        ),
    ] = CpuRule.PROPORTIONAL.value
    cpus_per_gpu: Annotated[
        float,
        typer.Option("--cpus-per-gpu", min=0.01, metavar="CPUS", help="CPUs of nodes, over their GPUs.", **HOW),
    ] = 8
    windows: Annotated[
        str | None,
        typer.Option(
            "--window",
            metavar="TYPE[/NODES]:FROM:HOURS[:EVERY],…",
            help="By the service's rules: maintenance of the first nodes of a type, or of all, in hours from the first "
            "arrival: v100/2:8:2:24.",
            **HOW,
        ),
    ] = None
    team_gpus: Annotated[
        str | None,
        typer.Option(
            "--team-gpus",
            metavar="TEAM=GPUS,…",
            help="By the service's rules: most GPUs of all types that a team has at once: vision=16,speech=8.",
            **HOW,
        ),
    ] = None
    quotas: Annotated[
        str | None,
        typer.Option(
            "--quota",
            metavar="TEAM:TYPE=GPUS[:BORROWED[:LENT]],…",
            help="By the service's rules: GPUs of a type that a team is guaranteed, most that it borrows and "
            "lends: vision:a100=8:4,speech:a100=4.",
            **HOW,
        ),
    ] = None
    budgets: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="TEAM=GPU-HOURS/PERIOD[:KIND[:USED]],…",
            help="By the service's rules: reference GPU-hours of a team per week, month or quarter, soft (the default) "
            "or hard, and those that are used at the begin: vision=500/month:hard.",
            **HOW,
        ),
    ] = None
    begin: Annotated[
        str | None,
        typer.Option(
            "--begin",
            metavar="TIME",
            help="When the trace begins, for the periods of budgets, in UTC: 2026-11-25T08:00. Default: with a period.",
            **HOW,
        ),
    ] = None
    parts: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="K",
            help="Decide in K random parts (POP): faster, less exact.",
            **HOW,
        ),
    ] = 1

    rate_error: Annotated[
        float,
        typer.Option(
            "--rate-error", min=0, max=0.99, metavar="PART", help="Policies see rates wrong by up to this part.", **TOLD
        ),
    ] = 0
    length_error: Annotated[
        float,
        typer.Option(
            "--length-error",
            min=1,
            metavar="FACTOR",
            help="Policies see lengths of jobs times or divided by this.",
            **TOLD,
        ),
    ] = 1
    estimate_lengths: Annotated[
        bool,
        typer.Option(
            "--estimate-lengths",
            help="Policies see lengths that jobs do not declare estimated from jobs and tasks that finished.",
            **TOLD,
        ),
    ] = False
    told_restart_s: Annotated[
        float | None,
        typer.Option("--told-restart", min=0, metavar="SECONDS", help="Policies take a restart to cost this.", **TOLD),
    ] = None

    def of_format(self, trace: Path) -> Self:
        """The same, with the format that the first line of the trace shows where none is given."""
        return self if self.format_name else replace(self, format_name=recognise_format(trace))

    def setting(self, policy: str, seed: int) -> Setting:
        """Parse the options about the policy and the rounds; raises InvalidSetting."""
        if self.event_delay_s is not None and self.profiles is not None and self.knowledge != SERVICE:
            raise InvalidSetting("--event-delay with --profiles needs --knowledge service")
        if (self.team_gpus or self.quotas or self.budgets) and self._rules != "service":
            raise InvalidSetting("--team-gpus, --quota and --budget are limits of teams by the service's rules")
        if self.begin is not None and not self.budgets:
            raise InvalidSetting("--begin is for the periods of --budget: give that, too")
        return Setting.read(
            policy=policy,
            rules=self._rules,
            round_s=self.round_s,
            seed=seed,
            shuffle_types=self.shuffle_types,
            mixed_gangs=self.mixed_gangs,
            failures=self.failures,
            windows=self.windows,
            checkpoint_s=self.checkpoint_s,
            min_run_s=self.min_run_s,
            first_start_s=self.first_start_s,
            release_s=self.release_s,
            event_delay_s=self.event_delay_s,
            parts=self.parts,
            cpu_memory=self.cpu_memory,
            cpus_per_gpu=self.cpus_per_gpu,
            wrong=WrongEstimates(
                rate=self.rate_error, length=self.length_error, restart_s=self.told_restart_s, seed=seed
            ),
        )

    @property
    def _rules(self) -> str:
        return self.rules or RULES_OF.get(self.format_name or "", "service")

    def check(self, policy: str) -> None:
        """Raise InvalidSetting or InvalidParameter for an unknown policy or parameter."""
        self.setting(policy, seed=0).rounds(Cluster.parse(self.cluster))
        read_most_gpus(self.team_gpus), read_quotas(self.quotas)
        read_budgets(self.budgets), read_begin(self.begin)

    def prepare(self, trace: Path, policy: str, seed: int) -> TraceRun:
        """Read all files and return the run before its first round."""
        if self.format_name is None:
            return self.of_format(trace).prepare(trace, policy, seed)
        setting = self.setting(policy, seed)
        machines, rounds = setting.rounds(Cluster.parse(self.cluster))
        read = read_trace(trace, self.format_name, skip_bad=self.skip_bad, category=self.category)
        jobs = spelled_as(read, machines.gpu_types)
        prices = read_prices(self.prices, machines.gpu_types)
        truth = self._truth(self.format_name, jobs, machines)
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
            wrong=setting.wrong,
        )
        state.durations = DurationHistory() if self.estimate_lengths else None
        if (state.jobs.array >= 0).any():
            state.arrays = SampledArrays.of(state.jobs, sampled=self.estimate_lengths, seed=seed)
        self._limit_teams(state, machines)
        return TraceRun(Simulation(state, rounds), machines.gpu_types, prices, jobs, notes_of(jobs, truth))

    def draws_pilots(self, trace: Path) -> bool:
        """Whether the seed decides which tasks of the arrays of a trace tell how long the others take."""
        if not self.estimate_lengths or self.format_name is None or not trace.is_file():
            return False
        read = read_trace(trace, self.format_name, skip_bad=self.skip_bad, category=self.category)
        return any(job.array is not None for job in read.jobs)

    def _truth(self, format_name: str, jobs: Trace, cluster: Cluster) -> RateSource:
        """Rates of --rates, --throughputs or --profiles, else by data sheets; types without one are as the reference.

        Jobs whose rates the trace tells need none of these.
        """
        if self.rates is not None:
            beside = "--throughputs" if self.throughputs else "--profiles" if self.profiles else None
            return read_given_rates(self.rates, cluster, beside=beside)
        truth = read_throughputs(self.throughputs, format_name, self.profiles)
        if isinstance(truth, BySpeed) and not all(job.program.rates for job in jobs.jobs):
            return BySpeed(frozenset(name for name in cluster.gpu_types if data_sheet(name) is None))
        return truth

    def _limit_teams(self, state: State, cluster: Cluster) -> None:
        """Give the state the limits, quotas and budgets of the teams; jobs that these never allow cannot run."""
        state.quotas = team_quotas(read_most_gpus(self.team_gpus), read_quotas(self.quotas), state.jobs, cluster)
        state.budgets = team_budgets(read_budgets(self.budgets), state.jobs, read_begin(self.begin))
        if state.quotas is not None:
            state.jobs = state.jobs.within(state.quotas, state.capacity)
