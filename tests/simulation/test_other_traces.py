"""Traces as others publish them are read as they are: formats recognised, jobs left out counted, types unknown."""

import json

import pytest

from simulation.__main__ import main
from simulation.traces.formats import FORMATS, recognised
from simulation.traces.trace import InvalidTrace, LeftOut, Program, TraceJob

TIRESIAS = (
    "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n0,1,0,606,vgg19,164,30\n1,8,30,133,vgg11,147,2"
)
PODS = "name,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time"


def read(format_name, text, **options):
    return FORMATS[format_name](text.splitlines(), **options)


def attempt(began, ended, *gpus):
    detail = [{"ip": f"m{place}", "gpus": [f"gpu{i}" for i in range(count)]} for place, count in enumerate(gpus)]
    return {"start_time": began, "end_time": ended, "detail": detail}


def of_philly(name, submitted, *attempts):
    return {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": name,
        "attempts": attempts,
        "submitted_time": submitted,
        "user": "9",
    }


LOG = [
    of_philly(
        "retried",
        "2017-10-07 01:01:00",
        attempt("2017-10-07 01:02:00", "2017-10-07 01:03:00", 2),
        attempt("2017-10-07 01:10:00", "2017-10-07 01:12:00", 2, 2),
    ),
    of_philly("first", "2017-10-07 01:00:00", attempt("2017-10-07 01:00:30", "2017-10-07 01:01:00", 1)),
    of_philly("waits", "2017-10-07 01:00:00"),
    of_philly("without a start", "2017-10-07 01:00:00", attempt(None, None, 8)),
    of_philly("runs", "2017-10-07 01:00:00", attempt("2017-10-07 01:00:30", "None", 1)),
]


def test_phillys_own_log_is_read_by_its_attempts():
    trace = read("philly", json.dumps(LOG, indent=1))
    assert trace.jobs == (
        TraceJob(name="first", arrival_s=0, gangs=(1,), duration_s=30, team="ee9e8c"),
        TraceJob(name="retried", arrival_s=60, gangs=(4,), duration_s=180, team="ee9e8c"),
    )
    assert trace.left_out == {LeftOut.NEVER_SCHEDULED: 2, LeftOut.NOT_ENDED: 1}


def fault(format_name, text):
    with pytest.raises(InvalidTrace) as refused:
        read(format_name, text)
    return refused.value.line, str(refused.value)


def test_a_bad_job_of_phillys_log_is_named_by_the_line_where_it_begins():
    bad = of_philly("bad", "soon", attempt("2017-10-07 01:00:30", "2017-10-07 01:01:00", 1))
    text = f"[\n{json.dumps(LOG[0])},\n  {json.dumps(bad)}\n]"
    assert fault("philly", text) == (
        3,
        "line 3, column 3: submitted_time 'soon' is not a date and time such as 2017-10-07 01:31:13",
    )
    assert read("philly", text, skip_bad=True).skipped == 1


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('[\n{"jobid": "a"}]', 2, "a job of cluster_job_log has jobid, submitted_time, vc, attempts; this one lacks"),
        ("[\n\n7]", 3, "a job of cluster_job_log has"),
        ("[\n{", 2, "is not JSON"),
        (f"[\n{json.dumps(LOG[0])},\n", 2, "the list has no end: is the file whole?"),
        (json.dumps([{**LOG[0], "attempts": 3}]), 1, "attempts must be a list of attempts"),
        (
            json.dumps([of_philly("a", "2017-10-07", attempt("2017-10-08", "2017-10-08", 1))]),
            1,
            "the attempts of a take 0 s",
        ),
        ("[" * 100_000, 1, "is nested too deeply"),
    ],
)
def test_what_is_no_log_of_philly_is_refused_with_the_line_and_what_it_should_be(text, line, reason):
    at, words = fault("philly", text)
    assert (at, reason in words) == (line, True), words


def test_jobs_of_tiresias_have_their_model_as_workload():
    assert read("tiresias", TIRESIAS).jobs == (
        TraceJob(name="0", arrival_s=0, gangs=(1,), program=Program("vgg19"), duration_s=164),
        TraceJob(name="1", arrival_s=30, gangs=(8,), program=Program("vgg11"), duration_s=147),
    )


def test_pods_that_were_never_scheduled_or_never_ended_are_counted_and_left_out():
    trace = read("alibaba", f"{PODS}\na,1,1000,,5,30,\nb,1,1000,,5,,9\nc,0,0,,5,9,6\nd,1,1000,,5,30,10\n")
    assert [job.name for job in trace.jobs] == ["d"]
    assert trace.left_out == {LeftOut.NEVER_SCHEDULED: 1, LeftOut.NOT_ENDED: 1, LeftOut.NO_GPU: 1}


@pytest.mark.parametrize(
    ("first", "format_name"),
    [
        (TIRESIAS, "tiresias"),
        (
            "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,best_effort",
            "chronus",
        ),
        (PODS, "alibaba"),
        ("timestamp,duration,num_gpus,gpu_time,cluster", "philly"),
        ("\n [", "philly"),
        ("name,time,application,num_replicas,batch_size", "sia"),
        ("LM\tpython3\tlm\t--steps\t1\t700\t2\t1\t-1.000000\t30", "gavel"),
        ("gpus, arrival_s, name", "csv"),
        ("when,what", None),
        ("", None),
    ],
)
def test_a_format_is_recognised_by_its_first_line(first, format_name):
    assert recognised(first.splitlines()) == format_name


