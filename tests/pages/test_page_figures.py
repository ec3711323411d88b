"""The pure parts behind the pages: timelines, words, logs, charts, reasons."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from accounting_app.fairness.history import WINDOWS, ClusterState, Point, fairness, utilization
from accounting_app.gpu_watch.history import UsePoint, bucket_s
from accounting_app.models import GpuTypeUsage, TeamUsage
from cluster_app.models import GpuType
from connections_app.logs.reading import readable
from insight_app.explain.array_progress import gpu_time
from insight_app.explain.cost_and_time import Candidate, Length, cost_and_time
from insight_app.explain.rate_comparison import compare_rates, explain_placement
from insight_app.explain.timeline import (
    Restarts,
    axis_ticks,
    bar_segments,
    expected_spans,
    restarts_of,
    seconds_by_gpus,
    state_spans,
)
from jobs_app.models import Attempt, Job, Team
from web.pages.charts import (
    OKABE_ITO,
    STATES,
    delivered_figure,
    fairness_figure,
    over,
    rho_bars,
    states_figure,
    utilization_figure,
)
from web.pages.cost_chart import cost_figure
from web.pages.gpu_charts import gpu_figures
from web.pages.job_rows import TYPE_COLOURS
from web.pages.templatetags.format_filters import (
    duration,
    energy,
    gpu_hours,
    money,
    number,
    percent,
    percent_of,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def attempt(number: int, **times: float) -> Attempt:
    return Attempt(number=number, **{f"{name}_at": at(second) for name, second in times.items()})


def spans(job: Job, attempts: list[Attempt], *, now: float) -> list[tuple[str, float]]:
    return [(span.state, span.seconds) for span in state_spans(job, attempts, at(now))]


def test_a_preempted_and_resumed_job_has_a_span_for_each_state():
    first = attempt(1, claimed=10, started=12, stopping=30, ended=33)
    second = attempt(2, claimed=50, started=51)
    expected = [("queued", 10), ("starting", 2), ("running", 18), ("stopping", 3)]
    expected += [("queued", 17), ("starting", 1), ("running", 9)]
    assert spans(Job(created_at=NOON), [first, second], now=60) == expected


def test_a_moved_job_does_not_count_the_same_second_twice():
    moved = attempt(1, claimed=0, started=1, stopping=10, ended=14)
    onwards = attempt(2, claimed=10, started=16)
    job = Job(created_at=NOON)
    assert sum(seconds for _, seconds in spans(job, [moved, onwards], now=20)) == 20


def test_a_job_that_only_waits_has_one_span():
    assert spans(Job(created_at=NOON), [], now=5) == [("queued", 5)]


def test_a_finished_job_ends_at_its_end():
    done = attempt(1, claimed=1, started=2, ended=8)
    assert spans(Job(created_at=NOON, finished_at=at(8)), [done], now=900)[-1] == ("running", 6)


def moved_job() -> tuple[Job, list[Attempt]]:
    """It ran on V100 for 10 s, was moved, and runs on 2 A100."""
    first, second = attempt(1, claimed=1, started=4, ended=14), attempt(2, claimed=14, started=16)
    first.gpu_type, first.gpu_count, first.outcome = GpuType(name="v100"), 1, "moved"
    second.gpu_type, second.gpu_count = GpuType(name="a100"), 2
    return Job(created_at=NOON, work_lost_gpu_s=2.5), [first, second]


def test_a_bar_is_filled_and_names_attempts_gpus_and_moves():
    job, attempts = moved_job()
    styles = {"a100": "gpu-type-0", "v100": "gpu-type-2"}
    segments = bar_segments(state_spans(job, attempts, at(40)), attempts, styles)
    assert sum(piece.width for piece in segments) == pytest.approx(100, abs=0.1)
    running = [(piece.label, piece.style, piece.is_move) for piece in segments if piece.span.state == "running"]
    assert running == [("1: 1 x V100", "gpu-type-2", False), ("2: 2 x A100", "gpu-type-0", True)]


@pytest.mark.parametrize(
    ("starts", "ends", "expected"),
    [
        (20, 50, [("expected-wait", 10), ("expected-run", 30)]),
        (None, 50, [("expected-run", 40)]),
        (5, 50, [("expected-run", 40)]),  # it should have started: it starts now
        (20, 8, []),
        (20, None, []),
    ],
)
def test_what_is_to_come_is_drawn_up_to_the_forecast_end(starts, ends, expected):
    moments = (None if second is None else at(second) for second in (starts, ends))
    assert [(span.state, span.seconds) for span in expected_spans(at(10), *moments)] == expected


def test_seconds_are_counted_by_gpu_type_and_restarts_are_told():
    job, attempts = moved_job()
    found = state_spans(job, attempts, at(40))
    assert seconds_by_gpus(found, attempts) == {"v100": 10, "a100": 24}
    assert restarts_of(job, found, attempts) == Restarts(1, 5, 2.5)
    assert restarts_of(job, found, attempts[:1]) is None


def test_the_axis_of_a_bar_spans_all_of_it():
    ticks = axis_ticks(state_spans(Job(created_at=NOON), [], at(40)), UTC, "UTC")
    assert [(tick.at, tick.x) for tick in ticks] == [(at(10 * n), 25 * n) for n in range(5)]
    assert [tick.text for tick in ticks][:2] == ["12:00:00 UTC", "12:00:10"]


def test_the_axis_of_a_short_bar_says_no_time_twice():
    ticks = axis_ticks(state_spans(Job(created_at=NOON), [], at(2)), UTC, "UTC")
    assert [tick.text for tick in ticks] == ["12:00:00 UTC", "", "12:00:01", "", "12:00:02"]


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"a\r\nb", "a\nb"),
        (b"10%\r50%\r99%\ndone", "99%\ndone"),
        (b"10%\r", "10%"),
        (b"10%\r\r\n50%\r\n", "10%\n50%\n"),
        (b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07x", "red x"),
        (b"\xff\x00ok", "\ufffdok"),
    ],
)
def test_a_log_reads_as_a_terminal_shows_it_in_the_end(printed, shown):
    assert readable(printed) == shown


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (0.4, "0.4 s"), (59.6, "1 min"), (192, "3 min 12 s"), (90_061, "1 d 1 h")]
)
def test_a_duration_is_said_in_its_two_largest_units(seconds, words):
    assert duration(seconds) == words


def test_numbers_keep_three_digits_and_percents_do_not_vanish():
    assert [number(1234567), number(0.01234), percent(0.0002), percent(0.314), percent(1e-9)] == [
        "1,234,567",
        "0.0123",
        "0.02 %",
        "31 %",
        "0 %",
    ]


def test_gpu_hours_have_no_exponent():
    assert [gpu_hours(hours) for hours in (0, 0.00008, 0.0712, 1234.5)] == ["0", "< 0.001", "0.0712", "1,234"]


def test_gpu_time_is_said_in_the_unit_that_fits():
    assert [gpu_time(0), gpu_time(90), gpu_time(7200)] == ["none", "1.5 GPU-minutes", "2 GPU-hours"]
    assert gpu_time(1.4e-5) == "less than 0.1 GPU-seconds"


def test_a_bar_of_nothing_is_empty():
    assert percent_of(3, 0) == 0.0


ESTIMATE: dict[str, Any] = {"gpus": 2, "nodes": 1, "low": 0.0, "high": 100.0, "runs": 0}
RATES: list[dict[str, Any]] = [
    ESTIMATE | {"gpu_type": "a100", "rate": 58.0, "relative": 2.9, "source": "declared", "share": 0.2},
    ESTIMATE | {"gpu_type": "v100", "rate": 20.0, "relative": 1.0, "source": "measured", "share": 0.8},
]


def test_why_a_job_runs_on_the_slower_type_names_shares_and_prices():
    words = explain_placement(compare_rates(RATES, current="v100", prices={"a100": 0.3, "v100": 0.1}))
    assert words == (
        "Throughput per GPU: A100 2.9x, V100 1x; it runs on V100 because its fair share of time "
        "is 20% on A100, 80% on V100, and one more A100 is worth 3 times as much as one more V100."
    )


def test_a_type_that_no_job_needs_is_told_in_a_whole_sentence():
    words = explain_placement(compare_rates(RATES, current="v100", prices={"a100": 0.3, "v100": 0.0}))
    assert words.endswith("and other jobs would gain from one more A100, and none from one more V100.")


def test_a_job_with_one_type_is_not_told_that_it_is_the_fastest():
    words = explain_placement(compare_rates(RATES[:1], current="a100", prices={}))
    assert words == "It runs on A100, the only type in service on which it can."


def test_a_job_on_its_fastest_type_is_told_so():
    assert explain_placement(compare_rates(RATES, current="a100", prices={})).endswith("its fastest type.")


def test_speeds_without_a_known_rate_say_by_what_types_are_compared():
    assumed = [rate | {"rate": None, "source": "assumed"} for rate in RATES]
    words = explain_placement(compare_rates(assumed, current="a100", prices={}))
    assert words.startswith("Speed per GPU by the types' specifications and other workloads, as no rate")
    assert words.endswith("A100 2.9x, V100 1x; it runs on A100.")  # which type is its fastest is not known either


def test_nothing_is_said_of_a_job_that_no_round_considered():
    assert explain_placement(compare_rates([], current=None, prices={})) == ""


@pytest.mark.parametrize("window", WINDOWS.values(), ids=list(WINDOWS))
def test_a_window_has_at_most_200_points_of_each_team(window):
    assert window.length / window.bucket <= 200


def test_minutes_are_added_up_to_points_by_the_database(db):
    team = Team.objects.create(name="vision")
    for minute in range(20):
        TeamUsage.objects.create(team=team, minute=at(60 * minute), work_gpu_s=1, entitled_share_s=60)
    points = fairness(WINDOWS["24h"], at(1200))
    assert [(point.at, point.value, point.fair) for point in points] == [(at(0), 1, 1), (at(600), 1, 1)]


def test_utilization_is_busy_over_present(db, cluster):
    GpuTypeUsage.objects.create(gpu_type=GpuType.objects.get(name="t4"), minute=NOON, busy_gpu_s=30, present_gpu_s=120)
    assert [(p.name, p.value) for p in utilization(WINDOWS["1h"], at(60))] == [("t4", 0.25)]


POINTS = [Point(NOON, "language", 0.6, 0.5), Point(NOON, "vision", 0.4, 0.5)]


def test_a_team_has_two_lines_of_one_colour():
    lines = fairness_figure(POINTS)["data"]
    assert [trace["line"]["color"] for trace in lines] == [OKABE_ITO[0], OKABE_ITO[0], OKABE_ITO[1], OKABE_ITO[1]]


def test_the_first_point_of_a_young_site_is_seen_on_an_axis_of_the_whole_time():
    figure = over(fairness_figure(POINTS), timedelta(hours=1), at(60))
    assert {trace["mode"] for trace in figure["data"]} == {"lines+markers"}
    assert figure["layout"]["xaxis"]["range"] == ["2026-01-01T11:01:00", "2026-01-01T12:01:00"]


def test_a_figure_holds_plain_lists_that_json_can_carry():
    trace = utilization_figure(POINTS)["data"][0]
    assert (trace["x"], trace["y"]) == (["2026-01-01T12:00:00"], [0.6])


# -- GPUs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hours", "minutes"), [(0.5, 1), (3, 1), (24, 8), (24 * 7, 51)])
def test_a_course_of_gpus_has_two_hundred_points_at_most(hours: float, minutes: int):
    assert bucket_s(timedelta(hours=hours)) == 60 * minutes
    assert hours * 60 / minutes <= 200


def test_charts_of_gpus_have_a_line_per_gpu_and_leave_out_what_the_driver_does_not_say():
    points = [UsePoint(at(0), f"GPU {n}", 50.0, 2048.0, None, 61.0) for n in range(2)]
    figures = gpu_figures([*points, UsePoint(at(60), "GPU 1", None, None, None, 62.0)])
    assert [*figures] == ["utilization", "memory", "temperature"]
    assert [(line["name"], list(line["y"])) for line in figures["memory"]["data"]] == [
        ("GPU 0", [2.0]),
        ("GPU 1", [2.0, None]),
    ]


def test_the_axis_of_a_single_time_is_minutes_long():
    one = gpu_figures([UsePoint(at(600), "GPU 0", 50.0, None, None, None)])["utilization"]
    since, until = (datetime.fromisoformat(time) for time in one["layout"]["xaxis"]["range"])
    assert until - since == timedelta(minutes=10)
    two = gpu_figures([UsePoint(at(second), "GPU 0", 50.0, None, None, None) for second in (0, 600)])["utilization"]
    assert "range" not in two["layout"]["xaxis"]


@pytest.mark.parametrize(("joules", "words"), [(3600, "1 Wh"), (1_800_000, "500 Wh"), (9e9, "2,500.0 kWh")])
def test_energy_is_said_in_watt_hours(joules, words):
    assert energy(joules) == words


@pytest.mark.parametrize(("currency", "amount", "words"), [("EUR", 0.25, "0.25 EUR"), ("", 1234.5, "1,234.50")])
def test_costs_have_the_currency_that_the_site_names(settings, currency, amount, words):
    settings.MOTLEY_CURRENCY = currency
    assert money(amount) == words


def test_states_of_gpus_are_stacked_to_the_capacity_below_the_demand():
    areas = states_figure([ClusterState(at(0), busy=5, starting=1, out=2, idle=0, waiting=4)])["data"]
    assert [(area["name"], area.get("stackgroup"), area["y"][0]) for area in areas] == [
        ("busy", "one", 5),
        ("starting", "one", 1),
        ("out of service", "one", 2),
        ("idle", "one", 0),
        ("in use and asked for", None, 10),
    ]
    assert {*STATES.values()} <= {*OKABE_ITO}


def test_delivered_work_is_stacked_in_average_gpus():
    areas = delivered_figure([Point(at(0), "vision", 0.5, gpus=3.0), Point(at(0), "speech", 0.5, gpus=1.0)])["data"]
    assert [(area["name"], area["y"][0]) for area in areas] == [("speech", 1.0), ("vision", 3.0)]


def test_every_job_is_in_one_bar_of_the_distribution_of_rho():
    bars = dict(rho_bars([0.2, 0.99, 1.0, 7.0, 400.0]))
    assert [bars["0 to 0.5"], bars["0.75 to 1"], bars["1 to 1.25"], bars["5 or more"]] == [1, 1, 1, 2]
    assert sum(bars.values()) == 5


# -- cost and time of a plan ---------------------------------------------------------------------------------------

PRICED = [
    Candidate("a100", 2, 16, 10),
    Candidate("a100", 1, 10, 5),
    Candidate("t4", 1, 4, 1),
    Candidate("k80", 1, 2, 9),
]


def traces_of(candidates: list[Candidate], *, currency: str = "EUR") -> dict[str, Any]:
    """By name."""
    figure = cost_figure(cost_and_time(candidates, Length(72_000)), {"a100": "#111111"}, currency=currency)
    return {trace["name"]: trace for trace in figure["data"]} | {"layout": figure["layout"]}


def test_points_have_the_run_time_and_the_cost_in_the_colour_of_their_type():
    found = traces_of(PRICED)
    a100, k80 = found["A100"], found["K80"]
    assert (list(a100["x"]), list(a100["y"]), list(a100["text"])) == ([1.25, 2.0], [12.5, 10.0], ["2", "1"])
    assert (a100["marker"]["color"], k80["marker"]["color"]) == ("#111111", "#7a8594")
    assert a100["hovertext"][0] == "2 A100<br>1 h 15 min<br>12.5 EUR"


def test_a_line_joins_the_pareto_optimal_points_and_a_ring_marks_the_fastest():
    found = traces_of(PRICED)
    line, ring = found["Pareto-optimal"], found["fastest"]
    assert (list(line["x"]), list(line["y"])) == ([1.25, 2.0, 5.0], [12.5, 10.0, 5.0])
    assert (list(ring["x"]), list(ring["y"]), ring["marker"]["symbol"]) == ([1.25], [12.5], "circle-open")


@pytest.mark.parametrize(
    ("price", "currency", "title"), [(5, "EUR", "Cost (EUR)"), (5, "", "Cost"), (0, "EUR", "GPU-hours")]
)
def test_the_axis_of_costs_names_their_unit(price, currency, title):
    layout = traces_of([Candidate("a100", 1, 10, price)], currency=currency)["layout"]
    assert layout["yaxis"]["title"]["text"] == title
    assert layout["xaxis"]["title"]["text"] == "Run time (h)"


def test_the_colours_of_types_in_figures_are_those_of_the_style_sheet():
    css = Path("static/motley/motley.css").read_text(encoding="utf-8")
    assert re.findall(r"\.gpu-type-\d \{ fill: (#\w+)", css) == list(TYPE_COLOURS)
