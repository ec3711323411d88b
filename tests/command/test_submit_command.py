"""`motley submit`, `plan` and `clone`: what they ask for, say and exit with."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster_app.models import GpuType, Storage
from jobs_app.models import Job
from jobs_app.submission.conversion import spec_of
from tests.live_service import Live
from tests.motley_command import Motley


def asked(service: Live) -> dict[str, Any]:
    """What the one job that was submitted asks for."""
    (job,) = service.jobs
    return spec_of(job)


def test_submit_of_options_asks_for_what_they_say(service: Live, motley: Motley) -> None:
    service.lab.node("n2", "v100")
    for name in ("tmp", "var"):
        Storage.objects.create(name=name, engine_id="local", path=f"/{name}")
    options = "--gpus 4 --name resnet --gpu-type a100 --gpu-type v100 --team vision --total-steps 9 --weight 0.5"
    more = "--time-limit 48h --retries 3 --env A=1 --env B=x=y --tag project=imagenet --not-preemptible --workload w"
    more += " --mount tmp --mount var --volunteers none"
    field = ["--set", "checkpoint={grace_seconds: 120, restore_seconds: 5}"]
    field += ["--set", "sensitivity={cpu_curve: {1: 0.3, 3: 1.0}}"]
    result = motley("submit", *options.split(), *more.split(), *field, "--", "python", "train.py", "--epochs", "90")
    assert (result.exit_code, asked(service)) == (
        0,
        {
            "name": "resnet",
            "command": ["python", "train.py", "--epochs", "90"],
            "gpus": 4,
            "mounts": ["tmp", "var"],
            "volunteers": "none",
            "gpu_types": ["a100", "v100"],
            "team": "vision",
            "total_steps": 9,
            "weight": 0.5,
            "time_limit": "2d",
            "sensitivity": {"cpu_curve": {1: 0.3, 3: 1.0}},
            "retries": 3,
            "env": {"A": "1", "B": "x=y"},
            "tags": {"project": "imagenet"},
            "preemptible": False,
            "workload": "w",
            "checkpoint": {"grace_seconds": 120, "restore_seconds": 5},
        },
    )


def test_other_machines_than_there_are_kinds_of_are_refused(service: Live, motley: Motley) -> None:
    result = motley("submit", "--name", "a", "--gpus", "1", "--volunteers", "some", "--", "true")
    assert (result.exit_code, "'none', 'trusted', 'any'" in result.output) == (2, True), result.output


def test_a_command_of_one_word_is_a_line_for_the_shell(service: Live, motley: Motley) -> None:
    motley("submit", "--name", "a", "--gpus", "1", "--", "python a.py && python b.py")
    assert asked(service)["command"] == "python a.py && python b.py"


def test_dashes_within_the_command_belong_to_it(service: Live, motley: Motley) -> None:
    motley("submit", "--name", "a", "--gpus", "1", "--", "run", "--", "--name", "b")
    assert (asked(service)["command"], asked(service)["name"]) == (["run", "--", "--name", "b"], "a")


def test_a_hybrid_parallel_job_has_replicas_and_their_size(service: Live, motley: Motley) -> None:
    motley("submit", "--name", "a", "--replicas", "1-4", "--gpus-per-replica", "a100=1", "--", "true")
    spec = asked(service)
    assert (spec["replicas"], spec["gpus_per_replica"], "gpus" in spec) == ({"min": 1, "max": 4}, {"a100": 1}, False)


def test_the_size_of_a_replica_is_proposed_from_that_of_the_model(service: Live, motley: Motley) -> None:
    """13 billion parameters take 194 GiB in training, of which an A100 of 40 GiB holds 28."""
    assert "gpus_per_replica: {a100: 8" in motley("replica-size", "13B").output


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("submit", "--gpus-per-replica", "a100:2", "--", "true"), "a100=2,v100=4"),
        (("submit", "--replicas", "few", "--", "true"), "--replicas few"),
        (("replica-size", "large"), "13B"),
        (("replica-size", "900T"), "No GPU type holds"),
    ],
)
def test_a_size_that_cannot_be_read_is_a_usage_error(
    service: Live, motley: Motley, options: tuple[str, ...], expected: str
) -> None:
    ran = motley(*options)
    assert (ran.exit_code, expected in ran.stderr) == (2, True)


def test_a_range_of_gpus_is_an_elastic_job(service: Live, motley: Motley) -> None:
    motley("submit", "--name", "a", "--gpus", "1-4", "--", "true")
    assert asked(service)["gpus"] == {"min": 1, "max": 4}


def test_submit_of_a_file_asks_for_what_it_says(service: Live, motley: Motley, tmp_path: Path) -> None:
    parent = service.add("parent")
    after = [{"job": str(parent.pk), "on": "end"}]
    spec = {"name": "resnet", "command": "true", "gpus": 1, "rates": {"a100": {1: 10.2}}, "after": after}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(spec))
    motley("submit", str(tmp_path / "job.yaml"))
    made = spec_of(service.jobs[0])
    assert {name: made[name] for name in spec} == spec


def test_words_and_dates_of_a_file_stay_what_was_written(service: Live, motley: Motley) -> None:
    service.add("parent")
    text = "command: 'true'\ndeadline: 2036-12-01T12:00:00Z\nafter: [{job: parent, on: success}]\nname: 010\ngpus: 1\n"
    assert motley("submit", "-", typed=text).exit_code == 0
    made = spec_of(service.jobs[0])
    assert (made["name"], made["deadline"], made["after"][0]["on"]) == ("010", "2036-12-01T12:00:00Z", "success")


def test_options_beside_a_file_replace_its_fields_and_join_its_tags(service: Live, motley: Motley) -> None:
    text = "{name: a, command: 'true', gpus: 1, tags: {x: '1', y: '1'}}"
    motley("submit", "-", "--gpus", "4", "--tag", "y=2", typed=text)
    assert (asked(service)["gpus"], asked(service)["tags"]) == (4, {"x": "1", "y": "2"})


def test_a_job_waits_for_others_by_name(service: Live, motley: Motley) -> None:
    first, second = service.add("prepare"), service.add("clean")
    after = ["--after", "prepare", "--after", "clean:end"]
    assert motley("submit", "--name", "train", "--gpus", "1", *after, "--", "true").exit_code == 0
    wanted = {(str(first.pk), "success"), (str(second.pk), "end")}
    assert {(need["job"], need["on"]) for need in spec_of(service.jobs[0])["after"]} == wanted


def test_several_documents_are_submitted_at_once(service: Live, motley: Motley) -> None:
    text = "name: prepare\ncommand: 'true'\n---\nname: train\ncommand: 'true'\nafter: [{job: '#0'}]\n---\n"
    result = motley("submit", "-", "--gpus", "2", typed=text)
    prepare, train = service.ids("prepare", "train")
    assert ("Submitted 2 jobs." in result.stdout, prepare in result.stdout) == (True, True)
    assert spec_of(Job.objects.get(pk=train))["after"][0]["job"] == prepare
    assert {job.gpus_min for job in service.jobs} == {2}


def test_of_several_documents_with_a_fault_none_is_submitted(service: Live, motley: Motley) -> None:
    text = "{name: a, command: 'true', gpus: 1}\n--- \n{name: b, command: 'true', gpus: 0}\n"
    result = motley("submit", "-", typed=text)
    assert (result.exit_code, "jobs[1].gpus" in result.stderr, service.jobs) == (2, True, [])


def test_an_array_is_all_of_its_members(service: Live, motley: Motley) -> None:
    result = motley("submit", "--name", "sweep", "--gpus", "1", "--array", "0-4%2", "--", "true")
    assert "the first of the array" in result.stdout
    arrays = {job.array for job in service.jobs}
    assert {f"motley cancel  {array.pk}" in result.stdout for array in arrays if array} == {True}
    assert (len(service.jobs), [array.at_a_time for array in arrays if array]) == (5, [2])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--name", "a"], "No command: give a file"),
        (["python", "train.py"], "No such file"),
        (["--gpus", "many", "--", "true"], "--gpus many: expected a number"),
        (["--env", "A", "--", "true"], "--env A: expected NAME=VALUE"),
        (["--set", "rates={", "--", "true"], "--set rates={: the value is not valid YAML"),
        (["-"], "does not describe a job"),
    ],
)
def test_what_cannot_be_a_job_is_a_usage_error(service: Live, motley: Motley, arguments: list[str], words: str) -> None:
    result = motley("submit", *arguments, typed="just words")
    assert (result.exit_code, words in result.stderr, service.jobs) == (2, True, [])


def test_submit_says_which_commands_come_next(service: Live, motley: Motley) -> None:
    out = motley("submit", "--name", "a", "--gpus", "1", "--", "true").stdout
    (job,) = service.jobs
    for command in ("logs -f", "show   ", "cancel "):
        assert f"motley {command} {job.pk}" in out


def test_submit_for_a_script_prints_the_ids_alone(service: Live, motley: Motley) -> None:
    out = motley("submit", "-o", "name", "--name", "a", "--gpus", "1", "--", "true").stdout
    assert out.split() == service.ids("a")
    text = "{jobs: [{name: b, command: 'true', gpus: 1}, {name: c, command: 'true', gpus: 1}]}"
    assert motley("submit", "-o", "name", "-", typed=text).stdout.split() == service.ids("b", "c")


def test_a_plan_says_where_how_fast_and_at_what_cost(service: Live, motley: Motley) -> None:
    service.lab.node("n2", "t4")
    rates = ["--set", "rates={a100: 10, t4: 1}", "--total-steps", "36000"]
    job = ["--name", "a", "--gpus", "2", *rates, "--", "true"]
    planned = motley("plan", *job)
    (best,) = (line.split() for line in planned.stdout.splitlines() if line.startswith("*"))
    assert (best[1:6], best[-1]) == (["2", "a100", "1", "10", "declared"], "now")
    assert "2 t4" in planned.stdout
    table, _, forecast = planned.stdout.rpartition("Forecast: ")
    assert re.match(r"starts (now|in about \d+s)[^,]*, done at ", forecast)
    assert motley("submit", "--dry-run", *job).stdout.startswith(table)
    assert motley("plan", "-o", "name", *job).stdout.split()[0] == "a100"
    assert json.loads(motley("plan", "-o", "json", *job).stdout)["valid"] is True
    assert service.jobs == []


def test_a_plan_tells_small_costs_as_the_page_does(service: Live, motley: Motley) -> None:
    GpuType.objects.update(price_per_hour=0.003)
    rates = ["--set", "rates={a100: 10}", "--total-steps", "19980"]
    planned = motley("plan", "--name", "a", "--gpus", "2", *rates, "--", "true").stdout
    (best,) = (line.split() for line in planned.splitlines() if line.startswith("*"))
    assert (best[6], best[8]) == ("0.006", "0.00333")


def test_a_plan_of_a_job_that_is_not_valid_has_the_faults_of_the_submission(service: Live, motley: Motley) -> None:
    job = ["--name", "a", "--gpus", "0", "--", "true"]
    assert motley("plan", *job).stderr == motley("submit", *job).stderr


def test_a_clone_is_the_job_but_for_what_is_said(service: Live, motley: Motley) -> None:
    service.add("a", gpus=1, tags={"x": "1"})
    assert motley("clone", "a", "--gpus", "4", "--name", "b").exit_code == 0
    made = spec_of(service.jobs[0])
    assert (made["name"], made["gpus"], made["command"], made["tags"]) == ("b", 4, "true", {"x": "1"})
    assert motley("clone", "b", "--name", "c", "--", "false").exit_code == 0
    assert service.jobs[0].command == "false"


def test_a_plan_says_of_a_gpu_type_that_will_not_do_why(service: Live, motley: Motley) -> None:
    service.lab.node("n2", "v100", gpus=1)
    planned = motley("plan", "--gpus", "2", "--name", "a", "--", "true")
    assert (planned.exit_code, "no gang of 2" in planned.stdout) == (0, True)


def test_a_plan_of_several_jobs_needs_none_of_them_to_be_there(service: Live, motley: Motley, tmp_path: Path) -> None:
    first, second = {"name": "a", "command": "true", "gpus": 1}, {"name": "b", "command": "true", "gpus": 1}
    file = tmp_path / "jobs.yaml"
    file.write_text(yaml.safe_dump_all([first, second | {"after": [{"job": "#0"}]}]))
    assert motley("plan", str(file)).exit_code == 0


def test_a_misspelt_command_is_named(motley: Motley, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: a\ncomand: 'true'\n")
    result = motley("submit", str(file))
    assert (result.exit_code, "'comand'" in result.stderr) == (2, True)
