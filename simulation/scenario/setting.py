"""Set-up of a simulation from the options of a command."""

import gzip
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import Any, Self

from allocation.policies import POLICIES, REGISTRY
from allocation.policies.parameters import Policy, with_parameters
from simulation.clock.maintenance import Maintenance, MaintenanceWindow
from simulation.clock.node_failures import NodeFailures
from simulation.clock.progress import FixedRates
from simulation.clock.round_rules import RoundRules
from simulation.clock.service_training import SERVICE, ServiceTraining
from simulation.clock.state import State
from simulation.clock.training import INFORMED, OWN, SHARED, Training
from simulation.cluster import Cluster
from simulation.rules.cpu_shares import CpuRule, CpuShares
from simulation.rules.gavel import GavelRules
from simulation.rules.pop import in_parts, shares_out
from simulation.rules.service import ServiceRules
from simulation.rules.sia import SiaRules
from simulation.traces.formats import FORMATS, Reader, recognised
from simulation.traces.sia import CATEGORIES, read_sia
from simulation.traces.trace import InvalidTrace, Trace
from simulation.workloads.applications import ApplicationProfiles
from simulation.workloads.jobs import Jobs
from simulation.workloads.rate_sources import (
    REFERENCE,
    BySpeed,
    RateSource,
    RateTable,
    TracedRates,
    known_prices,
    read_gavel_table,
)
from simulation.workloads.rates_file import GivenRates, read_rates
from simulation.workloads.wrong_estimates import RIGHT, WrongEstimates

KNOWLEDGE = (OWN, SHARED, INFORMED, SERVICE)
GAVEL_SHUFFLE_SEED = 5
"""Offset that Gavel adds to the seed of a run for the order of its GPU types."""

HOURS = r"\d{1,6}(?:\.\d{1,6})?"
WINDOW = re.compile(
    rf"(?P<type>[^/:]+)(?:/(?P<nodes>\d{{1,6}}))?:(?P<begin>{HOURS}):(?P<length>{HOURS})(?::(?P<every>{HOURS}))?"
)
SEEDS, MOST_SEEDS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?"), 1000


class InvalidSetting(ValueError):
    """An option of the command is invalid; the message names it and the allowed values."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a trace is simulated: the policy by name with its parameters, the rules of rounds, the seed."""

    policy: str
    parameters: Mapping[str, object]
    rules: str
    round_s: float
    seed: int
    shuffle_types: bool = False
    mixed_gangs: bool = False
    failures: tuple[float, float] | None = None
    """Mean seconds that a node is up and down; None: nodes do not fail."""
    windows: tuple[MaintenanceWindow, ...] = ()
    checkpoint_s: float = 0.0
    min_run_s: float = 0.0
    first_start_s: float = 0.0
    release_s: float = 0.0
    event_delay_s: float | None = None
    cpu_shares: CpuShares | None = None
    """How CPUs are shared out; None: in proportion to GPUs."""
    parts: int = 1
    """Number of parts into which jobs and GPUs are split for a decision (POP)."""
    wrong: WrongEstimates = RIGHT
    """Errors in what the policy is told."""

    @classmethod
    def read(
        cls,
        *,
        policy: str,
        rules: str,
        failures: str | None,
        windows: str | None = None,
        mixed_gangs: bool = False,
        parts: int = 1,
        cpu_memory: str = CpuRule.PROPORTIONAL,
        cpus_per_gpu: float = 1.0,
        **others: Any,
    ) -> Self:
        """Parse the options; InvalidSetting names an unknown policy or unknown rules."""
        name, parameters = read_policy(policy)
        _refuse_unknown("rules", rules, RULES)
        if failures is not None and rules == "gavel":
            raise InvalidSetting("--failures cannot be used with Gavel's rules, which have no nodes")
        if mixed_gangs and rules == "gavel":
            raise InvalidSetting(
                "--mixed-gangs cannot be used with Gavel's rules, which fill one GPU type after the other"
            )
        if parts > 1 and not shares_out(with_parameters(POLICIES[name], parameters)):
            raise InvalidSetting(f"--parts needs a policy of shares, and {name} assigns configurations")
        if rules == "sia" and parameters.get("packed") is True:
            raise InvalidSetting("Sia's rules have no space sharing: with packed=true, use --rules service or gavel")
        if rules != "service" and any(others.get(key, usual) != usual for key, usual in SERVICE_DELAYS.items()):
            raise InvalidSetting("--first-start, --release and --event-delay are delays by the service's rules")
        _refuse_unknown("rule of --cpu-memory", cpu_memory, list(CpuRule))
        if cpu_memory != CpuRule.PROPORTIONAL:
            if rules != "service":
                raise InvalidSetting(f"--cpu-memory {cpu_memory} needs the service's rules, which know nodes")
            others["cpu_shares"] = CpuShares(CpuRule(cpu_memory), cpus_per_gpu)
        if windows is not None and rules != "service":
            raise InvalidSetting("--window is maintenance by the service's rules")
        others |= {"failures": _read_failures(failures), "windows": read_windows(windows)}
        others |= {"mixed_gangs": mixed_gangs, "parts": parts}
        return cls(policy=name, parameters=parameters, rules=rules, **others)

    @property
    def packed(self) -> bool:
        """Whether two jobs may share GPUs."""
        return self.parameters.get("packed") is True

    @property
    def chance(self) -> bool:
        """Whether results depend on the seed."""
        shuffled = self.shuffle_types and self.rules == "gavel"
        return self.failures is not None or self.parts > 1 or shuffled or self.wrong.chance

    def rounds(self, cluster: Cluster) -> tuple[Cluster, RoundRules]:
        """The cluster as the rules see it, and the rules."""
        policy = with_parameters(POLICIES[self.policy], self.parameters)
        return RULES[self.rules](self, in_parts(policy, self.parts, seed=self.seed), cluster)


