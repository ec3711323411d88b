"""PyTorch training loop that Motley can stop and move without losing a step.

motley submit --name cifar --gpus 1 --total-steps 20000 -- python pytorch_loop.py
motley submit --name cifar --gpus 4 --total-steps 20000 -- torchrun pytorch_loop.py

Only the lines that use `motley_client.training` are specific to Motley. Outside Motley it is an ordinary loop that
saves to ./checkpoints and reports nothing.
"""

import argparse
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from motley_client.training import (
    EXIT_REQUEUE,
    checkpoint_dir,
    progress,
    resume,
    save_atomically,
    should_stop,
    try_to_save,
)

BATCH_SIZE, CHECKPOINT_EVERY, REPORT_EVERY = 128, 500, 20


def main(steps: int) -> int:
    should_stop()  # from here on, SIGTERM leads to a checkpoint
    rank, world_size, device = join()
    model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 10)).to(device)
    forward = DistributedDataParallel(model) if world_size > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    checkpoint, step = checkpoint_dir() / "last.pt", 0

    if resume() and checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]

    def state() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}

    while step < steps and not stop_on_every_rank(device, world_size):
        loss = nn.functional.cross_entropy(forward(batch(device)), labels(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0 and step % CHECKPOINT_EVERY == 0:
            try_to_save(checkpoint, lambda file: torch.save(state(), file))
        if rank == 0 and step % REPORT_EVERY == 0:
            progress(step, loss=loss.item(), batch_size=BATCH_SIZE * world_size)

    if rank == 0:
        save_atomically(checkpoint, lambda file: torch.save(state(), file))
    if world_size > 1:
        dist.barrier()  # no rank may exit while rank 0 is still writing
        dist.destroy_process_group()
    # torchrun exits with 1 whatever its workers return. After a stop requested by Motley this does no harm.
    return 0 if step >= steps else EXIT_REQUEUE


def join() -> tuple[int, int, torch.device]:
    """Rank, world size and device: from torchrun's variables, or a single process."""
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    if "RANK" not in os.environ:
        return 0, 1, device
    dist.init_process_group("nccl" if cuda else "gloo")
    return dist.get_rank(), dist.get_world_size(), device


def stop_on_every_rank(device: torch.device, world_size: int) -> bool:
    """Whether to stop, by all-reduce: ranks receive SIGTERM at different steps, and one left alone would hang."""
    if world_size == 1:
        return should_stop()
    stop = torch.tensor(float(should_stop()), device=device)
    dist.all_reduce(stop, op=dist.ReduceOp.MAX)
    return bool(stop.item())


def batch(device: torch.device) -> torch.Tensor:
    return torch.randn(BATCH_SIZE, 128, device=device)


def labels(device: torch.device) -> torch.Tensor:
    return torch.randint(10, (BATCH_SIZE,), device=device)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    sys.exit(main(parser.parse_args().steps))
