"""Lightning, the Trainer of Transformers, and Accelerate under Motley: as the loop of PyTorch alone."""

import json
import re
from pathlib import Path

import pytest

from engines.protocol import Stream
from engines.supervision.isolation import best_isolation
from motley_client.training import EXIT_REQUEUE
from tests.training.training_lab import NEVER, Gang, Training, assert_same, one_process, torchrun

TWO_NODES, ONE_NODE = Gang("a100", [("n1", 1), ("n2", 1)]), Gang("v100", [("n3", 3)])
EACH_STEP = ("--report-every", "1")
STOPS_AFTER, GOES_ON_FOR = 20, 20
SCRIPTS = {"lightning_trainer.py": 1e-9, "transformers_trainer.py": 1e-6, "accelerate_loop.py": 1e-9}
"""With how exactly their losses are the same: the Trainer logs single precision."""

pytestmark = [
    pytest.mark.usefixtures("frameworks"),
    pytest.mark.parametrize("lab", [pytest.param(best_isolation(), id="local")], indirect=True),
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_preempted_training_goes_on_elsewhere_as_if_it_had_not_stopped(
    training: Training, script: str, tmp_path: Path
) -> None:
    before = training.start(torchrun(training.python), script, "--steps", str(NEVER), *EACH_STEP, on=TWO_NODES)
    training.until_step(before, STOPS_AFTER)
    ended = training.preempt(before)
    losses = training.losses(before)
    assert ended.progress.step == losses[-1][0]
    assert ended.progress.grad_var > 0

    steps = str(ended.progress.step + GOES_ON_FOR)
    after = training.start(torchrun(training.python), script, "--steps", steps, *EACH_STEP, on=ONE_NODE)
    training.succeeded(after)
    losses += training.losses(after)
    reference = one_process(training.python, script, "--steps", steps, *EACH_STEP, folder=tmp_path)
    assert_same(losses, reference, within=SCRIPTS[script])


@pytest.mark.parametrize(
    ("script", "saved"), [("lightning_trainer.py", "last.ckpt"), ("transformers_trainer.py", "checkpoint-*")]
)
def test_callbacks_save_when_a_checkpoint_pays(training: Training, script: str, saved: str, tmp_path: Path) -> None:
    """Where nodes stay for a second and a checkpoint takes a millisecond, as the service has said since the launch.

    The Trainer's own saves come later.
    """
    times = tmp_path / "times.json"
    times.write_text(json.dumps({"mean_up_s": 1, "notified": 0, "notice_s": 0, "checkpoint_s": 0.001}))
    env = {"MOTLEY_JOB_ID": "j", "MOTLEY_MEAN_UP_SECONDS": "1e9", "MOTLEY_CHECKPOINT_TIMES_FILE": str(times)}
    one_process(training.python, script, "--steps", "200", *EACH_STEP, folder=tmp_path, env=env)
    found = [path.name for path in (tmp_path / "checkpoints").glob(saved)]
    assert set(found) - {"checkpoint-200"}, "the Trainer saves at its end by itself"


@pytest.mark.parametrize("script", ["lightning_trainer.py", "transformers_trainer.py"])
def test_all_ranks_save_and_leave_at_one_step_if_one_of_them_is_told(
    training: Training, script: str, tmp_path: Path
) -> None:
    attempt = training.start(torchrun(training.python), script, "--steps", str(NEVER), *EACH_STEP, on=ONE_NODE)
    training.until_step(attempt, STOPS_AFTER)
    training.terminate_rank(attempt, 2)
    training.ended_by_itself(attempt)
    # The first to leave ends torchrun, whose SIGTERM may come before others are gone.
    assert str(EXIT_REQUEUE) in re.findall(r"exitcode *: (-?\d+)", training.text(attempt, Stream.STDERR))
    step = training.losses(attempt)[-1][0]

    again = training.start(torchrun(training.python), script, "--steps", str(step + 1), *EACH_STEP, on=ONE_NODE)
    training.succeeded(again)
    assert [step for step, _ in training.losses(again)] == [step + 1]
