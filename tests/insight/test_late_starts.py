"""A job that starts later than foreseen: its interval is wider from then on, and says so."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import numpy as np

from insight_app.models import JobForecast
from insight_app.start_forecasts.forecast_store import Event, ForeseenStart, MadeForecast, with_delay
from insight_app.start_forecasts.showing import Interval
from insight_app.start_forecasts.wording import format_interval
from motley_command.tables.format import interval
from tests.insight.forecast_cluster import forecast_now, running, submitted
from tests.service_lab import Lab

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def made(start_s: list[float]) -> MadeForecast:
    """A job that waits, and runs for 100 s."""
    shown = {Event.START: np.array(start_s), Event.FINISH: np.array(start_s) + 100}
    return MadeForecast(UUID(int=1), 1, True, False, False, shown, shown, "a100", 1.0, 1)


def test_the_earliest_limit_counts_although_each_forecast_moves_it() -> None:
    """Within a minute, each 20 s: after 60 and 15 s more the first is missed."""
    foreseen, late = ForeseenStart(), []
    for seconds in range(0, 120, 20):
        one = with_delay(made([0, 30, 60]), foreseen, after(seconds))
        foreseen = one.start
        late.append(foreseen.late_since)
    assert late == [None, None, None, None, after(60), after(60)]


def test_an_interval_that_was_missed_is_as_wide_as_the_delay_and_the_end_moves_with_it() -> None:
    one = with_delay(made([0, 30, 60]), ForeseenStart(after(-300)), NOW)
    assert one.shown_s[Event.START].tolist() == [0, 30, 300]
    assert one.shown_s[Event.FINISH].tolist() == [100, 130, 400]
    assert one.start == ForeseenStart(after(300), after(-300))


def test_a_wide_interval_is_left_as_it_is() -> None:
    one = with_delay(made([0, 30, 600]), ForeseenStart(after(-300)), NOW)
    assert one.shown_s[Event.START].tolist() == [0, 30, 600]


def test_page_rest_and_command_say_that_it_is_later_than_foreseen() -> None:
    late = Interval(after(60), after(120), after(600), late_since=after(-60))
    assert format_interval(late, NOW) == "in about 2 min (1 to 10 min), later than foreseen"
    told = {"low": after(60).isoformat(), "median": after(120).isoformat(), "high": after(600).isoformat()}
    assert interval({**told, "note": late.note}, NOW).endswith(", later than foreseen")  # type: ignore[typeddict-item]


def test_a_job_that_still_waits_after_its_interval_is_said_to_be_late(lab: Lab) -> None:
    lab.node("n1", "a100", gpus=1)
    lab.policy("fifo", round_s=60)
    first, waits = submitted(lab, minutes=10), submitted(lab, minutes=10)
    running(lab, first)
    forecast_now(lab)
    before = JobForecast.objects.get(pk=waits.pk)
    assert (before.late_since, before.start_by) == (None, before.start_high)
    JobForecast.objects.filter(pk=waits.pk).update(start_by=lab.now - timedelta(minutes=50))
    forecast_now(lab, 2)
    found = JobForecast.objects.get(pk=waits.pk)
    assert found.late_since is not None
    assert found.start_high is not None
    assert found.start_high >= found.made_at + timedelta(minutes=50)
