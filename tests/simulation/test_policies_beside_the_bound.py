"""The table of policies beside the bound of each trace, and true rates of jobs that train."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.bounds import table
from benchmarks.contention import Run, perform
from simulation.results.bound import certified_bound
from simulation.scenario.scenario import Scenario

HEADER = "name,arrival_s,gpus,min_gpus,max_gpus,duration_s,gpu_types"
POLICIES = ("motley", "fifo")


@pytest.fixture
def traces(tmp_path: Path) -> list[Path]:
    """Two traces of a long and a short job for one GPU; the long one is named first."""
    paths = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for path, seconds in zip(paths, (3600, 7200), strict=True):
        path.write_text("\n".join([HEADER, f"long,0,1,,,{seconds},", "short,0,1,,,600,", ""]))
    return paths


def test_each_trace_has_its_bound_and_no_policy_is_below_it(traces):
    scenario = Scenario(format_name="csv", cluster="v100=1", round_s=60)
    by_policy = {name: [perform(Run("key", name, scenario, trace)) for trace in traces] for name in POLICIES}
    bounds = {trace.name: certified_bound(scenario, trace) for trace in traces}
    lines = list(table("two jobs", by_policy, bounds))
    assert [line.split(" | ")[0].strip("| ") for line in lines[3:]] == [
        "one.csv",
        "",
        "",
        "two.csv",
        "",
        "",
        *["mean"] * 2,
    ]
    assert [line.split(" | ")[1].split(",")[0] for line in lines[3:6]] == ["bound", "`motley`", "`fifo`"]
    for policy, runs in by_policy.items():
        least = [bound.avg_jct_h for bound in bounds.values()]
        assert (np.array([run["avg_jct_h"] for run in runs]) >= np.array(least) - 1e-9).all(), policy
    assert by_policy["motley"][0]["avg_jct_h"] < by_policy["fifo"][0]["avg_jct_h"]
