"""The pure parts of the timeline: what is merged, what is expected, and when nodes were out of service."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_app.models import NodeEvent
from insight_app.start_forecasts.showing import Interval, ShownForecast
from insight_app.timeline.merging import Block, merge_spans
from insight_app.timeline.outages import NodeNow, Outage, StateEvent, outages_of_node
from insight_app.timeline.presence import presence

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MIDNIGHT = NOON + timedelta(hours=12)


def at(hours: float) -> datetime:
    return NOON + timedelta(hours=hours)


# -- short runs ------------------------------------------------------------------------------------------------------


def span(start_s: float, end_s: float, *, row: float = 0, group: str = "vision", run: int = 0) -> Block:
    return Block(row, 1, group, start_s, end_s, run)


def test_a_run_as_long_as_a_bin_is_drawn_as_it_was():
    (block,) = merge_spans([span(0, 10, run=7)], 10)
    assert (block.start_s, block.end_s, block.run, block.density) == (0, 10, 7, 1)


def test_short_runs_near_each_other_are_one_block_that_tells_how_much_they_fill():
    (block,) = merge_spans([span(0, 2), span(4, 6), span(8, 10)], 5)
    assert (block.start_s, block.end_s, block.run, block.runs) == (0, 10, None, 3)
    assert block.density == pytest.approx(0.6)


def test_short_runs_apart_stay_apart_and_are_still_those_of_their_jobs():
    blocks = merge_spans([span(0, 1, run=1), span(50, 51, run=2)], 5)
    assert [(block.start_s, block.end_s, block.run) for block in blocks] == [(0, 5, 1), (50, 55, 2)]


def test_runs_of_two_groups_or_rows_are_never_merged():
    assert len(merge_spans([span(0, 1), span(1, 2, group="language"), span(2, 3, row=1)], 10)) == 3


spans = st.lists(
    st.builds(
        lambda row, start_s, length_s: span(start_s, start_s + length_s, row=row),
        st.integers(0, 2),
        st.floats(0, 1000),
        st.floats(0, 50),
    ),
    max_size=60,
)


@given(spans, st.floats(0.1, 100))
def test_whatever_is_merged_every_run_lies_in_a_block_of_its_row(given_spans, bin_s):
    blocks = merge_spans(given_spans, bin_s)
    assert sum(block.runs for block in blocks) == len(given_spans)
    for one in given_spans:
        assert any(b.row == one.row and b.start_s <= one.start_s and one.end_s <= b.end_s for b in blocks)


def test_too_many_blocks_are_merged_until_they_are_few():
    assert len(merge_spans([span(2 * i, 2 * i + 1) for i in range(500)], 0.1, most=100)) <= 100


def test_more_rows_than_may_be_drawn_have_a_block_each() -> None:
    assert len(merge_spans([span(i, i + 1, row=i) for i in range(150)], 0.1, most=100)) == 150


# -- what is expected ------------------------------------------------------------------------------------------------


def forecast(start: Interval | None, finish: Interval) -> ShownForecast:
    return ShownForecast(NOON, start, finish, "a100", 1.0, 0 if start is None else 1, 1)


def parts(shown: ShownForecast) -> list[tuple[float, float, float]]:
    found = presence(shown, NOON, MIDNIGHT)
    return [
        ((p.since - NOON) / timedelta(hours=1), (p.until - NOON) / timedelta(hours=1), p.probability) for p in found
    ]


def test_a_running_job_runs_for_certain_until_its_earliest_end_and_less_likely_from_then_on():
    shown = forecast(None, Interval(at(1), at(2), at(4)))
    assert parts(shown) == [(0, 1, 1.0), (1, 2, 0.7), (2, 4, 0.3)]


def test_a_waiting_job_comes_and_goes():
    shown = forecast(Interval(at(1), at(2), at(3)), Interval(at(5), at(6), at(7)))
    assert parts(shown) == [(1, 2, 0.3), (2, 3, 0.7), (3, 5, 1.0), (5, 6, 0.7), (6, 7, 0.3)]


def test_what_is_not_known_lies_beyond_the_horizon():
    assert parts(forecast(None, Interval(at(10), None, None))) == [(0, 10, 1.0), (10, 12, 0.7)]
    assert parts(forecast(Interval(None, None, None), Interval(None, None, None))) == []


def test_a_job_that_should_have_ended_is_not_drawn_ahead():
    assert parts(forecast(None, Interval(at(-3), at(-2), at(-1)))) == []


# -- outages ---------------------------------------------------------------------------------------------------------

Kind = NodeEvent.Kind


def outages(state: str, *events: StateEvent, before: StateEvent | None = None) -> list[Outage]:
    return list(outages_of_node(NodeNow("n1", state, "a fan is loud"), events, NOON, before))


def test_a_drain_lasts_until_the_node_is_resumed():
    found = outages("ready", StateEvent(at(1), Kind.DRAINED, "a fan is loud"), StateEvent(at(3), Kind.RESUMED, ""))
    assert found == [Outage("n1", at(1), at(3), "drained", "a fan is loud")]


def test_a_drain_from_before_is_told_by_its_end_or_by_the_state_of_the_node():
    assert outages("ready", StateEvent(at(3), Kind.AWAKE, "")) == [Outage("n1", NOON, at(3), "asleep")]
    assert outages("drained") == [Outage("n1", NOON, None, "drained", "a fan is loud")]
    assert outages("ready") == []


def test_a_resume_that_follows_no_outage_ends_none():
    """A resume of a node in service was recorded once."""
    resumed = StateEvent(at(3), Kind.RESUMED, "")
    assert outages("ready", resumed) == outages("ready", resumed, resumed._replace(at=at(4))) == []
    assert outages("drained", resumed, StateEvent(at(4), Kind.DRAINED, "")) == [Outage("n1", at(4), None, "drained")]


def test_a_cordon_that_becomes_a_drain_is_two_outages():
    found = outages("draining", StateEvent(at(1), Kind.CORDONED, "soon"), StateEvent(at(2), Kind.DRAINED, "now"))
    assert found == [Outage("n1", at(1), at(2), "cordoned", "soon"), Outage("n1", at(2), None, "drained", "now")]


def test_an_outage_from_before_that_another_one_follows_is_told_by_the_event_with_which_it_began():
    drained = StateEvent(at(-3), Kind.DRAINED, "a fan is loud")
    found = outages("retired", StateEvent(at(2), Kind.RETIRED, "sold"), before=drained)
    assert found == [
        Outage("n1", NOON, at(2), "drained", "a fan is loud"),
        Outage("n1", at(2), None, "retired", "sold"),
    ]
    assert outages("ready", before=StateEvent(at(-3), Kind.RESUMED, "")) == []


def test_a_node_asleep_is_told_apart():
    found = outages("ready", StateEvent(at(1), Kind.SLEPT, "idle"), StateEvent(at(2), Kind.AWAKE, ""))
    assert found == [Outage("n1", at(1), at(2), "asleep", "idle")]
