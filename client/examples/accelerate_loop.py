"""A loop of Hugging Face Accelerate that Motley can stop and continue on other GPUs, losing and repeating no step.

Submitted by accelerate_loop.yaml. Outside Motley: python accelerate_loop.py
"""

import argparse
import sys
from typing import Any

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from torch.utils.data import DataLoader

import tracking
from motley_client.batch_scaling import LR_SCALINGS, BatchShare, share_batch
from motley_client.gradient_noise import TunedTraining
from motley_client.training import (
    EXIT_REQUEUE,
    checkpoint_dir,
    next_checkpoint,
    progress,
    restoring,
    resume,
    save_atomically,
    should_stop,
    try_to_save,
)
from toy import GLOBAL_BATCH, Perceptron, Waves


def main(options: argparse.Namespace) -> int:
    should_stop()  # from here on, SIGTERM leads to a checkpoint
    accelerator, share = join()
    at_once = share.total // share.micro_batches  # samples of a pass, on all ranks
    set_seed(0)
    model = Perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    tuned = TunedTraining(
        model.parameters(), [optimizer], batch=share.total, initial=GLOBAL_BATCH, lr_scaling=options.lr_scaling
    )
    checkpoint, step, samples = checkpoint_dir() / "last.pt", 0, 0
    if resume() and checkpoint.exists():
        with restoring():
            saved = torch.load(checkpoint, map_location="cpu")
            for part, of_part in {"model": model, "optimizer": optimizer, "noise": tuned}.items():
                of_part.load_state_dict(saved[part])
        step, samples = saved["step"], saved["samples"]
    data = DataLoader(Waves(), at_once, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, data)
    log = tracking.start(options.track) if accelerator.is_main_process else tracking.nothing

    def state() -> dict[str, Any]:
        whole = accelerator.unwrap_model(model)
        trained = {"model": whole.state_dict(), "optimizer": optimizer.optimizer.state_dict()}
        return trained | {"step": step, "samples": samples, "noise": tuned.state_dict()}

    stopped = False
    while step < options.steps and not stopped:
        epoch, done = divmod(samples // at_once, len(loader))
        loader.set_epoch(epoch)
        for batch in accelerator.skip_first_batches(loader, done):
            with accelerator.accumulate(model):
                loss = model(**batch)["loss"]
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            samples += at_once
            if not accelerator.sync_gradients:
                continue
            tuned.step_done()
            step += 1
            if step % options.report_every == 0:
                mean = accelerator.reduce(loss.detach(), "mean").item()
                accelerator.print(f"step {step} loss {mean:.12f}", flush=True)
                log(step, mean)
                if accelerator.is_main_process:
                    progress(step, epoch=epoch, loss=mean, **tuned.report())
            if accelerator.is_main_process and next_checkpoint() <= 0:
                try_to_save(checkpoint, lambda file: torch.save(state(), file))
            if should_stop():
                accelerator.set_trigger()
            stopped = accelerator.check_trigger()  # true on all ranks at the same step
            if stopped or step >= options.steps:
                break

    if accelerator.is_main_process:
        save_atomically(checkpoint, lambda file: torch.save(state(), file))
    accelerator.wait_for_everyone()
    accelerator.end_training()
    return 0 if step >= options.steps else EXIT_REQUEUE


def join() -> tuple[Accelerator, BatchShare]:
    """This rank's accelerator, and its share of the batch."""
    # Batches are global and split over the ranks: their content does not depend on the number of ranks.
    batches = DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True)
    # Without `cpu` each rank would train alone where there is no GPU.
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), dataloader_config=batches)
    share = share_batch(GLOBAL_BATCH, accelerator.num_processes)
    accelerator.gradient_accumulation_steps = share.micro_batches
    return accelerator, share


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--report-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--lr-scaling", choices=LR_SCALINGS, default="adascale", help="learning rate of a tuned batch")
    parser.add_argument("--track", choices=["wandb", "mlflow"], help="log the loss there, as one run over all attempts")
    sys.exit(main(parser.parse_args()))
