"""`python -m simulation`, as a person or a script calls it."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from allocation.policies import POLICIES
from simulation.__main__ import main

TRACE = """name,arrival_s,gpus,min_gpus,max_gpus,duration_s,team,deadline_s
a,0,1,,,3600,red,3700
b,0,,1,4,7200,blue,100
c,90,2,,,600,red,
"""


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


@pytest.fixture
def call(capsys):
    """The command in this process, for a process of its own takes seconds to start."""

    def called(path, *words, cluster="v100=2x4"):
        with pytest.raises(SystemExit) as left:
            main(["run", str(path), "--format", "csv", "--cluster", cluster, *words])
        return left.value.code or 0, *capsys.readouterr()

    return called


@pytest.fixture
def figures(call):
    def given(path, *words, **options):
        code, out, err = call(path, *words, "--json", **options)
        assert code == 0, err
        return json.loads(out)

    return given


def in_a_process(*words):
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])


def test_it_is_a_module_that_python_runs(trace):
    words = ["run", str(trace), "--format", "csv", "--cluster", "v100=8", "--json"]
    assert json.loads(in_a_process("-m", "simulation", *words).stdout)["completed"] == 3


def test_the_table_says_over_what_time_utilization_is_a_mean(call, trace):
    assert "Utilization is a mean over the makespan" in call(trace, "--policy", "fifo")[1]


def test_one_json_object_has_every_figure(figures, trace):
    found = figures(trace, "--policy", "fifo")
    assert (found["jobs"], found["completed"], found["skipped"]) == (3, 3, 0)
    assert found["makespan_h"] == pytest.approx(2 * 4**0.8)  # two hours on four GPUs, and the queue gave one
    assert found["deadline_rate"] == 0.5
    assert 0 < found["utilization"] == found["utilization_by_type"]["v100"] < 1
    assert found["cost"] == pytest.approx(2.48 * 3 * found["gpu_hours_per_job"])
    assert found["rho"].keys() == {"mean", "p99", "worst", "share_above_1"}
    assert found["decision_ms"].keys() == {"p50", "p95"}
    others = "avg_jct_h median_jct_h p99_jct_h restarts_per_job queueing_h jain wall_s"
    assert found.keys() >= set(others.split())


def test_the_same_seed_gives_the_same_figures(figures, trace):
    runs = [figures(trace, "--policy", "max_min_fairness", "--seed", "3", "--restart", "30") for _ in range(2)]
    measured = {"wall_s", "decision_ms"}
    first, second = ({name: of for name, of in run.items() if name not in measured} for run in runs)
    assert first == second


def test_failures_of_nodes_come_by_the_seed_and_cost_work(figures, trace):
    words = ("--failures", "1:0.1", "--checkpoint", "1800", "--policy", "fifo")
    lost = [figures(trace, *words, "--seed", seed)["lost_gpu_hours"] for seed in ("1", "1", "2")]
    assert 0 < lost[0] == lost[1] != lost[2]


def test_what_policies_are_told_may_be_wrong(figures, trace):
    words = ("--rate-error", "0.9", "--length-error", "4", "--told-restart", "0", "--restart", "30", "--policy", "srtf")
    queued = [figures(trace, *words, "--seed", str(seed))["completed"] for seed in range(3)]
    assert queued == [3, 3, 3]


def test_prices_are_as_given_and_a_cost_that_is_not_known_is_none(figures, trace):
    assert figures(trace, "--prices", "v100=0")["cost"] == 0
    assert figures(trace, cluster="v100=2x4,h200=1x8")["cost"] is None


def test_without_json_a_table_is_printed(call, trace):
    code, out, _ = call(trace, "--policy", "fifo")
    assert code == 0
    assert "avg_jct_h" in out
    assert "utilization_by_type v100" in out


def test_decided_in_parts_all_jobs_are_done_all_the_same(figures, trace):
    assert figures(trace, "--parts", "4", "--policy", "max_min_fairness", cluster="v100=2x4,t4=1x4")["completed"] == 3


def test_a_compressed_trace_is_read_too(figures, trace):
    compressed = trace.with_suffix(".csv.gz")
    compressed.write_bytes(gzip.compress(trace.read_bytes()))
    assert figures(compressed)["completed"] == 3


def test_a_bad_line_is_refused_or_skipped_as_wanted(call, figures, trace):
    trace.write_text(TRACE + "d,soon,1,,,60,,\n")
    assert call(trace, "--json") == (2, "", "line 5, column 2: arrival_s 'soon' is not a number\n")
    assert figures(trace, "--skip-bad")["skipped"] == 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--policy", "best"], f"unknown policy 'best'; choose from {', '.join(POLICIES)}"),
        (["--policy", "sia:speed=1"], "speed: unknown; this policy has"),
        (["--policy", "sia:power"], "'power' is not PARAMETER=VALUE"),
        (["--policy", "sia:power=high"], "power: must be a number"),
        (["--rules", "chess"], "unknown rules 'chess'; choose from service, gavel"),
        (["--failures", "720"], "'720' is not HOURS_UP:HOURS_DOWN"),
        (["--failures", "0:1"], "'0:1' is not HOURS_UP:HOURS_DOWN"),
        (["--failures", "9:1", "--rules", "gavel"], "--failures cannot be used with Gavel's rules"),
        (["--window", "v100:8"], "'v100:8' is not TYPE[/NODES]:FROM:HOURS[:EVERY] in hours, as in v100/2:8:2:24"),
        (["--window", "v100:8:2:1"], "'v100:8:2:1' begins again before it has ended: give EVERY more than 2 hours"),
        (["--window", "t4:8:2"], "unknown GPU type of --window 't4'; choose from v100"),
        (["--window", "v100:8:2", "--rules", "gavel"], "--window is maintenance by the service's rules"),
        (["--mixed-gangs", "--rules", "gavel"], "--mixed-gangs cannot be used with Gavel's rules"),
        (["--parts", "2", "--policy", "srtf"], "--parts needs a policy of shares, and srtf"),
        (["--prices", "t4=1"], "the price of v100 is missing"),
        (["--prices", "v100=much"], "'v100=much' is not TYPE=PRICE"),
        (["--format", "gavel"], "line 1, column 2: 1 columns instead of 10"),
        (["--cluster", "v100=0x4"], "'v100=0x4' is not TYPE=NODES or TYPE=NODESxGPUS"),
        (["--reference", "abacus"], "unknown GPU type 'abacus'; the known ones are"),
    ],
)
def test_what_means_nothing_is_refused_with_what_may_be_meant(call, trace, words, reason):
    code, _, err = call(trace, *words)
    assert code == 2
    assert err.startswith(reason)


def test_a_table_of_throughputs_that_is_none_is_refused(call, trace, tmp_path):
    table = tmp_path / "rates.json"
    table.write_text('{"v100": {"resnet": 3}}')
    code, _, err = call(trace, "--throughputs", str(table))
    assert code == 2
    assert "is not a table of rates in Gavel's JSON format" in err


def test_steps_of_gavel_are_refused_without_its_throughputs(call, trace):
    trace.write_text("LM (batch size 5)\tpython3 main.py\tlm\t--steps\t1\t700\t2\t1\t-1.000000\t30")
    code, _, err = call(trace, "--format", "gavel")
    assert (code, err) == (2, "the format gavel needs --throughputs, the table of its workloads' rates\n")


def test_a_trace_without_jobs_has_figures_without_values(figures, trace):
    trace.write_text("name,arrival_s,gpus,duration_s\n")
    found = figures(trace)
    assert (found["jobs"], found["avg_jct_h"], found["jain"], found["rho"]["worst"]) == (0, None, None, None)


def test_a_duration_holds_on_the_reference_type(figures, tmp_path):
    """A T4 is 0.43 times as fast as a V100: an hour on that takes longer here, an hour on T4 an hour."""
    trace = tmp_path / "trace.csv"
    trace.write_text("name,arrival_s,gpus,duration_s\na,0,1,3600\n")
    assert figures(trace, cluster="t4=1")["avg_jct_h"] == pytest.approx(2.32, abs=0.01)
    assert figures(trace, "--reference", "t4", cluster="t4=1")["avg_jct_h"] == pytest.approx(1)
