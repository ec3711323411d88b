"""Batch scripts with `#SBATCH` lines: what they ask for, and what is said that differs."""

import os
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from jobs_app.submission.conversion import spec_of
from motley_client.spec import SpecError, name_of
from motley_command.batch_script import (
    GIVEN_VARIABLES,
    OF_ARRAYS,
    OF_CPUS,
    OF_MEMORY,
    Surroundings,
    check_variables,
    read_script,
    translated,
)
from motley_command.convert.fields import Translation
from motley_command.sbatch_options import OPTIONS, Option, Value, option_named
from scheduler_app.round.slurm_variables import SlurmArray, SlurmJob, variables_of_job, variables_of_node
from tests.live_service import Live
from tests.motley_command import Motley

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
HERE = Surroundings({"HOME": "/home/ada"}, NOW, lambda: {"a100", "v100"})


def sbatch_row(option: Option) -> str:
    """The option's row in the table of docs/sbatch.md."""
    short = f"`-{option.short}`, " if option.short else ""
    value = {Value.REQUIRED: "=…", Value.OPTIONAL: "[=…]", Value.NONE: ""}[option.value]
    return f"| {short}`--{option.name}{value}` | {option.effect} | {option.note} |"


def of_lines(*lines: str, body: str = "echo trained") -> Translation:
    return of_text("\n".join(["#!/bin/bash", *(f"#SBATCH {line}" for line in lines), body]))


def of_text(text: str) -> Translation:
    return translated(read_script("/home/ada/train.sh", text), [], HERE)


