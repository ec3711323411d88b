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
from motley_client.training import (
    EXIT_REQUEUE,
    checkpoint_dir,
    next_checkpoint,
    progress,
    resume,
    save_atomically,
    should_stop,
    try_to_save,
)
from toy import GLOBAL_BATCH, Perceptron, Waves, share


def main(options: argparse.Namespace) -> int:
    should_stop()  # from here on, SIGTERM leads to a checkpoint
    # Batches are global and split over the ranks: their content does not depend on the number of ranks.
    batches = DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True)
    # Without `cpu` each rank would train alone where there is no GPU.
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), dataloader_config=batches)
    share(accelerator.num_processes)
    set_seed(0)
    model = Perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    checkpoint, step = checkpoint_dir() / "last.pt", 0
    if resume() and checkpoint.exists():
        saved = torch.load(checkpoint, map_location="cpu")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(Waves(), GLOBAL_BATCH, shuffle=True))
    log = tracking.start(options.track) if accelerator.is_main_process else tracking.nothing

    def state() -> dict[str, Any]:
        whole = accelerator.unwrap_model(model)
        return {"model": whole.state_dict(), "optimizer": optimizer.optimizer.state_dict(), "step": step}

    stopped = False
    while step < options.steps and not stopped:
        epoch, done = divmod(step, len(loader))
        loader.set_epoch(epoch)
        for batch in accelerator.skip_first_batches(loader, done):
            loss = model(**batch)["loss"]
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            step += 1
            if step % options.report_every == 0:
                mean = accelerator.reduce(loss.detach(), "mean").item()
                accelerator.print(f"step {step} loss {mean:.12f}", flush=True)
                if accelerator.is_main_process:
                    progress(step, epoch=epoch, loss=mean, batch_size=GLOBAL_BATCH)
                    log(step, mean)
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--report-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--track", choices=["wandb", "mlflow"], help="log the loss there, as one run over all attempts")
    sys.exit(main(parser.parse_args()))
