"""Callback of the Trainer of Hugging Face: progress, and a checkpoint at the end of the step at which Motley stops it.

motley = MotleyCallback()
trainer = Trainer(model, TrainingArguments(str(checkpoint_dir()), ...), callbacks=[motley], ...)
trainer.train(resume_from_checkpoint=motley.resume_path())
sys.exit(motley.exit_code)
"""

import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from motley_client.gradient_noise import TunedTraining
from motley_client.training import (
    EXIT_REQUEUE,
    checkpoint_dir,
    checkpoint_restored,
    checkpoint_saved,
    job_id,
    next_checkpoint,
    progress,
    resume,
    should_stop,
)


class MotleyCallback(TrainerCallback):  # type: ignore[misc]  # Transformers is not installed where types are checked
    """Reports progress, and has the Trainer save and end on all ranks at one step when Motley asks the job to stop.

    The Trainer's `output_dir` is `checkpoint_dir()`. Beside its own saves it saves when a checkpoint pays
    (`next_checkpoint`), if `save_total_limit` says how many stay. The loss reported is that of its last log, and so are
    the numbers beside it, such as eval_loss and learning_rate, as metrics. The noise of gradients is reported where one
    GPU holds the model, unless `measure_noise` is off. With `initial_batch`, for which the learning rate was chosen,
    `lr_scaling` scales the rate by adascale, sqrt, linear or none.
    """

    def __init__(
        self,
        *,
        initial_batch: int | None = None,
        lr_scaling: str = "none",
        measure_noise: bool = True,
        report_period_s: float = 0.5,
    ) -> None:
        self.initial_batch = initial_batch
        self.lr_scaling = lr_scaling
        self.measure_noise = measure_noise
        self.report_period_s = report_period_s
        self.stopped = False
        self._reported_at_s = -report_period_s
        self._loss: float | None = None
        self._metrics: dict[str, float] = {}
        self._tuned: TunedTraining | None = None
        self._save_began_s = 0.0
        self._restore_began_s: float | None = None

    @property
    def exit_code(self) -> int:
        """EXIT_REQUEUE if steps are left, 0 if training has ended by itself."""
        return EXIT_REQUEUE if self.stopped else 0

    def resume_path(self) -> str | None:
        """The newest whole checkpoint of earlier attempts of this job, for `Trainer.train`."""
        found = _newest_checkpoint(checkpoint_dir()) if resume() else None
        self._restore_began_s = None if found is None else time.monotonic()
        return found

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        should_stop()

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **of: Any) -> None:
        if self._restore_began_s is not None:
            checkpoint_restored(time.monotonic() - self._restore_began_s)
            self._restore_began_s = None
        if not (args.deepspeed or args.fsdp):  # ranks of these hold parts of the gradients
            self._tuned = TunedTraining(
                of["model"].parameters(),
                [getattr(of["optimizer"], "optimizer", of["optimizer"])],  # Accelerate's has the true one within
                batch=_samples(args),
                initial=self.initial_batch,
                lr_scaling=self.lr_scaling,
                measure=self.measure_noise,
                passes=args.gradient_accumulation_steps,
            )

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **_: Any
    ) -> None:
        self._loss = (logs or {}).get("loss", self._loss)
        numbers = {name: value for name, value in (logs or {}).items() if isinstance(value, int | float)}
        self._metrics |= {name: value for name, value in numbers.items() if name not in ("loss", "epoch")}

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._tuned:
            self._tuned.step_done()
        stops, saves = should_stop(), self._save_is_due(args, state)
        if _on_any_rank(stops or saves, args.device):  # in most steps there is one reduction
            if _on_any_rank(stops, args.device) and state.global_step < state.max_steps:
                self.stopped = control.should_save = control.should_training_stop = True
            control.should_save |= _on_any_rank(saves, args.device)
        self._save_began_s = time.monotonic()
        if state.is_world_process_zero:
            self._report(args, state)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._save_began_s = time.monotonic()  # it goes before a save

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        checkpoint_saved(time.monotonic() - self._save_began_s)

    def _save_is_due(self, args: TrainingArguments, state: TrainerState) -> bool:
        """When rank 0 finds that a checkpoint pays; never where all would stay, nor outside Motley."""
        wanted = job_id() is not None and args.save_total_limit is not None and state.is_world_process_zero
        return bool(wanted and next_checkpoint() <= 0)

    def _report(self, args: TrainingArguments, state: TrainerState) -> None:
        now_s = time.monotonic()
        last = self.stopped or state.global_step == state.max_steps
        if last or now_s >= self._reported_at_s + self.report_period_s:
            self._reported_at_s = now_s
            of_batch = self._tuned.report() if self._tuned else {"batch_size": _samples(args)}
            known: dict[str, Any] = of_batch | {"epoch": state.epoch, "total_steps": state.max_steps}
            progress(state.global_step, loss=self._loss, metrics=self._metrics, **known)
            self._metrics = {}


def _samples(args: TrainingArguments) -> int:
    """Samples per step on all GPUs."""
    return int(args.train_batch_size * args.world_size * args.gradient_accumulation_steps)


def _newest_checkpoint(folder: Path) -> str | None:
    # The Trainer writes trainer_state.json last: a save that was killed lacks it.
    whole = [path.parent for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*/trainer_state.json")]
    return str(max(whole, key=lambda path: int(path.name.rpartition("-")[2]))) if whole else None


def _on_any_rank(asked: bool, device: torch.device) -> bool:
    """Whether any rank was asked, by all-reduce: ranks receive SIGTERM at different steps."""
    if not (dist.is_available() and dist.is_initialized()):
        return asked
    flag = torch.tensor(float(asked), device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())
