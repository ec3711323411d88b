"""The certified bound of a trace: closed forms, below every policy, and the command."""

import json

import numpy as np
import pytest

from allocation.policies import POLICIES
from simulation.__main__ import main
from simulation.clock.fastest_course import FastestCourse
from simulation.results.bound import bound_of
from simulation.scenario.scenario import Scenario
from tests.policy_cases import policy_cases
from tests.reference import reference

HEADER = "name,arrival_s,gpus,min_gpus,max_gpus,duration_s,gpu_types"
HOUR_S = 3600
TWO_JOBS = ((0, 1, 1000), (0, 1, 1000))


@pytest.fixture
def bound(tmp_path):
    """The bound of these jobs, each (arrival in s, GPUs or their range, seconds on a V100, GPU type or none)."""

    def of(jobs, cluster="v100=1", **options):
        return bound_of(scenario(cluster).prepare(written(tmp_path, jobs), "fifo", 0), **options)

    return of


def scenario(cluster, **options):
    return Scenario(format_name="csv", cluster=cluster, round_s=60, **options)


def written(folder, jobs):
    path = folder / "trace.csv"
    path.write_text("\n".join([HEADER, *(f"j{i},{_line(*job)}" for i, job in enumerate(jobs)), ""]))
    return path


def _line(arrival_s, gpus, seconds, gpu_type=""):
    least, most = gpus if isinstance(gpus, tuple) else ("", "")
    return f"{arrival_s},{'' if least else gpus},{least},{most},{seconds},{gpu_type}"


def test_a_job_alone_takes_its_time(bound):
    found = bound([(100, 1, 5000)])
    assert found.avg_jct_h * HOUR_S == pytest.approx(5000)
    assert found.makespan_h * HOUR_S == pytest.approx(5000)
    assert found.gap == pytest.approx(0, abs=2e-3)


def test_an_elastic_job_alone_has_its_best_size(bound):
    """A duration is that on as many GPUs as run the job fastest."""
    found = bound([(0, (1, 4), 5000)], "v100=1x4")
    assert found.avg_jct_h * HOUR_S == pytest.approx(5000)


def test_jobs_that_need_no_gpu_of_each_other_are_as_fast_as_alone(bound):
    found = bound([(60 * i, 1, 1000 + 300 * i) for i in range(8)], "v100=8")
    assert found.avg_jct_h == pytest.approx(found.alone_jct_h)


def test_contention_of_few_jobs_counts_beside_many_that_are_as_fast_as_alone(bound):
    """Two equal jobs on one T4; the others, on V100s of their own, end a quarter after the begin of an interval."""
    alone = [(0, 1, 12_000, "v100"), *[(0, 1, 1250, "v100")] * 12]
    waits_s = bound([(0, 1, 1250, "t4")], "t4=1").avg_jct_h * HOUR_S
    found = bound([*alone, *[(0, 1, 1250, "t4")] * 2], "v100=13,t4=1", gap=1e-4, intervals=12)
    extra_s = (found.avg_jct_h - found.alone_jct_h) * 15 * HOUR_S
    assert 0.78 * waits_s <= extra_s <= waits_s


@pytest.mark.parametrize("n", [2, 5, 10])
def test_identical_jobs_on_one_gpu_wait_for_each_other(bound, n):
    """Of n jobs of P seconds, one after the other, the mean completion is (n + 1) P / 2."""
    found = bound([(0, 1, 1000)] * n)
    exact = (n + 1) * 1000 / 2
    assert 0.98 * exact <= found.avg_jct_h * HOUR_S <= exact * (1 + 1e-9)
    assert found.makespan_h * HOUR_S == pytest.approx(n * 1000, rel=1e-4)


def test_more_intervals_come_closer(bound):
    jobs = [(0, 1, 1000)] * 6
    few, many = (bound(jobs, intervals=count, gap=1e-4).avg_jct_h for count in (12, 96))
    assert few <= many * (1 + 1e-3)
    assert many * HOUR_S == pytest.approx(3500, rel=0.01)