@pytest.mark.parametrize(
    ("lines", "fields"),
    [
        ([], {"name": "train", "gpus": 1}),
        (["--job-name=resnet"], {"name": "resnet"}),
        (["-J resnet", "-J bert"], {"name": "bert"}),
        (["--gres=gpu:A100:4"], {"gpus": 4, "gpu_types": ["a100"]}),
        (["--gres=gpu:2", "-N 3"], {"gpus": 6}),
        (["-G 5"], {"gpus": 5}),
        (["--gpus=v100:5"], {"gpus": 5, "gpu_types": ["v100"]}),
        (["--gpus-per-node=8", "--nodes=2"], {"gpus": 16}),
        (["--gpus-per-task=1", "--ntasks=4"], {"gpus": 4}),
        (["--gpus=2", "--ntasks=2", "-c 6"], {"cpus_per_gpu": 6}),
        (["--gpus=4", "--ntasks-per-node=1", "--cpus-per-task=6"], {"cpus_per_gpu": 2}),
        (["--gpus-per-node=4", "--nodes=2", "--mem=100G"], {"memory_per_gpu": "25600MiB"}),
        (["--gpus=2", "--mem-per-cpu=4000", "--cpus-per-gpu=4"], {"memory_per_gpu": "16000MiB"}),
        (["--mem-per-gpu=16GB"], {"memory_per_gpu": "16384MiB"}),
        (["--nodes=1", "--tasks-per-node=4", "--gpus-per-task=1"], {"gpus": 4}),
        (["--ntasks=8", "--ntasks-per-node=4", "--gres=gpu:4"], {"gpus": 8}),
        (["--gpus=8", "--gpus-per-node=4", "--mem=64G"], {"gpus": 8, "memory_per_gpu": "16384MiB"}),
        (["--ntasks=8", "--ntasks-per-gpu=2"], {"gpus": 4}),
        (["--gpus-per-socket=2", "--sockets-per-node=2", "--nodes=2"], {"gpus": 8}),
        (["--gpus-per-socket=a100:1", "-B 2:4:1"], {"gpus": 2, "gpu_types": ["a100"]}),
        (["--gres=gpu:a100:2,nvme:500"], {"gpus": 2, "gpu_types": ["a100"]}),
        (["--gres=nvme:500,gpu:a100:2(S:0-1)"], {"gpus": 2, "gpu_types": ["a100"]}),
        (["--gres=gres/gpu:3"], {"gpus": 3}),
        (["--gres=gpu"], {"gpus": 1}),
        (["--gpus-per-n=4", "--nodes=2"], {"gpus": 8}),
        (["-HN2", "--gres=gpu:4"][1:], {"gpus": 4}),
        (["-N2 -G8"], {"gpus": 8}),
        (["-n16", "--gpus=2", "--mem-per-cpu=4G"], {"cpus_per_gpu": 8, "memory_per_gpu": "32768MiB"}),
        (["--gres=gpu:v100:2", "-C a100|v100"], {"gpu_types": ["v100"]}),
        (["--time=90"], {"time_limit": "5400s"}),
        (["--time=90:30"], {"time_limit": "5430s"}),
        (["--time=00:90:00"], {"time_limit": "5400s"}),
        (["-t 1-12:00:00"], {"time_limit": "129600s"}),
        (["-t 1-12"], {"time_limit": "129600s"}),
        (["-t 1-12:30"], {"time_limit": "131400s"}),
        (["--time=0"], {"time_limit": None}),
        (["--time=UNLIMITED"], {"time_limit": None}),
        (["--array=0-9%2"], {"array": "0-9%2"}),
        (["--array=1,3,7-10:2%2"], {"array": "1,3,7-10:2%2"}),
        (["--constraint=a100"], {"gpu_types": ["a100"]}),
        (["-C [v100|a100]&ib"], {"gpu_types": ["v100", "a100"]}),
        (["--signal=B:USR1@120"], {"checkpoint": {"grace_seconds": 120}}),
        (["--deadline=2026-12-01T08:00:00+00:00"], {"deadline": "2026-12-01T08:00:00+00:00"}),
        (
            ["--dependency=afterok:prep:data,afterany:old"],
            {"after": [{"job": j, "on": on} for j, on in (("prep", "success"), ("data", "success"), ("old", "end"))]},
        ),
        (["--chdir=/data/net"], {"workdir": "/data/net"}),
        (["--export=NONE"], {}),
        (["--export=A=1,HOME"], {"env": {"A": "1", "HOME": "/home/ada"}}),
        (["""'--export=ALL,LIST="a,b",B=2'"""], {"env": {"LIST": "a,b", "B": "2"}}),
        (["--begin=2026-12-01T08:00:00+00:00"], {"begin_time": "2026-12-01T08:00:00+00:00"}),
        (['--job-name="with words"  # and a comment'], {"name": "with words"}),
    ],
)
def test_options_of_sbatch_become_fields(lines: list[str], fields: dict[str, Any]) -> None:
    spec = of_lines(*lines).spec
    assert {name: spec.get(name) for name in fields} == fields


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--output=out.txt", "--output=out.txt is not honoured: Motley keeps the logs"),
        ("-p gpu", "--partition=gpu is not honoured: the job may run on any node"),
        ("--account=ada", "the team of the job is that of --team"),
        ("--qos=high", "--qos=high is not honoured"),
        ("--exclusive", "--exclusive is not honoured"),
        (
            "--mail-type=END",
            "--mail-type=END is not honoured: motley notifications can tell you when your jobs end",
        ),
        ("--export=ALL", "--export=ALL is not honoured: variables of this shell are not copied"),
        ("--nodes=2", "--nodes=2: the GPUs are counted"),
        ("--mem=0", "--mem=0: it gets the share of memory"),
        ("--constraint=!a100", "--constraint=!a100 is not honoured"),
        ("--constraint=ib", "--constraint=ib is not honoured: the GPU types here are a100, v100"),
        ("--constraint=a100&ib", "--constraint=a100&ib: ib is not honoured; the job may run on a100"),
        ("--gres=gpu:2,nvme:500", "--gres: nvme:500 is not honoured"),
        ("--signal=USR1", "--signal=USR1: the job gets SIGTERM in its place, 60 s before it is killed"),
        ("--exclude=n1", "--exclude=n1 is not honoured: Motley chooses the nodes"),
        ("--nice", "--nice is not honoured: the order of jobs"),
    ],
)
def test_what_is_not_honoured_is_named(line: str, words: str) -> None:
    (note,) = [note for note in of_lines("--gpus=2", line).notes if "--" in note]
    assert note.startswith(words) or words in note


def test_commands_and_variables_of_slurm_in_the_text_are_named() -> None:
    body = 'cd "$(dirname "$0")"\nhosts=$(scontrol show hostnames)\nsrun python train.py'
    notes = of_lines("--gpus=1", body=body).notes
    assert [note.split(",")[0].split(":")[0] for note in notes] == [
        "it calls srun",
        "it calls scontrol",
        "it asks for its own path",
    ]


def test_a_script_reads_only_variables_that_its_job_has() -> None:
    check_variables("echo $SLURM_JOB_ID ${SLURM_NODEID} ${SLURM_JOB_PARTITION:-none}\n# $SLURM_TOPOLOGY_ADDR", {})
    check_variables('python train.py "${LRS[$SLURM_ARRAY_TASK_ID]}"', {"array": "0-3"})
    check_variables("SLURM_X=1; echo $SLURM_X $SLURM_Y", {"env": {"SLURM_Y": "2"}})
    check_variables(r"echo \$SLURM_X", {})
    check_variables("echo $SLURM_MEM_PER_NODE", {"memory_per_gpu": "1GiB"})
    for text, remedy in (
        ("echo ${LRS[$SLURM_ARRAY_TASK_ID]}", "submit it with --array"),
        ("make -j $SLURM_CPUS_PER_TASK", "say how many CPUs it needs"),
        ("echo ${SLURM_JOB_PARTITION%%-*}", "give it by --env SLURM_JOB_PARTITION=VALUE"),
        ('print(os.environ["SLURM_JOB_QOS"])', "give it by --env SLURM_JOB_QOS=VALUE"),
    ):
        with pytest.raises(SpecError, match=remedy):
            check_variables(text, {})


