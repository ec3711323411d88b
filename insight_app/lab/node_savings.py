"""Hours by which jobs would end earlier with one more node of each GPU type, and later with one less: by prices.

The prices of the rounds of the last week are summed up (`allocation.plan.more_gpus`); beside it stands what the lab
simulated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.contrib.auth.models import User

from allocation.plan.more_gpus import hours_saved
from allocation.policies import prices_in_hours
from insight_app.gpu_prices.past import PriceSpan, hours_by_price, read_past_prices
from insight_app.gpu_prices.wording import format_hours
from insight_app.lab.scenario import NodeGpus, read_node_gpus, usual_gpus
from insight_app.models import LabRun
from scheduler_app.models import PolicySetting

HOUR = timedelta(hours=1)
WEEK = timedelta(days=7)
LEAST = timedelta(days=1)
"""With less than that of rounds nothing is told: nights are not days."""
MOST_ROUNDS = 3_000
"""Of more rounds some stand for all: of a round a minute every fourth of a week."""
MOST_RUNS = 50
"""Newest runs of the lab among which one with the same nodes is looked for."""


class SimulatedSaving(NamedTuple):
    """Hours of waiting a week that a run of the lab saved with these nodes more, or less; negative: that it cost."""

    lab_run: int
    saved_h: float

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
    policy = PolicySetting.objects.current().policy
    if not prices_in_hours(policy):
        return NodeSavings(why_none=OTHER_PRICES.format(policy))
    spans = read_past_prices(now - WEEK, now, most=MOST_ROUNDS)
    if _hours_of(spans) < LEAST / HOUR:
        return NodeSavings(why_none=TOO_EARLY)
    return node_savings(spans, read_node_gpus(), simulated=_read_simulated(user))


def _read_simulated(user: User) -> dict[tuple[str, int], SimulatedSaving]:
    """By GPU type and nodes more, the newest run under the present policy that changed only these."""
    done = LabRun.objects.visible_to(user).filter(state=LabRun.State.DONE, days__isnull=False, round_length_s=None)
    found: dict[tuple[str, int], SimulatedSaving] = {}
    for run in done.filter(team_weights={}, quotas=[], budgets=[]).exclude(nodes={})[:MOST_RUNS]:
        if len(run.nodes) == 1 and run.shows_result_to(user) and (saved := simulated_saving(run)):
            found.setdefault(next(iter(run.nodes.items())), saved)
    return found


# -- pure ------------------------------------------------------------------------------------------------------------


def simulated_saving(run: LabRun) -> SimulatedSaving | None:
    """By the mean completion times of the present policy with and without the nodes; None: it was not simulated."""
    result: Mapping[str, Any] = run.result or {}
    before = result["present"]["figures"]
    rows = [one for one in result["policies"] if one["policy"] == result["present"]["policy"]]
    after = rows[0]["figures"] if rows else None
    if not after or before["avg_jct_h"] is None or after["avg_jct_h"] is None or not run.days:
        return None
    saved_h = result["jobs"] * (before["avg_jct_h"] - after["avg_jct_h"])
    return SimulatedSaving(run.pk, saved_h * (WEEK / timedelta(days=run.days)))


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
