"""Hours by which jobs would end earlier with one more node of each GPU type, and later with one less: by prices.

The prices of the rounds of the last week are summed up (`allocation.plan.more_gpus`); beside it stands what the lab
simulated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.contrib.auth.models import User
from django.db.models.fields.json import KT

from allocation.plan.more_gpus import hours_saved
from allocation.policies import prices_in_hours
from insight_app.gpu_prices.past import PriceSpan, hours_by_price, read_past_prices
from insight_app.gpu_prices.wording import format_hours
from insight_app.lab.scenario import NodeGpus, read_node_gpus, usual_gpus
from insight_app.models import LabRun
from insight_app.models.lab_run import shows_to_teams
from scheduler_app.models import PolicySetting
from scheduler_app.policy.settings import with_defaults

HOUR = timedelta(hours=1)
WEEK = timedelta(days=7)
LEAST = timedelta(days=1)
"""With less than that of rounds nothing is told: nights are not days."""
MOST_ROUNDS = 3_000
"""Of more rounds some stand for all: of a round a minute every fourth of a week."""
MOST_RUNS = 50
"""Runs of the lab among which one with the same nodes is looked for: those of administrators first, then the newest."""
RECENT = timedelta(days=28)
"""An older run simulated other jobs than those whose prices are told."""


class SimulatedSaving(NamedTuple):
    """Hours of waiting a week that a run of the lab saved with these nodes more, or less; negative: that it cost."""

    lab_run: int
    saved_h: float
    only_teams_of: str = ""
    """User whose teams' jobs alone were simulated; empty: all jobs were."""

    @property
    def cost_h(self) -> float:
        return -self.saved_h


@dataclass(frozen=True)
class NodeSaving:
    """Of one GPU type; `gpus` there are, a usual node has `node_gpus` of them."""

    gpu_type: str
    gpus: int
    node_gpus: int
    price: float
    """Hours that others waited per GPU-hour, mean of the hours for which prices are known."""
    saved_h: float
    """Hours of waiting a week that one more node would have saved."""
    cost_h: float | None
    """Those that one node less would have cost; None: it is the only one."""
    simulated_more: SimulatedSaving | None = None
    simulated_less: SimulatedSaving | None = None

    @property
    def words(self) -> str:
        """`One more node of 4 T4 would have saved 41 h of waiting a week; one less would have cost 73 h.`"""
        node = f"node of {self.node_gpus} {self.gpu_type.upper()}"
        less = "" if self.cost_h is None else f"; one less would have cost {format_hours(self.cost_h)}"
        return f"One more {node} would have saved {format_hours(self.saved_h)} of waiting a week{less}."


@dataclass(frozen=True)
class NodeSavings:
    """Of all GPU types, those first that save most; without any, `why_none` says why."""

    types: Sequence[NodeSaving] = ()
    since: datetime | None = None
    why_none: str = ""


OTHER_PRICES = (
    "Prices of the policy {} are no hours of waiting: a run of the lab with other nodes says what nodes would save."
)
TOO_EARLY = "Prices are known of less than a day: this is told from a day on."


def read_node_savings(user: User, now: datetime) -> NodeSavings:
    """Read the prices of the last week, and the runs of the lab that the user may see."""
    setting = PolicySetting.objects.current()
    if not prices_in_hours(setting.policy):
        return NodeSavings(why_none=OTHER_PRICES.format(setting.policy))
    spans = read_past_prices(now - WEEK, now, most=MOST_ROUNDS)
    if _hours_of(spans) < LEAST / HOUR:
        return NodeSavings(why_none=TOO_EARLY)
    return node_savings(spans, read_node_gpus(), simulated=_read_simulated(user, setting, now))


class _Candidate(NamedTuple):
    """A run that changed nodes alone, without its result; `policy`: the words of that which was in force."""

    pk: int
    nodes: Mapping[str, int]
    teams: Sequence[int] | None
    policy: str
    parameters: Mapping[str, Any] | None
    owner: str
    of_staff: bool

    @property
    def node(self) -> tuple[str, int]:
        """GPU type and nodes more."""
        ((gpu_type, more),) = self.nodes.items()
        return gpu_type, more


