"""Limits, quotas and budgets of teams in words: `vision=16`, `vision:a100=8:4`, `vision=500/month:hard`."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

import numpy as np

from allocation.budgets import KINDS, PERIODS, SOFT
from allocation.quota_lending import QuotaLimits, TypeQuotas
from allocation.quotas import Quotas
from allocation.types import Ints
from simulation.clock.team_budgets import TeamBudget, TeamBudgets
from simulation.cluster import Cluster
from simulation.scenario.setting import InvalidSetting
from simulation.workloads.jobs import Jobs

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
"""Calendar time of a trace's begin where none is told: a week, a month and a quarter begin with it."""
GPUS = r"\d{1,6}"
QUOTA = re.compile(
    rf"(?P<team>[^,]+):(?P<type>[^:,=]+)=(?P<gpus>{GPUS})(?::(?P<borrow>{GPUS})?)?(?::(?P<lend>{GPUS}))?"
)
MOST_GPUS = re.compile(rf"(?P<team>[^,]+)=(?P<gpus>{GPUS})")
HOURS = r"\d{1,10}(?:\.\d{1,12})?"
BUDGET = re.compile(
    rf"(?P<team>[^,]+)=(?P<hours>{HOURS})/(?P<period>{'|'.join(PERIODS)})(?::(?P<kind>{'|'.join(KINDS)}))?"
    rf"(?::(?P<used>{HOURS}))?"
)
MOST_NAMED = 20
"""Teams in an error."""
Limit = TypeVar("Limit", "MostGpusWords", "QuotaWords", "BudgetWords")


class MostGpusWords(NamedTuple):
    """Most GPUs of all types that a team, by name, has at once."""

    team: str
    gpus: int

    def __str__(self) -> str:
        return f"{self.team}={self.gpus}"


class QuotaWords(NamedTuple):
    """Quota of a team on a GPU type, by name; None: no limit."""

    team: str
    gpu_type: str
    gpus: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None

    def __str__(self) -> str:
        borrow, lend = ("" if one is None else f"{one}" for one in (self.borrowing_limit, self.lending_limit))
        return f"{self.team}:{self.gpu_type}={self.gpus}:{borrow}:{lend}".rstrip(":")


class BudgetWords(NamedTuple):
    """Budget of a team, by name, in reference GPU-hours of a calendar period, and what is used of it already."""

    team: str
    gpu_hours: float
    period: str
    kind: str = SOFT
    used_gpu_hours: float = 0.0

    def __str__(self) -> str:
        return f"{self.team}={self.gpu_hours:.12f}/{self.period}:{self.kind}:{self.used_gpu_hours:.12f}"


def read_most_gpus(words: str | None) -> list[MostGpusWords]:
    """Parse `vision=16,speech=8`."""
    return _read(words, _read_most_gpus, lambda one: (one.team,))


def read_quotas(words: str | None) -> list[QuotaWords]:
    """Parse `vision:a100=8,speech:a100=4:2:0`: 8 GPUs; 4, of which none is lent, and 2 borrowed at most."""
    return _read(words, _read_quota, lambda one: (one.team, one.gpu_type))


def read_budgets(words: str | None) -> list[BudgetWords]:
    """Parse `vision=500/month,speech=90/week:hard:20`: the second is hard, and 20 of its GPU-hours are used."""
    return _read(words, _read_budget, lambda one: (one.team,))


def _read(words: str | None, read: Callable[[str], Limit], of: Callable[[Limit], tuple[str, ...]]) -> list[Limit]:
    found = [read(part.strip()) for part in words.split(",")] if words else []
    for name in (names := [of(one) for one in found]):
        if names.count(name) > 1:
            raise InvalidSetting(f"there are two limits of {' on '.join(name)}: keep one")
    return found


def _read_most_gpus(words: str) -> MostGpusWords:
    if (found := MOST_GPUS.fullmatch(words)) is None:
        raise InvalidSetting(f"'{words}' is not TEAM=GPUS, as in vision=16")
    return MostGpusWords(found["team"], int(found["gpus"]))


def _read_quota(words: str) -> QuotaWords:
    if (found := QUOTA.fullmatch(words)) is None:
        raise InvalidSetting(f"'{words}' is not TEAM:TYPE=GPUS[:BORROWED[:LENT]], as in vision:a100=8:4")
    limits = [None if found[name] is None else int(found[name]) for name in ("borrow", "lend")]
    if limits[1] is not None and limits[1] > int(found["gpus"]):
        raise InvalidSetting(f"'{words}' lends more GPUs than the quota has: lend {found['gpus']} at most")
    return QuotaWords(found["team"], found["type"], int(found["gpus"]), *limits)


