"""Times in words, and the unit in which times are compared: of short traces no figure is a small part of an hour."""

import pytest

from simulation.results.charts import averages_figure, jct_figure, lines_of
from simulation.results.summary import COLUMNS, SeedStatistics
from simulation.results.time_units import format_duration, unit_of

JCT = next(column for column in COLUMNS if column.figure == "avg_jct_h")
SHORT_H = (98.4 / 3600, None, 49.2 / 3600)


@pytest.mark.parametrize(
    ("longest_h", "name"), [(1.0, "h"), (0.99, "min"), (1 / 60, "min"), (0.016, "s"), (0.0, "h"), (1000.0, "h")]
)
def test_the_longest_time_has_one_or_more_of_its_unit(longest_h: float, name: str) -> None:
    assert unit_of([longest_h, 0.0, None]).name == name


def test_a_column_of_short_times_is_told_in_their_unit() -> None:
    column = JCT.in_unit_of(SHORT_H)
    assert (column.heading, [column.words(value) for value in SHORT_H]) == (
        "Average JCT, min",
        ["1.640", "-", "0.8200"],
    )
    assert column.deviation_words(SeedStatistics(98.4 / 3600, 6 / 3600)) == "0.100"


def test_a_column_of_long_times_and_one_of_parts_stay_as_they_are() -> None:
    utilization = next(column for column in COLUMNS if column.figure == "utilization")
    assert JCT.in_unit_of([2.5, 0.1]).words(2.5) == "2.500"
    assert utilization.in_unit_of([0.5]) == utilization


def test_charts_of_short_times_are_drawn_in_their_unit() -> None:
    lines = lines_of(["fifo"])
    averages = averages_figure({"fifo": 98.4 / 3600}, lines)
    curves = jct_figure({"fifo": ([0.01, 98.4 / 3600], [0.0, 1.0])}, lines)
    assert averages.layout.xaxis.title.text == "Average job completion time, minutes"
    assert list(averages.data[0].text) == ["1.64 min"]
    assert list(curves.data[0].x) == pytest.approx([0.6, 1.64])


@pytest.mark.parametrize(("seconds", "words"), [(0, "0 s"), (0.4, "0.4 s"), (98.4, "1 min 38 s"), (90_000, "1 d 1 h")])
def test_durations_are_told_in_their_two_largest_units(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words
