"""The benchmark of delivered shares, on traces whose errors can be counted by hand."""

import pytest

from benchmarks.contention import Run
from benchmarks.delivered_shares import measured
from simulation.scenario.scenario import Scenario

LEASES = 4
ON_ONE_GPU = Scenario(format_name="csv", cluster="v100=1x1", round_s=60, restart_s=60)
"""A lease is 25 rounds, and a window 100, so that a round is one point."""
WINDOWS = 3
"""Looked at, of the first: in the last ones jobs end."""


def errors(tmp_path, *teams, hours=8):
    path = tmp_path / "trace.csv"
    rows = [f"{i},0,1,{3600 * hours},{team}" for i, team in enumerate(teams)]
    path.write_text("\n".join(["name,arrival_s,gpus,total_steps,team", *rows]))
    return measured(Run("by hand", "max_min_fairness", ON_ONE_GPU, path), [LEASES])[0]


@pytest.mark.thorough
def test_turns_that_shares_promise_are_delivered(tmp_path):
    """A team of two jobs has half of the GPU, and its jobs a quarter each: two turns of the other team, one of each."""
    for teams in (("x", "y"), ("x", "x", "y")):
        found = errors(tmp_path, *teams)
        first = [of[: WINDOWS * len(teams)] for of in found._replace(teams=found.teams[: 2 * WINDOWS])]
        assert [of.size for of in first] == [WINDOWS * len(teams)] * 5 + [2 * WINDOWS]
        assert max(of.max() for of in first) == pytest.approx(0, abs=0.01)


def test_of_four_turns_a_third_is_one_or_two(tmp_path):
    """A share of 33.3 points is delivered as 25 or 50."""
    found = errors(tmp_path, "", "", "")
    assert sorted(found.sum[:3]) == pytest.approx([8.33, 8.33, 16.67], abs=1.01)
    assert sorted(found.short[:3]) == pytest.approx([0, 8.33, 8.33], abs=1.01)
    assert found.whole_turns[:3] == pytest.approx(8.33, abs=0.01)
    assert found.worst_type == pytest.approx(found.sum)
    assert not found.teams.size
