"""The sample job as the engines run it: a real process with Motley's environment."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from motley_client import sample
from motley_client.spirals import Noise, Training, loss_and_gradients, two_spirals
from tests.client.polling import TIMEOUT_S, wait_until


class Sample:
    """Starts attempts of one sample job; they share its checkpoint folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, list[subprocess.Popen[str]]()
        folder.mkdir(exist_ok=True)

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "motley_client.sample", *arguments],
            cwd=self.folder,
            env={
                "PATH": "/usr/bin:/bin",
                "MOTLEY_PROGRESS": str(self.folder / "progress"),
                "MOTLEY_CHECKPOINT_DIR": str(self.folder / "checkpoints"),
                **env,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.append(process)
        return process

    def run(self, *arguments: str, **env: str) -> str:
        process = self.start(*arguments, **env)
        out, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, out
        return out

    def reports(self) -> list[dict[str, float]]:
        return [json.loads(line) for line in (self.folder / "progress").read_text().splitlines()]

    def saved(self) -> dict[str, bytes]:
        with np.load(self.folder / "checkpoints" / "spirals.npz") as file:
            return {name: file[name].tobytes() for name in file.files}

    def steps(self, trace: str = "trace") -> list[int]:
        path = self.folder / trace
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Sample]:
    job = Sample(tmp_path / "job")
    yield job
    for process in job.processes:
        process.kill()
        process.communicate()


