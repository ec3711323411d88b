"""PyTorch Lightning that Motley can stop and continue on other GPUs without losing or repeating a step.

Submitted by lightning_trainer.yaml. Outside Motley: python lightning_trainer.py
"""

import argparse
import os
from collections.abc import Iterator
from itertools import count

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import Logger, MLFlowLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

import tracking
from motley_client.batch_scaling import LR_SCALINGS, BatchShare, share_batch
from motley_client.lightning import MotleyCallback
from toy import GLOBAL_BATCH, Perceptron, Waves

Batch = dict[str, Tensor]


class StepSampler(Sampler[list[int]]):
    """Samples of this rank for each pass from a sample on, in a shuffled order that depends on the epoch alone.

    Lightning starts a data loader anew when it resumes within an epoch; this one starts at the sample reached.
    """

    def __init__(self, done: int, rank: int, share: BatchShare) -> None:
        self.done, self.rank, self.share = done, rank, share

    def __iter__(self) -> Iterator[list[int]]:
        size, at_once = len(Waves()), self.share.total // self.share.micro_batches
        for first in count(self.done, at_once):
            epoch, at = divmod(first, size - size % at_once)
            order = torch.randperm(size, generator=torch.Generator().manual_seed(epoch))
            yield order[at + self.rank * self.share.samples :][: self.share.samples].tolist()


class PrintLoss(pl.Callback):
    def __init__(self, every: int) -> None:
        self.every = every

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Batch, batch: Batch, batch_idx: int
    ) -> None:
        if trainer.global_step % self.every == 0:
            mean = trainer.strategy.reduce(outputs["loss"], reduce_op="mean").item()
            rank_zero_only(print)(f"step {trainer.global_step} loss {mean:.12f}", flush=True)


class Module(pl.LightningModule):
    def __init__(self, share: BatchShare) -> None:
        super().__init__()
        self.model, self.share = Perceptron(), share
        self.register_buffer("samples", torch.zeros((), dtype=torch.int64))  # its checkpoints keep it

    def training_step(self, batch: Batch, _: int) -> Tensor:
        self.samples += self.share.total // self.share.micro_batches
        loss = self.model(**batch)["loss"]
        self.log("loss", loss, on_step=True, on_epoch=False)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    def train_dataloader(self) -> DataLoader[Batch]:
        sampler = StepSampler(int(self.samples), self.trainer.global_rank, self.share)
        return DataLoader(Waves(), batch_sampler=sampler)


def main(options: argparse.Namespace) -> None:
    pl.seed_everything(0)
    gpus = int(os.environ.get("MOTLEY_GPUS_PER_NODE", "1")) * int(os.environ.get("MOTLEY_NUM_NODES", "1"))
    share = share_batch(GLOBAL_BATCH, gpus)
    rule = options.lr_scaling
    motley = MotleyCallback(batch_size=share.total, initial_batch=GLOBAL_BATCH, lr_scaling=rule)
    trainer = pl.Trainer(
        devices=int(os.environ.get("MOTLEY_GPUS_PER_NODE", "1")),
        num_nodes=int(os.environ.get("MOTLEY_NUM_NODES", "1")),
        callbacks=[motley, PrintLoss(options.report_every)],
        accumulate_grad_batches=share.micro_batches,
        max_epochs=-1,
        max_steps=options.steps,
        use_distributed_sampler=False,
        logger=logger(options.track),
        log_every_n_steps=options.report_every,
        enable_progress_bar=False,
    )
    trainer.fit(Module(share), ckpt_path=motley.resume_path())


def logger(tracker: str | None) -> Logger | bool:
    """A logger that continues the run of earlier attempts."""
    if os.environ.get("RANK", "0") == "0":
        tracking.name_run(tracker)
    if tracker == "wandb":
        return WandbLogger(project="motley", id=os.environ.get("WANDB_RUN_ID"), resume="allow")
    if tracker == "mlflow":
        return MLFlowLogger(run_id=os.environ.get("MLFLOW_RUN_ID"), tracking_uri=os.environ["MLFLOW_TRACKING_URI"])
    return False


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--report-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--lr-scaling", choices=LR_SCALINGS, default="adascale", help="learning rate of a tuned batch")
    parser.add_argument("--track", choices=["wandb", "mlflow"], help="log the loss there, as one run over all attempts")
    main(parser.parse_args())