def read_policy(words: str) -> tuple[str, dict[str, object]]:
    """Parse a policy with parameters, `sia:power=-0.5,…`."""
    name, _, given = words.partition(":")
    _refuse_unknown("policy", name, POLICIES)
    parameters: dict[str, object] = {}
    for pair in filter(None, given.split(",")):
        parameter, is_given, value = pair.partition("=")
        if not is_given:
            raise InvalidSetting(f"'{pair}' is not PARAMETER=VALUE")
        parameters[parameter] = _value(value)
    return name, parameters


def read_seeds(words: str) -> list[int]:
    """Parse seeds: `0,1,2`, `0-9`, or both, separated by commas."""
    seeds: list[int] = []
    for part in words.split(","):
        found = SEEDS.fullmatch(part.strip())
        if found is None or not 0 <= int(found[2] or found[1]) - int(found[1]) < MOST_SEEDS:
            raise InvalidSetting(f"'{part}' is not SEED or FIRST-LAST, as in 0,1,2 or 0-9, and {MOST_SEEDS} at most")
        seeds += range(int(found[1]), int(found[2] or found[1]) + 1)
    return seeds


def read_prices(words: str | None, gpu_types: Sequence[str]) -> list[float] | None:
    """Parse prices `v100=2.48,t4=0.35` in dollars per GPU-hour; default: public prices."""
    if words is None:
        return known_prices(gpu_types)
    try:
        given = {name: float(price) for name, _, price in (pair.partition("=") for pair in words.split(","))}
    except ValueError:
        raise InvalidSetting(f"'{words}' is not TYPE=PRICE,…") from None
    if missing := [gpu_type for gpu_type in gpu_types if gpu_type not in given]:
        raise InvalidSetting(f"the price of {', '.join(missing)} is missing")
    return [given[gpu_type] for gpu_type in gpu_types]


def read_trace(path: Path, format_name: str, *, skip_bad: bool, category: str | None = None) -> Trace:
    """Read the jobs of a file, which may be gzip-compressed; `category` holds for Sia's jobs that name none."""
    _refuse_unknown("format", format_name, FORMATS)
    lines, read = _lines(path), _reader(format_name, category)
    try:
        return read(lines, skip_bad=skip_bad)
    except InvalidTrace as error:
        if error.line == 1 and (found := recognised(lines)) not in (None, format_name):
            raise InvalidTrace(1, error.column, f"{error.reason}. It looks like --format {found}") from error
        raise


def recognise_format(path: Path) -> str:
    """The format of a trace by its first line; raises InvalidSetting where it cannot be told."""
    if (found := recognised(_lines(path))) is None:
        raise InvalidSetting(
            f"{path}: its first line is of no known format: give --format, one of {', '.join(FORMATS)}"
        )
    return found


