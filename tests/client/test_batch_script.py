"""Batch scripts with `#SBATCH` lines: what they ask for, and what is said that differs."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jobs_app.submission.conversion import spec_of
from motley_client.batch_script import Translation, read_script, translated
from motley_client.spec import SpecError, name_of
from tests.live_service import Live
from tests.motley_command import Motley

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


def of_lines(*lines: str, body: str = "echo trained") -> Translation:
    text = "\n".join(["#!/bin/bash", *(f"#SBATCH {line}" for line in lines), body])
    return translated(read_script("/home/ada/train.sh", text), [], {"HOME": "/home/ada"}, NOW)


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
        (["--time=90"], {"time_limit": "90m"}),
        (["-t 1-12:00:00"], {"time_limit": "1-12:00:00"}),
        (["--array=0-9%2"], {"array": {"start": 0, "end": 9, "at_a_time": 2}}),
        (["--array=3"], {"array": {"start": 3, "end": 3}}),
        (
            ["--dependency=afterok:prep:data,afterany:old"],
            {"after": [{"job": j, "on": on} for j, on in (("prep", "success"), ("data", "success"), ("old", "end"))]},
        ),
        (["--chdir=/data/net"], {"workdir": "/data/net"}),
        (["--export=NONE"], {}),
        (["--export=A=1,HOME,UNSET"], {"env": {"A": "1", "HOME": "/home/ada"}}),
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
    ],
)
def test_what_is_not_honoured_is_named(line: str, words: str) -> None:
    (note,) = [note for note in of_lines("--gpus=2", line).notes if "--" in note]
    assert note.startswith(words) or words in note


def test_commands_and_variables_of_slurm_in_the_text_are_named() -> None:
    notes = of_lines("--gpus=1", body="cd run\nsrun python train.py --seed $SLURM_ARRAY_TASK_ID").notes
    assert [note.split(":")[0] for note in notes] == ["it calls srun", "it reads SLURM_ARRAY_TASK_ID"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--array=1,3,5", "--array 1,3,5: expected the first and last index"),
        ("--dependency=afternotok:a", "only afterok and afterany"),
        ("--dependency=singleton", "only afterok and afterany"),
        ("--gpus=many:few", "expected a number of GPUs"),
        ("--nodes=zero", "'zero' is not a number"),
        ("--mem=lots", "expected a size"),
        ("-Z", "line 2: #SBATCH -Z is no option of sbatch"),
        ('--job-name="open', "line 2"),
    ],
)
def test_what_would_make_another_job_is_refused(line: str, words: str) -> None:
    with pytest.raises(SpecError, match=r".") as refused:
        of_lines(line)
    assert words in str(refused.value)


def test_lines_after_the_first_command_do_not_count() -> None:
    assert of_lines(body="true\n#SBATCH --gpus=8").spec["gpus"] == 1


def test_a_script_of_another_interpreter_is_refused() -> None:
    with pytest.raises(SpecError, match="only scripts of a shell or of Python"):
        translated(read_script("a.pl", "#!/usr/bin/perl\n"), [], {}, NOW)


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
