"""Gradient noise and learning rate of a PyTorch training whose batch Motley may tune.

tuned = TunedTraining(model.parameters(), [optimizer], batch=share.total, initial=64, lr_scaling="adascale")
...
optimizer.step()
tuned.step_done()                                  # on every rank, once a step
progress(step, loss=loss, **tuned.report())        # on rank 0
share = tuned.next_share(share)                    # now and then, on every rank: the batch of the next steps
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from motley_client.batch_scaling import (
    LEAST_MEASUREMENTS,
    BatchShare,
    GradientNoise,
    SmoothedNoise,
    batch_choices,
    batch_is_tuned,
    best_share,
    learning_rate_factor,
    noise_of_parts,
)
from motley_client.training import gpus_per_replica, micro_batches

MEASURED_EVERY = 10
"""Steps: the noise changes slowly, and a measurement reads each gradient twice."""


class GradientNoiseMeter:
    """Measures the noise of gradients of ordinary and DDP models, in some steps, as they are computed.

    The parts of a batch are the micro-batches of all ranks: each gives a gradient in its backward pass, before DDP
    averages them. With `pairs` a batch that is not in parts, of one GPU, is compared with that of the next step, which
    takes the memory of one more gradient between the two. Losses of micro-batches are divided by their number.
    Clipping and a loss scale do not matter: both gradients are read at the end of the backward pass.

    `passes` are the backward passes of a step. Steps with another number do not count, as of several losses, or of
    layers that are checkpointed with `use_reentrant=True`. Where measuring fails, as for sparse gradients or for lack
    of memory, there is a warning, and training goes on.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        passes: int = 1,
        pairs: bool = True,
        every: int = MEASURED_EVERY,
        smoothing: float = 0.95,
    ) -> None:
        self.every = every
        self.noise = SmoothedNoise(smoothing)
        self._parameters = [one for one in parameters if one.requires_grad]
        self._passes, self._pairs = passes, pairs
        self._steps, self._measured = 0, 0
        self._listens, self._failed = False, False
        self._hooks: list[Any] = []
        self._before: dict[int, Tensor] | None = None
        self._forget()
        self._listen()

    def step_done(self) -> bool:
        """Note the end of a step, on every rank; whether its gradients were measured."""
        measured = self._listens
        if measured:
            self._measured += 1
            self._measure()
        self._ignore()
        self._forget()
        self._steps += 1
        if self._steps % self.every == 0 or self._before is not None or self._measured < 2 * LEAST_MEASUREMENTS:
            self._listen()
        return measured

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self._parameters[0].device if self._parameters else torch.device("cpu")

    def close(self) -> None:
        """Measure no more until the next step that is due."""
        self._ignore()
        self._before = None

    def change_batch(self, *, passes: int, batch_times: float) -> None:
        """Go on with so many passes and so many times the samples in a step; between steps, on every rank."""
        self.close()
        self._passes = passes
        self.noise.scale_variance(1 / batch_times)
        self._forget()
        self._listen()

    def _listen(self) -> None:
        """Listen to gradients of the next step: on all ranks or none, for they add up what they found."""
        self._listens = bool(self._parameters) and (self._pairs or self._parts > 1)
        if self._listens and not self._failed:
            self._hooks = [parameter.register_hook(self._on_gradient) for parameter in self._parameters]

    @property
    def _parts(self) -> int:
        return _ranks() * self._passes

    def _ignore(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._listens = [], False

    def _forget(self) -> None:
        self._backwards = 0
        self._in_backward = False
        self._norms: list[Tensor] = []
        self._sqr_of_parts: list[Tensor] = []
        self._sqr_of_mean: Tensor | None = None
        self._copy: dict[int, Tensor] | None = None
        self._of_pair: tuple[Tensor, Tensor] | None = None

    def _on_gradient(self, gradient: Tensor) -> None:
        """The gradient of a parameter by one micro-batch on this rank, before DDP averages it."""
        if not self._in_backward:
            self._in_backward = True
            _at_end_of_backward(self._after_hooks)
        self._try(lambda: self._norms.append(_norm(gradient.detach())))

    def _after_hooks(self) -> None:
        # DDP has queued meanwhile what waits for its averages: this goes to the end of the queue once more.
        _at_end_of_backward(lambda: self._try(self._after_backward))

    def _after_backward(self) -> None:
        gradients = {i: one.grad for i, one in enumerate(self._parameters) if one.grad is not None}
        norms, self._norms, self._in_backward = self._norms, [], False
        self._backwards += 1
        if norms and gradients:
            self._sqr_of_parts.append(_sqr(norms))
            self._sqr_of_mean = _sqr([_norm(gradient) for gradient in gradients.values()])
            if self._parts == 1:
                self._pair_up(gradients)

    def _try(self, do: Callable[[], None]) -> None:
        """Do a part of the measurement; where it fails, measure no more: training must go on."""
        if self._failed:
            return
        try:
            do()
        except RuntimeError as error:  # of memory, or of a kind of tensor
            self._failed = True
            self._before = self._copy = None
            warnings.warn(f"Motley measures no gradient noise: {error}", RuntimeWarning, stacklevel=2)

    def _pair_up(self, gradients: Mapping[int, Tensor]) -> None:
        """Compare a batch that is not in parts with that of the step before, of almost the same weights."""
        if self._before is None:
            self._copy = {i: gradient.detach().clone() for i, gradient in gradients.items()}
        elif self._before.keys() == gradients.keys():
            self._of_pair = _noise_of_pair([*self._before.values()], [*gradients.values()])

    def _measure(self) -> None:
        counts = not self._failed and self._backwards == self._passes and self._sqr_of_mean is not None
        if self._parts > 1:
            self._measure_parts(self._sqr_of_parts if counts else [])
            return
        self._before = self._copy if counts else None
        if counts and self._of_pair is not None:
            self.noise.add(*self._of_pair)

    def _measure_parts(self, sqr_of_parts: Sequence[Tensor]) -> None:
        """Add up the parts of all ranks; a rank without them takes part, too, and then nothing counts."""
        none = torch.full((), torch.nan, device=self._parameters[0].device)
        total = torch.stack([*sqr_of_parts]).sum() if sqr_of_parts else none
        if (ranks := _ranks()) > 1:
            dist.all_reduce(total)
        mean_of_sqr = total * self._passes / ranks  # losses, and so their gradients, were divided by the passes
        self.noise.add(*noise_of_parts(mean_of_sqr, self._sqr_of_mean if sqr_of_parts else none, self._parts))


class TunedTraining:
    """The noise of a training's gradients, and the learning rate for its batch.

    `initial` is the batch for which the learning rate was chosen. The optimizers see a rate that is multiplied during
    their step alone: schedulers and checkpoints know the initial batch's. Models of several GPUs are not measured.
    `passes` are the backward passes of a step, `micro_batches()` unless they are given. Batches that are in no parts
    are compared, which takes memory, where Motley tunes the batch (or with `pairs`).
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        optimizers: Iterable[torch.optim.Optimizer] = (),
        *,
        batch: int,
        initial: int | None = None,
        lr_scaling: str = "none",
        measure: bool = True,
        passes: int | None = None,
        pairs: bool | None = None,
        every: int = MEASURED_EVERY,
    ) -> None:
        self.batch, self.initial, self.lr_scaling = batch, initial or batch, lr_scaling
        pairs, self._passes = batch_is_tuned() if pairs is None else pairs, passes or micro_batches()
        is_measured = measure and gpus_per_replica() == 1
        self.meter = (
            GradientNoiseMeter(parameters, passes=self._passes, pairs=pairs, every=every) if is_measured else None
        )
        self.lr_factor = learning_rate_factor(lr_scaling, self.batch, self.initial)
        for optimizer in optimizers:
            _multiply_learning_rate(optimizer, self)

    @property
    def noise(self) -> GradientNoise | None:
        """As smoothed so far; waits for the GPU."""
        return self.meter.noise.value if self.meter else None

    def next_share(self, share: BatchShare) -> BatchShare:
        """The batch of the next steps, of most goodput by the noise so far; call it between steps, on every rank.

        The present one where Motley does not tune the batch, or none is much better. The first rank decides for all.
        """
        chosen = self._chosen(share)
        if self.meter and chosen != share:
            self._passes = self._passes * chosen.micro_batches // share.micro_batches
            self.meter.change_batch(passes=self._passes, batch_times=chosen.total / share.total)
            self.batch = chosen.total
            self._scale()
        return chosen

    def _chosen(self, share: BatchShare) -> BatchShare:
        known = batch_choices(_ranks())
        choices = [one for one in known if self._passes * one.micro_batches % share.micro_batches == 0]
        if self.meter is None or not choices:
            return share
        noise = self.noise
        best = best_share(share, choices, noise) if noise else share
        return BatchShare(*_of_first_rank(best, self.meter.device))

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

    if tuned.lr_scaling != "none" and (tuned.batch != tuned.initial or batch_choices(_ranks())):
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
    return torch.stack([norm.float().to(norms[0].device) for norm in norms]).square().sum()


def _of_first_rank(numbers: Sequence[int], device: torch.device) -> list[int]:
    """What the first rank has: floats of the ranks may differ in their last bits, and decisions must not."""
    if _ranks() == 1:
        return [*numbers]
    told = torch.tensor(numbers, device=device)
    dist.broadcast(told, 0)
    return [int(number) for number in told.tolist()]


def _ranks() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
