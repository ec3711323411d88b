"""PyTorch DDP that Motley can stop and continue on other GPUs without losing or repeating a step.

The loss depends on the samples so far, not on how many ranks share a batch. Submitted by ddp.yaml (torchrun, any number
of GPUs) or ddp_without_torchrun.yaml (nodes with one GPU). Outside Motley: python ddp.py, or torchrun ddp.py
"""

import argparse
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import tracking
from motley_client.batch_scaling import LR_SCALINGS, share_batch
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
    stop_reason,
    try_to_save,
)

GLOBAL_BATCH = 48
"""Samples per step over all ranks, for which the learning rate was chosen, unless Motley tunes the batch: divisible by
every number of GPUs that the job may get."""


def main(options: argparse.Namespace) -> int:
    should_stop()  # from here on, SIGTERM leads to a checkpoint
    device = join()
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)).double().to(device)
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    share, rule = share_batch(GLOBAL_BATCH, world_size), options.lr_scaling
    tuned = TunedTraining(model.parameters(), [optimizer], batch=share.total, initial=GLOBAL_BATCH, lr_scaling=rule)
    checkpoint, step, samples = checkpoint_dir() / "last.pt", 0, 0

    def state() -> dict[str, Any]:
        trained = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        return trained | {"samples": samples, "noise": tuned.state_dict()}

    if resume() and checkpoint.exists():
        with restoring():
            saved = torch.load(checkpoint, map_location=device)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            tuned.load_state_dict(saved["noise"])
        step, samples = saved["step"], saved["samples"]
    log = tracking.start(options.track) if rank == 0 else tracking.nothing
    say(rank, f"from step {step} on {world_size} ranks")

    while step < options.steps and not stop_on_every_rank(device):
        x, y = share_of(batch(samples, share.total), rank, world_size, device)
        optimizer.zero_grad()
        loss = torch.zeros((), device=device, dtype=x.dtype)
        for number, (part, labels) in enumerate(zip(x.split(share.samples), y.split(share.samples), strict=True), 1):
            ddp.require_backward_grad_sync = number == share.micro_batches  # ranks average once a step
            of_part = nn.functional.binary_cross_entropy_with_logits(ddp(part), labels) / share.micro_batches
            of_part.backward()
            loss += of_part.detach()
        optimizer.step()
        tuned.step_done()
        step, samples = step + 1, samples + share.total
        if step % options.report_every == 0:
            mean = mean_over_ranks(loss)
            if rank == 0:
                progress(step, loss=mean, **tuned.report())
                log(step, mean)
            say(rank, f"step {step} loss {mean:.12f}")
            share = tuned.next_share(share)  # a tuned batch follows the noise of the gradient
        if rank == 0 and next_checkpoint() <= 0:
            try_to_save(checkpoint, lambda file: torch.save(state(), file))

    if rank == 0:
        save_atomically(checkpoint, lambda file: torch.save(state(), file))
    dist.barrier()  # no rank may exit while rank 0 is still writing
    dist.destroy_process_group()
    if step >= options.steps:
        return 0
    say(rank, f"stopped ({stop_reason()}) at step {step}")
    return EXIT_REQUEUE  # torchrun makes 1 of it; after a stop requested by Motley that does no harm


def join() -> torch.device:
    """Join the process group: as torchrun says, else one process per node as Motley says, else alone."""
    if "RANK" not in os.environ and int(os.environ.get("MOTLEY_GPUS_PER_NODE", "1")) > 1:
        raise SystemExit("One process would use one of several GPUs: start it by torchrun.")
    os.environ.setdefault("RANK", os.environ.get("MOTLEY_NODE_RANK", "0"))
    os.environ.setdefault("WORLD_SIZE", os.environ.get("MOTLEY_NUM_NODES", "1"))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl")
    return torch.device("cuda", torch.cuda.current_device())


def stop_on_every_rank(device: torch.device) -> bool:
    """Whether to stop, by all-reduce: ranks receive SIGTERM at different steps, and one left alone would hang.

    It waits for the GPU; where a step takes only some milliseconds, ask every few steps.
    """
    stop = torch.tensor(float(should_stop()), device=device)
    dist.all_reduce(stop, op=dist.ReduceOp.MAX)
    return bool(stop.item())


def batch(first: int, size: int) -> tuple[Tensor, Tensor]:
    """Samples of a step, in place of a data set; of one, take numbers `first` and following."""
    generator = torch.Generator().manual_seed(first)
    x = torch.randn(size, 16, generator=generator, dtype=torch.float64)
    return x, (x.sum(1, keepdim=True).sin() > 0).double()


def share_of(samples: tuple[Tensor, Tensor], rank: int, world_size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Equal part of the batch for a rank, so that the mean over ranks is the mean over the batch."""
    x, y = (tensor.chunk(world_size)[rank].to(device) for tensor in samples)
    return x, y


def mean_over_ranks(loss: Tensor) -> float:
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def say(rank: int, line: str) -> None:
    if rank == 0:
        print(line, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--report-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--lr-scaling", choices=LR_SCALINGS, default="adascale", help="learning rate of a tuned batch")
    parser.add_argument("--track", choices=["wandb", "mlflow"], help="log the loss there, as one run over all attempts")
    sys.exit(main(parser.parse_args()))
