"""The words of a command become what a simulation needs."""

import gzip
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import Any, Self

from allocation.parameters import Policy, with_parameters
from allocation.policies import POLICIES
from allocation.pop import in_parts, shares_out
from simulation.cluster import Cluster
from simulation.formats import FORMATS, Reader
from simulation.formats.sia import CATEGORIES, read_sia
from simulation.gavel_rounds import GavelRounds
from simulation.gpu_types import REFERENCE, BySpeed, known_prices
from simulation.jobs import Jobs
from simulation.outages import Outages
from simulation.profiles import Profiles
from simulation.rounds import Rounds
from simulation.service_rounds import ServiceRounds
from simulation.sia_rounds import SiaRounds
from simulation.state import State
from simulation.throughputs import Table, Throughputs, read_gavel_table
from simulation.trace import Trace
from simulation.training import KNOWLEDGE, OWN, SERVICE, Training
from simulation.work import FixedRates

GAVEL_SHUFFLE_SEED = 5
"""What Gavel adds to the seed of a run for the order of its types."""

SEEDS, MOST_SEEDS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?"), 1000

TIMELESS = frozenset(
    {
        "fifo",
        "fifo_fastest",
        "hierarchical_fairness",
        "isolated",
        "max_min_fairness",
        "max_min_fairness_agnostic",
        "max_sum_throughput",
        "min_cost",
        "proportional",
    }
)
"""Policies to which it makes no difference how long jobs have waited and run, or how much of them is left."""


class InvalidSetting(ValueError):
    """A word of the command means nothing; says which, and what it may be."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a trace is to be run: the policy by name with its parameters, the rules of rounds, and chance."""

    policy: str
    parameters: Mapping[str, object]
    rules: str
    round_s: float
    seed: int
    shuffle_types: bool = False
    mixed_gangs: bool = False
    failures: tuple[float, float] | None = None
    """How many seconds a node is up, and how many down, on the mean; None: always up."""
    checkpoint_s: float = 0.0
    parts: int = 1
    """Into how many the jobs and the GPUs are split for a decision."""

    @classmethod
    def read(
        cls,
        *,
        policy: str,
        rules: str,
        failures: str | None,
        mixed_gangs: bool = False,
        parts: int = 1,
        **others: Any,
    ) -> Self:
        """Give the setting, or refuse a policy or rules of which nothing is known."""
        name, parameters = read_policy(policy)
        _refuse_unknown("rules", rules, RULES)
        if failures is not None and rules == "gavel":
            raise InvalidSetting("Gavel's rules know no nodes, so none can fail")
        if mixed_gangs and rules == "gavel":
            raise InvalidSetting("Gavel's rules fill one GPU type after the other, so no gang can be on two")
        if parts > 1 and not shares_out(with_parameters(POLICIES[name], parameters)):
            raise InvalidSetting(f"{name} picks who runs; only what a policy shares out can be decided in parts")
        if rules == "sia" and parameters.get("packed") is True:
            raise InvalidSetting("by Sia's rules nobody shares GPUs: with packed=true, say --rules service or gavel")
        others |= {"failures": _read_failures(failures), "mixed_gangs": mixed_gangs, "parts": parts}
        return cls(policy=name, parameters=parameters, rules=rules, **others)

    @property
    def packed(self) -> bool:
        """Whether two jobs may share GPUs."""
        return self.parameters.get("packed") is True

    @property
    def chance(self) -> bool:
        """Whether another seed may give other figures."""
        return self.failures is not None or self.parts > 1 or (self.shuffle_types and self.rules == "gavel")

    def rounds(self, cluster: Cluster) -> tuple[Cluster, Rounds]:
        """Give the machines as the rules see them, and the rules."""
        policy = with_parameters(POLICIES[self.policy], self.parameters)
        return RULES[self.rules](self, in_parts(policy, self.parts, seed=self.seed), cluster)


def read_policy(words: str) -> tuple[str, dict[str, object]]:
    """Read `sia:power=-0.5,…`."""
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
    """Read `0,1,2`, or `0-9`, or both between commas."""
    seeds: list[int] = []
    for part in words.split(","):
        found = SEEDS.fullmatch(part.strip())
        if found is None or not 0 <= int(found[2] or found[1]) - int(found[1]) < MOST_SEEDS:
            raise InvalidSetting(f"'{part}' is not SEED or FIRST-LAST, as in 0,1,2 or 0-9, and {MOST_SEEDS} at most")
        seeds += range(int(found[1]), int(found[2] or found[1]) + 1)
    return seeds


def read_prices(words: str | None, gpu_types: Sequence[str]) -> list[float] | None:
    """Read `v100=2.48,t4=0.35`, dollars per GPU and hour; unless given, what is publicly known."""
    if words is None:
        return known_prices(gpu_types)
    try:
        given = {name: float(price) for name, _, price in (pair.partition("=") for pair in words.split(","))}
    except ValueError:
        raise InvalidSetting(f"'{words}' is not TYPE=PRICE,…") from None
    if missing := [gpu_type for gpu_type in gpu_types if gpu_type not in given]:
        raise InvalidSetting(f"there is no price of {', '.join(missing)}")
    return [given[gpu_type] for gpu_type in gpu_types]


def read_trace(path: Path, format_name: str, *, skip_bad: bool, category: str | None = None) -> Trace:
    """Give the jobs of a file, which may be compressed by gzip; Sia's are of that category, where they name none."""
    _refuse_unknown("format", format_name, FORMATS)
    read = _reader(format_name, category)
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidSetting(f"{path} is not text in UTF-8: {error}") from None
    return read(lines, skip_bad=skip_bad)


