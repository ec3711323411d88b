"""Helper for training loops: progress reports, checkpoints, graceful stops. Standard library only.

Outside Motley it does nothing, so that the same script runs anywhere.

while step < steps and not should_stop():
    loss = train(step)
    progress(step, loss=loss)
    if next_checkpoint() <= 0:
        try_to_save(checkpoint_dir() / "last.pt", lambda file: torch.save(state, file))
if should_stop():
    save_atomically(checkpoint_dir() / "last.pt", lambda file: torch.save(state, file))
    sys.exit(EXIT_REQUEUE)
"""

import json
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, SupportsFloat, SupportsInt

from motley_client.checkpoint_timing import CheckpointTiming

EXIT_REQUEUE = 75
"""Exit code (EX_TEMPFAIL) for "checkpoint saved, work left": Motley requeues the job."""

Handler = Callable[[int, FrameType | None], object]


class TrainingError(Exception):
    """The environment of the job is not usable; the message names the variable and the remedy."""


class _Stop:
    """SIGTERM handler that remembers the signal and calls the handler that was installed before."""

    def __init__(self) -> None:
        self.requested = False
        self._installed = False
        self._chained: Handler | None = None

    def listen(self) -> None:
        if not self._installed:
            self._refuse_other_threads()
            previous = signal.signal(signal.SIGTERM, self._on_sigterm)
            self._chained = previous if callable(previous) else None
            self._installed = True

    def take_over(self) -> None:
        """Replace a handler that a framework has installed after ours, and that must not run."""
        self.listen()
        signal.signal(signal.SIGTERM, self._on_sigterm)

    @staticmethod
    def _refuse_other_threads() -> None:
        if threading.current_thread() is not threading.main_thread():
            raise TrainingError(
                "Python handles signals in the main thread only: call should_stop() there first, then in other threads."
            )

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        if self._chained is not None:
            self._chained(number, frame)


_stop = _Stop()


def should_stop() -> bool:
    """Whether Motley has asked the job to stop: finish the step, save a checkpoint, exit with EXIT_REQUEUE.

    The first call installs a SIGTERM handler. Before it, SIGTERM ends the process at once, which is right as long as
    there is nothing to save.
    """
    _stop.listen()
    return _stop.requested


def take_over_sigterm() -> None:
    """Let `should_stop` alone handle SIGTERM, in place of a handler that a framework installed since its first call."""
    _stop.take_over()


def stop_reason() -> str | None:
    """Why the job is being stopped: preempt, cancel, timeout or drain; None if it is not known."""
    path = os.environ.get("MOTLEY_STOP_REASON_FILE")
    if not path:
        return None
    with suppress(FileNotFoundError):
        return Path(path).read_text(encoding="utf-8").strip() or None
    return None


def resume() -> bool:
    """Whether an earlier attempt of this job has run: look for its checkpoint."""
    return os.environ.get("MOTLEY_RESUME") == "1"


def trial_params() -> dict[str, Any]:
    """Hyperparameters of this trial of a sweep; empty for any other job and outside Motley."""
    params: dict[str, Any] = json.loads(os.environ.get("MOTLEY_PARAMS") or "{}")
    return params


def job_id() -> str | None:
    """Id of this job, the same for all its attempts; None outside Motley."""
    return os.environ.get("MOTLEY_JOB_ID")


def once_per_job(name: str, make: Callable[[], str]) -> str:
    """The text that `make` gave the first attempt, kept in the checkpoint folder for later ones; for rank 0.

    Use it for what another service numbers, such as a run of MLflow.
    """
    kept = checkpoint_dir() / name
    with suppress(FileNotFoundError):
        return kept.read_text(encoding="utf-8")
    text = make()
    _replace_atomically(kept, lambda file: file.write(text.encode()))
    return text


def data_workers(default: int) -> int:
    """Workers of a data loader in each process, one per CPU of its GPU; `default` where no CPUs are known."""
    return int(os.environ.get("MOTLEY_CPUS_PER_GPU") or default)


