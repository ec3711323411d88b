"""Scenario of a lab run: the nodes, the memory that it takes, and the limits of teams."""

import os
import resource
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from django.db.models import Count

from accounting_app.fairness.budgets import used_gpu_hours_at
from cluster_app.models import Gpu
from jobs_app.models import Budget, Team, TeamQuota
from simulation.scenario.team_limits import BudgetWords, MostGpusWords, QuotaWords, read_budgets, read_quotas
from web.rest.errors import Fault, encodable

MIB = 1 << 20
LEAST_MIB = 2048
PART_OF_MACHINE = 4
"""The default is one part of so many of the machine's memory, and `LEAST_MIB` at least."""


def memory_limit_mib() -> int:
    """The configured limit, else one by the machine's memory."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB
    return int(settings.MOTLEY_LAB_MEMORY_MIB or max(LEAST_MIB, machine // PART_OF_MACHINE))


def limit_memory(process_id: int) -> None:
    """Limit another process, and those that it starts, each for itself; not if it has ended, or has a lower limit."""
    most = memory_limit_mib() * MIB
    with suppress(OSError, ValueError):
        resource.prlimit(process_id, resource.RLIMIT_AS, (most, most))


def in_words(reason: str) -> str:
    """The reason of a failure, with the limit and the remedy if memory was short."""
    if "MemoryError" not in reason:
        return reason
    return (
        f"It reached its memory limit of {memory_limit_mib():,} MiB: choose fewer days or policies; "
        "administrators set the limit with MOTLEY_LAB_MEMORY_MIB."
    )


NodeGpus = Mapping[str, Sequence[int]]
"""GPU type → GPUs of each of its nodes."""


class NoSuchNodes(ValueError):
    """There are no such nodes to take, or none to add more of; `gpu_type` is the one in question."""

    def __init__(self, gpu_type: str, reason: str) -> None:
        self.gpu_type = gpu_type
        super().__init__(reason)


def read_node_gpus() -> NodeGpus:
    """Present GPUs of each node, whether it is in service or not."""
    nodes: dict[str, list[int]] = defaultdict(list)
    present = Gpu.objects.present().order_by("node__gpu_type__name").values_list("node__gpu_type__name", "node")
    for gpu_type, _, gpus in present.annotate(gpus=Count("pk")):
        nodes[gpu_type].append(gpus)
    return nodes


def with_node_changes(there: NodeGpus, changes: Mapping[str, int]) -> NodeGpus:
    """The nodes with nodes of the usual size added or removed; raises NoSuchNodes."""
    changed = {gpu_type: _changed(gpu_type, nodes, changes.get(gpu_type, 0)) for gpu_type, nodes in there.items()}
    for gpu_type in changes.keys() - there.keys():
        known = ", ".join(there) or "none"
        raise NoSuchNodes(gpu_type, f"The cluster has no nodes of the GPU type {gpu_type!r:.60}; it has: {known}.")
    if changes and not any(changed.values()):
        raise NoSuchNodes(next(iter(changes)), "No node would be left: take fewer.")
    return {gpu_type: nodes for gpu_type, nodes in changed.items() if nodes}


def _changed(gpu_type: str, nodes: Sequence[int], change: int) -> Sequence[int]:
    if change < -len(nodes):
        there = f"are {len(nodes)} nodes" if len(nodes) > 1 else "is 1 node"
        raise NoSuchNodes(gpu_type, f"There {there} of {gpu_type}: no more can be taken.")
    usual = usual_gpus(nodes)
    of_usual_size_first = sorted(nodes, key=lambda gpus: gpus != usual)
    return [*nodes, *[usual] * change] if change > 0 else of_usual_size_first[-change:]


def usual_gpus(nodes: Sequence[int]) -> int:
    """GPUs of the most common node."""
    ((usual, _),) = Counter(nodes).most_common(1)
    return usual


def cluster_words(nodes: NodeGpus) -> str:
    """The cluster in the simulator's syntax: a100=2x8,v100=4x4."""
    sizes = ((gpu_type, *pair) for gpu_type, of_type in nodes.items() for pair in sorted(Counter(of_type).items()))
    return ",".join(f"{gpu_type}={count}x{gpus}" for gpu_type, gpus, count in sizes)


