"""PyTorch under Motley: a training that moves between GPU types has the losses of one that never stopped."""

from pathlib import Path

import pytest

from engines.supervision.isolation import best_isolation
from tests.training.conftest import WANTED
from tests.training.training_lab import NEVER, Gang, Training, assert_same, one_process, torchrun

TWO_BY_TWO, ONE_BY_FOUR = Gang("a100", [("n1", 2), ("n2", 2)]), Gang("v100", [("n3", 4)])
TWO_BY_ONE, ONE_BY_ONE = Gang("a100", [("n1", 1), ("n2", 1)]), Gang("v100", [("n3", 1)])
EACH_STEP = ("--report-every", "1")
STOPS_AFTER, GOES_ON_FOR = 20, 20


def run_on(kind: str, *, by_torchrun: bool):
    gangs = (TWO_BY_TWO, ONE_BY_FOUR) if by_torchrun else (TWO_BY_ONE, ONE_BY_ONE)
    marks = [pytest.mark.xdist_group("slurm")] if kind == "slurm" else []
    launcher = "torchrun" if by_torchrun else "plain"
    return pytest.param(kind, by_torchrun, *gangs, id=f"{launcher}-{kind}", marks=marks)


RUNS = [run_on(best_isolation(), by_torchrun=False)]
MORE_RUNS = [run_on("slurm", by_torchrun=by_torchrun) for by_torchrun in (False, True)]
MORE_RUNS.append(run_on(best_isolation(), by_torchrun=True))


@pytest.mark.parametrize(
    ("lab", "by_torchrun", "first", "second"), RUNS + MORE_RUNS * (WANTED == "all"), indirect=["lab"]
)
def test_a_preempted_training_goes_on_elsewhere_as_if_it_had_not_stopped(
    training: Training, by_torchrun, first, second, tmp_path: Path
) -> None:
    launcher = torchrun(training.python) if by_torchrun else [str(training.python)]
    before = training.start(launcher, "ddp.py", "--steps", str(NEVER), *EACH_STEP, on=first)
    training.until_step(before, STOPS_AFTER)
    ended = training.preempt(before)
    losses = training.losses(before)
    stopped_at = losses[-1][0]
    assert f"stopped (preempt) at step {stopped_at}" in training.text(before)
    assert (ended.exit_code, ended.progress.step) == (1 if by_torchrun else 75, stopped_at)

    steps = str(stopped_at + GOES_ON_FOR)
    after = training.start(launcher, "ddp.py", "--steps", steps, *EACH_STEP, on=second)
    training.succeeded(after)
    losses += training.losses(after)
    assert_same(losses, one_process(training.python, "ddp.py", "--steps", steps, *EACH_STEP, folder=tmp_path))