def _reader(format_name: str, category: str | None) -> Reader:
    if category is None:
        return FORMATS[format_name]
    if format_name not in FORMATS_OF_CATEGORIES:
        raise InvalidSetting(f"jobs of the format {format_name} have no category")
    _refuse_unknown("category", category, CATEGORIES)
    return partial(read_sia, category=category)


def read_throughputs(path: Path | None, format_name: str, profiles: Path | None = None) -> Throughputs:
    """Give recorded applications, the rates of a table of Gavel's, or those that speak from GPUs' data sheets."""
    if profiles is not None:
        return Profiles(profiles)
    if format_name in STEPS_OF_PROFILES:
        raise InvalidSetting(f"the applications of the format {format_name} mean nothing without --profiles")
    if path is not None:
        return read_gavel_table(path)
    if format_name in STEPS_OF_A_TABLE:
        raise InvalidSetting(f"the steps of the format {format_name} mean nothing without --throughputs")
    return BySpeed()


def begin(
    trace: Trace,
    cluster: Cluster,
    truth: Throughputs,
    rounds: Rounds,
    prices: Sequence[float] | None,
    *,
    restart_s: float = 0.0,
    knowledge: str = OWN,
    mixed_gangs: bool = False,
    reference: str = REFERENCE,
    packed: bool = False,
) -> State:
    """Give the state before the first job comes; recorded applications are trained, anything else runs at fixed rates.

    restart_s is for jobs of which nothing is known; knowledge: what is known of how fast recorded applications are;
    mixed_gangs: a gang may be on two types; reference: the GPU type on which durations hold;
    packed: two jobs may share GPUs, of which a table has to say how fast they are then.
    """
    if packed and not (isinstance(truth, Table) and truth.together):
        raise InvalidSetting("packed=true needs a table of --throughputs that says how fast two jobs are together")
    paid = prices or [0.0] * len(cluster.gpu_types)
    if isinstance(truth, Profiles):
        _refuse_unknown("knowledge", knowledge, KNOWLEDGE)
        trace = truth.completed(trace, restarts_known=knowledge == SERVICE)
        jobs = Jobs.of(trace.jobs, cluster, truth, mixed_gangs=mixed_gangs)
        return State.before(jobs, cluster, paid, Training(jobs, cluster, truth, knowledge))
    beside = truth.rate_beside if packed and isinstance(truth, Table) else None
    jobs = Jobs.of(
        trace.jobs,
        cluster,
        truth,
        restart_s=restart_s,
        mixed_gangs=mixed_gangs,
        reference=reference,
        beside=beside,
    )
    return State.before(jobs, cluster, paid, FixedRates(jobs, rounds.whole_steps))


def _read_failures(words: str | None) -> tuple[float, float] | None:
    """Read `720:4`, hours up and down on the mean."""
    if words is None:
        return None
    try:
        up_h, down_h = (float(part) for part in words.split(":"))
    except ValueError:
        up_h = down_h = nan
    if not (0 < up_h < inf and 0 < down_h < inf):
        raise InvalidSetting(f"'{words}' is not HOURS_UP:HOURS_DOWN")
    return up_h * 3600, down_h * 3600


def _refuse_unknown(what: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise InvalidSetting(f"'{name}' is no {what}; there are {', '.join(known)}")


def _value(text: str) -> object:
    """A number, true or false, or a name; the policy says which of them it wants."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _gavel(setting: Setting, policy: Policy, cluster: Cluster) -> tuple[Cluster, Rounds]:
    """Gavel numbers types by the alphabet, and fills them in the order in which the cluster is given."""
    machines = cluster.of_types(sorted(cluster.gpu_types)).pooled
    fill = [machines.gpu_types.index(gpu_type) for gpu_type in cluster.gpu_types]
    shuffle = random.Random(setting.seed + GAVEL_SHUFFLE_SEED).shuffle if setting.shuffle_types else None  # noqa: S311  # no secret
    is_queue = setting.policy.startswith("fifo")  # Gavel, too, tells a queue by its name
    return machines, GavelRounds(policy, setting.round_s, fill, shuffle, lend=not is_queue)


def _service(setting: Setting, policy: Policy, cluster: Cluster) -> tuple[Cluster, Rounds]:
    outages = None
    if setting.failures:
        up_s, down_s = setting.failures
        nodes = sum(len(sizes) for sizes in cluster.node_gpus)
        outages = Outages.of(nodes, mean_up_s=up_s, mean_down_s=down_s, seed=setting.seed)
    timeless = setting.policy in TIMELESS
    return cluster, ServiceRounds(cluster, policy, setting.round_s, timeless, outages, setting.checkpoint_s)


def _sia(setting: Setting, policy: Policy, cluster: Cluster) -> tuple[Cluster, Rounds]:
    return cluster, SiaRounds(policy, setting.round_s)


RULES: dict[str, Callable[[Setting, Policy, Cluster], tuple[Cluster, Rounds]]] = {
    "service": _service,
    "gavel": _gavel,
    "sia": _sia,
}

RULES_OF = {"gavel": "gavel", "sia": "sia"}
"""Formats that bring the rules of their original."""

FORMATS_OF_CATEGORIES = frozenset({"sia"})
"""Formats that say of jobs what may be chosen for them."""

STEPS_OF_PROFILES = frozenset({"sia"})
"""Formats whose jobs are recorded applications, trained to their end."""

STEPS_OF_A_TABLE = frozenset({"gavel"})
"""Formats whose jobs are so many steps of a workload that a table knows."""
