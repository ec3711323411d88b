"""Trainings whose gradients cannot be compared, or not always: prints what each reports of its noise."""

import json
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from motley_client.gradient_noise import TunedTraining

STEPS, PASSES = 60, 2


def trained(model: nn.Module, loss_of: Callable[[int, Tensor], Tensor], passes: int = PASSES) -> list[str]:
    """Names in the report after all steps, and of warnings."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        tuned = TunedTraining(model.parameters(), [optimizer], batch=32, passes=passes, pairs=True, every=2)
        for step in range(STEPS):
            for _ in range(passes):
                (loss_of(step, torch.randn(16, 8)) / passes).backward()
            optimizer.zero_grad()
            tuned.step_done()
    return [*tuned.report(), *(one.category.__name__ for one in warned if "Motley" in str(one.message))]


def main() -> None:
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
    table = nn.Embedding(100, 8, sparse=True)

    def of_all(x: Tensor) -> Tensor:
        return (layers[1](layers[0](x).tanh()) - x).square().mean()

    def overflows(step: int, x: Tensor) -> Tensor:
        return of_all(x) * (float("inf") if step == 0 else 1.0)

    def reentrant(step: int, x: Tensor) -> Tensor:
        inner = checkpoint(lambda y: layers[0](y).tanh(), x.requires_grad_(), use_reentrant=True)
        return (checkpoint(layers[1], inner, use_reentrant=True) - x).square().mean()

    def sometimes(step: int, x: Tensor) -> Tensor:
        return of_all(x) if step % 2 else layers[0](x).square().mean()

    def sparse(step: int, x: Tensor) -> Tensor:
        return table(torch.randint(100, (16,))).square().mean()

    found = {
        "overflows": trained(layers, overflows),
        "reentrant": trained(layers, reentrant),
        "sometimes": trained(layers, sometimes, passes=1),
        "sparse": trained(table, sparse),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
