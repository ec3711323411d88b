"""Cost of measuring the gradient noise, as a part of a training step.

PYTHONPATH=client .cache/torch/bin/python benchmarks/gradient_noise.py     # on the GPU, where there is one

Steps with and without measurement alternate in blocks. On CPUs their time is that of the processor, so that other work
of the machine does not matter.
"""

import argparse
from statistics import median
from time import perf_counter, process_time

import torch
from torch import nn

from motley_client.gradient_noise import MEASURED_EVERY, TunedTraining

BLOCK = 2 * MEASURED_EVERY
"""Steps of a block: each has as many measured steps."""


def main(options: argparse.Namespace) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = nn.Sequential(*[_block(options.width) for _ in range(options.depth)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    samples = torch.randn(options.batch, options.tokens, options.width, device=device)

    def block(tuned: TunedTraining | None) -> float:
        """Seconds of a step."""
        begun = _now(device)
        for _ in range(BLOCK):
            for part in samples.chunk(options.passes):
                (model(part).square().mean() / options.passes).backward()
            optimizer.step()
            optimizer.zero_grad()
            if tuned:
                tuned.step_done()
        return (_now(device) - begun) / BLOCK

    of_batch = {"batch": options.batch, "passes": options.passes, "pairs": True, "lr_scaling": "adascale"}
    tuned = TunedTraining(model.parameters(), [optimizer], **of_batch)
    block(tuned)  # warms up, and measures each of the first steps
    assert tuned.meter is not None
    parts = []
    for _ in range(options.blocks):
        tuned.meter.close()
        without_s = block(None)
        parts.append(block(tuned) / without_s - 1)
    count = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"{device.type}, {count / 1e6:.1f} M parameters, {options.batch} x {options.tokens} tokens in {options.passes} "
        f"passes, {without_s * 1000:.1f} ms a step: measuring costs {median(parts):.2%} of a step "
        f"(half of {len(parts)} blocks below)"
    )


def _block(width: int) -> nn.Module:
    return nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
        return perf_counter()
    return process_time()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=15)
    main(parser.parse_args())
