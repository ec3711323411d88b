"""Model and data of the examples: put your own in their place."""

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

GLOBAL_BATCH = 48
"""Samples per step over all ranks, for which the learning rate was chosen, unless Motley tunes the batch: divisible by
every number of GPUs that the job may get."""


class Waves(Dataset[dict[str, Tensor]]):
    """Points, and whether the sine of their sum is positive."""

    def __len__(self) -> int:
        return 100 * GLOBAL_BATCH

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        x = torch.randn(16, generator=torch.Generator().manual_seed(index), dtype=torch.float64)
        return {"x": x, "labels": (x.sum(0, keepdim=True).sin() > 0).double()}


class Perceptron(nn.Module):
    """Called with the fields of a batch, it returns the loss, as models of Transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)).double()

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.layers(x)
        return {"loss": nn.functional.binary_cross_entropy_with_logits(logits, labels), "logits": logits}