def _read_simulated(user: User, setting: PolicySetting, now: datetime) -> dict[tuple[str, int], SimulatedSaving]:
    """By GPU type and nodes more, what can be compared: the newest run of all jobs, else of some, under this setting.

    Three queries at most, and the results of the chosen runs alone.
    """
    seen = None if user.is_staff else frozenset(user.teams.order_by().values_list("pk", flat=True))
    chosen: dict[tuple[str, int], _Candidate] = {}
    for one in _read_candidates(user, now):
        shown = seen is None or shows_to_teams(one.teams, seen)
        if shown and len(one.nodes) == 1 and abs(one.node[1]) == 1 and is_setting(one.policy, one.parameters, setting):
            chosen.setdefault(one.node, one)
    results = dict(LabRun.objects.filter(pk__in=[one.pk for one in chosen.values()]).values_list("pk", "result"))
    found = {node: _simulated_saving(one, results.get(one.pk) or {}, setting) for node, one in chosen.items()}
    return {node: saving for node, saving in found.items() if saving}


def _read_candidates(user: User, now: datetime) -> list[_Candidate]:
    runs = LabRun.objects.visible_to(user).filter(state=LabRun.State.DONE, days__isnull=False, round_length_s=None)
    alone = runs.filter(team_weights={}, quotas=[], budgets=[]).exclude(nodes={})
    recent = alone.filter(finished_at__gt=now - RECENT, result__span_h__gte=LEAST / HOUR)
    rows = recent.order_by("-owner__is_staff", "-pk").values_list(
        "pk",
        "nodes",
        "teams",
        KT("result__present__policy"),
        "result__present__parameters",
        "owner__username",
        "owner__is_staff",
    )
    return [_Candidate(*row) for row in rows[:MOST_RUNS]]


# -- pure ------------------------------------------------------------------------------------------------------------


def is_setting(words: str, parameters: Mapping[str, Any] | None, setting: PolicySetting) -> bool:
    """Whether a run simulated the policy of the setting with all of its parameters; None: they were not recorded.

    The words of a run, such as `sia:power=-0.5`, are not enough: defaults may have changed since.
    """
    name, _, _ = words.partition(":")
    return (name, parameters) == (setting.policy, with_defaults(setting.policy, setting.parameters))


def _simulated_saving(run: _Candidate, result: Mapping[str, Any], setting: PolicySetting) -> SimulatedSaving | None:
    """By the mean completion times under the setting with and without the node; None: it was not simulated."""
    rows = [one for one in result.get("policies", ()) if is_setting(one["policy"], one.get("parameters"), setting)]
    figures = [one["figures"] for one in (result.get("present"), *rows[:1]) if one and one["figures"]]
    means_h = [one["avg_jct_h"] for one in figures if one["avg_jct_h"] is not None]
    if len(means_h) < 2:
        return None
    before_h, after_h = means_h
    a_week_h = result["jobs"] * (before_h - after_h) * (WEEK / HOUR) / result["span_h"]
    return SimulatedSaving(run.pk, a_week_h, "" if run.of_staff else run.owner)


def node_savings(
    spans: Sequence[PriceSpan],
    nodes: NodeGpus,
    *,
    simulated: Mapping[tuple[str, int], SimulatedSaving],
) -> NodeSavings:
    """Savings of a week, as in the hours for which prices were in force: in others they are unknown, not 0."""
    since, prices = spans[0].began_at, hours_by_price(spans)
    weeks = _hours_of(spans) / (WEEK / HOUR)
    types = [_of_type(name, of_type, prices.get(name, 0.0) / weeks) for name, of_type in nodes.items()]
    named = (_with_runs(one, simulated) for one in types)
    return NodeSavings(sorted(named, key=lambda one: -one.saved_h), since)


def _hours_of(spans: Sequence[PriceSpan]) -> float:
    return sum(span.hours for span in spans)


def _of_type(gpu_type: str, nodes: Sequence[int], per_gpu_h: float) -> NodeSaving:
    gpus, node = sum(nodes), usual_gpus(nodes)
    cost_h = -hours_saved(per_gpu_h, gpus=gpus, more=-node) if gpus > node else None
    saved_h = hours_saved(per_gpu_h, gpus=gpus, more=node)
    return NodeSaving(gpu_type, gpus, node, per_gpu_h / (WEEK / HOUR), saved_h, cost_h)


def _with_runs(one: NodeSaving, simulated: Mapping[tuple[str, int], SimulatedSaving]) -> NodeSaving:
    more, less = simulated.get((one.gpu_type, 1)), simulated.get((one.gpu_type, -1))
    return replace(one, simulated_more=more, simulated_less=less)
