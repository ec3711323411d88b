"""Quotas and budgets of teams in the simulator: by the rules of the live round."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulation.scenario.scenario import Scenario
from simulation.scenario.setting import InvalidSetting
from simulation.scenario.team_limits import read_budgets, read_quotas

HOUR, DAY = 3600.0, 24.0
SCENARIO = Scenario(format_name="csv", cluster="v100=2", round_s=180.0)
JOBS = ("vision", 0.0, 1, 4.0), ("vision", 0.0, 1, 4.0), ("speech", 0.0, 1, 4.0)
"""Team, hour of arrival, GPUs, hours on a V100."""
POLICIES = ("fifo", "max_min_fairness", "motley")
ONE_DEEP = ("fifo", "max_min_fairness", pytest.param("motley", marks=pytest.mark.thorough))


def run(folder: Path, *jobs: tuple[str, float, int, float], policy: str = "fifo", **options: str | float):
    lines = [f"j{n},{3600 * came},{gpus},{3600 * hours},{team}" for n, (team, came, gpus, hours) in enumerate(jobs)]
    trace = folder / "trace.csv"
    trace.write_text("\n".join(["name,arrival_s,gpus,duration_s,team", *lines]) + "\n")
    ready = replace(SCENARIO, **options).prepare(trace, policy, 0)
    return ready.finish(lambda _: None), ready.simulation.state


def finished_h(folder: Path, *jobs: tuple[str, float, int, float], **options: str | float) -> list[float]:
    return [float(at) / HOUR for at in run(folder, *jobs, **options)[1].finish_s]


@pytest.mark.parametrize("policy", ONE_DEEP)
def test_a_quota_without_borrowing_is_the_most_that_a_team_has(tmp_path: Path, policy: str) -> None:
    ends = finished_h(tmp_path, *JOBS, quotas="vision:v100=1:0", policy=policy)
    assert max(ends[:2]) == pytest.approx(8, abs=0.1)
    assert ends[2] == pytest.approx(4, abs=0.1)


@pytest.mark.parametrize("policy", ONE_DEEP)
def test_a_team_has_its_quota_whatever_the_policy_prefers(tmp_path: Path, policy: str) -> None:
    """The job of speech comes last, and is longest."""
    jobs = [*JOBS[:2], *JOBS[:2], ("speech", 0.5, 1, 6.0)]
    ends = finished_h(tmp_path, *jobs, quotas="speech:v100=1", policy=policy)
    assert ends[4] == pytest.approx(6.5, abs=0.1)


def test_what_is_not_lent_idles(tmp_path: Path) -> None:
    """Speech has no jobs on the GPU that it does not lend; without the lending limit it has no effect."""
    assert max(finished_h(tmp_path, *JOBS[:2], quotas="speech:v100=1::0")) == pytest.approx(8, abs=0.1)
    with pytest.raises(InvalidSetting, match="no job of the trace is of a team 'speech'; its teams: vision"):
        finished_h(tmp_path, *JOBS[:2], quotas="speech:v100=1")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_team_has_no_more_gpus_than_its_limit(tmp_path: Path, policy: str) -> None:
    ends = finished_h(tmp_path, *JOBS, team_gpus="vision=1,speech=2", policy=policy)
    assert max(ends[:2]) == pytest.approx(8, abs=0.1)
    assert ends[2] == pytest.approx(4, abs=0.1)


def test_a_limit_is_over_all_types_and_holds_beside_quotas(tmp_path: Path) -> None:
    """By the quota alone the second job would run at once, on the P100."""
    told = {"cluster": "v100=1,p100=1", "quotas": "vision:v100=1"}
    free, limited = (run(tmp_path, *JOBS[:2], **told, **limit)[1] for limit in ({}, {"team_gpus": "vision=1"}))
    assert free.busy_gpu_s.min() > 0
    assert sorted(float(at) / HOUR for at in limited.finish_s) == pytest.approx([4, 8], abs=0.1)


@pytest.mark.parametrize("limit", [{"quotas": "vision:v100=1:0"}, {"team_gpus": "vision=1"}])
def test_a_job_that_its_quota_or_limit_never_allows_cannot_run(tmp_path: Path, limit: dict[str, str]) -> None:
    figures, state = run(tmp_path, ("vision", 0, 2, 1.0), ("speech", 0, 2, 1.0), **limit)
    assert figures["cannot_run"] == 1
    assert np.isnan(state.finish_s).tolist() == [True, False]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("event_delay_s", [pytest.param(None, marks=pytest.mark.thorough), 1.0])
def test_a_hard_budget_that_is_used_up_lets_no_job_start_before_its_reset(
    tmp_path: Path, policy: str, event_delay_s: float | None
) -> None:
    """The first job of vision uses the budget up on the first day; the second comes after that, the week has 7 days."""
    jobs = ("vision", 0.0, 1, 6.0), ("vision", 10.0, 1, 2.0), ("speech", 10.0, 1, 2.0)
    ends = finished_h(tmp_path, *jobs, budgets="vision=5/week:hard", policy=policy, event_delay_s=event_delay_s)
    assert ends == pytest.approx([6, 7 * DAY + 2, 12], abs=0.1)


def test_what_is_used_and_the_calendar_at_the_begin_count(tmp_path: Path) -> None:
    """It begins on a Wednesday: the week ends five days later."""
    jobs = [("vision", 0.0, 1, 1.0)]
    told = {"budgets": "vision=5/week:hard:5", "begin": "2026-11-25"}
    assert finished_h(tmp_path, *jobs, **told) == pytest.approx([5 * DAY + 1], abs=0.1)
    assert finished_h(tmp_path, *jobs, budgets="vision=5/week:hard:4") == pytest.approx([1], abs=0.1)


def test_a_trace_that_waits_for_a_budget_is_not_stalled_though_nodes_come_and_go(tmp_path: Path) -> None:
    """Until the end of January nodes fail and are repaired some 1,700 times."""
    jobs = ("vision", 0.0, 1, 2.0), ("vision", 2.5, 1, 2.0)
    told = {"cluster": "v100=20x8", "failures": "16:1", "checkpoint_s": 60.0}
    figures, state = run(tmp_path, *jobs, budgets="vision=1/month:hard", begin="2026-01-01", **told)
    assert figures["completed"] == 2
    assert state.finish_s[1] >= 3600 * (31 * DAY + 2)


def test_a_trace_that_waits_for_a_budget_is_not_stalled_though_many_jobs_come(tmp_path: Path) -> None:
    jobs = [("vision", 0.0, 1, 2.0), *(("vision", 2.5 + n / 10, 1, 0.01) for n in range(1100))]
    figures, state = run(tmp_path, *jobs, budgets="vision=1/month:hard", begin="2026-01-01")
    assert figures["completed"] == 1101
    assert state.finish_s[1:].min() >= 3600 * 31 * DAY


def test_a_soft_budget_that_is_used_up_leaves_a_team_the_gpus_of_others(tmp_path: Path) -> None:
    jobs = [("vision", 0.0, 2, 8.0), ("speech", 0.0, 2, 8.0)]
    even = finished_h(tmp_path, *jobs, policy="max_min_fairness")
    slowed = finished_h(tmp_path, *jobs, policy="max_min_fairness", budgets="vision=1/month:soft:1")
    assert even == pytest.approx([16, 16], abs=0.3)
    assert slowed == pytest.approx([16, 8.4], abs=0.3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"team_gpus": "vision:v100=8"}, "no job of the trace is of a team 'vision:v100'"),
        ({"team_gpus": "vision=many"}, "'vision=many' is not TEAM=GPUS, as in vision=16"),
        ({"team_gpus": "video=1"}, "no job of the trace is of a team 'video'; its teams: speech, vision"),
        ({"team_gpus": "vision=1,vision=2"}, "there are two limits of vision"),
        ({"team_gpus": "vision=1", "rules": "gavel"}, "limits of teams by the service's rules"),
        ({"quotas": "vision=8"}, "'vision=8' is not TEAM:TYPE=GPUS"),
        ({"quotas": "vision:v100=1::2"}, "lends more GPUs than the quota has: lend 1 at most"),
        ({"quotas": "vision:a100=1"}, "there is no GPU type 'a100'.*choose from v100"),
        ({"quotas": "vision:v100=1,vision:v100=2"}, "there are two limits of vision on v100"),
        ({"budgets": "vision=0/week"}, "'vision=0/week' is not TEAM=GPU-HOURS/PERIOD"),
        ({"budgets": "vision=5/year"}, "periods: week, month, quarter"),
        ({"budgets": "video=5/week"}, "no job of the trace is of a team 'video'; its teams: speech, vision"),
        ({"budgets": "vision=5/week", "begin": "soon"}, "--begin 'soon' is no date with a time"),
        ({"begin": "2026-11-25"}, "--begin is for the periods of --budget"),
        ({"quotas": "vision:v100=1", "rules": "gavel"}, "limits of teams by the service's rules"),
    ],
)
def test_limits_that_mean_nothing_are_refused(tmp_path: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        run(tmp_path, *JOBS, **options)


@pytest.mark.parametrize("words", ["vision:a100=8", "vision:a100=8:4", "vision:a100=8:4:2", "vision:a100=8::0"])
def test_quotas_are_written_as_they_are_read(words: str) -> None:
    assert [str(one) for one in read_quotas(words)] == [words]


def test_budgets_are_written_as_they_are_read() -> None:
    budgets = read_budgets("vision=0.1/week:hard:0.05,speech=500/month")
    assert read_budgets(",".join(map(str, budgets))) == budgets
