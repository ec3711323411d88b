"""The spec: one schema for every interface, in both directions; every error names its field and the remedy."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs_app.errors import InvalidSpec
from jobs_app.submission.conversion import SpecReader, parse_spec, parse_yaml, spec_of, write_yaml
from jobs_app.submission.spec import JobSpec
from tests.service_lab import Lab
from web.rest.errors import Fault, faults_of

LEAST: dict[str, Any] = {"name": "net", "command": "true", "gpus": 1}
RICH: dict[str, Any] = {
    "name": "resnet50-imagenet",
    "team": "vision",
    "command": "torchrun train.py --epochs 90",
    "workdir": "/data/projects/resnet",
    "env": {"OMP_NUM_THREADS": "4", "EMPTY": ""},
    "gpus": {"min": 1, "max": 4},
    "gpu_types": ["a100", "v100"],
    "gpu_memory": "16GiB",
    "cpus_per_gpu": 4,
    "memory_per_gpu": "32GiB",
    "workload": "resnet50/bs64",
    "rates": {"a100": 24.1, "v100": {1: 10.2, 2: 19.0, 4: 36.5}},
    "batch_size": {"initial": 256, "max": 4096, "max_per_gpu": 128, "min_per_gpu": 16},
    "total_steps": 450_000,
    "checkpoint": {"grace_seconds": 120, "restore_seconds": 12.5},
    "preemptible": False,
    "uneven_gang": True,
    "weight": 0.5,
    "deadline": "2099-12-01T12:00:00+00:00",
    "time_limit": "48h",
    "retries": 3,
    "tags": {"project": "imagenet"},
}

READING = {"dataset": "150GiB", "bytes_per_sample": 110_000, "samples_per_second": 1200.0}
SENSITIVITY: dict[str, Any] = {"cpu_curve": {1: 0.3, 3: 1.0, 12: 2.9}, **READING}


def faults(data: Any) -> list[Fault]:
    with pytest.raises(InvalidSpec) as refused:
        parse_spec(data)
    return list(refused.value.faults)


def pointers(data: Any) -> set[str]:
    return {fault["pointer"] for fault in faults(data)}


# -- sensitivity to CPUs and memory ------------------------------------------------------------------------------


@pytest.mark.parametrize("sensitivity", [SENSITIVITY, {"cpu_curve": {4: 1.0}}])
def test_a_sensitivity_is_written_as_it_was_read(lab: Lab, sensitivity: dict[str, Any]) -> None:
    lab.node("n1")
    said = spec_of(lab.submit(sensitivity=sensitivity))
    assert said["sensitivity"] == sensitivity
    assert parse_yaml(write_yaml(said))["sensitivity"] == sensitivity


def test_what_memory_is_worth_takes_three_figures() -> None:
    (fault, other) = faults(LEAST | {"sensitivity": {"cpu_curve": {1: 1.0}, "dataset": "1GiB"}})
    assert [fault["pointer"], other["pointer"]] == ["/sensitivity/bytes_per_sample", "/sensitivity/samples_per_second"]
    assert "all three of dataset, bytes_per_sample, samples_per_second" in fault["detail"]


def test_a_sensitivity_by_which_nothing_could_be_chosen_is_refused() -> None:
    fixed = LEAST | {"cpus_per_gpu": 4, "sensitivity": SENSITIVITY}
    assert "sensitivity" in parse_spec(fixed)  # the memory may still be chosen
    for more in ({"memory_per_gpu": "1GiB"}, {"sensitivity": {"cpu_curve": {4: 1.0}}}):
        (fault,) = faults(fixed | more)
        assert (fault["pointer"], "leave that out" in fault["detail"]) == ("/sensitivity", True)


# -- there and back ----------------------------------------------------------------------------------------------


def test_what_a_job_says_of_itself_gives_the_same_job_again(lab: Lab) -> None:
    for kind in ("a100", "v100"):
        lab.node(kind, kind, gpus=4)
    parent = lab.submit()
    job = lab.submit(**RICH, after=[{"job": str(parent.pk), "on": "end"}])
    assert parse_spec(spec_of(job)) == parse_spec(RICH | {"after": [{"job": str(parent.pk), "on": "end"}]})


def test_what_a_job_says_of_itself_survives_yaml_and_json(lab: Lab) -> None:
    for kind in ("a100", "v100"):
        lab.node(kind, kind, gpus=4)
    spec = spec_of(lab.submit(**RICH))
    read = parse_yaml(write_yaml(spec)), json.loads(json.dumps(spec))
    assert [parse_spec(text) for text in read] == [parse_spec(RICH)] * 2


def test_what_is_at_its_default_is_not_written(lab: Lab) -> None:
    lab.node("n1")
    assert spec_of(lab.submit(**LEAST, checkpoint={"restore_seconds": 30})) == LEAST | {
        "team": "vision",
        "workload": "net/true",
    }


# -- units and shapes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("48h", 172_800), ("90m", 5400), ("2d", 172_800), ("30s", 30), ("1.5h", 5400)),
        *(
            ("2 days", 172_800),
            ("1 hour", 3600),
            ("30 min", 1800),
            ("1h30m", 5400),
            ("2H", 7200),
            ("1 day 2 hours", 93_600),
        ),
        *(
            ("2:00:00", 7200),
            ("30:00", 1800),
            ("90:00", 5400),
            ("1-00:00:00", 86_400),
            ("1-12", 129_600),
            ("1-12:30", 131_400),
        ),
    ],
)
def test_times_have_units(text: Any, seconds: int) -> None:
    assert parse_spec(LEAST | {"time_limit": text})["time_limit_s"] == seconds


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        *(("16GiB", 16_384), ("512MiB", 512), ("1TiB", 1_048_576)),
        *(("16G", 16_384), ("16GB", 16_384), ("16 gb", 16_384), ("1.5g", 1536), ("500M", 500), ("1T", 1_048_576)),
    ],
)
def test_memory_has_units(text: Any, mib: int) -> None:
    assert parse_spec(LEAST | {"gpu_memory": text})["gpu_memory_mib"] == mib


@pytest.mark.parametrize("text", ["16XB", "48 hours", "-1h", "0", "h", "1e3s", True, None, [], "", "0.0001MiB"])
def test_a_quantity_without_sense_is_refused_with_an_example(text: Any) -> None:
    (fault,) = faults(LEAST | {"gpu_memory": text})
    assert fault["pointer"] == "/gpu_memory"


@pytest.mark.parametrize("number", [16, "16", 1.5])
def test_memory_without_a_unit_is_refused_with_what_to_write(number: Any) -> None:
    (fault,) = faults(LEAST | {"gpu_memory": number})
    assert (fault["pointer"], fault["detail"]) == ("/gpu_memory", f"Add the unit: {number}GiB or {number}MiB.")


@pytest.mark.parametrize("number", [5, "5", 1.5])
def test_a_time_without_a_unit_is_refused_with_what_to_write(number: Any) -> None:
    """For sbatch it is minutes: a job that was to have five of them had five seconds."""
    (fault,) = faults(LEAST | {"time_limit": number})
    assert fault["detail"] == f"Add the unit: {number}m are minutes, {number}h hours, {number}s seconds."


@pytest.mark.parametrize("text", ["1:60:00", "2:00:00:00", "1-", "-1:00", "1-2-3", "12 34h", "2 fortnights", "1:2:3h"])
def test_a_time_that_no_clock_shows_is_refused(text: str) -> None:
    (fault,) = faults(LEAST | {"time_limit": text})
    assert "e.g. 48h, 2:00:00 or 1-12:00:00" in fault["detail"]


def test_gpu_types_may_be_in_any_case() -> None:
    columns = parse_spec(LEAST | {"gpu_types": ["A100", "v100"], "rates": {"A100": 24.1}})
    assert (columns["gpu_types"], columns["rates"]) == (["a100", "v100"], {"a100": {"1": 24.1}})
    in_replicas = {
        "name": "net",
        "command": "true",
        "replicas": 1,
        "gpus_per_replica": {"A100": 2},
        "gpu_types": ["A100"],
    }
    assert parse_spec(in_replicas)["gpus_per_replica"] == {"a100": 2}


@pytest.mark.parametrize("field", ["rates", "gpus_per_replica"])
def test_a_gpu_type_written_in_two_cases_is_named_twice(field: str) -> None:
    assert f"/{field}" in pointers(LEAST | {field: {"A100": 1, "a100": 2}})


def test_a_number_of_gpus_is_both_least_and_most() -> None:
    columns = parse_spec(LEAST | {"gpus": 4})
    assert (columns["gpus_min"], columns["gpus_max"]) == (4, 4)


def test_a_bare_rate_holds_for_the_least_gang() -> None:
    columns = parse_spec(LEAST | {"gpus": {"min": 2, "max": 8}, "rates": {"a100": 24.1}})
    assert columns["rates"] == {"a100": {"2": 24.1}}


HYBRID: dict[str, Any] = {"name": "net", "command": "true", "replicas": {"min": 1, "max": 4}}


def test_a_hybrid_parallel_job_has_gpus_of_whole_replicas_on_the_types_that_hold_one() -> None:
    columns = parse_spec(HYBRID | {"gpus_per_replica": {"a100": 2, "v100": 4}})
    assert (columns["gpus_min"], columns["gpus_max"]) == (2, 16)
    assert (columns["gpu_types"], columns["gpus_per_replica"]) == (["a100", "v100"], {"a100": 2, "v100": 4})
    assert parse_spec(HYBRID | {"replicas": 3, "gpus_per_replica": 8})["gpus_min"] == 24


def test_of_the_types_that_hold_a_replica_some_may_be_chosen() -> None:
    columns = parse_spec(HYBRID | {"gpus_per_replica": {"a100": 2, "v100": 4}, "gpu_types": ["v100"]})
    assert (columns["gpus_min"], columns["gpus_max"], columns["gpus_per_replica"]) == (4, 16, {"v100": 4})


def test_a_bare_rate_of_a_hybrid_parallel_job_holds_for_the_fewest_replicas_of_that_type() -> None:
    size = {"replicas": 2, "gpus_per_replica": {"a100": 2, "v100": 4}}
    columns = parse_spec(HYBRID | size | {"rates": {"a100": 9, "v100": {"8": 7}}})
    assert columns["rates"] == {"a100": {"4": 9}, "v100": {"8": 7}}


def test_a_batch_is_shared_by_replicas() -> None:
    batch = {"initial": 8, "max": 32, "max_per_gpu": 16, "min_per_gpu": 8}
    assert parse_spec(HYBRID | {"gpus_per_replica": 8, "batch_size": batch})["batch_size"] == batch
    (fault,) = faults(HYBRID | {"replicas": 5, "gpus_per_replica": 8, "batch_size": batch})
    assert "5 replicas with 8 samples each need at least 40" in fault["detail"]


@pytest.mark.parametrize(
    ("size", "pointer", "remedy"),
    [
        ({"replicas": 2}, "/gpus_per_replica", "Say how many GPUs one replica takes"),
        ({"gpus_per_replica": 2}, "/replicas", "Say how many replicas"),
        ({"gpus": 4, "replicas": 2, "gpus_per_replica": 2}, "/gpus", "either gpus, or replicas"),
        ({"gpus": 4, "gpus_per_replica": 2}, "/gpus", "either gpus, or replicas"),
        ({"replicas": 0, "gpus_per_replica": 2}, "/replicas", "from 1 to"),
        ({"replicas": 2, "gpus_per_replica": {}}, "/gpus_per_replica", "one by GPU type"),
        ({"replicas": 2, "gpus_per_replica": {"a100": 0}}, "/gpus_per_replica", "from 1 to"),
        ({"replicas": 2, "gpus_per_replica": "many"}, "/gpus_per_replica", "Write a whole number"),
        ({"replicas": 2, "gpus_per_replica": {"a100": 2}, "gpu_types": ["t4"]}, "/gpu_types", "add it there, or leave"),
        ({"replicas": 50_000, "gpus_per_replica": 8}, "/replicas", "write fewer replicas"),
    ],
)
def test_a_faulty_size_is_named_with_its_remedy(size: dict[str, Any], pointer: str, remedy: str) -> None:
    (fault,) = faults({"name": "net", "command": "true"} | size)
    assert (fault["pointer"], remedy in fault["detail"]) == (pointer, True)


def test_a_job_without_a_size_is_told_so() -> None:
    (fault,) = faults({"name": "net", "command": "true"})
    assert (fault["pointer"], fault["code"]) == ("/gpus", "required")
    assert "--gpus" in fault["detail"]


def test_a_command_may_be_a_list() -> None:
    assert parse_spec(LEAST | {"command": ["python", "a b.py"]})["command"] == ["python", "a b.py"]


def test_on_is_a_word_in_yaml() -> None:
    spec = parse_yaml("after: [{job: 0190c3a0-0000-7000-8000-000000000000, on: end}]")
    assert spec["after"][0]["on"] == "end"


# -- faults ------------------------------------------------------------------------------------------------------

FAULTY: list[tuple[str, Any, str]] = [
    ("name", "", "/name"),
    ("name", "x" * 101, "/name"),
    ("name", "two\nlines", "/name"),
    ("name", "nul\0", "/name"),
    ("name", True, "/name"),
    ("command", "", "/command"),
    ("command", [], "/command"),
    ("command", ["", "a"], "/command"),
    ("command", ["a", 1], "/command"),
    ("command", "nul\0", "/command"),
    ("command", "lone \ud800 surrogate", "/command"),
    ("command", 5, "/command"),
    ("workdir", "relative", "/workdir"),
    ("workdir", "/data/../root", "/workdir"),
    ("env", {"MOTLEY_JOB_TOKEN": "x"}, "/env/MOTLEY_JOB_TOKEN"),
    ("env", {"A-B": "x"}, "/env/A-B"),
    ("env", {"A": "nul\0"}, "/env/A"),
    ("env", {"A": True}, "/env/A"),
    ("env", [], "/env"),
    ("gpus", 0, "/gpus"),
    ("gpus", -1, "/gpus"),
    ("gpus", True, "/gpus"),
    ("gpus", 1.5, "/gpus"),
    ("gpus", "many", "/gpus"),
    ("gpus", {"min": 4, "max": 2}, "/gpus"),
    ("gpus", {"min": 1}, "/gpus"),
    ("gpus", {"min": 1, "max": True}, "/gpus"),
    ("gpus", 10**30, "/gpus"),
    ("gpu_types", "a100", "/gpu_types"),
    ("cpus_per_gpu", -1, "/cpus_per_gpu"),
    ("cpus_per_gpu", 10**400, "/cpus_per_gpu"),
    ("gpu_memory", 10**400, "/gpu_memory"),
    ("gpu_memory", "9" * 400 + "TiB", "/gpu_memory"),
    ("time_limit", "9" * 400 + "h", "/time_limit"),
    ("rates", 24.1, "/rates"),
    ("rates", {"a100": 0}, "/rates/a100"),
    ("rates", {"a100": True}, "/rates/a100"),
    ("rates", {"a100": "fast"}, "/rates/a100"),
    ("rates", {"a100": float("inf")}, "/rates/a100"),
    ("rates", {"a100": float("nan")}, "/rates/a100"),
    ("rates", {"a100": 10**400}, "/rates/a100"),
    ("rates", {"a100": {"two": 1.0}}, "/rates/a100"),
    ("rates", {"a100": {0: 1.0}}, "/rates/a100"),
    ("sensitivity", {"dataset": "1GiB"}, "/sensitivity/cpu_curve"),
    ("sensitivity", {"cpu_curve": {}}, "/sensitivity/cpu_curve"),
    ("sensitivity", {"cpu_curve": 4}, "/sensitivity/cpu_curve"),
    ("sensitivity", {"cpu_curve": {0: 1.0}}, "/sensitivity/cpu_curve/0"),
    ("sensitivity", {"cpu_curve": {"2.5": 1.0}}, "/sensitivity/cpu_curve/2.5"),
    ("sensitivity", {"cpu_curve": {4: "fast"}}, "/sensitivity/cpu_curve/4"),
    ("sensitivity", {"cpu_curve": {4: float("nan")}}, "/sensitivity/cpu_curve/4"),
    ("sensitivity", {"cpu_curve": {4: -1}}, "/sensitivity/cpu_curve/4"),
    ("sensitivity", {"cpu_curve": {4: 1}, "memory_curve": {}}, "/sensitivity/memory_curve"),
    ("sensitivity", {"cpu_curve": {4: 1}} | READING | {"bytes_per_sample": 0}, "/sensitivity/bytes_per_sample"),
    ("sensitivity", {"cpu_curve": {4: 1}} | READING | {"samples_per_second": "inf"}, "/sensitivity/samples_per_second"),
    ("batch_size", 256, "/batch_size"),
    ("batch_size", {"initial": 256, "max": 512}, "/batch_size/max_per_gpu"),
    ("batch_size", {"initial": 0, "max": 8, "max_per_gpu": 8}, "/batch_size/initial"),
    ("batch_size", {"initial": 16, "max": 8, "max_per_gpu": 8}, "/batch_size/max"),
    ("batch_size", {"initial": 8, "max": 10**400, "max_per_gpu": 8}, "/batch_size/max"),
    ("batch_size", {"initial": 8, "max": 8, "max_per_gpu": 8, "min_per_gpu": 5}, "/batch_size/min_per_gpu"),
    ("batch_size", {"initial": 8, "max": 8, "max_per_gpu": 64, "min_per_gpu": 16}, "/batch_size/max"),
    ("batch_size", {"initial": 8, "max": 8, "max_per_gpu": 8, "least": 1}, "/batch_size/least"),
    ("total_steps", 0, "/total_steps"),
    ("total_steps", 2**70, "/total_steps"),
    ("checkpoint", {"grace_seconds": 0}, "/checkpoint/grace_seconds"),
    ("checkpoint", {"restore_seconds": float("nan")}, "/checkpoint/restore_seconds"),
    ("checkpoint", {"grace": 10}, "/checkpoint/grace"),
    ("preemptible", "perhaps", "/preemptible"),
    ("weight", 0, "/weight"),
    ("weight", float("nan"), "/weight"),
    ("weight", float("inf"), "/weight"),
    ("weight", 10**400, "/weight"),
    ("deadline", "tomorrow", "/deadline"),
    ("retries", -1, "/retries"),
    ("after", [{"job": "first"}], "/after/0/job"),
    ("after", [{"job": "0190c3a0-0000-7000-8000-000000000000", "on": "monday"}], "/after/0/on"),
    ("array", {"start": 5, "end": 4}, "/array"),
    ("array", {"start": 0, "end": 10_000}, "/array"),
    ("array", "5-1", "/array"),
    ("array", "0-10:0", "/array"),
    ("array", "0-9999,10000", "/array"),
    ("array", ",".join(["0-9999"] * 3), "/array"),
    ("array", "0-100000", "/array"),
    ("array", {"start": 0, "end": 1, "at_a_time": 0}, "/array/at_a_time"),
    ("array", {"start": 0, "end": 1, "at_a_time": 10**30}, "/array/at_a_time"),
    ("tags", {"a": "two\nlines"}, "/tags/a"),
    ("tags", {"two\nlines": "a"}, "/tags/two\nlines"),
    ("gpu", 1, "/gpu"),
]


def test_every_fault_of_a_batch_is_named() -> None:
    assert pointers(LEAST | {"batch_size": {"initial": 0, "max": 0, "per_gpu": 1}}) == {
        "/batch_size/initial",
        "/batch_size/max",
        "/batch_size/max_per_gpu",
        "/batch_size/per_gpu",
    }


def test_the_working_folder_of_a_container_has_no_colon() -> None:
    """A container runtime would take what follows it for options."""
    image = {"image": "localhost/torch:2.5"}
    assert pointers(LEAST | image | {"workdir": "/data/x:U"}) == {"/workdir"}
    assert parse_spec(LEAST | {"workdir": "/data/x:U"})
    assert parse_spec(LEAST | image | {"workdir": "/data/x"})


def test_the_least_gang_must_be_able_to_share_a_batch() -> None:
    batch = {"initial": 64, "max": 256, "max_per_gpu": 64, "min_per_gpu": 32}
    assert parse_spec(LEAST | {"gpus": {"min": 8, "max": 64}, "batch_size": batch})["batch_size"] == batch
    (fault,) = faults(LEAST | {"gpus": 9, "batch_size": batch})
    assert (fault["pointer"], "9 GPUs with 32 samples each need at least 288" in fault["detail"]) == (
        "/batch_size/max",
        True,
    )


@pytest.mark.parametrize(("field", "value", "pointer"), FAULTY, ids=lambda value: str(value)[:30])
def test_a_fault_is_named_by_its_place(field: str, value: Any, pointer: str) -> None:
    assert pointers(LEAST | {field: value}) == {pointer}


@pytest.mark.parametrize(
    ("array", "words"),
    [
        ("0-100000", "0-100000: an array has at most 10,000 tasks, these are 100,001."),
        ({"end": 10_000}, "0-10000: an array has at most 10,000 tasks, these are 10,001."),
        ("1,20000", "1,20000: the last index may be at most 9,999 above the first, which is 1."),
        ({"start": 5, "end": 1}, "5-1: the last index must not be less than the first."),
    ],
)
def test_of_the_limits_of_an_array_the_one_that_is_broken_is_told(array: Any, words: str) -> None:
    (fault,) = faults(LEAST | {"array": array})
    assert fault["detail"] == words


@pytest.mark.parametrize("data", [None, "job", 5, [LEAST], []])
def test_what_is_no_map_is_refused(data: Any) -> None:
    assert pointers(data) == {""}


def test_all_faults_are_named_at_once() -> None:
    data = {
        "comand": "true",
        "gpus": 0,
        "gpu_memory": "16XB",
        "env": {"MOTLEY_A": "1", "B-": "2"},
        "rates": {"a": 0, "b": 0},
    }
    expected = {
        "/name",
        "/command",
        "/comand",
        "/gpus",
        "/gpu_memory",
        "/env/MOTLEY_A",
        "/env/B-",
        "/rates/a",
        "/rates/b",
    }
    assert pointers(data) == expected


def test_every_fault_has_a_code_and_words() -> None:
    assert all(fault["code"] and fault["detail"] for fault in faults({"gpu": 1, "gpus": 0}))


def test_an_unknown_field_is_told_which_there_are() -> None:
    (fault,) = faults(LEAST | {"gpu": 1})
    assert fault["code"] == "unknown"
    assert "gpus" in fault["detail"]


def test_command_and_environment_fit_into_64_kib_together() -> None:
    half = "é" * (16 * 1024)  # two bytes each
    assert pointers(LEAST | {"command": f"echo {half}", "env": {"A": half}}) == {"/env"}


@pytest.mark.parametrize(
    "text", ["a: [", "a: \0", "!!python/object:os.system {}", "a: &x [*x", "[" * 100_000, "x" * 300_000]
)
def test_text_that_is_no_yaml_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec):
        parse_yaml(text)


def test_a_number_of_five_thousand_digits_is_refused() -> None:
    with pytest.raises(InvalidSpec):
        parse_spec(LEAST | parse_yaml(f"gpus: {'9' * 5000}"))


# -- many specs, one reader --------------------------------------------------------------------------------------

MORE: list[tuple[str, Any]] = [
    *RICH.items(),
    *((field, value) for field, value, _ in FAULTY),
    *((field, None) for field in RICH),
    ("gpus", 2),
    ("weight", 1),
    ("weight", True),
    ("weight", "1"),
    ("command", ["python", "train.py"]),
    ("command", 10**400),
    ("env", {"A": 1}),
    ("name", " padded "),
    ("after", []),
    ("array", {"end": 3}),
    ("array", "1,3,7-10:2%2"),
]
VALUES: dict[str, list[Any]] = {field: [value for name, value in MORE if name == field] for field, _ in MORE}


def by_itself(data: Any) -> Any:
    """What `JobSpec` alone makes of it: the columns, or the faults."""
    spec = JobSpec(data=data)
    return spec.validated_data if spec.is_valid() else list(faults_of(spec.errors))


def by(reader: SpecReader, data: Any) -> Any:
    try:
        return reader.read(data)
    except InvalidSpec as refusal:
        return list(refusal.faults)


def shown(found: Any) -> str:
    """1, 1.0 and True are not the same; the order of columns is."""
    return repr(sorted(found.items()) if isinstance(found, dict) else found)


@given(
    st.lists(
        st.fixed_dictionaries({}, optional={field: st.sampled_from(values) for field, values in VALUES.items()}).map(
            lambda fields: LEAST | fields
        ),
        max_size=4,
    )
)
def test_a_reader_of_many_finds_what_each_says_by_itself(specs: list[Any]) -> None:
    reader = SpecReader()
    for data in specs:
        assert shown(by(reader, data)) == shown(by_itself(data))


@pytest.mark.parametrize("data", [None, "job", {}, {"name": "net"}, LEAST, RICH, LEAST | {"gpu": 1}, LEAST | {1: 2}])
def test_a_reader_reads_the_same_twice(data: Any) -> None:
    reader = SpecReader()
    assert by(reader, data) == by(reader, data) == by_itself(data)


def test_keys_that_begin_with_x_hold_anchors() -> None:
    text = "x-env: &env {A: '1'}\nname: a\ncommand: b\ngpus: 1\nenv: *env"
    assert parse_spec(parse_yaml(text))["env"] == {"A": "1"}
    assert pointers({"name": "a", "command": "b", "gpus": 1, "y-env": {}}) == {"/y-env"}
