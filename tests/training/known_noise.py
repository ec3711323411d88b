"""A problem whose gradient noise is known in closed form, trained by torch: prints the noise that is measured.

The loss of a sample x is half the squared distance of x and w; samples have the mean 0 and the variance c per number:
the gradient is w - x, so that its squared norm is w's and its variance over batches of B samples is dim c / B.
"""

import argparse
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from motley_client.batch_scaling import BatchShare
from motley_client.gradient_noise import TunedTraining

DIMENSIONS, VARIANCE, BATCH = 64, 4.0, 32


class Distance(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.full((DIMENSIONS // 2,), 0.5)) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * (torch.cat(list(self.weights)) - x).square().sum(1).mean()


def main(passes: int, steps: int, clip: float, *, follow: bool) -> None:
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(int(os.environ.get("RANK", "0")))
    model = Distance()
    whole = DistributedDataParallel(model) if ranks > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)  # the gradient stays what it is
    of_batch = {"batch": BATCH, "initial": 8, "lr_scaling": "adascale", "passes": passes, "pairs": True}
    tuned = TunedTraining(model.parameters(), [optimizer], **of_batch, every=3)
    share = BatchShare(BATCH, passes, BATCH // ranks // passes)
    for step in range(steps):
        if follow and step % 20 == 0:
            share = tuned.next_share(share)
        for micro in range(share.micro_batches):
            if ranks > 1:
                whole.require_backward_grad_sync = micro == share.micro_batches - 1
            x = torch.randn(share.samples, DIMENSIONS) * VARIANCE**0.5
            (whole(x) / share.micro_batches).backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()  # as the Trainer of Transformers: when the step is noted, gradients are gone
        tuned.step_done()
    report = tuned.report() | {"lr_factor": tuned.lr_factor}
    if ranks > 1:
        dist.destroy_process_group()
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(report))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--clip", type=float, default=1e9)
    parser.add_argument("--follow", action="store_true", help="the batch follows the noise, among the choices told")
    options = parser.parse_args()
    main(options.passes, options.steps, options.clip, follow=options.follow)