def test_the_shortest_first_on_one_gpu(bound):
    """Of 1, 2 and 3 hours: completions after 1, 3 and 6 hours."""
    found = bound([(0, 1, 3 * HOUR_S), (0, 1, HOUR_S), (0, 1, 2 * HOUR_S)])
    assert 0.98 * 10 / 3 <= found.avg_jct_h <= 10 / 3


def test_two_types_are_used_at_once(bound):
    """A T4 is a fraction of a V100: together they do two equal jobs in the time that their speeds give."""
    alone = bound([(0, 1, 7200, "t4")], "t4=1").makespan_h
    both = bound([(0, 1, 7200), (0, 1, 7200)], "v100=1,t4=1").makespan_h
    assert both == pytest.approx(2 * 2 * alone / (2 + alone), rel=1e-3)


def test_work_before_an_arrival_is_impossible(bound):
    found = bound([(0, 1, 60), (36_000, 1, 60)])
    assert found.avg_jct_h * HOUR_S == pytest.approx(60)
    assert found.makespan_h * HOUR_S == pytest.approx(36_060)


def test_a_job_that_fits_nowhere_does_not_count(bound):
    found = bound([(0, 1, 600), (0, 4, 600)])
    assert (found.jobs, found.cannot_run) == (2, 1)
    assert found.avg_jct_h * HOUR_S == pytest.approx(600)


def test_the_bound_counts_from_the_first_arrival_of_a_job_that_can_run(bound):
    found = bound([(0, 4, 600), (36_000, 1, 600)])
    assert found.makespan_h * HOUR_S == pytest.approx(600)


def test_many_jobs_shorter_than_a_second_are_done_as_soon_as_their_work_is(bound):
    found = bound([(0, 1, 0.1)] * 100)
    assert found.makespan_h * HOUR_S == pytest.approx(10, rel=1e-3)


