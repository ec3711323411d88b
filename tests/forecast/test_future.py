"""One future played forward: starts and ends on a cluster small enough to reckon by hand."""

from dataclasses import replace

import numpy as np
import pytest

from allocation.decision import Decision
from allocation.policies import POLICIES, REGISTRY
from allocation.policies.fifo import fifo
from allocation.policies.srtf import srtf
from allocation.problem import Problem
from allocation.quota_lending import TypeQuotas
from allocation.quotas import Quotas
from allocation.rounds.windows import Stays, Windows
from forecast.future import HORIZON_S, play
from forecast.present import Draw, Rounds
from tests.forecast.cluster import HOUR_S, as_told, present_of

FIFO = Rounds(fifo, 60.0, strict=True)


def test_running_jobs_end_when_their_work_is_done() -> None:
    present = present_of([600.0, 4 * HOUR_S], running=[0, 1])
    played = play(present, as_told(present), FIFO)
    assert played.start_s.tolist() == [0, 0]
    assert played.finish_s == pytest.approx([600, 4 * HOUR_S])


def test_a_waiting_job_starts_when_gpus_become_free_however_far_that_is() -> None:
    """Decisions are coarse hours from now; the start is not."""
    present = present_of([7 * HOUR_S, 7.1 * HOUR_S, 7.2 * HOUR_S, 7.3 * HOUR_S, 600.0], running=[0, 1, 2, 3])
    played = play(present, as_told(present), FIFO)
    assert played.start_s[4] == pytest.approx(7 * HOUR_S)
    assert played.finish_s[4] == pytest.approx(7 * HOUR_S + 600)


def test_a_short_job_between_two_decisions_leaves_its_gpu_to_the_next() -> None:
    """Ten jobs of six minutes, one after the other on the only free GPU, hours from now."""
    others = [6 * HOUR_S, 48 * HOUR_S, 48 * HOUR_S, 48 * HOUR_S]
    present = present_of([*others, *[360.0] * 10], running=[0, 1, 2, 3])
    played = play(present, as_told(present), FIFO)
    ends = 6 * HOUR_S + 360 * np.arange(1, 11)
    assert np.sort(played.finish_s[4:]) == pytest.approx(ends, rel=0.03)


def test_a_future_ends_with_the_job_that_is_watched() -> None:
    """What becomes of the others later is not played."""
    present = present_of([600.0, 4 * HOUR_S], running=[0, 1])
    played = play(present, as_told(present), FIFO, watched=[0])
    assert played.finish_s == pytest.approx([600, np.inf])


def test_jobs_leave_a_node_whose_window_begins_and_none_starts_there_before_its_end() -> None:
    """The second node has a window from 1 h to 3 h: its jobs go on where the others end, the last starts after it."""
    present = present_of([2 * HOUR_S, 2 * HOUR_S, 2 * HOUR_S, 2 * HOUR_S, 3 * HOUR_S], running=[0, 1, 2, 3])
    window = Windows(
        begins_s=np.array([HOUR_S]),
        ends_s=np.array([3 * HOUR_S]),
        gap_s=np.array([np.inf]),
        nodes=np.array([[False, True]]),
        team=np.array([-1]),
    )
    stays = Stays(present.problem.remaining_steps[:, None], np.full(5, 60.0))
    played = play(replace(present, windows=window, stays=stays), as_told(present), FIFO)
    assert played.finish_s[:4] == pytest.approx([2 * HOUR_S, 2 * HOUR_S, 3 * HOUR_S, 3 * HOUR_S], rel=0.02)
    assert 3 * HOUR_S <= played.start_s[4] < 3.1 * HOUR_S


def test_a_job_that_is_stopped_for_a_window_needs_less_before_the_next() -> None:
    """2.5 h of work; an hour is done when a window comes for an hour, and the other 1.5 h fit before one at 4 h."""
    present = present_of([2.5 * HOUR_S], running=[0])
    windows = Windows(
        begins_s=np.array([1.0, 4.0]) * HOUR_S,
        ends_s=np.array([2.0, 5.0]) * HOUR_S,
        gap_s=np.full(2, np.inf),
        nodes=np.ones((2, 2), dtype=np.bool_),
        team=np.full(2, -1),
    )
    present = replace(present, windows=windows, stays=Stays(np.full((1, 1), 2.5 * HOUR_S), np.full(1, 60.0)))
    for limit_s in (np.inf, 2.5 * HOUR_S):
        limited = replace(present, limit_s=np.array([limit_s]))
        assert play(limited, as_told(limited), FIFO).finish_s == pytest.approx([3.5 * HOUR_S], rel=0.02)


def test_a_gang_waits_for_all_its_gpus_on_one_node() -> None:
    present = present_of([600.0, 1200.0, 900.0, 3000.0, 60.0], gpus=[1, 1, 1, 1, 2], running=[0, 1, 2, 3])
    played = play(present, as_told(present), FIFO)
    assert played.start_s[4] == pytest.approx(1200)  # two GPUs are free after 900 s, but on different nodes


def test_a_restart_takes_its_time_before_work_goes_on() -> None:
    present = present_of([600.0])
    present = replace(present, problem=replace(present.problem, restart_s=np.array([30.0])))
    assert play(present, as_told(present), FIFO).finish_s[0] == pytest.approx(630)