def test_a_script_does_not_calculate_with_tasks_that_are_not_started() -> None:
    body = "torchrun --nproc_per_node=$SLURM_NTASKS_PER_NODE train.py"
    made = of_lines("--ntasks-per-node=4", "--gpus-per-node=4", body=body)
    assert made.several_tasks
    with pytest.raises(SpecError, match="one task on each node"):
        check_variables(body, made.spec, several_tasks=True)
    check_variables(body, {"env": {"SLURM_NTASKS_PER_NODE": "4"}}, several_tasks=True)
    assert not of_lines("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=4").several_tasks


@pytest.mark.parametrize("text", ["#!\ntrue", f"#!/bin/sh\n#SBATCH -{'O' * 2000}Z\n"])
def test_odd_texts_are_refused_and_not_a_traceback(text: str) -> None:
    with pytest.raises(SpecError):
        of_text(text)


def test_the_variables_that_scripts_may_read_are_those_that_jobs_have() -> None:
    job = SlurmJob(str(uuid4()), "a", "vision", 1, {"n1": 2}, 1, 1, SlurmArray(str(uuid4()), [1, 2]), 1)
    given = {*variables_of_job(job), *variables_of_node(job, 0), "SLURM_SUBMIT_DIR"}
    assert given == GIVEN_VARIABLES | OF_CPUS | OF_ARRAYS | OF_MEMORY


def test_every_option_of_sbatch_has_its_row(tmp_path: Path) -> None:
    if shutil.which("sbatch") is None and os.environ.get("CI") != "true":
        pytest.skip("Slurm is not installed: apt-get install slurm-client")
    settings = tmp_path / "slurm.conf"  # without one sbatch lists no option
    settings.write_text("ClusterName=motley\nSlurmctldHost=localhost\n")
    listed = subprocess.run(
        ["sbatch", "--help"], env=os.environ | {"SLURM_CONF": str(settings)}, capture_output=True, text=True, check=True
    )
    names = set(re.findall(r"--([a-z][a-z-]+)", listed.stdout))
    assert len(names) > 80
    assert {name for name in names if option_named(name) is None} == set()


def test_the_documents_list_every_option() -> None:
    rows = Path("docs/sbatch.md").read_text().splitlines()
    assert [name for name, option in OPTIONS.items() if sbatch_row(option) not in rows] == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--gpus=0", "Motley runs no jobs without GPUs"),
        ("--gres=gpu:0", "Motley runs no jobs without GPUs"),
        ("--gres=gpu:a100:2,gpu:v100:2", "GPUs of one type"),
        ("--gpus=a100:2,v100:2", "GPUs of one type"),
        ("--gpus=4 --nodes=2 --gpus-per-node=4", "do not agree"),
        ("--gpus-per-socket=1", "add --sockets-per-node"),
        ("--tres-per-task=gres/gpu:2", "write --gpus-per-task"),
        ("--hold", "motley hold JOB"),
        ("--test-only", "motley plan"),
        ("hetjob", "no heterogeneous jobs"),
        ("train.py", "is no option"),
        ("--hold=yes", "--hold has no value"),
        ("--gpus", "--gpus needs a value"),
        ("--time=soon", "expected minutes"),
        ("--export=UNSET", "UNSET is not set here"),
        ('--export=ALL,LIST="a,b"', "b is not set here"),
        ("--gres=gpu:v100:2 --constraint=a100", "no GPU is a100 and v100"),
        ("--constraint=a100&v100", "no GPU is a100 and v100"),
        ("--dependency=afternotok:a", "only afterok and afterany"),
        ("--dependency=singleton", "only afterok and afterany"),
        ("--gpus=many:few", "expected a number of GPUs"),
        ("--nodes=zero", "'zero' is not a number"),
        ("--mem=lots", "expected a size"),
        ("-Z", "line 2: -Z is no option of sbatch"),
        ('--job-name="open', "line 2"),
    ],
)
def test_what_would_make_another_job_is_refused(line: str, words: str) -> None:
    with pytest.raises(SpecError, match=r".") as refused:
        of_lines(line)
    assert words in str(refused.value)


