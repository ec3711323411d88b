"""A plain PyTorch training that Motley can stop and move without losing a step.

motley submit --name cifar --gpus 4 --total-steps 20000 -- torchrun pytorch_loop.py

The lines that Motley needs are the ones that use `motley_client.training`; all else is an ordinary loop.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from motley_client.training import EXIT_REQUEUE, checkpoint_dir, progress, resume, save_atomically, should_stop

STEPS, BATCH_SIZE, CHECKPOINT_EVERY = 20_000, 128, 500


def main() -> int:
    should_stop()  # from here on a stop ends in a checkpoint
    dist.init_process_group("nccl")
    rank, device = dist.get_rank(), torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 10)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    checkpoint, step = checkpoint_dir() / "last.pt", 0

    if resume() and checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]

    def save() -> None:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        if rank == 0:
            save_atomically(checkpoint, lambda file: torch.save(state, file))
        dist.barrier()  # no rank may leave while rank 0 still writes

    while step < STEPS and not stop_on_every_rank(device):
        loss = nn.functional.cross_entropy(model(batch(device)), labels(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % CHECKPOINT_EVERY == 0:
            save()
        if rank == 0 and step % 20 == 0:
            progress(step, loss=loss.item(), batch_size=BATCH_SIZE * dist.get_world_size())

    save()
    dist.destroy_process_group()
    # torchrun exits 1 whatever its workers exit with. After a stop that Motley asked for, that does no harm.
    return 0 if step >= STEPS else EXIT_REQUEUE


def stop_on_every_rank(device: torch.device) -> bool:
    """The same answer on all ranks: SIGTERM reaches them between different steps, and a rank left alone would hang."""
    stop = torch.tensor(float(should_stop()), device=device)
    dist.all_reduce(stop, op=dist.ReduceOp.MAX)
    return bool(stop.item())


def batch(device: torch.device) -> torch.Tensor:
    return torch.randn(BATCH_SIZE, 128, device=device)


def labels(device: torch.device) -> torch.Tensor:
    return torch.randint(10, (BATCH_SIZE,), device=device)


if __name__ == "__main__":
    sys.exit(main())
