"""Gradient noise and learning rate of a PyTorch training whose batch Motley may tune.

tuned = TunedTraining(model.parameters(), [optimizer], batch=share.total, initial=64, lr_scaling="adascale")
...
optimizer.step()
tuned.step_done()                                  # on every rank, once a step
progress(step, loss=loss, **tuned.report())        # on rank 0
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from motley_client.batch_scaling import (
    LEAST_MEASUREMENTS,
    GradientNoise,
    SmoothedNoise,
    learning_rate_factor,
    noise_of_parts,
)
from motley_client.training import gpus_per_replica

MEASURED_EVERY = 10
"""Steps: the noise changes slowly, and a measurement reads each gradient twice."""


class GradientNoiseMeter:
    """Measures the noise of gradients of ordinary and DDP models, in some steps, as they are computed.

    The parts of a batch are the micro-batches of all ranks: each gives a gradient in its backward pass, before DDP
    averages them. A batch that is not in parts, of one GPU, is compared with that of the next step, which takes the
    memory of one more gradient between the two. Losses of micro-batches are divided by their number.
    Clipping and a loss scale do not matter: both gradients are read at the end of the backward pass.
    """

    def __init__(self, parameters: Iterable[Tensor], *, every: int = MEASURED_EVERY, smoothing: float = 0.95) -> None:
        self.every = every
        self.noise = SmoothedNoise(smoothing)
        self._parameters = [one for one in parameters if one.requires_grad]
        self._steps = 0
        self._hooks: list[Any] = []
        self._passes = 1
        self._before: list[Tensor] | None = None
        self._forget()
        self._listen()

    def step_done(self) -> bool:
        """Note the end of a step, on every rank; whether its gradients were measured."""
        measured = bool(self._hooks) and self._backwards > 0
        if measured:
            self._measure()
        self._ignore()
        self._forget()
        self._steps += 1
        if self._steps % self.every == 0 or self._before is not None or self.noise.measurements < LEAST_MEASUREMENTS:
            self._listen()
        return measured

    def close(self) -> None:
        """Measure no more."""
        self._ignore()
        self._before = None

    def _listen(self) -> None:
        self._hooks = [parameter.register_hook(self._on_gradient) for parameter in self._parameters]

    def _ignore(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _forget(self) -> None:
        self._backwards = 0
        self._in_backward = False
        self._norms: list[Tensor] = []
        self._sqr_of_parts: list[Tensor] = []
        self._sqr_of_mean: Tensor | None = None
        self._copy: list[Tensor] | None = None
        self._of_pair: tuple[Tensor, Tensor] | None = None

    def _on_gradient(self, gradient: Tensor) -> None:
        """The gradient of a parameter by one micro-batch on this rank, before DDP averages it."""
        if not self._in_backward:
            self._in_backward = True
            _at_end_of_backward(self._after_hooks)
        self._norms.append(_norm(gradient.detach()))

    def _after_hooks(self) -> None:
        # DDP has queued meanwhile what waits for its averages: this goes to the end of the queue once more.
        _at_end_of_backward(self._after_backward)

    def _after_backward(self) -> None:
        gradients = self._gradients()
        if self._norms and gradients:
            self._sqr_of_parts.append(_sqr(self._norms))
            self._sqr_of_mean = _sqr([_norm(gradient) for gradient in gradients])
            self._pair_up(gradients)
        self._norms, self._in_backward = [], False
        self._backwards += 1

    def _pair_up(self, gradients: Sequence[Tensor]) -> None:
        """Compare a batch that is not in parts with that of the step before, of almost the same weights."""
        if self._backwards or self._passes > 1 or _ranks() > 1:
            return
        if self._before is None:
            self._copy = [gradient.detach().clone() for gradient in gradients]
        else:
            self._of_pair = _noise_of_pair(self._before, gradients)

    def _gradients(self) -> list[Tensor]:
        return [one.grad for one in self._parameters if one.grad is not None]

    def _measure(self) -> None:
        if self._sqr_of_mean is None:
            return
        ranks, passes = _ranks(), self._backwards
        self._passes, self._before = passes, self._copy if passes == 1 else None
        if ranks * passes == 1:
            if self._of_pair is not None:
                self.noise.add(*self._of_pair)
            return
        total = torch.stack(self._sqr_of_parts).sum()
        if ranks > 1:
            dist.all_reduce(total)
        mean_of_sqr = total * passes / ranks  # losses, and so their gradients, were divided by the passes
        self.noise.add(*noise_of_parts(mean_of_sqr, self._sqr_of_mean, ranks * passes))


class TunedTraining:
    """The noise of a training's gradients, and the learning rate for its batch.

    `initial` is the batch for which the learning rate was chosen. The optimizers see a rate that is multiplied during
    their step alone: schedulers and checkpoints know the initial batch's. Models of several GPUs are not measured.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        optimizers: Iterable[torch.optim.Optimizer] = (),
        *,
        batch: int,
        initial: int | None = None,
        lr_scaling: str = "none",
        every: int = MEASURED_EVERY,
    ) -> None:
        self.batch, self.initial, self.lr_scaling = batch, initial or batch, lr_scaling
        self.meter = GradientNoiseMeter(parameters, every=every) if gpus_per_replica() == 1 else None
        self.lr_factor = learning_rate_factor(lr_scaling, self.batch, self.initial)
        for optimizer in optimizers:
            _multiply_learning_rate(optimizer, self)

    @property
    def noise(self) -> GradientNoise | None:
        """As smoothed so far; waits for the GPU."""
        return self.meter.noise.value if self.meter else None

    def step_done(self) -> None:
        """Note the end of a step, after `optimizer.step()`, on every rank: all of them then have one learning rate."""
        if self.meter and self.meter.step_done() and self.lr_scaling == "adascale":
            self._scale()

    def report(self) -> dict[str, Any]:
        """Arguments of `progress`."""
        noise = self.noise
        return {"batch_size": self.batch} | ({"grad_sqr": noise.sqr, "grad_var": noise.var} if noise else {})

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint keeps of the noise, per sample: the next attempt may have another batch."""
        known = self.meter.noise.state_dict() if self.meter else {}
        return known | {"var": known["var"] * self.batch} if known else {}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        if self.meter and state:
            self.meter.noise.load_state_dict({**state, "var": state["var"] / self.batch})
            self._scale()

    def _scale(self) -> None:
        self.lr_factor = learning_rate_factor(self.lr_scaling, self.batch, self.initial, self.noise)


def _multiply_learning_rate(optimizer: torch.optim.Optimizer, tuned: TunedTraining) -> None:
    """Multiply the rates of an optimizer by the factor for the time of its steps."""
    own: list[float] = []

    def before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        own[:] = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * tuned.lr_factor

    def after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group, rate in zip(optimizer.param_groups, own, strict=True):
            group["lr"] = rate

    if tuned.lr_scaling != "none" and tuned.batch != tuned.initial:
        optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(after)


def _at_end_of_backward(do: Any) -> None:
    """Call it when the running backward pass is over, after what was queued before (as FSDP and DDP do it)."""
    torch.autograd.Variable._execution_engine.queue_callback(do)


def _noise_of_pair(one: Sequence[Tensor], other: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Estimates of squared norm and variance from the gradients of two batches of one size."""
    difference, total = (
        _sqr([_norm(torch.add(a, b, alpha=sign)) for a, b in zip(one, other, strict=True)]) for sign in (-1, 1)
    )
    return (total - difference) / 4, difference / 2


def _norm(tensor: Tensor) -> Tensor:
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    return torch.linalg.vector_norm(tensor, dtype=torch.float32 if half else None)


def _sqr(norms: Sequence[Tensor]) -> Tensor:
    return torch.stack([norm.float() for norm in norms]).square().sum()


def _ranks() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