def test_lines_after_the_first_command_do_not_count_and_are_named() -> None:
    made = of_lines("--gpus=2", body="   # a comment\n\ntrue\n#SBATCH --gpus=8")
    assert made.spec["gpus"] == 2
    assert made.notes == ["line 6: #SBATCH after the first command is not read, as by sbatch"]


@pytest.mark.parametrize("line", ["#SBTACH -G 8", "#BATCH --gpus=8", "# SBATCH -G 8", "##SBATCH -G 8", "#sbatch -G 8"])
def test_lines_that_only_look_like_options_are_named(line: str) -> None:
    made = of_text(f"#!/bin/bash\n#SBATCH --gpus=2\n{line}\n# -G 4 would be more\ntrue")
    assert made.spec["gpus"] == 2
    assert [note.startswith(f"line 3: {line!r} looks like an option") for note in made.notes] == [True]


def test_dos_line_breaks_and_a_byte_order_mark_are_left_out() -> None:
    made = of_text("\ufeff#!/bin/bash\r\n#SBATCH --gpus=2\r\necho a\r\n")
    assert made.spec["command"][2] == "#!/bin/bash\n#SBATCH --gpus=2\necho a\n"
    assert made.spec["gpus"] == 2
    assert "DOS line breaks" in made.notes[0]


def test_a_script_of_another_interpreter_is_refused() -> None:
    with pytest.raises(SpecError, match="only scripts of a shell or of Python"):
        translated(read_script("a.pl", "#!/usr/bin/perl\n"), [], HERE)


def test_a_script_runs_as_its_text_with_its_arguments(service: Live, motley: Motley, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gpus=2\n#SBATCH -p gpu\necho trained $1\n")
    result = motley("submit", str(script), "--time-limit", "2:00:00", "--", "resnet")
    (job,) = service.jobs
    assert spec_of(job)["command"] == ["/bin/sh", "-c", script.read_text(), "train", "resnet"]
    assert (job.name, job.gpus_min, job.time_limit_s) == ("train", 2, 7200)
    assert "train: --partition=gpu is not honoured" in result.stderr
    assert "it starts in a new folder" in result.stderr
    assert motley("submit", str(script), "--gpus", "1", "--workdir", "/tmp").stderr.count("new folder") == 0
    assert service.jobs[0].gpus_min == 1


def test_motley_sbatch_takes_the_command_line_of_sbatch(service: Live, motley: Motley, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gpus=2 --array=0-9\necho trained $1 $SLURM_ARRAY_TASK_ID\n")
    line = ["-vG", "1", "-t", "2:00:00", "--array=1,3", "--tag", "lr=3", str(script), "--lr", "3", "--gpus", "8"]
    assert motley("sbatch", *line).exit_code == 0
    jobs = sorted(service.jobs, key=lambda job: job.array_index or 0)
    assert [job.array_index for job in jobs] == [1, 3]
    assert spec_of(jobs[0])["command"][3:] == ["train", "--lr", "3", "--gpus", "8"]
    assert (jobs[0].gpus_min, jobs[0].time_limit_s, jobs[0].tags) == (1, 7200, {"lr": "3"})
    assert jobs[0].slurm_variables


def test_motley_sbatch_wraps_a_command(service: Live, motley: Motley) -> None:
    assert "has no script beside it" in motley("sbatch", "--gres=gpu:1", "--wrap", "true", "more").stderr
    result = motley("sbatch", "--parsable", "--gres=gpu:1", "-p", "gpu", "--wrap", "python train.py")
    (job,) = service.jobs
    assert result.stdout.strip() == str(job.pk)
    assert spec_of(job)["command"][2] == "#!/bin/sh\npython train.py\n"
    assert "--partition=gpu is not honoured" in result.stderr
    assert "--gpus=0: Motley runs no jobs without GPUs" in motley("sbatch", "--gpus=0", "--wrap", "true").stderr


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("PYTHONPATH=/x python train.py --lr 1", "train"),
        (["python", "-m", "motley_client.sample", "--steps", "5"], "sample"),
        ("torchrun --nproc-per-node 4 src/finetune.py", "finetune"),
        ("hostname; sleep 1", "hostname"),
        ("bash run.sh", "run"),
        ("A=1", "job"),
        ('echo "', "echo"),
    ],
)
def test_a_job_is_named_after_its_script(command: str | list[str], name: str) -> None:
    assert name_of(command) == name


def test_a_command_alone_is_a_job_of_one_gpu(service: Live, motley: Motley) -> None:
    assert motley("submit", "--", "python", "train.py").exit_code == 0
    assert (service.jobs[0].name, service.jobs[0].gpus_min) == ("train", 1)
