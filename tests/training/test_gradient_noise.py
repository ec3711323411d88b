"""The gradient noise that PyTorch trainings measure is the true one of a known problem, however the batch is shared."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.private_servers import free_ports
from tests.training.training_lab import CLIENT

SCRIPT = Path(__file__).with_name("known_noise.py")
ODD = Path(__file__).with_name("odd_gradients.py")
SQR, VAR = 64 * 0.5**2, 64 * 4.0 / 32
"""Of the script's problem, for its batches of 32."""
RATIO = 32 / 8
GAIN = (VAR * RATIO + SQR) / (VAR + SQR)
WITHIN = 1.5


def measured(python: Path, *options: str, ranks: int = 1, **told: str) -> dict[str, float]:
    """What rank 0 prints."""
    env = told | {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(CLIENT),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_ports(1)),
    }
    shares = [env if ranks == 1 else env | {"RANK": str(rank), "WORLD_SIZE": str(ranks)} for rank in range(ranks)]
    started = [
        subprocess.Popen([python, SCRIPT, *options], env=share, stdout=subprocess.PIPE, text=True) for share in shares
    ]
    said = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0] * ranks
    found: dict[str, float] = json.loads(said[0])
    return found


@pytest.mark.parametrize(
    ("options", "ranks"),
    [(("--passes", "4"), 1), ((), 1), (("--passes", "2"), 2), ((), 4), (("--passes", "4", "--clip", "0.1"), 1)],
    ids=["micro-batches", "steps-of-one-gpu", "micro-batches-of-two-ranks", "four-ranks", "clipped"],
)
def test_the_noise_is_the_true_one(torch_python: Path, options: tuple[str, ...], ranks: int) -> None:
    found = measured(torch_python, *options, ranks=ranks)
    assert SQR / WITHIN < found["grad_sqr"] < SQR * WITHIN
    assert VAR / WITHIN < found["grad_var"] < VAR * WITHIN
    assert found["lr_factor"] == pytest.approx(GAIN, rel=0.25)


@pytest.mark.parametrize(("ranks", "passes"), [(1, 4), (1, 1), (2, 2)])
def test_the_batch_goes_to_the_best_one_and_its_noise_is_measured_there(
    torch_python: Path, ranks: int, passes: int
) -> None:
    """A step takes 1 s and 1 ms a sample: goodput M / (1 + M / 1000) / (256 + 16 M) is highest at 126 samples."""
    micro_batches = {32: passes} | dict.fromkeys((64, 128, 256), 8 // ranks)
    choices = [(batch, micro_batches.get(batch, 1), batch / (1 + batch / 1000)) for batch in (8, 16, 32, 64, 128, 256)]
    told = {"MOTLEY_BATCH_SIZE": "32", "MOTLEY_BATCH_CHOICES": json.dumps(choices)}
    found = measured(torch_python, "--follow", "--passes", str(passes), "--steps", "600", ranks=ranks, **told)
    assert found["batch_size"] in (64, 128, 256)
    assert VAR / WITHIN < found["grad_var"] * found["batch_size"] / 32 < VAR * WITHIN
    assert found["lr_factor"] > GAIN


def test_nothing_is_told_of_a_few_steps(torch_python: Path) -> None:
    assert measured(torch_python, "--passes", "4", "--steps", "3") == {"batch_size": 32, "lr_factor": 1.0}


def test_gradients_that_cannot_be_compared_stop_no_training_and_tell_nothing(torch_python: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CLIENT), "OMP_NUM_THREADS": "1"}
    found = json.loads(subprocess.check_output([torch_python, ODD], env=env, text=True))
    assert found == {
        "overflows": ["batch_size", "grad_sqr", "grad_var"],
        "reentrant": ["batch_size"],
        "sometimes": ["batch_size"],
        "sparse": ["batch_size", "RuntimeWarning"],
    }
