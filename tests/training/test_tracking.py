"""All attempts of a job are one run in W&B and in MLflow."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.private_servers import free_ports
from tests.training.training_lab import EXAMPLES, ONE_THREAD

pytestmark = pytest.mark.usefixtures("frameworks")
JOB = "0d0c0b0a-0000-4000-8000-000000000001"


def two_attempts(python: Path, tracker: str, folder: Path) -> None:
    for number in (1, 2):
        env = {
            **ONE_THREAD,
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "MASTER_PORT": str(free_ports(1)),
            "MLFLOW_ALLOW_FILE_STORE": "true",
            "MLFLOW_TRACKING_URI": (folder / "mlruns").as_uri(),
            "MOTLEY_CHECKPOINT_DIR": str(folder / "checkpoints"),
            "MOTLEY_JOB_ID": JOB,
            "MOTLEY_RESUME": str(number - 1),
        }
        words = ["--steps", str(number * 10), "--report-every", "5", "--track", tracker]
        subprocess.run([python, EXAMPLES / "ddp.py", *words], env=env, cwd=folder, check=True)


def test_wandb_is_given_the_same_run_id(torch_python: Path, tmp_path: Path) -> None:
    two_attempts(torch_python, "wandb", tmp_path)
    runs = [path.name for path in (tmp_path / "wandb").glob("offline-run-*")]
    assert (len(runs), {name.partition("-")[2].split("-", 2)[2] for name in runs}) == (2, {JOB})


def test_mlflow_has_the_steps_of_both_attempts_in_one_run(torch_python: Path, tmp_path: Path) -> None:
    two_attempts(torch_python, "mlflow", tmp_path)
    (losses,) = (tmp_path / "mlruns").glob("*/*/metrics/loss")
    assert [int(line.split()[2]) for line in losses.read_text().splitlines()] == [5, 10, 15, 20]