class QuotaChange(NamedTuple):
    """Quota of a team on a GPU type in place of the present one; gpus None: it has none."""

    team: str
    gpu_type: str
    gpus: int | None
    borrowing_limit: int | None = None
    lending_limit: int | None = None


class BudgetChange(NamedTuple):
    """Budget of a team in place of the present one; gpu_hours None: it has none."""

    team: str
    gpu_hours: float | None
    period: str = Budget.Period.MONTH
    kind: str = Budget.Kind.SOFT


class LimitWords(NamedTuple):
    """Limits over all GPU types, quotas, budgets and the begin of the trace as options of the simulator."""

    team_gpus: str | None
    quotas: str | None
    budgets: str | None
    begin: str | None


@dataclass(frozen=True)
class TeamLimits:
    """Quotas by team and GPU type, and budgets by team, of a history that begins at `began_at`; None: of a trace.

    most_gpus: GPUs of all types that a team has at once.
    """

    quotas: Mapping[tuple[str, str], QuotaWords]
    budgets: Mapping[str, BudgetWords]
    began_at: datetime | None = None
    most_gpus: Mapping[str, int] = field(default_factory=dict)

    def words(self, *, teams: Collection[str], gpu_types: Collection[str]) -> LimitWords:
        """The limits in the simulator's syntax, for jobs of these teams on these GPU types.

        Quotas of other teams matter only by what they do not lend.
        """
        quotas = [
            one for one in self.quotas.values() if one.gpu_type in gpu_types and (one.team in teams or _withholds(one))
        ]
        budgets = [one for one in self.budgets.values() if one.team in teams]
        begin = self.began_at.isoformat() if budgets and self.began_at else None
        limits = [MostGpusWords(team, gpus) for team, gpus in self.most_gpus.items() if team in teams]
        return LimitWords(_words(limits), _words(quotas), _words(budgets), begin)


NO_LIMITS = TeamLimits({}, {})


def _withholds(quota: QuotaWords) -> bool:
    return quota.lending_limit is not None and quota.lending_limit < quota.gpus


def _words(limits: Iterable[MostGpusWords | QuotaWords | BudgetWords]) -> str | None:
    return ",".join(map(str, limits)) or None


def read_team_limits(began_at: datetime) -> TeamLimits:
    """Present limits of teams, budgets with their use when the history began: at most four queries."""
    most_gpus = {name: gpus for name, gpus in Team.objects.values_list("name", "max_gpus") if gpus is not None}
    quotas = TeamQuota.objects.values_list("team__name", "gpu_type__name", "gpus", "borrowing_limit", "lending_limit")
    budgets = Budget.objects.values_list("team__name", "gpu_hours", "period", "kind")
    of_types = {row[:2]: QuotaWords(*row) for row in quotas}
    found = TeamLimits(of_types, {row[0]: BudgetWords(*row) for row in budgets}, began_at, most_gpus)
    return _with_use(found, began_at)


def with_limit_changes(
    limits: TeamLimits, quotas: Sequence[QuotaChange], budgets: Sequence[BudgetChange]
) -> TeamLimits:
    """The limits with these in place of those of the same teams and types."""
    of_types = {**limits.quotas, **{one[:2]: QuotaWords(*one) for one in quotas if one.gpus is not None}}  # type: ignore[arg-type]  # gpus is known
    of_teams = {**limits.budgets, **{one.team: BudgetWords(*one) for one in budgets if one.gpu_hours is not None}}  # type: ignore[arg-type]  # gpu_hours is known
    changed = TeamLimits(
        {place: one for place, one in of_types.items() if place not in {q[:2] for q in quotas if q.gpus is None}},
        {team: one for team, one in of_teams.items() if team not in {b.team for b in budgets if b.gpu_hours is None}},
        limits.began_at,
        limits.most_gpus,
    )
    return changed if limits.began_at is None else _with_use(changed, limits.began_at)