def batch_size(default: int) -> int:
    """Global batch size (samples per step on all GPUs) that Motley chose for these GPUs; else `default`.

    It is tuned for jobs with `batch_size` in their description and may differ between attempts: divide it among the
    GPUs, scale the learning rate, and report it by `progress`.
    """
    return int(os.environ.get("MOTLEY_BATCH_SIZE") or default)


def micro_batches() -> int:
    """Gradient accumulation steps per GPU, so that one micro-batch fits into its memory; 1 unless Motley tunes it."""
    return int(os.environ.get("MOTLEY_MICRO_BATCHES") or 1)


def replicas() -> int:
    """Number of copies of the model on the GPUs of this attempt; 1 outside Motley."""
    return int(os.environ.get("MOTLEY_REPLICAS") or 1)


def gpus_per_replica() -> int:
    """GPUs over which each copy of the model is spread; 1 unless the job says otherwise.

    The processes of a replica have consecutive ranks, so that a device mesh of (replicas, gpus_per_replica) fits.
    """
    return int(os.environ.get("MOTLEY_GPUS_PER_REPLICA") or 1)


def checkpoint_dir() -> Path:
    """The checkpoint folder shared by all attempts of this job, created if missing; `./checkpoints` outside Motley."""
    folder = Path(os.environ.get("MOTLEY_CHECKPOINT_DIR") or "checkpoints")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(folder, "permission denied")
    return folder


_timing = CheckpointTiming()


def next_checkpoint(cost_s: float | None = None) -> float:
    """Seconds until the next checkpoint is worth what it costs; 0: save now.

    It follows from how long the last save took, in this attempt or an earlier one, and how long the nodes of this
    attempt stay, as the service has observed (Daly's interval). At a moment where the state is small, give the seconds
    that a save would take now: it then comes earlier. On one rank, the one that saves.
    """
    return _timing.next_checkpoint(cost_s)


def checkpoint_saved(seconds: float) -> None:
    """Note a checkpoint that was not saved by this module, and how long it kept the training from working."""
    _timing.saved(seconds)


@contextmanager
def restoring() -> Iterator[None]:
    """Read the checkpoint of an earlier attempt in a `with` block of this, on rank 0: it is measured how long it takes.

    The first `progress` after it reports that, and the page of the job tells it from the rest of the start.
    """
    began_s = time.monotonic()
    yield
    checkpoint_restored(time.monotonic() - began_s)


def checkpoint_restored(seconds: float) -> None:
    """Note that a checkpoint of an earlier attempt has just been restored without `restoring`, and how long it took."""
    _timing.restored(seconds)