def stop(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    return process.communicate(timeout=TIMEOUT_S)[0]


EMULATED = {"MOTLEY_EMULATED": "1", "MOTLEY_EMULATED_RATE": "200", "MOTLEY_GPU_TYPE": "v100", "MOTLEY_WORLD_SIZE": "4"}


def test_it_learns_to_tell_the_spirals_apart() -> None:
    points, labels = two_spirals(512, np.random.default_rng(0))
    training = Training.fresh(hidden=32, seed=0, rank=0)
    for _ in range(2000):
        training.advance(points, labels, batch_size=64)
    assert training.accuracy(points, labels) > 0.95


def test_another_learning_rate_is_another_training() -> None:
    points, labels = two_spirals(512, np.random.default_rng(0))
    losses = []
    for rate in (sample.parse([]).lr, sample.parse(["--lr", "0.3"]).lr):
        training = Training.fresh(hidden=32, seed=0, rank=0)
        for _ in range(100):
            training.advance(points, labels, batch_size=64, learning_rate=rate)
        losses.append(training.loss)
    assert losses[1] < losses[0]


def test_the_gradient_is_that_of_the_loss() -> None:
    points, labels = two_spirals(16, np.random.default_rng(1))
    weights = Training.fresh(hidden=4, seed=1, rank=0).weights
    where, h = (1, 4, 0), 1e-6
    _, gradients = loss_and_gradients(weights, points, labels)
    losses = []
    for shift in (h, -h):
        moved = [weight.copy() for weight in weights]
        moved[where[0]][where[1:]] += shift
        losses.append(loss_and_gradients(moved, points, labels)[0])
    assert gradients[where[0]][where[1:]] == pytest.approx((losses[0] - losses[1]) / (2 * h), rel=1e-6)


def test_outside_motley_it_trains_and_keeps_its_checkpoint_here(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "motley_client.sample", "--steps", "20"]
    subprocess.run(command, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, check=True, timeout=TIMEOUT_S)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.npz")] == ["checkpoints/spirals.npz"]


def test_the_last_report_is_of_the_last_step(job: Sample) -> None:
    job.run("--steps", "30")
    last = job.reports()[-1]
    assert (last["step"], last["batch_size"], last["epoch"]) == (30, 64, 30 * 64 / 1024)


def test_it_reports_how_noisy_its_gradient_is(job: Sample) -> None:
    job.run("--steps", "200")
    last = job.reports()[-1]
    assert last["grad_sqr"] >= 0
    assert last["grad_var"] > 0


def test_the_noise_of_a_batch_is_told_from_its_halves() -> None:
    rng = np.random.default_rng(3)
    noise: Noise | None = None
    for _ in range(2000):
        halves = [[np.array([2.0, 0.0]) + rng.normal(0, 1, 2)] for _ in range(2)]
        noise = Noise.updated(*halves, before=noise)
    assert noise is not None
    assert noise.sqr == pytest.approx(4, rel=0.3)
    assert noise.var == pytest.approx(1, rel=0.3)  # two entries of variance 1, averaged over two halves


def test_it_trains_with_the_batch_that_motley_chose(job: Sample) -> None:
    job.run("--steps", "30", MOTLEY_BATCH_SIZE="256")
    assert job.reports()[-1]["batch_size"] == 256


def test_the_log_says_what_runs_where_and_how_well(job: Sample) -> None:
    last = job.run("--steps", "30", MOTLEY_GPU_TYPE="a100", MOTLEY_WORLD_SIZE="8").splitlines()[-1]
    step, loss, accuracy, rate, gpus = last.split("  ")
    assert (step, gpus) == ("step 30/30", "8 x a100")
    assert (loss.split()[0], accuracy.split()[0], rate.split()[1]) == ("loss", "accuracy", "steps/s")


def test_an_emulated_gpu_is_never_faster_than_its_rate(job: Sample) -> None:
    started = time.time()
    job.run("--steps", "100", **EMULATED)
    assert job.reports()[-1]["at"] - started >= 100 / 200


def test_late_wake_ups_do_not_slow_an_emulated_gpu_down(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def oversleep(seconds: float) -> None:
        nonlocal now
        now += seconds + 0.004

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", oversleep)
    pace = sample.RateLimiter(rate=100.0)
    for _ in range(1000):
        pace.wait()
    assert now == pytest.approx(10.0, abs=0.005)


def test_sigterm_is_noticed_in_the_middle_of_a_slow_step(job: Sample) -> None:
    process = job.start("--trace", "trace", **{**EMULATED, "MOTLEY_EMULATED_RATE": "0.001"})
    wait_until(job.steps)
    stop(process)
    assert process.returncode == 75


@pytest.mark.parametrize("reason", ["preempt", "drain", "cancel", "timeout"])
def test_a_stop_checkpoints_reports_and_exits_75(job: Sample, reason: str) -> None:
    (job.folder / "reason").write_text(reason)
    process = job.start("--trace", "trace", MOTLEY_STOP_REASON_FILE=str(job.folder / "reason"), **EMULATED)
    wait_until(lambda: len(job.steps()) > 10)
    last_line = stop(process).splitlines()[-1]
    done = job.steps()[-1]
    assert (process.returncode, job.reports()[-1]["step"]) == (75, done)
    assert last_line == f"stopped ({reason}); checkpoint saved at step {done}"


def test_stopped_and_resumed_it_executes_every_step_once(job: Sample) -> None:
    for resume in "011":
        process = job.start("--steps", "100000", "--trace", "trace", MOTLEY_RESUME=resume, **EMULATED)
        before = len(job.steps())
        wait_until(lambda seen=before: len(job.steps()) > seen + 5)
        stop(process)
    assert job.steps() == list(range(1, len(job.steps()) + 1))


def test_killed_and_resumed_it_repeats_no_step_before_the_checkpoint(job: Sample) -> None:
    arguments = ["--checkpoint-every", "20", "--trace", "trace"]
    process = job.start("--steps", "100000", *arguments, **EMULATED)
    wait_until(lambda: len(job.steps()) > 50)
    process.kill()
    process.wait()
    executed = len(job.steps())
    job.run("--steps", str(executed + 10), *arguments, MOTLEY_RESUME="1")
    resumed_at = job.steps()[executed]
    assert resumed_at in {(executed - 1) // 20 * 20 + 1, executed // 20 * 20 + 1}
    assert job.steps()[executed:] == list(range(resumed_at, executed + 11))


def test_interrupted_anywhere_it_ends_bit_for_bit_as_if_never_interrupted(job: Sample, tmp_path: Path) -> None:
    whole = Sample(tmp_path / "whole")
    whole.run("--steps", "400")
    process = job.start("--steps", "400", "--trace", "trace", **EMULATED)
    wait_until(lambda: len(job.steps()) > 37)
    stop(process)
    job.run("--steps", "400", MOTLEY_RESUME="1")
    assert job.saved() == whole.saved()


def test_the_loss_curve_of_a_resumed_training_is_that_of_the_whole(tmp_path: Path) -> None:
    points, labels = two_spirals(256, np.random.default_rng(3))

    def losses(training: Training, steps: int) -> list[float]:
        return [training.advance(points, labels, batch_size=16) or training.loss for _ in range(steps)]

    training = Training.fresh(hidden=8, seed=3, rank=0)
    first = losses(training, 70)
    with (tmp_path / "saved.npz").open("wb") as file:
        training.save(file)
    resumed = losses(Training.load(tmp_path / "saved.npz", rank=0), 50)
    assert first + resumed == losses(Training.fresh(hidden=8, seed=3, rank=0), 120)


def test_every_rank_goes_on_in_its_own_stream_of_chance(tmp_path: Path) -> None:
    points, labels = two_spirals(256, np.random.default_rng(4))
    ranks = [Training.fresh(hidden=8, seed=4, rank=rank) for rank in (0, 1)]
    for training in ranks:
        training.advance(points, labels, batch_size=16)
    with (tmp_path / "saved.npz").open("wb") as file:
        ranks[0].save(file)
    assert Training.load(tmp_path / "saved.npz", rank=1).rng.random() == ranks[1].rng.random()


def test_only_rank_0_of_a_gang_reports_and_checkpoints(job: Sample) -> None:
    job.run("--steps", "20", MOTLEY_NODE_RANK="1", MOTLEY_NUM_NODES="2")
    assert [path for path in job.folder.rglob("*") if path.is_file()] == []


def test_a_job_preempted_before_its_first_checkpoint_starts_afresh(job: Sample) -> None:
    job.run("--steps", "20", "--trace", "trace", MOTLEY_RESUME="1")
    assert job.steps() == list(range(1, 21))


def test_a_checkpoint_of_another_size_is_refused_with_the_remedy(job: Sample) -> None:
    job.run("--steps", "5", "--hidden", "8")
    process = job.start("--steps", "10", "--hidden", "16", MOTLEY_RESUME="1")
    assert "use the same --hidden as before" in process.communicate(timeout=TIMEOUT_S)[0]
    assert process.returncode == 1


def test_it_runs_on_one_thread_so_that_many_can_share_a_machine(job: Sample) -> None:
    process = job.start("--trace", "trace", **{**EMULATED, "MOTLEY_EMULATED_RATE": "1"})
    wait_until(job.steps)
    assert len(list(Path(f"/proc/{process.pid}/task").iterdir())) == 1
