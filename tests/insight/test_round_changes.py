"""What changed from one round to the next, the matrix of a round, and rounds and waiting jobs that are put together."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from allocation.problem import Problem
from insight_app.explain.round_changes import Placement, changes_between
from insight_app.explain.round_matrix import cells_of
from scheduler_app.models import Round
from web.pages.round_tables import IdleRounds, fold_idle, group_by_reason, strip_of

USAGE = np.array([[1, 2, 0], [0, 0, 1]])
RATE = np.array([[1.0, 1.8, 3.6]])


def archived(assigned: dict[str, int], shares: Any = None) -> Any:
    """A round of the types a100 (1 or 2 GPUs) and t4; -1: the job waits."""
    jobs = len(assigned)
    problem = Problem.of(
        rate=np.repeat(RATE, jobs, axis=0), usage=USAGE, capacity=np.array([8, 8]), nodes=np.ones(3, int)
    )
    snapshot = SimpleNamespace(
        jobs=tuple(assigned), types=("a100", "t4"), problem=problem, type_of=lambda k: ("a100", "a100", "t4")[k]
    )
    decision = SimpleNamespace(shares=shares)
    return SimpleNamespace(
        snapshot=snapshot, plan=SimpleNamespace(assignment=np.array([*assigned.values()]), decision=decision)
    )


def test_each_job_that_changed_is_told_with_what_it_had_and_has() -> None:
    before = archived({"same": 0, "grows": 0, "moves": 1, "stops": 2, "ends": 0, "starts": -1, "waits": -1})
    after = archived({"same": 0, "grows": 1, "moves": 2, "stops": -1, "starts": 0, "waits": -1, "new": 2})
    one, two, t4 = Placement("a100", 1), Placement("a100", 2), Placement("t4", 1)
    assert changes_between(before, after) == [
        ("starts", "started", None, one),
        ("new", "started", None, t4),
        ("moves", "moved", two, t4),
        ("grows", "resized", one, two),
        ("stops", "stopped", t4, None),
        ("ends", "ended", one, None),
    ]


def test_a_cell_is_the_share_of_time_on_a_type_and_the_gpus_that_were_given() -> None:
    decided = archived({"one": 1}, shares=np.array([[0.25, 0.5, 0.1]]))
    assert cells_of(decided, 0) == [("a100", pytest.approx(0.75), 2), ("t4", pytest.approx(0.1), 0)]
    assert [cell.level for cell in cells_of(decided, 0)] == [4, 1]


def test_without_shares_a_cell_is_the_speed_on_a_type() -> None:
    assert cells_of(archived({"one": -1}), 0) == [("a100", 0.5, 0), ("t4", 1.0, 0)]


def rounds(*starts: int, policy: str = "fifo") -> list[Round]:
    """Newest first."""
    return [
        Round(number=n, result="committed", policy=policy, starts=count, seconds={"solve": 0.1 * n})
        for n, count in reversed([*enumerate(starts, start=1)])
    ]


def test_rounds_in_a_row_that_changed_nothing_are_one_line() -> None:
    lines = fold_idle(rounds(1, 0, 0, 0, 2, 0))
    folded = [line for line in lines if isinstance(line, IdleRounds)]
    assert [(line.oldest.number, line.newest.number, line.count) for line in folded] == [(2, 4, 3)]
    assert folded[0].mean_s == pytest.approx(0.3)
    assert [line.number for line in lines if isinstance(line, Round)] == [6, 5, 1]


def test_a_round_with_something_to_say_is_not_folded() -> None:
    some = rounds(0, 0, 0)
    some[1].result = "failed"
    assert fold_idle(some) == some


def test_idle_rounds_of_two_policies_are_two_lines() -> None:
    assert len(fold_idle(rounds(0, 0) + rounds(0, 0, policy="las"))) == 2


def test_the_strip_has_a_bar_for_each_round_from_the_oldest_on() -> None:
    strip = strip_of(rounds(4, 0, 2))
    assert [(bar.x, round(bar.height)) for bar in strip.durations] == [(0, 33), (1, 67), (2, 100)]
    assert [(bar.x, bar.y, bar.height, bar.style) for bar in strip.deeds] == [
        (0, 0, 100, "starts"),
        (2, 50, 50, "starts"),
    ]
    assert (strip.count, strip.most_deeds) == (3, 4)


def test_waiting_jobs_are_grouped_by_their_headline_the_largest_group_first() -> None:
    short, outbid = ({"code": code, "detail": f"{code}."} for code in ("insufficient_gpus", "outbid"))
    groups = group_by_reason([{"reasons": [outbid]}, {"reasons": [short]}, {"reasons": [short, outbid]}])
    assert [(group.title, len(group.decisions), group.is_alike) for group in groups] == [
        ("not enough free GPUs", 2, False),
        ("outbid by other jobs", 1, True),
    ]
    assert groups[0].example == "insufficient_gpus."
