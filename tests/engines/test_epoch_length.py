"""How many steps a training has that tells its epoch, and not its steps, while its batch changes."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from engines.progress import ProgressTail

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SAMPLES = 12_800
"""Of an epoch: 100 steps of 128."""


def line(step: int, samples: int, batch: int, *, whole: bool = False) -> dict[str, Any]:
    """A line after so many samples of ten epochs."""
    epoch = samples // SAMPLES if whole else samples / SAMPLES
    return {"step": step, "epoch": epoch, "epochs": 10, "batch_size": batch}


def total(tmp_path: Path, *lines: dict[str, Any]) -> int | None:
    path = tmp_path / "progress.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    tail = ProgressTail(path, started_at=NOON)
    tail.read(NOON)
    return tail.summary.total_steps if tail.summary else None


def trained(*spans: tuple[int, int], whole: bool = False, every: int = 10) -> list[dict[str, Any]]:
    """Lines of so many steps with each of these batches."""
    lines, step, samples = [], 0, 0
    for steps, batch in spans:
        for _ in range(0, steps, every):
            step, samples = step + every, samples + every * batch
            lines.append(line(step, samples, batch, whole=whole))
    return lines


@pytest.mark.parametrize("whole", [False, True])
def test_what_is_left_is_counted_with_the_present_batch(tmp_path: Path, *, whole: bool) -> None:
    """Four epochs of 100 steps, two of 25: four are left, of 25."""
    told = total(tmp_path, *trained((400, 128), (50, 512), whole=whole, every=5))
    assert told == pytest.approx(450 + 4 * 25, abs=6 if whole else 0)


def test_an_attempt_that_begins_with_another_batch_counts_with_its_own(tmp_path: Path) -> None:
    later = [one for one in trained((400, 128), (50, 512)) if one["step"] > 400]
    assert total(tmp_path, *later) == 550


@pytest.mark.parametrize("batch", [128, None])
def test_with_one_batch_it_is_the_mean(tmp_path: Path, batch: int | None) -> None:
    lines = [one | {"batch_size": batch} for one in trained((200, 128))]
    assert total(tmp_path, *lines) == 1000


def test_a_training_that_goes_back_to_a_checkpoint_counts_from_there(tmp_path: Path) -> None:
    lines = trained((200, 128))
    assert total(tmp_path, *lines, *lines[10:]) == 1000


@pytest.mark.parametrize("epochs", [(1e-320, 1e-320, 1e-320), (0.0, 1e-320, 2e-320)])
def test_any_numbers_give_a_total_that_a_column_can_hold(tmp_path: Path, epochs: tuple[float, ...]) -> None:
    lines = [{"step": 2**62 + i, "epoch": epoch, "epochs": 1e18} for i, epoch in enumerate(epochs)]
    assert total(tmp_path, *lines) == 2**63 - 1
