"""Traces of every format become jobs; what cannot be read is named by line, column and reason."""

import csv
import io
from math import inf

import pytest

from simulation.traces.formats import FORMATS
from simulation.traces.motley_csv import write_motley_csv
from simulation.traces.trace import GangSpread, InvalidTrace, Program, TraceJob

HEADER = "name,arrival_s,gpus,min_gpus,max_gpus,workload,total_steps,duration_s,weight,team,deadline_s"


def read(format_name, text, **options):
    return FORMATS[format_name](text.splitlines(), **options)


def fault(format_name, text):
    with pytest.raises(InvalidTrace) as refused:
        read(format_name, text)
    return refused.value.line, refused.value.column, refused.value.reason


def test_a_job_of_ours_says_all_that_it_can():
    trace = read("csv", f"{HEADER}\nelastic,60,,1,8,resnet,900,,2,vision,7200\nrigid,0,4,,,,,3600,,,\n")
    assert trace.jobs == (
        TraceJob(name="rigid", arrival_s=0, gangs=(4,), duration_s=3600),
        TraceJob(
            name="elastic",
            arrival_s=60,
            gangs=(1, 2, 4, 8),
            program=Program("resnet"),
            total_steps=900,
            weight=2,
            team="vision",
            deadline_s=7200,
        ),
    )


def test_a_job_of_ours_says_of_which_array_it_is_a_task():
    trace = read("csv", "name,arrival_s,gpus,duration_s,array\na,0,1,60,sweep\nb,0,1,60,\n")
    assert [job.array for job in trace.jobs] == ["sweep", None]
    assert read("csv", "".join(write_motley_csv(trace.jobs))) == trace


def test_a_job_of_ours_says_its_teams_weight_and_the_length_that_it_declares():
    header = "name,arrival_s,gpus,duration_s,team,team_weight,declared_length"
    lines = f"{header}\na,0,1,60,x,4,2\nb,0,1,60,x,4,none\nc,0,1,60,,,\n"
    trace = read("csv", lines)
    assert [(job.team_weight, job.declared_length) for job in trace.jobs] == [(4, 2), (4, inf), (1, 1)]
    assert read("csv", "".join(write_motley_csv(trace.jobs))) == trace


def test_a_job_of_ours_says_on_which_types_it_runs_how_fast_and_what_a_restart_takes():
    header = "name,arrival_s,gpus,total_steps,gpu_types,rates,restart_s,uneven_gang"
    lines = f'{header}\na,0,3,60,a100 v100,"{{""a100"": {{""1"": 12.5}}}}",4,true\nb,0,1,5,,,,\n'
    trace = read("csv", lines)
    job, plain = trace.jobs
    assert (job.gpu_types, job.program.rates, job.restart_s) == ({"a100", "v100"}, (("a100", 1, 12.5),), 4)
    assert (job.spread, plain.gpu_types, plain.program.rates) == (GangSpread.UNEVEN, None, ())
    assert read("csv", "".join(write_motley_csv(trace.jobs))) == trace


NO_RATES = 'such as {"a100": {"1": 12.5, "2": 23}}'


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("rates", "fast", f"rates 'fast' is not steps/s by GPU type and GPUs, {NO_RATES}"),
        ("rates", "3", f"rates '3' is not steps/s by GPU type and GPUs, {NO_RATES}"),
        ("rates", '"{""a100"": {""1"": 0}}"', f"rates must be of one GPU or more, and positive numbers, {NO_RATES}"),
        ("uneven_gang", "yes", "uneven_gang 'yes' is not true; leave it empty for no"),
        ("restart_s", "-1", "restart_s -1 is less than 0"),
        ("declared_length", "long", "declared_length 'long' is not a number"),
        ("declared_length", "0", "declared_length 0 is not positive"),
        ("team_weight", "0", "team_weight 0 is less than 1e-06"),
        ("team_weight", "1e300", "team_weight 1e300 is more than 1e+06"),
    ],
)
def test_a_weight_or_length_that_cannot_be_is_refused(column, value, reason):
    assert fault("csv", f"name,arrival_s,gpus,duration_s,{column}\na,0,1,60,{value}\n") == (2, 5, reason)


def test_a_job_of_ours_is_in_replicas_as_in_its_spec_and_is_written_so():
    rows = [
        "a,0,60,2,4",
        'b,0,60,"{""min"": 1, ""max"": 3}",2',
        'c,0,60,2,"{""a100"": 2, ""v100"": 4}"',
        "d,0,60,1,1",
    ]
    trace = read("csv", "\n".join(["name,arrival_s,duration_s,replicas,gpus_per_replica", *rows]))
    by_type = {"a100": 2, "v100": 4}
    assert [(job.gangs, job.gpus_per_replica, job.replicas) for job in trace.jobs] == [
        ((8,), 4, (2,)),
        ((2, 4, 6), 2, (1, 2, 3)),
        ((4, 8), by_type, (2,)),
        ((1,), 1, (1,)),
    ]
    in_gpus = TraceJob(name="e", arrival_s=0, gangs=(1, 2, 4), duration_s=60)
    lines = "".join(write_motley_csv([*trace.jobs, in_gpus]))
    assert read("csv", lines).jobs == (*trace.jobs, in_gpus)