def save_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Replace the file atomically by what `write` writes to the file object it is given; a crash keeps the old file.

    It counts as a checkpoint: `next_checkpoint` knows how long it took.
    """
    with _timing.measured():
        _replace_atomically(path, write)


def _replace_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    # The attempt number is in the name: a fenced attempt may still be writing on a node that was cut off.
    partial = path.with_name(f".{path.name}.{os.environ.get('MOTLEY_ATTEMPT') or os.getpid()}.partial")
    try:
        _write_and_sync(partial, write)
        partial.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        with suppress(OSError):  # it does not exist after a successful save, nor in a folder that was removed
            partial.unlink()


def try_to_save(path: Path, write: Callable[[BinaryIO], object]) -> bool:
    """Like `save_atomically`, for periodic checkpoints: on failure, warn once on stderr and return False.

    The old file stays and training continues. Use `save_atomically` for the last checkpoint of a run.
    """
    try:
        save_atomically(path, write)
    except (TrainingError, RuntimeError) as error:  # torch.save turns a full disk into a RuntimeError
        _warn_once("checkpoint", f"{error} Training continues; the previous checkpoint stays.")
        return False
    return True


def progress(
    step: SupportsInt,
    *,
    epoch: SupportsFloat | None = None,
    epochs: SupportsFloat | None = None,
    loss: SupportsFloat | None = None,
    batch_size: SupportsInt | None = None,
    total_steps: SupportsInt | None = None,
    grad_sqr: SupportsFloat | None = None,
    grad_var: SupportsFloat | None = None,
    metrics: Mapping[str, SupportsFloat] | None = None,
) -> None:
    """Report the progress of the job to Motley, on rank 0, once or twice a second; does nothing outside Motley.

    NumPy and PyTorch scalars are accepted. `batch_size` is the global batch size; `total_steps`, the step at which the
    job will be done, tells Motley what is left of a job whose description does not say it, and so do `epoch`, parts
    included and from 0 on, and the number of `epochs`; `grad_sqr` and `grad_var` are the squared norm of the gradient
    and its variance over batches of that size, from which Motley estimates statistical efficiency (goodput). `metrics`
    are named values of the job's own, such as {"val/accuracy": 0.76}, up to 20 names of letters, digits and
    _ . / @ + -; each is a curve on the page of the job. If a report cannot be written, there is one warning on stderr
    and training continues.
    """
    path = os.environ.get("MOTLEY_PROGRESS")
    if not path:
        return
    report = {
        "step": int(step),
        "at": time.time(),
        "epoch": _finite(epoch),
        "epochs": _finite(epochs),
        "loss": _finite(loss),
        "batch_size": None if batch_size is None else int(batch_size),
        "total_steps": None if total_steps is None else int(total_steps),
        "grad_sqr": _finite(grad_sqr),
        "grad_var": _finite(grad_var),
        "metrics": _named({**_diverged(loss), **(metrics or {})}) or None,
        "links": dict(_links) or None,
        **_timing.take_report(),
    }
    known = {name: value for name, value in report.items() if value is not None}
    _append(Path(path), json.dumps(known).encode() + b"\n")


_links: dict[str, str] = {}


def link(name: str, address: str) -> None:
    """Show a page elsewhere on the page of this job, e.g. link("wandb", wandb.run.url); the next report carries it.

    On rank 0, before `progress`; an attempt names at most ten, and the address begins with http:// or https://.
    """
    if not re.fullmatch(r"[A-Za-z0-9_. -]{1,40}", name) or not re.fullmatch(r"https?://[!-~]{1,490}", address):
        raise TrainingError(
            f"link({name!r}, {address!r}): give a name of up to 40 letters, digits, blanks and _ . -, and an address "
            "that begins with http:// or https:// and has no blank."
        )
    _links[name] = address


METRIC_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@+-]{0,59}")


def _named(metrics: Mapping[str, SupportsFloat]) -> dict[str, float | None]:
    """The metrics, null where they are not finite; a bad name is left out with a warning, for training must go on."""
    for name in metrics:
        if not METRIC_NAME.fullmatch(name):
            text = f"The metric {name!r} is not reported: a name has up to 60 letters, digits and _ . / @ + -."
            _warn_once(f"metric {name}", text)
    return {name: _finite(value) for name, value in metrics.items() if METRIC_NAME.fullmatch(name)}


def _diverged(loss: SupportsFloat | None) -> dict[str, SupportsFloat]:
    """The loss as a metric, where it is not finite: a sweep must know."""
    return {} if loss is None or math.isfinite(float(loss)) else {"loss": loss}


def _finite(value: SupportsFloat | None) -> float | None:
    # JSON has no NaN: a diverged loss would make the whole line unreadable.
    number = math.nan if value is None else float(value)
    return number if math.isfinite(number) else None


def _append(path: Path, line: bytes) -> None:
    # A single write with O_APPEND: lines of several processes are never interleaved.
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line)
        finally:
            os.close(file)
    except OSError as error:
        _warn_once(
            "progress",
            f"Cannot append to {path}, named by MOTLEY_PROGRESS: {error}. Training continues without progress reports; "
            "free space there, or unset MOTLEY_PROGRESS.",
        )


_warned: set[str] = set()


def _warn_once(subject: str, text: str) -> None:
    """Warn on stderr, which is part of the job's log, once per subject."""
    if subject not in _warned:
        _warned.add(subject)
        sys.stderr.write(f"motley: {text}\n")
        sys.stderr.flush()


def _write_and_sync(path: Path, write: Callable[[BinaryIO], object]) -> None:
    with path.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(path: Path, cause: object) -> TrainingError:
    return TrainingError(
        f"Cannot write the checkpoint {path}: {cause}. "
        "Point MOTLEY_CHECKPOINT_DIR to a folder with space that this user may write."
    )
