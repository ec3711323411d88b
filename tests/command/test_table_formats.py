"""Words of the command for when an event is expected, and for how long something takes."""

from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from insight_app.gpu_prices import wording
from motley_command.tables.format import (
    LEAST_TOLD_H,
    by_clock,
    hours,
    in_local_zone,
    interval,
    table,
    three_digits,
    waiting_hours,
)
from motley_command.tables.jobs import LEFT_OUT_FIRST
from motley_command.tables.lab import _change

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def of(*seconds: float | None) -> dict[str, str | None]:
    moments = [None if s is None else (NOW + timedelta(seconds=s)).isoformat() for s in seconds]
    return dict(zip(("low", "median", "high"), moments, strict=True))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ((-60, -30, -20), "at any time (20s overdue)"),
        ((-15, -12, -8), "at any time (8s overdue)"),
        ((120, 240, 540), "in about 4m (2m to 9m)"),
        ((240, 240, 240), "in about 4m"),
        ((-30, 0, 2), "now"),
        ((0, 0, 180), "now or within 3m"),
        ((0, 240, 540), "in about 4m (now to 9m)"),
        ((0, 0, None), "now or in more than 3d"),
        ((600, None, None), "in more than 3d (10m at the earliest)"),
        ((None, None, None), "in more than 3d"),
    ],
)
def test_an_interval_tells_once_what_reads_the_same_and_calls_what_is_due_now(seconds, words):
    assert interval(of(*seconds), NOW) == words


@pytest.mark.parametrize(
    ("zone_name", "sentence", "words"),
    [
        ("Europe/Paris", "Not before 2026-12-01 22:30 UTC.", "Not before 2026-12-01 23:30 CET."),
        ("Europe/Paris", "until 2026-07-01 22:30:05 UTC", "until 2026-07-02 00:30:05 CEST"),
        (
            "Europe/Paris",
            "from 2026-12-01 08:00 to 2026-12-01 09:00 UTC",
            "from 2026-12-01 09:00 to 2026-12-01 10:00 CET",
        ),
        (
            "Europe/Paris",
            "from 2026-10-25 00:30 to 2026-10-25 01:30 UTC",
            "from 2026-10-25 02:30 CEST to 2026-10-25 02:30 CET",
        ),
        ("Asia/Kathmandu", "at 2026-12-01 08:00 UTC", "at 2026-12-01 13:45 UTC+05:45"),
        ("Europe/Paris", "at 2026-02-31 08:00 UTC", "at 2026-02-31 08:00 UTC"),
        ("UTC", "at 2026-12-01 08:00 UTC", "at 2026-12-01 08:00 UTC"),
    ],
)
def test_moments_of_a_sentence_are_in_the_zone_of_this_machine(zone, zone_name, sentence, words):
    zone(zone_name)
    assert in_local_zone(sentence) == words


def test_times_that_read_the_same_are_one():
    clock = f"{NOW.astimezone():%H:%M}"
    assert by_clock(of(1, 5, 40), NOW, with_zone=False) == f"at about {clock}"
    assert by_clock(of(1, 5, 90), NOW, with_zone=False).startswith(f"at {clock} ({clock} to ")


def test_times_by_the_clock_name_their_zone(zone):
    zone("Asia/Tokyo")
    assert by_clock(of(0, 90, 180), NOW).endswith(") JST")
    assert by_clock(of(-90, -60, -30), NOW) == "at any time (30s overdue)"


@pytest.mark.parametrize(
    ("value", "words"), [(0.02734, "1.64m"), (0.0125, "45s"), (3.25, "3.25h"), (0.0, "0s"), (None, "")]
)
def test_a_time_is_told_in_the_largest_unit_of_which_it_has_one(value, words):
    assert hours(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.00666, "0.00666"),
        (2.0, "2"),
        (999.4, "999"),
        (999.6, "1,000"),
        (12_345.6, "12,346"),
        (0.0002, "< 0.001"),
        (0, "0"),
        (None, ""),
    ],
)
def test_costs_have_three_digits_and_no_exponent(value, words):
    assert three_digits(value) == words


@pytest.mark.parametrize(
    ("width", "headings"),
    [
        (200, ["NAME", "ID", "TEAM", "STATE", "GPUS", "PROGRESS", "FORECAST", "REASON"]),
        (80, ["NAME", "ID", "TEAM", "STATE", "GPUS", "REASON"]),
        (64, ["NAME", "ID", "STATE", "GPUS", "REASON"]),
        (44, ["NAME", "ID", "STATE"]),
    ],
)
def test_a_narrow_terminal_leaves_out_the_least_important_columns(width: int, headings: list[str]) -> None:
    every = ("NAME", "ID", "TEAM", "STATE", "GPUS", "PROGRESS", "FORECAST 5s AGO", "REASON")
    row = (
        "resnet-on-imagenet",
        "51930a2b",
        "vision",
        "running",
        "2 x a100",
        "120/4,500 (3 %)",
        "done 15:40",
        "why " * 20,
    )
    screen = Console(width=width, file=StringIO())
    screen.print(table(every, [row], empty="", left_out_first=LEFT_OUT_FIRST))
    first, second = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert first.replace("FORECAST 5s AGO", "FORECAST").split() == headings
    assert [word in second for word in ("resnet-on-imagenet", "51930a2b", "running")] == [True] * 3


@pytest.mark.parametrize(("change", "words"), [(None, "-"), (0.05, "+5%"), (-0.4, "-40%"), (16.89, "17.9 x")])
def test_a_manifold_change_is_a_multiple(change: float | None, words: str) -> None:
    assert _change(change) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.05, "0.1 h"),
        (0.3, "0.3 h"),
        (9.46, "9.5 h"),
        (9.5, "10 h"),
        (384, "384 h"),
        (-384, "-384 h"),
        (1.2e7, "12,000,000 h"),
    ],
)
def test_hours_of_waiting_have_no_exponent_and_read_as_on_pages(value, words):
    assert (waiting_hours(value), LEAST_TOLD_H) == (words, wording.LEAST_TOLD_H)
    assert wording.format_hours(value) == words
