"""Usage and monthly reports as rows for spreadsheets, whose names are never formulas."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.conf import settings

from accounting_app.fairness.monthly_report import TeamReport
from accounting_app.fairness.team_months import month_name
from accounting_app.fairness.usage_report import Period, Usage
from simulation.traces.motley_csv import as_text

USAGE_COLUMNS = ("team", "gpu_type", "gpu_hours", "work_gpu_hours", "cost", "energy_kwh", "energy_source")
"""After the day or month."""
REPORT_COLUMNS = (
    *("month", "team", "kind", "name", "gpu_hours", "work_gpu_hours", "cost", "currency", "energy_kwh"),
    *("energy_source", "succeeded", "failed", "cancelled", "timed_out", "wait_s", "wait_p95_s", "restarts"),
    *("lost_gpu_hours", "failed_gpu_hours", "idle_gpu_hours", "co2_g"),
)
"""Of a team all; of a GPU type and of a member (`kind`) the first."""


def usage_rows(rows: Iterable[Usage], by: Period) -> Iterator[Sequence[Any]]:
    """Usage by day or month, after the names of the columns."""
    yield by.value, *USAGE_COLUMNS
    for row in rows:
        period = month_name(row.period) if by is Period.MONTH else row.period.isoformat()
        amounts = (_rounded(row.gpu_hours), _rounded(row.work_gpu_hours), _rounded(row.cost, 2))
        energy = (_rounded(row.energy_kwh, 4), row.energy_source.value)
        yield period, as_text(row.team), as_text(row.gpu_type), *amounts, *energy


def report_rows(reports: Iterable[TeamReport]) -> Iterator[Sequence[Any]]:
    """Reports of teams in a month, after the names of the columns."""
    yield REPORT_COLUMNS
    for report in reports:
        for row in _rows(report):
            yield [*row, *[""] * (len(REPORT_COLUMNS) - len(row))]


def _rows(report: TeamReport) -> Iterator[list[Any]]:
    """The team, then its GPU types, then its members."""
    whose, currency = [month_name(report.month), as_text(report.team)], as_text(settings.MOTLEY_CURRENCY)
    amounts = [_rounded(report.gpu_hours), _rounded(report.work_gpu_hours), _rounded(report.cost, 2), currency]
    energy = [_rounded(report.energy_kwh, 4), report.energy.source.value]
    waste = [report.lost_gpu_hours, report.failed_gpu_hours, report.idle_gpu_hours]
    yield [*whose, "team", "", *amounts, *energy, *_of_jobs(report), *map(_rounded, waste), _rounded(report.co2_g, 1)]
    for kind in report.types:
        hours = [_rounded(kind.gpu_hours), _rounded(kind.work_gpu_hours)]
        yield [*whose, "gpu_type", as_text(kind.gpu_type), *hours, _rounded(kind.cost or None, 2), currency]
    for member in report.members:
        hours = [_rounded(member.gpu_hours), _rounded(member.work_gpu_hours)]
        yield [*whose, "member", as_text(member.username), *hours]


def _of_jobs(report: TeamReport) -> list[Any]:
    its = report.figures
    if its is None:
        return [""] * 7
    counts = [its.succeeded, its.failed, its.cancelled, its.timed_out]
    return [*counts, _rounded(its.wait_s, 1), _rounded(its.wait_p95_s, 1), its.restarts]


def _rounded(value: float | None, digits: int = 3) -> Any:
    return "" if value is None else round(value, digits)