@pytest.fixture
def call(tmp_path, capsys):
    def called(text, *words):
        path = tmp_path / "trace"
        path.write_text(text)
        with pytest.raises(SystemExit) as left:
            main(["run", str(path), "--policy", "fifo", *words])
        return left.value.code or 0, *capsys.readouterr()

    return called


def figures(called):
    code, out, err = called
    assert code == 0, err
    return json.loads(out)


def test_a_trace_runs_without_a_word_on_its_format(call):
    found = figures(call(TIRESIAS, "--cluster", "v100=2x8", "--json"))
    assert (found["completed"], found["notes"]) == (2, [])


def test_a_trace_of_no_known_format_is_refused_with_the_formats_there_are(call):
    code, _, err = call("when,what\n", "--cluster", "v100=2x8")
    assert code == 2
    assert err.endswith("give --format, one of gavel, sia, philly, alibaba, chronus, tiresias, csv\n")


def test_a_wrong_format_is_refused_with_the_one_that_it_looks_like(call):
    code, _, err = call(TIRESIAS, "--cluster", "v100=2x8", "--format", "philly")
    assert code == 2
    assert err.endswith("the header has no column timestamp, num_gpus, cluster. It looks like --format tiresias\n")


def test_types_without_a_data_sheet_are_equally_fast_and_that_is_said(call):
    pods = f"{PODS}\na,1,1000,V100M16|V100M32,0,3600,0\nb,1,1000,G2,0,3600,0\nc,1,1000,,0,9,\n"
    words = ("--cluster", "V100M16=1,G2=1")
    found = figures(call(pods, *words, "--json"))
    assert (found["completed"], found["avg_jct_h"], found["left_out"]["never_scheduled"]) == (2, pytest.approx(1), 1)
    assert found["notes"] == [
        "No data sheet of G2 is known: taken to be as fast as a v100 (motley simulate --rates FILE gives speeds).",
        "Jobs of the trace that are left out: 1 never scheduled.",
    ]
    assert "No data sheet of G2 is known" in call(pods, *words)[1]


@pytest.mark.parametrize(
    ("name", "text"),
    [("speeds.csv", "gpu_type,speed\nV100,1\nG2,0.5\n"), ("speeds.yaml", "v100: 1\nG2: 0.5\n")],
)
def test_speeds_of_types_are_those_of_a_small_file(call, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    pods = f"{PODS}\nb,1,1000,G2,0,3600,0\n"
    found = figures(call(pods, "--cluster", "v100=1,g2=1", "--json", "--rates", str(tmp_path / name)))
    assert (found["avg_jct_h"], found["notes"]) == (pytest.approx(2), [])


def test_rates_of_workloads_are_in_steps_per_second(call, tmp_path):
    rates = tmp_path / "rates.yaml"
    rates.write_text("resnet: {g2: 2.5, g3: 5}\n")
    trace = "name,arrival_s,gpus,workload,total_steps\na,0,1,resnet,9000\n"
    found = figures(call(trace, "--cluster", "g3=1", "--json", "--rates", str(rates)))
    assert found["avg_jct_h"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.csv", "type,fast\n", "line 1: the header 'type,fast' is unknown: write gpu_type,speed and lines such as"),
        ("a.csv", "gpu_type,speed\nv100,fast\n", "line 2: speed 'fast' is not a number"),
        ("a.csv", "gpu_type,speed\nv100,0\n", "line 2: speed 0 is not a positive number"),
        ("a.csv", "gpu_type,speed\nv100\n", "line 2: speed 'None' is not a number"),
        ("a.csv", "gpu_type,speed\n", "has no rates: write gpu_type,speed"),
        ("a.csv", "gpu_type,speed\nt4,1\n", "has no rate of v100, which --cluster has: add a line for it"),
        ("a.yaml", "- v100\n", "is not a map: write types with their speeds"),
        ("a.yaml", "{", "is not YAML"),
        ("a.yaml", "resnet: {v100: x}\n", "resnet: v100 'x' is not a number"),
        ("a.yaml", "resnet: {v100: 3}\n", "the table has no rates of the workload 'vgg19'"),
    ],
)
def test_a_file_of_rates_that_cannot_be_used_is_refused_with_its_line(call, tmp_path, name, text, reason):
    (tmp_path / name).write_text(text)
    code, _, err = call(TIRESIAS, "--cluster", "v100=8", "--rates", str(tmp_path / name))
    assert code == 2
    assert reason in err


def test_a_comparison_recognises_the_format_and_says_what_it_assumes(tmp_path, capsys):
    (tmp_path / "trace.csv").write_text(TIRESIAS)
    words = ("--cluster", "G2=2x8", "--policy", "fifo", "--json", "--processes", "1")
    with pytest.raises(SystemExit) as left:
        main(["compare", str(tmp_path / "trace.csv"), *words, "--out", str(tmp_path / "out")])
    found = json.loads(capsys.readouterr().out)
    assert (left.value.code or 0, found["scenario"]["format_name"]) == (0, "tiresias")
    assert found["note"].startswith("No data sheet of G2 is known")
