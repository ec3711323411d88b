"""Callback of PyTorch Lightning: progress, and a checkpoint at the end of the step at which Motley stops the job.

motley = MotleyCallback()
trainer = Trainer(callbacks=[motley], num_nodes=int(os.environ.get("MOTLEY_NUM_NODES", "1")))
trainer.fit(model, ckpt_path=motley.resume_path())    # exits with EXIT_REQUEUE when Motley stops the job
"""

import time
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

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
    take_over_sigterm,
)


class MotleyCallback(Checkpoint):  # type: ignore[misc]  # Lightning is not installed where types are checked
    """Reports progress, saves the trainer's state when Motley asks the job to stop, and ends all ranks at one step.

    Lightning calls a `Checkpoint` after all other callbacks, so that their part of the step is done and saved.

    It also saves when a checkpoint pays (`next_checkpoint`), or at every `save_every` steps: what a lost node costs.
    Validation is not interrupted: a checkpoint's grace period should be longer. `batch_size`, samples per step on all
    GPUs, is reported, with the noise of its gradients where one GPU holds the model and one optimizer is stepped by
    Lightning, unless `measure_noise` is off. With `initial_batch`, for which the learning rate was chosen, `lr_scaling`
    scales the rate by adascale, sqrt, linear or none.
    """

    def __init__(
        self,
        *,
        save_every: int | None = None,
        batch_size: int | None = None,
        initial_batch: int | None = None,
        lr_scaling: str = "none",
        measure_noise: bool = True,
        report_period_s: float = 0.5,
    ) -> None:
        self.path = checkpoint_dir() / "last.ckpt"
        self.save_every = save_every
        self.batch_size = batch_size
        self.initial_batch = initial_batch
        self.lr_scaling = lr_scaling
        self.measure_noise = measure_noise
        self.report_period_s = report_period_s
        self._reported_at_s = -report_period_s
        self._step = 0
        self._tuned: TunedTraining | None = None
        self._known_noise: dict[str, float] = {}
        self._restore_began_s: float | None = None

    def resume_path(self) -> Path | None:
        """The checkpoint of an earlier attempt of this job, for `Trainer.fit(ckpt_path=...)`."""
        if not (resume() and self.path.exists()):
            return None
        self._restore_began_s = time.monotonic()
        return self.path

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        should_stop()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replace Lightning's handler, installed meanwhile, which runs a collective operation when the signal comes.

        Ranks that are not at the same operation then hang or mix up their data.
        """
        take_over_sigterm()
        if self._restore_began_s is not None:
            checkpoint_restored(time.monotonic() - self._restore_began_s)
            self._restore_began_s = None
        self._step = trainer.global_step
        if self.batch_size and isinstance(trainer.strategy, DDPStrategy | SingleDeviceStrategy):
            self._tuned = TunedTraining(
                pl_module.parameters(),
                trainer.optimizers,
                batch=self.batch_size,
                initial=self.initial_batch,
                lr_scaling=self.lr_scaling,
                measure=self.measure_noise and pl_module.automatic_optimization and len(trainer.optimizers) == 1,
                passes=trainer.accumulate_grad_batches,
            )
            self._tuned.load_state_dict(self._known_noise)

    def state_dict(self) -> dict[str, Any]:
        return {"noise": self._tuned.state_dict() if self._tuned else {}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._known_noise = state_dict.get("noise", {})

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self._step:  # gradients are being accumulated, and are in no checkpoint
            return
        self._step = trainer.global_step
        if self._tuned:
            self._tuned.step_done()
        if trainer.is_global_zero:
            self._report(trainer, outputs)
        stops, saves = should_stop(), self._save_is_due(trainer)
        if not _on_any_rank(trainer, stops or saves):  # in most steps there is one reduction
            return
        if _on_any_rank(trainer, stops) and not _is_last_step(trainer):
            self._save(trainer)
            # Not trainer.should_stop: it waits for min_epochs and min_steps, and validates first.
            raise SystemExit(EXIT_REQUEUE)
        if _on_any_rank(trainer, saves):
            self._save(trainer)

    def _save_is_due(self, trainer: Trainer) -> bool:
        """At the steps that were asked for, else when rank 0 finds that a checkpoint pays; outside Motley never."""
        if self.save_every:
            return self._step % self.save_every == 0
        return job_id() is not None and trainer.is_global_zero and next_checkpoint() <= 0

    def _save(self, trainer: Trainer) -> None:
        began_s = time.monotonic()
        trainer.save_checkpoint(self.path)
        checkpoint_saved(time.monotonic() - began_s)

    def _report(self, trainer: Trainer, outputs: Any) -> None:
        now_s = time.monotonic()
        last = should_stop() or _is_last_step(trainer)
        if not last and now_s < self._reported_at_s + self.report_period_s:
            return
        self._reported_at_s = now_s
        loss = outputs.get("loss") if isinstance(outputs, dict) else None
        if loss is not None:  # of one micro-batch, divided by their number
            loss = loss.item() * trainer.accumulate_grad_batches
        of_batch = self._tuned.report() if self._tuned else {"batch_size": self.batch_size}
        progress(self._step, epoch=trainer.current_epoch, loss=loss, **of_batch)


def _on_any_rank(trainer: Trainer, wanted: bool) -> bool:
    return bool(trainer.strategy.reduce_boolean_decision(wanted, all=False))


def _is_last_step(trainer: Trainer) -> bool:
    return bool(0 <= trainer.max_steps <= trainer.global_step)