def test_without_a_job_that_can_run_there_is_no_bound(bound):
    found = bound([(0, 4, 600)])
    assert (found.cannot_run, found.avg_jct_h, found.makespan_h) == (1, None, None)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Elastic jobs and gangs on two GPU types: the scenario, the trace and its bound."""
    rng = np.random.default_rng(3)
    jobs = [
        (int(at), (1, 4) if i % 3 == 0 else int(2 ** rng.integers(0, 3)), int(10 ** rng.uniform(1.5, 3.5)))
        for i, at in enumerate(np.sort(rng.uniform(0, 4000, 24)))
    ]
    path, on = written(tmp_path_factory.mktemp("mixed"), jobs), scenario("v100=1x4,t4=2x4")
    return on, path, bound_of(on.prepare(path, "fifo", 0))


@pytest.mark.parametrize("policy", policy_cases(sorted(POLICIES)))
def test_no_policy_beats_it(mixed, policy):
    on, path, found = mixed
    reached = on.prepare(path, policy, 0).finish(lambda _: None)
    assert found.avg_jct_h <= reached["avg_jct_h"]
    assert found.makespan_h <= reached["makespan_h"]
    assert found.avg_jct_h >= found.alone_jct_h


def test_the_first_start_counts(tmp_path):
    on = scenario("v100=1", first_start_s=100)
    run = on.prepare(written(tmp_path, [(0, 1, 600)]), "fifo", 0)
    assert bound_of(run).avg_jct_h * HOUR_S == pytest.approx(700)


def test_epochs_whose_rates_grow_count_at_the_best_rate_of_each():
    """Two epochs of 100 steps; on the second configuration 1 and 4 steps/s, on the first 1 and 2."""
    rates, work = np.array([[1.0, 1.0], [2.0, 4.0]]), np.array([100.0, 100.0])
    course = FastestCourse.of_epochs([rates], [work])
    assert course.least_s == pytest.approx([99.5 + 24.5])
    assert course.speed == pytest.approx(np.array([[1, 1]]))


@pytest.fixture
def call(capsys, tmp_path):
    def called(*words, cluster="v100=1", command="bound", jobs=TWO_JOBS):
        path = written(tmp_path, jobs)
        with pytest.raises(SystemExit) as left:
            main([command, str(path), "--format", "csv", "--cluster", cluster, *words])
        return left.value.code or 0, *capsys.readouterr()

    return called


def test_the_command_prints_json_and_a_table(call):
    code, out, err = call("--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["avg_jct_h"] * HOUR_S == pytest.approx(1500, rel=0.01)
    assert found.keys() >= {"jobs", "cannot_run", "makespan_h", "alone_jct_h", "gap", "intervals", "wall_s"}
    assert "No schedule of this trace has a lower mean completion time" in call()[1]


def test_the_table_explains_each_figure_and_says_which_jobs_do_not_count(call):
    _, out, _ = call(jobs=[*TWO_JOBS, (0, 4, 1000)])
    assert "This is of 2 of its 3 jobs: 1 cannot run on this cluster and does not count." in out
    figures = json.loads(call("--json")[1])
    rows = {line.split()[1]: line for line in out.splitlines() if line.startswith("│")}
    assert rows.keys() == figures.keys()
    assert all(len(row.strip("│ ").split("│")[2].split()) > 2 for row in rows.values())
    assert "do not count" not in call()[1].splitlines()[-1]


def test_of_jobs_that_all_cannot_run_there_is_no_bound(call):
    code, out, _ = call(jobs=[(0, 4, 1000)])
    assert (code, "There is no bound: no job of this trace can run on this cluster." in out) == (0, True)


@pytest.mark.parametrize(
    ("words", "cluster", "reason"),
    [
        ((), "v100=0", "'v100=0' is not TYPE=NODES"),
        (("--cpu-memory", "tune"), "v100=1", "a bound is by the rates with a proportional share of CPUs"),
    ],
)
def test_what_means_nothing_is_refused(call, words, cluster, reason):
    code, out, err = call(*words, cluster=cluster)
    assert (code, out) == (2, "")
    assert err.startswith(reason)


def test_a_comparison_says_how_far_each_policy_is_above_it(call, tmp_path):
    words = ("--policy", "fifo", "--policy", "srtf", "--out", str(tmp_path / "out"), "--bound")
    code, out, _ = call(*words, command="compare")
    assert code == 0
    assert "Average JCT above the bound, %" in out
    told = json.loads((tmp_path / "out" / "figures.json").read_text())
    (found,) = told["bounds"]
    for run in told["runs"]:
        assert run["above_bound"]["avg_jct"] == pytest.approx(run["avg_jct_h"] / found["avg_jct_h"] - 1)
        assert run["above_bound"]["makespan"] >= -1e-9


def test_a_comparison_of_shared_gpus_has_no_bound(call):
    code, _, err = call("--policy", "makespan:packed=true", "--bound", command="compare")
    assert code == 2
    assert "the bound is of jobs that share no GPUs" in err


@pytest.mark.thorough
@pytest.mark.parametrize("policy", ["sia", "motley"])
def test_no_policy_beats_it_where_rates_grow_from_epoch_to_epoch(policy):
    """Twenty of Sia's jobs: batches are tuned, and the noise of the gradient changes."""
    data = reference("sia")
    on = Scenario(
        format_name="sia",
        cluster="aws=6x4,dgx-ext=2x8,rtx=3x8",
        profiles=data / "apps",
        knowledge="informed",
        round_s=60,
    )
    trace = data / "workloads" / "derived" / "philly-1-small20.csv"
    run = on.prepare(trace, policy, 0)
    found, course = bound_of(run), run.simulation.state.work.fastest()
    reached = run.finish(lambda _: None)
    assert found.alone_jct_h <= found.avg_jct_h <= reached["avg_jct_h"]
    assert found.makespan_h <= reached["makespan_h"]
    jct_s = run.simulation.state.finish_s - run.simulation.state.jobs.arrival_s
    assert (course.least_s + run.simulation.state.jobs.restart_s <= jct_s).all()