def _lines(path: Path) -> list[str]:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    try:
        return content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidSetting(f"{path} is not text in UTF-8: {error}") from None


def _reader(format_name: str, category: str | None) -> Reader:
    if category is None:
        return FORMATS[format_name]
    if format_name not in FORMATS_OF_CATEGORIES:
        raise InvalidSetting(f"--category cannot be used with the format {format_name}, whose jobs have no category")
    _refuse_unknown("category", category, CATEGORIES)
    return partial(read_sia, category=category)


def read_throughputs(path: Path | None, format_name: str, profiles: Path | None = None) -> RateSource:
    """The source of true rates: recorded applications, a table in Gavel's format, or data sheets of GPU types."""
    if profiles is not None:
        return ApplicationProfiles(profiles)
    if format_name in STEPS_OF_PROFILES:
        raise InvalidSetting(f"the format {format_name} needs --profiles, the folder of its applications")
    if path is not None:
        return read_gavel_table(path)
    if format_name in STEPS_OF_A_TABLE:
        raise InvalidSetting(f"the format {format_name} needs --throughputs, the table of its workloads' rates")
    return BySpeed()


def read_given_rates(path: Path, cluster: Cluster, *, beside: str | None) -> GivenRates:
    """The rates of --rates; `beside` is another option that tells rates, too. Each type of the cluster needs one."""
    if beside is not None:
        raise InvalidSetting(f"--rates cannot be used with {beside}, which tells the rates, too: give one of them")
    rates = read_rates(path)
    if missing := rates.missing(cluster.gpu_types):
        raise InvalidSetting(f"{path} has no rate of {', '.join(missing)}, which --cluster has: add a line for it")
    return rates


def begin(
    trace: Trace,
    cluster: Cluster,
    truth: RateSource,
    rounds: RoundRules,
    prices: Sequence[float] | None,
    *,
    restart_s: float = 0.0,
    knowledge: str = OWN,
    mixed_gangs: bool = False,
    reference: str = REFERENCE,
    packed: bool = False,
    wrong: WrongEstimates = RIGHT,
) -> State:
    """State before the first arrival; recorded applications are trained, other jobs run at constant rates.

    restart_s is for jobs without a known one; knowledge: what estimates of recorded applications are based on;
    mixed_gangs: a gang may be on two types; reference: the GPU type to which durations apply;
    packed: two jobs may share GPUs, at rates that the table must contain; wrong: errors in what policies are told.
    """
    if packed and not (isinstance(truth, RateTable) and truth.together):
        raise InvalidSetting("packed=true needs a table of --throughputs with rates of pairs of jobs")
    paid = prices or [0.0] * len(cluster.gpu_types)
    if isinstance(truth, ApplicationProfiles):
        _refuse_unknown("knowledge", knowledge, KNOWLEDGE)
        if wrong.rate:
            raise InvalidSetting("--rate-error cannot be used with --profiles: rates of its applications are learnt")
        trace = wrong.declared(truth.completed(trace, restarts_known=knowledge == INFORMED))
        jobs = Jobs.of(trace.jobs, cluster, truth, mixed_gangs=mixed_gangs)
        training = ServiceTraining if knowledge == SERVICE else Training
        return State.before(jobs, cluster, paid, training(jobs, cluster, truth, knowledge))
    beside = truth.rate_beside if packed and isinstance(truth, RateTable) else None
    jobs = Jobs.of(
        wrong.declared(trace).jobs,
        cluster,
        TracedRates(truth),
        restart_s=restart_s,
        mixed_gangs=mixed_gangs,
        reference=reference,
        beside=beside,
    )
    told = wrong.rates(jobs) if wrong.rate else None
    return State.before(jobs, cluster, paid, FixedRates(jobs, rounds.whole_steps, told))


def _read_failures(words: str | None) -> tuple[float, float] | None:
    """Parse `720:4`, mean hours up and down."""
    if words is None:
        return None
    try:
        up_h, down_h = (float(part) for part in words.split(":"))
    except ValueError:
        up_h = down_h = nan
    if not (0 < up_h < inf and 0 < down_h < inf):
        raise InvalidSetting(f"'{words}' is not HOURS_UP:HOURS_DOWN")
    return up_h * 3600, down_h * 3600


