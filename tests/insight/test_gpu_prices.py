"""Prices of GPUs over time: means of past rounds, and the plan of the newest run of forecasts."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.urls import reverse
from rest_framework.test import APIClient

from insight_app.explain.cost_and_time import CostAndTime, CostOption, CostUnit
from insight_app.explain.decisions import explain_job
from insight_app.explain.dry_run import dry_run
from insight_app.explain.plan_forecast import PlannedForecast, others_wait_h, promise_of
from insight_app.gpu_prices.past import PriceSpan, read_past_prices
from insight_app.gpu_prices.planned import PlannedHours, PlannedInterval, read_planned_hours
from insight_app.models import ForecastRun
from insight_app.start_forecasts.planned import planned_hours
from insight_app.start_forecasts.reading import read_forecast_input
from insight_app.start_forecasts.runs import forecast_jobs
from insight_app.start_forecasts.showing import Interval, ShownForecast
from insight_app.timeline.prices import BINS, CheapLater, TypePrice, cheap_later, past_prices, planned_prices
from insight_app.timeline.time_range import Frame
from jobs_app.models import Job
from motley_command.tables.jobs import _at_what_cost
from scheduler_app.models import PolicySetting, Round
from tests.insight.forecast_cluster import running, submitted
from tests.rest_callers import Scope, caller
from tests.service_lab import Lab
from web.pages.cost_chart import cost_figure

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
FRAME = Frame(NOW - BINS * HOUR, NOW, NOW + 8 * HOUR)
PLANNED = {"ends_s": [3600.0, 7200.0, 86_400.0], "prices": {"t4": [3.0, 2.0, 0.4]}, "load": {"t4": [4.0, 4.0, 1.5]}}


@pytest.fixture
def planned(lab: Lab, plain_static: None) -> Lab:
    """One GPU that is held for ten minutes more, three jobs that wait for it, a round of motley, and its forecasts."""
    lab.node("n1", "a100", gpus=1)
    lab.policy("motley", round_s=60)
    running(lab, submitted(lab, minutes=10))
    for _ in range(3):
        submitted(lab, minutes=60)
    of_round = {"result": "committed", "policy": "motley", "shares_since": lab.now, "prices": {"a100": 2.5}}
    Round.objects.create(number=1, started_at=lab.now - timedelta(minutes=2), **of_round)
    found = planned_hours(read_forecast_input(lab.now), PolicySetting.objects.current())
    ForecastRun.objects.create(round=1, started_at=lab.now, finished_at=lab.now, planned=found)
    return lab


def test_a_run_of_forecasts_keeps_the_plan_by_which_rounds_decide(lab: Lab) -> None:
    lab.node("n1", "a100", gpus=1)
    lab.policy("motley", round_s=60)
    running(lab, submitted(lab, minutes=10))
    Round.objects.create(number=1, started_at=lab.now, result="committed", policy="motley", shares_since=lab.now)
    found = forecast_jobs(ForecastRun.objects.create(round=1, started_at=lab.now), lab.now).planned
    assert found is not None
    assert found["load"]["a100"][0] == pytest.approx(1, abs=0.05)


def test_prices_fall_while_the_queue_is_worked_off(planned: Lab) -> None:
    found = ForecastRun.objects.get().planned
    assert found is not None
    prices, load = found["prices"]["a100"], found["load"]["a100"]
    assert len(prices) == len(load) == len(found["ends_s"])
    assert prices[0] > 1, "three jobs wait"
    assert prices == pytest.approx(sorted(prices, reverse=True), abs=0.05)
    assert load[0] == pytest.approx(1, abs=0.05)
    assert load[-1] < 0.5, "all work is done by then"


def test_jobs_that_could_not_start_now_are_not_in_the_plan(lab: Lab) -> None:
    lab.node("n1", "a100", gpus=1)
    lab.policy("motley", round_s=60)
    waits = submitted(lab, minutes=60)
    submitted(lab, minutes=60, after=[{"job": str(waits.pk)}])
    Job.objects.filter(pk=waits.pk).update(begin_time=lab.now + 5 * HOUR)
    Round.objects.create(number=1, started_at=lab.now, result="committed", policy="motley", shares_since=lab.now)
    run = forecast_jobs(ForecastRun.objects.create(round=1, started_at=lab.now), lab.now)
    assert (run.jobs, run.planned, run.message) == (2, None, "")


def test_a_policy_that_decides_by_no_plan_has_none(lab: Lab) -> None:
    lab.node("n1", "a100", gpus=1)
    lab.policy("fifo", round_s=60)
    submitted(lab, minutes=10)
    Round.objects.create(number=1, started_at=lab.now, result="committed", policy="fifo", shares_since=lab.now)
    assert forecast_jobs(ForecastRun.objects.create(round=1, started_at=lab.now), lab.now).planned is None


def test_the_past_is_told_in_means_of_equal_parts() -> None:
    def span(began_h: float, hours: float, price: float) -> PriceSpan:
        return PriceSpan(FRAME.since + began_h * HOUR, FRAME.since + (began_h + hours) * HOUR, {"t4": price})

    found = list(past_prices([span(0, 0.25, 4.0), span(0.25, 0.75, 0.0), span(5, 1, 2.0)], FRAME))
    assert [(one.since - FRAME.since, one.price) for one in found] == [(timedelta(), 1.0), (5 * HOUR, 2.0)]
    assert not any(one.planned for one in found)


def test_the_plan_is_cut_to_what_lies_ahead_in_the_frame() -> None:
    found = list(planned_prices(PlannedHours.of(PLANNED, NOW - 1.5 * HOUR), FRAME))
    told = [(one.since - NOW, one.until - NOW, one.price, one.load) for one in found]
    assert told == [(timedelta(), 0.5 * HOUR, 2.0, 4.0), (0.5 * HOUR, 8 * HOUR, 0.4, 1.5)]


def test_a_run_costs_others_the_prices_of_its_time() -> None:
    hours = PlannedHours.of(PLANNED, NOW)
    assert hours.waiting_h("t4", 2, NOW, NOW + 3 * HOUR) == pytest.approx(2 * (3.0 + 2.0 + 0.4))
    assert hours.waiting_h("t4", 1, NOW + 30 * HOUR, NOW + 40 * HOUR) == 0, "after all planned work"
    assert hours.waiting_h("a100", 1, NOW, NOW + HOUR) is None


def test_a_type_is_cheap_from_when_its_price_has_halved() -> None:
    found = list(planned_prices(PlannedHours.of(PLANNED, NOW), FRAME))
    assert cheap_later(found) == [CheapLater("t4", 3.0, NOW + 2 * HOUR, 0.4)]
    assert cheap_later(found[:2]) == [CheapLater("t4", 3.0, None, None)]
    assert cheap_later([TypePrice("t4", NOW, NOW + HOUR, 3.0, planned=False)]) == []
    over_soon = TypePrice("t4", NOW - HOUR, NOW - HOUR + timedelta(seconds=59), 9.0, planned=True)
    assert cheap_later([over_soon, *found]) == cheap_later(found), "a change within the same minute is none"
    assert cheap_later([TypePrice("t4", NOW, NOW + HOUR, 0.0, planned=True)]) == [], "an hour costs nobody any"


def test_of_many_rounds_some_stand_for_all(lab: Lab) -> None:
    lab.policy("motley", round_s=60)
    for number in range(12):
        began_at = NOW - (12 - number) * HOUR / 12
        Round.objects.create(
            number=number, started_at=began_at, result="committed", policy="motley", shares_since=NOW, prices={"t4": 1}
        )
    spans = read_past_prices(NOW - HOUR, NOW, most=4)
    assert (len(spans), sum(span.hours for span in spans)) == (4, pytest.approx(1))


def test_the_timeline_draws_past_and_planned_prices_and_rest_tells_them(planned: Lab) -> None:
    web, user = APIClient(), planned.user()
    web.force_login(user)
    shown = web.get(reverse("timeline"), {"window": "1h"}).content.decode()
    figure = json.loads(re.search(r'<script id="price-figure" type="application/json">(.*?)</script>', shown)[1])  # type: ignore[index]
    assert [line["name"] for line in figure["data"]] == ["A100", "A100, planned"]
    assert "By the plan, an hour on one A100 costs others" in shown
    prices = caller(user, Scope.READ).get("/api/v1/timeline?window=1h").json()["prices"]
    assert [(one["price"], one["load"]) for one in prices if not one["planned"]] == [(2.5, None)]
    assert any(one["planned"] and one["load"] > 0 for one in prices)
    PolicySetting.objects.all().delete()
    planned.policy("fifo", round_s=60)
    assert caller(user, Scope.READ).get("/api/v1/timeline").json()["prices"] == []


SHOWN = ShownForecast(
    made_at=NOW,
    start=Interval(NOW, NOW + HOUR, NOW + 2 * HOUR),
    finish=Interval(NOW + 2 * HOUR, NOW + 3 * HOUR, NOW + 4 * HOUR),
    gpu_type="t4",
    type_part=1.0,
    place=1,
    queue=1,
    in_time=0.75,
)


def test_a_deadline_is_promised_with_what_it_costs_others_or_not_before_a_time() -> None:
    waits_h = others_wait_h(SHOWN, 2, PlannedHours.of(PLANNED, NOW))
    assert waits_h == pytest.approx(2 * (2.0 + 0.4)), "from the median of its start to that of its end"
    assert promise_of(SHOWN, waits_h) == ("The deadline is met in 75% of the futures; others wait 4.8 h for its GPUs.")
    assert promise_of(replace(SHOWN, in_time=0.25), waits_h) == (
        "The deadline cannot be promised: it is met in 25% of the futures, in 90 % not before 2026-11-29 14:00 UTC."
    )
    assert promise_of(replace(SHOWN, in_time=None), waits_h) == ""
    assert promise_of(SHOWN, 384.0).endswith("; others wait 384 h for its GPUs.")
    assert promise_of(SHOWN, 0.0) == promise_of(SHOWN, None) == "The deadline is met in 75% of the futures."


@pytest.mark.parametrize(
    ("waits_h", "words"),
    [(None, ""), (0.0, ""), (0.4, "others wait 0.4 h for its GPUs."), (384.0, "others wait 384 h for its GPUs.")],
)
def test_a_plan_tells_what_it_costs_others_on_pages_and_in_the_command(waits_h: float | None, words: str) -> None:
    found = PlannedForecast(replace(SHOWN, in_time=None), others_wait_h=waits_h)
    assert found.cost_words == (words and f"By the plan, {words}")
    shown = " ".join(render_to_string("pages/_plan_forecast.html", {"found": found}).split())
    assert ("others wait" in shown, words in shown) == (bool(words), True)
    told: Any = {"others_wait_h": waits_h, "promise": ""}
    coming: Any = {"in_time": None}
    assert _at_what_cost(told, coming) == found.cost_words


def test_the_chart_of_a_plan_writes_hours_without_an_exponent() -> None:
    option = CostOption("t4", 2, 3600.0, 2.0, True, True, 1384.0)
    (words,) = cost_figure(CostAndTime([option], CostUnit.GPU_HOURS), {}, currency="")["data"][-1]["hovertext"]
    assert words.endswith("others wait 1,384 h")
    free = CostAndTime([replace(option, others_wait_h=0.0)], CostUnit.GPU_HOURS)
    assert "others wait" not in cost_figure(free, {}, currency="")["data"][-1]["hovertext"][0]


def test_a_job_that_runs_is_told_how_long_others_wait_for_its_gpus(planned: Lab) -> None:
    job, waits = Job.objects.get(state="running"), Job.objects.filter(state="queued").first()
    said = "Others wait 2.5 h for each hour that it holds 1 A100, by the prices of round 1."
    assert explain_job(job, planned.now)["others_wait"] == said
    assert explain_job(waits, planned.now)["others_wait"] == ""
    Round.objects.update(prices={"a100": 384.0})
    assert explain_job(job, planned.now)["others_wait"].startswith("Others wait 384 h for each hour")
    Round.objects.update(prices={"a100": 0.0})
    assert explain_job(job, planned.now)["others_wait"] == "", "nobody waits"
    Round.objects.update(policy="fifo", prices={"a100": 2.5})
    assert explain_job(job, planned.now)["others_wait"] == ""


def test_options_of_a_plan_tell_what_they_cost_others(planned: Lab) -> None:
    spec = {
        "name": "net",
        "team": "vision",
        "command": "true",
        "gpus": 1,
        "rates": {"a100": 10.0},
        "total_steps": 36_000,
    }
    (option,) = dry_run(spec, owner=planned.user())["cost_and_time"].options
    intervals = read_planned_hours(planned.now).types["a100"]  # type: ignore[union-attr]
    assert option.others_wait_h == pytest.approx(sum(i.price * h for i, h in over(intervals, planned.now)), rel=0.05)
    assert option.others_wait_h > 0.5
    PolicySetting.objects.all().delete()
    planned.policy("fifo", round_s=60)
    (option,) = dry_run(spec, owner=planned.user())["cost_and_time"].options
    assert option.others_wait_h is None


def test_a_job_of_more_years_than_dates_have_costs_others_what_the_whole_plan_does(planned: Lab) -> None:
    spec = {"name": "net", "team": "vision", "command": "true", "gpus": 1} | {
        "rates": {"a100": 1.0},
        "total_steps": 2**62,
    }
    (option,) = dry_run(spec, owner=planned.user())["cost_and_time"].options
    intervals = read_planned_hours(planned.now).types["a100"]  # type: ignore[union-attr]
    whole = sum(one.price * ((one.until - one.since) / HOUR) for one in intervals)
    assert option.others_wait_h == pytest.approx(whole, rel=0.05)
    asked = caller(planned.user(), Scope.SUBMIT).post("/api/v1/jobs?dry_run=true", spec, format="json")
    assert asked.status_code == 200, asked.content


def over(intervals: Sequence[PlannedInterval], now: datetime) -> list[tuple[PlannedInterval, float]]:
    """Intervals of the hour from now on, each with its hours in it."""
    hours = [(one, (min(one.until, now + HOUR) - max(one.since, now)) / HOUR) for one in intervals]
    return [(one, part) for one, part in hours if part > 0]