def _with_use(limits: TeamLimits, began_at: datetime) -> TeamLimits:
    keys = dict(Team.objects.filter(name__in=limits.budgets).values_list("name", "pk")) if limits.budgets else {}
    used = used_gpu_hours_at(began_at, {keys[name]: one.period for name, one in limits.budgets.items() if name in keys})
    budgets = {
        name: one._replace(used_gpu_hours=used.get(keys.get(name, 0), 0.0)) for name, one in limits.budgets.items()
    }
    return replace(limits, budgets=budgets)


# -- at the door ---------------------------------------------------------------------------------------------------


def limit_faults(
    quotas: Sequence[QuotaChange],
    budgets: Sequence[BudgetChange],
    *,
    teams: Collection[str],
    gpu_types: Collection[str],
) -> Iterator[Fault]:
    """Faults of the changes of a run with jobs of these teams on these GPU types."""
    for place, quota in enumerate(quotas):
        yield from _team_fault(quota.team, f"/quotas/{place}/team", teams)
        yield from _quota_faults(quota, f"/quotas/{place}", gpu_types)
        if quota[:2] in [one[:2] for one in quotas[:place]]:
            yield _fault(f"/quotas/{place}", "repeated", "Give one quota for a team and a GPU type.")
    for place, budget in enumerate(budgets):
        yield from _team_fault(budget.team, f"/budgets/{place}/team", teams)
        if budget.team in [one.team for one in budgets[:place]]:
            yield _fault(f"/budgets/{place}", "repeated", "Give one budget for a team.")


def _quota_faults(quota: QuotaChange, pointer: str, gpu_types: Collection[str]) -> Iterator[Fault]:
    if quota.gpu_type not in gpu_types:
        known = ", ".join(gpu_types) or "none"
        text = f"The simulated cluster has no GPU type {quota.gpu_type!r:.60}; it has: {known}."
        yield _fault(f"{pointer}/gpu_type", "no_such_gpu_type", text)
    if quota.lending_limit is not None and quota.lending_limit > (quota.gpus or 0):
        text = f"A team cannot lend more GPUs than its quota has: write {quota.gpus or 0} at most."
        yield _fault(f"{pointer}/lending_limit", "lends_more", text)


def _team_fault(team: str, pointer: str, teams: Collection[str]) -> Iterator[Fault]:
    if team not in teams:
        known = ", ".join(sorted(teams)[:20]) or "none"
        text = f"There is no team {team!r:.60} whose jobs are simulated; there are: {known}."
        yield _fault(pointer, "no_such_team", text)
    elif "," in team:
        yield _fault(pointer, "no_such_team", "The name of a team with a quota or a budget has no comma.")


def _fault(pointer: str, code: str, detail: str) -> Fault:
    return Fault(pointer=pointer, code=code, detail=encodable(detail))


# -- as words: one on each line of a form --------------------------------------------------------------------------

NONE = "=none"


def quota_changes(lines: Iterable[str]) -> list[QuotaChange]:
    """Parse lines such as `vision:a100=8:4` or `vision:a100=none`; raises InvalidSetting."""
    return [_quota_of(line.strip()) for line in lines if line.strip()]


def budget_changes(lines: Iterable[str]) -> list[BudgetChange]:
    """Parse lines such as `vision=500/month:hard` or `vision=none`; raises InvalidSetting."""
    return [_budget_of(line.strip()) for line in lines if line.strip()]


def _quota_of(line: str) -> QuotaChange:
    team, _, gpu_type = line.removesuffix(NONE).rpartition(":")
    if line.endswith(NONE) and team and gpu_type:
        return QuotaChange(team, gpu_type.lower(), None)
    (quota,) = read_quotas(line)
    return QuotaChange(*quota)._replace(gpu_type=quota.gpu_type.lower())


def _budget_of(line: str) -> BudgetChange:
    if line.endswith(NONE):
        return BudgetChange(line.removesuffix(NONE), None)
    (budget,) = read_budgets(line)
    return BudgetChange(*budget[:4])
