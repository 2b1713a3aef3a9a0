"""Divergence: steps that must not update anything, found without waiting for the device, and where they went wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from .. import errors, kernels
from ..device import Context, NonFinite, Tensor
from ..formats import FormatError
from ..models.partitioned import PartitionedGradients
from ..models.transformer import IGNORE_INDEX, Transformer
from .config import LEAST_LOSS_SCALE
from .data import Batch

if TYPE_CHECKING:
    from .trainer import StepResult, Trainer

_ADVICE = "the last checkpoint is from before that. A lower learning rate or a longer warm-up usually helps"

_SHARED = "is not searched for while experts are on several ranks"
_PARTITIONED = "the largest gradient is not searched for while each rank keeps some of them"


class DivergedError(RuntimeError):
    """The loss is not a finite number any more, or far too large. The message says where that began."""


class Watch:
    """Lets no step update anything from the first one on whose gradients are not finite; for f32 and bf16.

    The norms of the gradients are added up: once one of them is not finite, the sum never is again. It replaces the
    norm in the kernel of loss scaling, whose scale stays 1 here and is not used.
    """

    def __init__(self, ctx: Context):
        self._sum = ctx.zeros((1,))
        self._scale = ctx.tensor(np.ones(1, np.float32))
        self._good_steps, self._skipped = ctx.zeros((1,), "i32"), ctx.zeros((1,), "i32")
        self.skip = ctx.zeros((1,), "i32")  # 1 from such a step on, i32 [1]

    def update(self, norm: Tensor) -> None:
        """Sets `skip` from the norm f32 [1] of the gradients of a step."""
        kernels.add(norm, self._sum, y=self._sum)
        kernels.loss_scale_update(
            self._sum,
            self._scale,
            self._good_steps,
            self._skipped,
            skip=self.skip,
            growth=1.0,
            backoff=1.0,
            interval=1,
        )

    def reset(self) -> None:
        """Forgets the steps so far."""
        for tensor in (self._sum, self._good_steps, self._skipped, self.skip):
            tensor.zero_()


def check_convergence(trainer: Trainer, result: StepResult, batch_of: Callable[[int], Batch]) -> None:
    """DivergedError when the last step, or one before it, gave gradients or a loss that are not finite, or a loss above
    max_loss. `batch_of` gives what a step had again.

    A step in f16 that overflowed is none of these: it was skipped, and a lower loss scale can still help.
    """
    if result.loss_scale is not None and result.skipped:
        if result.loss_scale == LEAST_LOSS_SCALE:
            raise DivergedError(
                f"the gradients overflow at step {result.step} with the least loss scale there is; the last checkpoint "
                f"is from before that. A lower learning rate or another precision usually helps"
            )
        return
    loss = result.loss
    if result.skipped or not math.isfinite(loss):
        # Nothing was updated since the first such step, so the weights are still those that it met.
        step = trainer.updates + 1 if result.skipped else result.step
        if trainer.model.experts is not None:  # one rank alone cannot run the batch again
            raise DivergedError(f"the loss is {loss:.4g} at step {step}: the place where it began {_SHARED}; {_ADVICE}")
        try:
            trainer.forget_capture()  # its memory is needed
            loss, place = _origin(trainer, batch_of(step), result.loss_scale or 1.0)
        except (errors.Error, FormatError) as error:
            sentence = error.message if isinstance(error, errors.Error) else str(error)
            place = f"where it began could not be found ({sentence})"
        raise DivergedError(f"the loss is {loss:.4g} at step {step}: {place}; {_ADVICE}")
    limit = trainer.config.max_loss
    if limit is None:
        limit = 10 * math.log(trainer.model.config.vocab_size)
    if loss > limit:
        place = f"the largest gradient {_SHARED}"
        if trainer.model.experts is None:
            if not isinstance(trainer.model.gradients, PartitionedGradients):
                trainer.gather_gradients()
            place = _largest_gradient(trainer.model, result.loss_scale or 1.0)
        raise DivergedError(
            f"the loss is {loss:.4g} at step {result.step}, above max_loss ({limit:.4g}): {place}; {_ADVICE}"
        )


def _origin(trainer: Trainer, batch: Batch, scale: float) -> tuple[float, str]:
    """The loss of a batch, and the first place where something is not finite, in the order of the calls: a weight, or
    what a kernel made."""
    model = trainer.model
    with model.ctx.trace_nonfinite() as trace:
        loss = _run(model, batch, trainer.config.micro_batch_size or len(batch[0]), scale)
    return loss, _largest_gradient(model, scale) if trace.found is None else _place(model, trace.found)


def _place(model: Transformer, found: NonFinite) -> str:
    assert model.gradients is not None
    name, index = f"{found.argument} of {found.kernel}{' in ' * (found.label != '')}{found.label}", found.index
    for arena, what in ((model.weights, ""), (model.gradients, "the gradient of ")):
        if parameter := arena.find(found.address):
            name, index = what + parameter[0], parameter[1]
    return f"{name} is not finite, first at {list(index)} ({found.value})"


def _run(model: Transformer, given: Batch, micro: int, scale: float) -> float:
    """Loss of a batch, and its gradients times `scale` into the model's, as a step makes them, call by call."""
    inputs, targets, *packed = given
    ctx, (batch, length) = model.ctx, inputs.shape
    tokens = int(np.count_nonzero(targets != IGNORE_INDEX))
    scales, losses = ctx.tensor(np.array([scale], np.float32)), []
    factor = kernels.weighted_mean(scales, divisor=tokens)
    for start in range(0, batch, micro):
        size = min(micro, batch - start)
        sums, aux = ctx.empty((model.loss_pieces(size * length),)), ctx.zeros((1,))
        share = kernels.weighted_mean(scales, ctx.tensor(np.array([size], np.int32)), divisor=batch)
        rows = slice(start, start + size)
        ends = packed[0][rows] if packed else None
        model.forward_backward(
            inputs[rows], targets[rows], factor, share, sums, aux, accumulate=start > 0, document_ends=ends
        )
        losses.append(sums.numpy())
    return kernels.weighted_mean(ctx.tensor(np.concatenate(losses)), divisor=tokens).item()


def _largest_gradient(model: Transformer, scale: float) -> str:
    assert model.gradients is not None
    if isinstance(model.gradients, PartitionedGradients):
        return _PARTITIONED
    norms = {  # in f64: that of f32 may be beyond its largest number
        name: math.sqrt(float(np.square(array, dtype=np.float64).sum())) / scale
        for name, array in model.gradients.arrays().items()
    }
    name = max(norms, key=lambda name: norms[name])
    return f"the largest gradient is that of {name} (norm {norms[name]:.2g})"