def read_windows(words: str | None) -> tuple[MaintenanceWindow, ...]:
    """Parse `v100:8:2:24,t4/3:30:4`: all V100 nodes after 8 h for 2 h, again each 24 h, and three T4 nodes once."""
    return tuple(_read_window(part) for part in words.split(",")) if words else ()


def _read_window(words: str) -> MaintenanceWindow:
    found = WINDOW.fullmatch(words.strip())
    if found is None or float(found["length"]) <= 0 or found["nodes"] == "0":
        raise InvalidSetting(f"'{words}' is not TYPE[/NODES]:FROM:HOURS[:EVERY] in hours, as in v100/2:8:2:24")
    hours = [float(found[name]) for name in ("begin", "length")]
    every = float(found["every"]) if found["every"] else inf
    if every <= hours[1]:
        raise InvalidSetting(f"'{words}' begins again before it has ended: give EVERY more than {hours[1]:g} hours")
    nodes = int(found["nodes"]) if found["nodes"] else None
    return MaintenanceWindow(found["type"], nodes, *(3600 * hour for hour in (*hours, every)))


def _refuse_unknown(what: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise InvalidSetting(f"unknown {what} '{name}'; choose from {', '.join(known)}")


def _value(text: str) -> object:
    """A number, a boolean or a name; the policy's signature says which one it needs."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _gavel(setting: Setting, policy: Policy, cluster: Cluster) -> tuple[Cluster, RoundRules]:
    """Gavel numbers GPU types alphabetically and fills them in the order in which the cluster is given."""
    machines = cluster.of_types(sorted(cluster.gpu_types)).pooled
    fill = [machines.gpu_types.index(gpu_type) for gpu_type in cluster.gpu_types]
    shuffle = random.Random(setting.seed + GAVEL_SHUFFLE_SEED).shuffle if setting.shuffle_types else None  # noqa: S311  # no secret
    return machines, GavelRules(policy, setting.round_s, fill, shuffle, lend=not REGISTRY[setting.policy].strict_queue)


def _service(setting: Setting, policy: Policy, cluster: Cluster) -> tuple[Cluster, RoundRules]:
    node_failures = None
    if setting.failures:
        up_s, down_s = setting.failures
        nodes = sum(len(sizes) for sizes in cluster.node_gpus)
        node_failures = NodeFailures.of(nodes, mean_up_s=up_s, mean_down_s=down_s, seed=setting.seed)
    timeless = REGISTRY[setting.policy].timeless
    return cluster, ServiceRules(
        cluster,
        policy,
        setting.round_s,
        timeless,
        node_failures,
        setting.checkpoint_s,
        setting.min_run_s,
        first_start_s=setting.first_start_s,
        event_delay_s=setting.event_delay_s,
        release_s=setting.release_s,
        cpu_shares=setting.cpu_shares,
        maintenance=_maintenance(setting, cluster),
    )


def _maintenance(setting: Setting, cluster: Cluster) -> Maintenance | None:
    for window in setting.windows:
        _refuse_unknown("GPU type of --window", window.gpu_type, cluster.gpu_types)
    return Maintenance.of(setting.windows, cluster, round_s=setting.round_s) if setting.windows else None


def _sia(setting: Setting, policy: Policy, cluster: Cluster) -> tuple[Cluster, RoundRules]:
    return cluster, SiaRules(policy, setting.round_s)


RULES: dict[str, Callable[[Setting, Policy, Cluster], tuple[Cluster, RoundRules]]] = {
    "service": _service,
    "gavel": _gavel,
    "sia": _sia,
}

SERVICE_DELAYS: Mapping[str, float | None] = {"first_start_s": 0.0, "release_s": 0.0, "event_delay_s": None}
"""Settings that only the service's rules heed, and their defaults."""

RULES_OF = {"gavel": "gavel", "sia": "sia"}
"""Formats whose default rules are those of the original simulator."""

FORMATS_OF_CATEGORIES = frozenset({"sia"})
"""Formats with job categories."""

STEPS_OF_PROFILES = frozenset({"sia"})
"""Formats whose jobs train recorded applications to completion."""

STEPS_OF_A_TABLE = frozenset({"gavel"})
"""Formats whose jobs have a number of steps of a workload in a table of rates."""
