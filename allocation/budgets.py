"""Budgets of teams per calendar period (UTC): a soft one lowers the weight of its team, a hard one stops starts.

A round and a simulation apply the same rules.
"""

from datetime import UTC, date, datetime, time, timedelta

from allocation.fairness import weight_within_budget

SOFT, HARD = KINDS = ("soft", "hard")
WEEK, MONTH, QUARTER = PERIODS = ("week", "month", "quarter")


def period_around(day: date, period: str) -> tuple[date, date]:
    """First day of the calendar period, and of the next one."""
    if period == WEEK:
        first = day - timedelta(days=day.weekday())
        return first, first + timedelta(days=7)
    months = 3 if period == QUARTER else 1
    first = date(day.year, (day.month - 1) // months * months + 1, 1)
    return first, date(first.year + (first.month + months > 12), (first.month + months - 1) % 12 + 1, 1)


def midnight(day: date) -> datetime:
    """Begin of a day of UTC."""
    return datetime.combine(day, time(), UTC)


def stops_starts(kind: str, used: float) -> bool:
    """Whether jobs of the team wait for the next period; `used` is a fraction of the budget."""
    return kind == HARD and used >= 1


def weight_part(kind: str, used: float, elapsed: float) -> float:
    """Fraction of its weight that the team keeps; `used` and `elapsed` are fractions of the budget and the period."""
    return weight_within_budget(used, elapsed) if kind == SOFT else 1.0