@pytest.mark.parametrize(
    ("replicas", "gpus", "column", "reason"),
    [
        ("2", "", 4, 'replicas needs the column gpus_per_replica: 4, or {"a100": 2, "v100": 4}'),
        ("", "4", 5, 'gpus_per_replica needs the column replicas: 2, or {"min": 1, "max": 4}'),
        ("two", "4", 4, "replicas 'two' is not a number"),
        ("1.5", "4", 4, "replicas 1.5 is not whole"),
        ("0", "4", 4, "replicas 0 is less than 1"),
        ("{1}", "4", 4, """replicas '{1}' is not JSON such as 2, or {"min": 1, "max": 4}"""),
        ('{"min": 1}', "4", 4, 'replicas must have min and max, and nothing else: 2, or {"min": 1, "max": 4}'),
        ('{"min": 4, "max": 2}', "4", 4, "replicas max 2 is less than min 4"),
        ("2", '{"a100": 0}', 5, "gpus_per_replica of a100 is 0, less than 1"),
        (
            "2",
            '{"a100": true}',
            5,
            """gpus_per_replica '{"a100": true}' is not a map to whole numbers such as 4, or {"a100": 2, "v100": 4}""",
        ),
        ("2", "{}", 5, """gpus_per_replica '{}' is not a map to whole numbers such as 4, or {"a100": 2, "v100": 4}"""),
        ("60", '{"a100": 2000}', 4, "replicas are 120000 GPUs, more than 100000"),
    ],
)
def test_replicas_that_cannot_be_are_refused(replicas, gpus, column, reason):
    row = io.StringIO()
    csv.writer(row).writerow(["a", 0, 60, replicas, gpus])
    assert fault("csv", f"name,arrival_s,duration_s,replicas,gpus_per_replica\n{row.getvalue()}") == (2, column, reason)


def test_a_job_of_ours_is_in_gpus_or_in_replicas():
    header = "name,arrival_s,duration_s,max_gpus,replicas,gpus_per_replica"
    assert fault("csv", f"{header}\na,0,60,4,2,2\n") == (
        2,
        4,
        "max_gpus is given beside replicas or gpus_per_replica",
    )


def test_columns_of_ours_come_in_any_order_and_unused_ones_may_be_left_out():
    trace = read("csv", "duration_s,gpus,arrival_s,name\n60,1,0,a\n")
    assert trace.jobs == (TraceJob(name="a", arrival_s=0, gangs=(1,), duration_s=60),)


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        ("a,x,1,,,,,60,,,", 2, "arrival_s 'x' is not a number"),
        ("a,-1,1,,,,,60,,,", 2, "arrival_s -1 is less than 0"),
        ("a,inf,1,,,,,60,,,", 2, "arrival_s 'inf' is not finite"),
        ("a,0,1.5,,,,,60,,,", 3, "gpus 1.5 is not whole"),
        ("a,0,0,,,,,60,,,", 3, "gpus 0 is less than 1"),
        ("a,0,,4,2,,,60,,,", 5, "max_gpus 2 is less than 4"),
        ("a,0,1,1,2,,,60,,,", 3, "gpus is given beside min_gpus or max_gpus"),
        (
            "a,0,,1,,,,60,,,",
            1,
            "name must have either gpus, or min_gpus and max_gpus, or replicas and gpus_per_replica",
        ),
        ("a,0,1,,,,5,60,,,", 1, "name must have either total_steps or duration_s"),
        ("a,0,1,,,,,,,,", 1, "name must have either total_steps or duration_s"),
        ("a,0,1,,,,,60,0,,", 9, "weight 0 is less than 1e-06"),
        ("a,90,1,,,,,60,,,30", 11, "deadline_s 30 is less than 90"),
        (",0,1,,,,,60,,,", 1, "name is empty"),
        ("a,0,1,,,,,60", 9, "8 columns instead of 11"),
    ],
)
def test_a_bad_line_of_ours_is_named_with_its_column_and_reason(line, column, reason):
    assert fault("csv", f"{HEADER}\ngood,0,1,,,,,60,,,\n{line}\n") == (3, column, reason)