def test_a_job_ends_at_its_time_limit() -> None:
    present = replace(present_of([np.inf], running=[0]), limit_s=np.array([900.0]))
    draw = Draw(np.zeros(1, dtype=np.int64), np.zeros(1), np.array([1e9]), np.ones(1))
    assert play(present, draw, FIFO).finish_s[0] == pytest.approx(900)


def test_a_slower_gpu_than_told_ends_later() -> None:
    present = present_of([600.0], running=[0])
    draw = replace(as_told(present), speed=np.array([0.5]))
    assert play(present, draw, FIFO).finish_s[0] == pytest.approx(1200)


def test_a_job_beyond_the_horizon_has_no_end() -> None:
    present = present_of([10 * HORIZON_S], running=[0])
    played = play(present, as_told(present), FIFO)
    assert played.start_s[0] == 0
    assert np.isinf(played.finish_s[0])


def test_a_quota_holds_between_decisions_too() -> None:
    """A team may use one GPU; its second job starts when the first has ended, although three GPUs are free."""
    quotas = Quotas(np.zeros((2, 1), dtype=np.int64), np.array([1]), np.array([0]))
    present = present_of([5 * HOUR_S, 600.0], running=[0], quotas=quotas)
    assert play(present, as_told(present), FIFO).start_s[1] == pytest.approx(5 * HOUR_S)


def test_a_quota_on_a_type_holds_in_decisions_and_between_them() -> None:
    """The team has one of four GPUs, and borrows none."""
    one, none = np.array([[1]]), np.array([[0]])
    by_type = TypeQuotas.of(np.zeros(2, dtype=np.int64), one, one, none, none)
    present = present_of([5 * HOUR_S, 600.0], running=[0], quotas=replace(Quotas.none(2), by_type=by_type))
    assert play(present, as_told(present), FIFO).start_s[1] == pytest.approx(5 * HOUR_S)


def test_arrivals_take_gpus_from_jobs_that_come_behind_them() -> None:
    """In the order of least service a job that arrives goes before one that was stopped; in that of submission not."""
    present = present_of([HOUR_S, HOUR_S, HOUR_S, HOUR_S, HOUR_S, HOUR_S], running=[0, 1, 2, 3], samples=1)
    draw = Draw(np.arange(6), np.array([0, 0, 0, 0, 0, 300.0]), np.full(6, HOUR_S), np.ones(6))
    played = play(present, draw, FIFO)
    assert played.start_s[4] == pytest.approx(HOUR_S)
    assert len(played.start_s) == 5


@pytest.mark.parametrize(("preemptible", "ends_s"), [(False, HOUR_S), (True, HOUR_S + 600)])
def test_a_job_that_may_not_be_stopped_is_not_stopped_in_the_future_either(preemptible: bool, ends_s: float) -> None:
    """A shorter job arrives for all four GPUs after ten minutes."""
    present = present_of([HOUR_S, 600.0], gpus=[4, 4], samples=1)
    problem = replace(present.problem, unlock_s=np.zeros(2))
    present = replace(present, problem=problem, preemptible=np.array([preemptible, True]))
    draw = Draw(np.arange(2), np.array([0.0, 600.0]), np.array([HOUR_S, 600.0]), np.ones(2))
    played = play(present, draw, Rounds(srtf, 60.0))
    assert played.finish_s[0] == pytest.approx(ends_s, rel=0.05)


@pytest.mark.parametrize("policy", ["motley", "fifo_fastest"])
def test_a_job_that_runs_grows_although_nobody_waits_once_its_restart_pays_or_its_lock_has_ended(policy: str) -> None:
    """On one GPU it would end after 40 h, beyond its 10 h on all four and the half hour for which it is locked."""
    present = present_of([40 * HOUR_S], running=[0])
    columns = {"held_s": np.zeros(1), "unlock_s": np.zeros(1), "restart_s": np.array([600.0])}
    present = replace(present, problem=replace(present.problem, rate=np.array([[1.0, 2.0, 4.0]]), **columns))
    registered = REGISTRY[policy]
    rounds = Rounds(registered.policy, 60.0, min_run_s=1800.0, settled=registered.settled)
    finish_s = play(present, as_told(present), rounds).finish_s
    assert 10.5 * HOUR_S < finish_s[0] < 14 * HOUR_S


def test_few_decisions_are_made_where_a_job_that_runs_might_be_moved_but_is_not() -> None:
    """Over 40 h, in which a job that waited would have some 30: forecasts have seconds for all their draws."""
    decided = []

    def stays(problem: Problem) -> Decision:
        decided.append(problem)
        return Decision.of_assignment(problem.held, prices=[0])

    present = present_of([40 * HOUR_S], running=[0])
    columns = {"held_s": np.zeros(1), "unlock_s": np.zeros(1), "rate": np.array([[1.0, 2.0, 4.0]])}
    present = replace(present, problem=replace(present.problem, **columns))
    assert play(present, as_told(present), Rounds(stays, 60.0)).finish_s == pytest.approx([40 * HOUR_S])
    assert 5 <= len(decided) <= 12


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_plays_all_jobs_to_their_end(policy: str) -> None:
    present = present_of([900.0, 1800.0, 300.0, 600.0, 1200.0, 60.0], gpus=[1, 2, 1, 1, 4, 1], running=[0, 1])
    played = play(present, as_told(present), Rounds(POLICIES[policy], 60.0))
    assert np.isfinite(played.finish_s).all()
    assert (played.finish_s >= played.start_s).all()
    assert (played.gpu_type == 0).all()
