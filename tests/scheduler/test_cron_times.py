"""Times of cron expressions around changes of the clocks."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest

from scheduler_app.cron_times import cron_times, latest_cron_time

BERLIN = ZoneInfo("Europe/Berlin")
SPRING, AUTUMN = datetime(2026, 3, 29, tzinfo=BERLIN), datetime(2026, 10, 25, tzinfo=BERLIN)
"""Days on which 02:00 to 03:00 is skipped, and comes twice."""


def times_of_day(cron: str, day: datetime) -> list[str]:
    """Local times of the expression on this day."""
    begin = day - timedelta(seconds=1)
    times = [at.astimezone(BERLIN) for at in islice(cron_times(cron, "Europe/Berlin", begin), 60)]
    return [f"{at:%H:%M}" for at in times if at.date() == day.date()]


@pytest.mark.parametrize("cron", ["30 2 * * *", "0,30 2 * * *", "*/30 2 * * *", "0 2,3 * * *"])
def test_a_time_that_is_skipped_comes_once(cron: str) -> None:
    assert times_of_day(cron, SPRING).count("03:00") == 1


@pytest.mark.parametrize("cron", ["30 2 * * *", "*/30 2 * * *", "30 */2 * * *"])
def test_a_time_that_is_repeated_comes_once(cron: str) -> None:
    assert times_of_day(cron, AUTUMN).count("02:30") == 1


def test_every_hour_comes_each_hour_that_passes() -> None:
    assert (len(times_of_day("0 * * * *", SPRING)), len(times_of_day("0 * * * *", AUTUMN))) == (23, 25)


@pytest.mark.parametrize("cron", ["30 2 * * *", "*/20 1-3 * * *", "15 * * * *", "0 0 * * SUN"])
@pytest.mark.parametrize("day", [SPRING, AUTUMN])
def test_each_time_is_found_from_the_one_before_and_backwards(cron: str, day: datetime) -> None:
    times = list(islice(cron_times(cron, "Europe/Berlin", day - timedelta(days=8)), 300))
    assert all(next(cron_times(cron, "Europe/Berlin", before)) == after for before, after in pairwise(times))
    last = [at for at in times if at <= day + timedelta(hours=12)][-1]
    assert latest_cron_time(cron, "Europe/Berlin", day + timedelta(hours=12)) == last


def test_within_the_hour_that_is_repeated_its_first_pass_is_over() -> None:
    second_pass = datetime(2026, 10, 25, 1, 15, tzinfo=UTC)  # 02:15 again
    assert next(cron_times("30 2 * * *", "Europe/Berlin", second_pass)) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)
