"""Maintenance in the simulator: by the rules of the live round, jobs wait for a window or are stopped before it."""

from dataclasses import replace
from pathlib import Path

import pytest

from simulation.scenario.scenario import Scenario

HOUR = 3600.0
ROUND_S = 60.0
SCENARIO = Scenario(format_name="csv", cluster="v100=2", round_s=ROUND_S)


def finished_h(folder: Path, *hours: float, window: str | None, policy: str = "fifo") -> list[float]:
    """When jobs of one V100 each, of so many hours, end; all arrive at once."""
    lines = [f"j{n},0,1,{3600 * hour}" for n, hour in enumerate(hours)]
    trace = folder / "trace.csv"
    trace.write_text("\n".join(["name,arrival_s,gpus,duration_s", *lines]) + "\n")
    run = replace(SCENARIO, windows=window).prepare(trace, policy, 0)
    run.finish(lambda _: None)
    return [float(at) / HOUR for at in run.simulation.state.finish_s]


def test_a_job_waits_that_would_cross_a_window_and_shorter_ones_go_before(tmp_path: Path) -> None:
    """Both nodes are away from 2 h to 3 h."""
    ends = finished_h(tmp_path, 4, 1, window="v100:2:1")
    assert ends == pytest.approx([7, 1], abs=0.1)
    assert finished_h(tmp_path, 4, 1, window=None) == pytest.approx([4, 1], abs=0.1)


def test_one_node_is_away_and_jobs_go_to_the_other(tmp_path: Path) -> None:
    assert finished_h(tmp_path, 4, window="v100/1:2:1") == pytest.approx([4], abs=0.1)


def test_a_job_that_fits_between_no_two_windows_goes_on_after_each(tmp_path: Path) -> None:
    """Six hours of work, of which three fit before each window of an hour."""
    (end,) = finished_h(tmp_path, 6, window="v100:3:1:4")
    assert end == pytest.approx(7, abs=0.2)


@pytest.mark.parametrize("policy", ["motley", pytest.param("max_min_fairness", marks=pytest.mark.thorough)])
def test_jobs_end_under_policies_of_shares_and_picks(tmp_path: Path, policy: str) -> None:
    """15 hours of work on two nodes, of which one is away for an hour of six."""
    ends = finished_h(tmp_path, 5, 5, 5, window="v100/1:1:1:6", policy=policy)
    assert min(ends) > 4.9
    assert 8 < max(ends) < 11