def _read_budget(words: str) -> BudgetWords:
    if (found := BUDGET.fullmatch(words)) is None or not float(found["hours"]):
        raise InvalidSetting(
            f"'{words}' is not TEAM=GPU-HOURS/PERIOD[:KIND[:USED]], as in vision=500/month:hard; periods: "
            f"{', '.join(PERIODS)}; kinds: {', '.join(KINDS)}"
        )
    used = float(found["used"] or 0)
    return BudgetWords(found["team"], float(found["hours"]), found["period"], found["kind"] or SOFT, used)


def read_begin(words: str | None) -> datetime:
    """Parse the calendar time of the trace's begin, `2026-11-25T08:00`; without an offset it is UTC."""
    try:
        begin = BEGIN if words is None else datetime.fromisoformat(words)
        return begin.replace(tzinfo=UTC) if begin.tzinfo is None else begin.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidSetting(f"--begin '{words}' is no date with a time, as in 2026-11-25T08:00") from None


def team_quotas(
    most_gpus: Sequence[MostGpusWords], quotas: Sequence[QuotaWords], jobs: Jobs, cluster: Cluster
) -> Quotas | None:
    """The limits over all types and the quotas, for all jobs of the trace; None: there are none."""
    if not (most_gpus or quotas):
        return None
    index, rows = _index(jobs.team_names), _index(one.team for one in most_gpus)
    if unknown := [one.team for one in most_gpus if one.team not in index]:
        raise _unknown(unknown[0], jobs)
    return Quotas(
        group=_rows_of_jobs(rows, jobs)[:, None],
        most_gpus=np.array([one.gpus for one in most_gpus], dtype=np.int64),
        used_gpus=np.zeros(len(most_gpus), dtype=np.int64),
        by_type=_type_quotas(quotas, jobs, cluster),
    )


def _type_quotas(quotas: Sequence[QuotaWords], jobs: Jobs, cluster: Cluster) -> TypeQuotas | None:
    """The quotas on GPU types for all jobs of the trace; None: there are none."""
    if not quotas:
        return None
    there, rows = _index(jobs.team_names), _index(one.team for one in quotas)
    types = _index(cluster.gpu_types)
    for one in quotas:
        if one.gpu_type not in types:
            raise InvalidSetting(
                f"there is no GPU type '{one.gpu_type}' for the quota {one}; choose from {', '.join(types)}"
            )
        limits = QuotaLimits(rows[one.team], types[one.gpu_type], *one[2:])
        if one.team not in there and not limits.withheld:
            raise _unknown(one.team, jobs)
    each = [QuotaLimits(rows[one.team], types[one.gpu_type], *one[2:]) for one in quotas]
    return TypeQuotas.of_limits(_rows_of_jobs(rows, jobs), each, np.zeros((len(rows), len(types)), dtype=np.int64))


def team_budgets(budgets: Sequence[BudgetWords], jobs: Jobs, began_at: datetime) -> TeamBudgets | None:
    """The budgets for the teams of the trace; None: there are none."""
    if not budgets:
        return None
    index = _index(jobs.team_names)
    for one in budgets:
        if one.team not in index:
            raise _unknown(one.team, jobs)
    each = [TeamBudget(index[one.team], *one[1:]) for one in budgets]
    return TeamBudgets(each, began_at, len(index))


def _index(names: Iterable[str]) -> Mapping[str, int]:
    return {name: row for row, name in enumerate(dict.fromkeys(names))}


def _rows_of_jobs(rows: Mapping[str, int], jobs: Jobs) -> Ints:
    """Row (M,) of the team of each job, by the team's name; -1: it has none."""
    row_of = np.array([*(rows.get(team, -1) for team in jobs.team_names), -1], dtype=np.int64)
    found: Ints = row_of[np.where(jobs.team >= 0, jobs.team, len(jobs.team_names))]
    return found


def _unknown(team: str, jobs: Jobs) -> InvalidSetting:
    known = ", ".join(sorted(jobs.team_names)[:MOST_NAMED]) or "none"
    return InvalidSetting(f"no job of the trace is of a team '{team}'; its teams: {known}")