def test_a_header_with_a_column_unknown_or_missing_is_refused():
    line, column, reason = fault("csv", "name,arrival_s,gpu\na,0,1\n")
    assert (line, column) == (1, 3)
    assert reason.startswith("'gpu' is not one of name, arrival_s, gpus")
    assert fault("csv", "name,gpus\na,1\n") == (1, 1, "the header has no column arrival_s")
    assert fault("csv", "") == (1, 1, "the header has no column name, arrival_s")


def test_bad_lines_are_counted_where_they_may_be_skipped():
    trace = read("csv", "name,arrival_s,gpus,duration_s\na,0,1,60\nb,?,1,60\nc,0,1\nd,0,1,60\n", skip_bad=True)
    assert ([job.name for job in trace.jobs], trace.skipped) == (["a", "d"], 2)


def test_jobs_of_gavel_are_named_by_their_line_from_0_and_a_broken_line_is_refused():
    line = "LM (batch size 5)\tpython3 main.py\tlm\t--steps\t1\t700\t2\t1\t-1.000000\t30"
    job = TraceJob(name="0", arrival_s=30, gangs=(2,), program=Program("LM (batch size 5)"), total_steps=700)
    assert read("gavel", line).jobs == (job,)
    assert fault("gavel", f"{line}\n{line[:-3]}") == (2, 10, "9 columns instead of 10")
    assert fault("gavel", line.replace("700", "many")) == (1, 6, "'many' is not a number")


def test_jobs_of_philly_begin_with_the_first_whatever_the_order_of_lines():
    header = "timestamp,duration,num_gpus,gpu_time,cluster"
    text = f"{header}\n2017-10-09 07:01:55,66.0,1,66.0,a\n2017-10-09 07:00:55,9,8,72,b\n\n"
    assert read("philly", text).jobs == (
        TraceJob(name="3", arrival_s=0, gangs=(8,), duration_s=9, team="b"),
        TraceJob(name="2", arrival_s=60, gangs=(1,), duration_s=66, team="a"),
    )
    assert fault("philly", text.replace("2017-10-09 07:00:55", "soon")) == (
        3,
        1,
        "timestamp 'soon' is not a date and time",
    )


def test_pods_of_alibaba_without_gpus_are_left_out_and_models_allowed_are_kept():
    header = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    )
    pods = "a,1,1,0,0,,LS,Running,0,9,0\nb,1,1,1,460,T4|P100,LS,Running,5,90,30\nc,1,1,2,1000,,BE,Running,8,70,10\n"
    trace = read("alibaba", f"{header}\n{pods}")
    models = frozenset({"t4", "p100"})
    assert trace.jobs == (
        TraceJob(name="b", arrival_s=5, gangs=(1,), gpu_types=models, duration_s=60, rounded_up=True),
        TraceJob(name="c", arrival_s=8, gangs=(2,), duration_s=60),
    )
    assert trace.rounded_up == 1
    never = f"{header}\nd,1,1,1,1000,,LS,Running,5,30,30\n"
    assert fault("alibaba", never) == (2, 10, "deletion_time is not after scheduled_time")


def test_minutes_of_chronus_become_seconds_and_best_effort_has_no_deadline():
    header = "job_id,user,num_gpu,submit_time,duration,expect_time_list,best_effort"
    jobs = "0,vc,4,10,211,282,0\n1,vc,1,5,2,88,1\n2,vc,0,5,2,8,0\n"
    assert read("chronus", f"{header}\n{jobs}").jobs == (
        TraceJob(name="1", arrival_s=300, gangs=(1,), duration_s=120, team="vc"),
        TraceJob(name="0", arrival_s=600, gangs=(4,), duration_s=12660, team="vc", deadline_s=600 + 16920),
    )


# -- Sia's -------------------------------------------------------------------------------------------------------

SIA_HEADER = "name,time,application,num_replicas,batch_size"


def test_what_may_be_chosen_for_a_job_of_sias_is_its_category():
    rows = "a,30,bert,12,384,rigid\nb,30,bert,12,384,scale-gpus\nc,30,bert,12,384,"
    rigid, scaled, adaptive = read("sia", f"{SIA_HEADER},category\n{rows}").jobs
    assert (rigid.gangs, rigid.spread, rigid.program) == ((12,), GangSpread.UNEVEN, Program("bert", 384))
    assert (scaled.gangs, scaled.spread, scaled.program) == ((1, 2, 4, 8, 12), GangSpread.FULL, Program("bert", 384))
    assert (max(adaptive.gangs), adaptive.program) == (64, Program("bert", 384, tuned=True))


def test_an_unknown_category_is_refused():
    row = "a,30,bert,12,384,elastic"
    assert fault("sia", f"{SIA_HEADER},category\n{row}") == (
        2,
        6,
        "category 'elastic' is not one of adaptive, scale-gpus, rigid",
    )
