"""What a training loop needs to run well under Motley. Standard library only, and harmless outside Motley.

while step < steps and not should_stop():
    loss = train(step)
    progress(step, loss=loss)
if should_stop():
    save_atomically(checkpoint_dir() / "last.pt", lambda file: torch.save(state, file))
    sys.exit(EXIT_REQUEUE)
"""

import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import BinaryIO, SupportsFloat, SupportsInt

EXIT_REQUEUE = 75
"""Exit with this when work is left and the checkpoint holds all of it so far: Motley runs the job again."""

Handler = Callable[[int, FrameType | None], object]


class TrainingError(Exception):
    """The job's surroundings are not as promised; the message names the variable and the remedy."""


class _Stop:
    """Whether SIGTERM has arrived since Motley's handler was installed."""

    def __init__(self) -> None:
        self.requested = False
        self._installed = False
        self._chained: Handler | None = None

    def listen(self) -> None:
        if self._installed:
            return
        if threading.current_thread() is not threading.main_thread():
            raise TrainingError(
                "Python handles signals in the main thread only: call should_stop() there first, then in other threads."
            )
        previous = signal.signal(signal.SIGTERM, self._on_sigterm)
        self._chained = previous if callable(previous) else None
        self._installed = True

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        if self._chained is not None:
            self._chained(number, frame)


_stop = _Stop()


def should_stop() -> bool:
    """True once Motley has asked the job to end: finish the step, save, and exit with EXIT_REQUEUE.

    The first call installs the handler. Until then SIGTERM ends the process at once, which is right while
    there is nothing to save.
    """
    _stop.listen()
    return _stop.requested


def stop_reason() -> str | None:
    """Why the job is being stopped: preempt, cancel, timeout or drain. None while nobody says."""
    path = os.environ.get("MOTLEY_STOP_REASON_FILE")
    if not path:
        return None
    with suppress(FileNotFoundError):
        return Path(path).read_text(encoding="utf-8").strip() or None
    return None


def resume() -> bool:
    """True when an earlier attempt of this job ran: look for its checkpoint."""
    return os.environ.get("MOTLEY_RESUME") == "1"


def batch_size(default: int) -> int:
    """Samples of one step of the whole job, all GPUs together: as tuned for these GPUs; `default` if it is not.

    A job that has `batch_size` in its description is told another batch with other GPUs: split it among them, scale
    the learning rate, and report it by `progress`.
    """
    return int(os.environ.get("MOTLEY_BATCH_SIZE") or default)


def micro_batches() -> int:
    """In how many equal parts each GPU should do its share of a step, so that one part fits; 1 unless it is tuned."""
    return int(os.environ.get("MOTLEY_MICRO_BATCHES") or 1)


def checkpoint_dir() -> Path:
    """The folder that every attempt of this job shares, made and writable; `./checkpoints` outside Motley."""
    folder = Path(os.environ.get("MOTLEY_CHECKPOINT_DIR") or "checkpoints")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(folder, "permission denied")
    return folder


def save_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Replace `path` by what `write` puts into the file it is handed; a crash leaves the old file whole."""
    # The attempt's number is in the name because a fenced attempt may still be writing on a node that was cut off.
    partial = path.with_name(f".{path.name}.{os.environ.get('MOTLEY_ATTEMPT') or os.getpid()}.partial")
    try:
        _write_and_sync(partial, write)
        partial.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        with suppress(OSError):  # there is none after a save that succeeded, nor in a folder that is gone
            partial.unlink()


def try_to_save(path: Path, write: Callable[[BinaryIO], object]) -> bool:
    """As `save_atomically`, for saving now and then: False, and said once, if it fails; the old file stays.

    Training goes on, and may lose more work when it is stopped. The last save of a run is one for `save_atomically`.
    """
    try:
        save_atomically(path, write)
    except (TrainingError, RuntimeError) as error:  # torch.save turns a full disk into a RuntimeError
        _say_once("checkpoint", f"{error} Training goes on; the checkpoint before stays.")
        return False
    return True


def progress(
    step: SupportsInt,
    *,
    epoch: SupportsFloat | None = None,
    loss: SupportsFloat | None = None,
    batch_size: SupportsInt | None = None,
    grad_sqr: SupportsFloat | None = None,
    grad_var: SupportsFloat | None = None,
) -> None:
    """Tell Motley how far the job is; does nothing outside Motley. Once or twice a second is plenty.

    A report that cannot be written is said once on stderr, and harms nothing else: training goes on.
    Call it on rank 0. Scalars of NumPy and PyTorch are welcome. `grad_sqr` and `grad_var`, the squared norm
    and the variance of the gradient over batches of `batch_size` samples, let Motley weigh speed against statistical
    efficiency; `batch_size` is that of a step of the whole job.
    """
    path = os.environ.get("MOTLEY_PROGRESS")
    if not path:
        return
    report = {
        "step": int(step),
        "at": time.time(),
        "epoch": _finite(epoch),
        "loss": _finite(loss),
        "batch_size": None if batch_size is None else int(batch_size),
        "grad_sqr": _finite(grad_sqr),
        "grad_var": _finite(grad_var),
    }
    known = {name: value for name, value in report.items() if value is not None}
    _append(Path(path), json.dumps(known).encode() + b"\n")


def _finite(value: SupportsFloat | None) -> float | None:
    # JSON has no NaN: one diverged loss would make the line, and its step, unreadable.
    number = math.nan if value is None else float(value)
    return number if math.isfinite(number) else None


def _append(path: Path, line: bytes) -> None:
    # One write with O_APPEND: lines of several processes never mix.
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, line)
        finally:
            os.close(file)
    except OSError as error:
        _say_once(
            "progress",
            f"Cannot append to {path}, named by MOTLEY_PROGRESS: {error}. Training goes on without reports; "
            "free space there, or unset MOTLEY_PROGRESS.",
        )


_said: set[str] = set()


def _say_once(subject: str, text: str) -> None:
    """On stderr, which is the job's log; a loop would say it a thousand times."""
    if subject not in _said:
        _said.add(subject)
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
