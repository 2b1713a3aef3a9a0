"""One training step: gradients over micro-batches, clipping, schedule, AdamW."""

from __future__ import annotations

import math

import numpy as np

from .. import kernels
from ..models import MoETransformer, ParameterArena
from ..models.moe import IGNORE_INDEX
from ..tensor import Tensor
from .config import TrainConfig


class StepResult:
    """What a step did. Values stay on the device until they are asked for; each lasts until the next step."""

    def __init__(
        self, step: int, tokens: int, shares: list[float], losses: Tensor, aux: Tensor, norm: Tensor, lr: Tensor
    ):
        self.step = step
        self.tokens = tokens
        self._shares = shares
        self._losses = losses
        self._aux = aux
        self._norm = norm
        self._lr = lr

    @property
    def loss(self) -> float:
        """Mean cross-entropy over the targets of the whole batch, in nats."""
        return math.fsum(self._losses.numpy().tolist()) / self.tokens

    @property
    def aux_loss(self) -> float:
        """Load-balancing loss, the mean over the micro-batches by their tokens."""
        return math.fsum(share * value for share, value in zip(self._shares, self._aux.numpy().tolist(), strict=True))

    @property
    def grad_norm(self) -> float:
        """Global norm of the gradients before clipping."""
        return self._norm.item()

    @property
    def learning_rate(self) -> float:
        """Rate of this update."""
        return self._lr.item()


class Trainer:
    """Trains a model with AdamW.

    The state beside the model's parameters: first and second moments, arenas of the same layout, and the step.
    """

    def __init__(self, model: MoETransformer, config: TrainConfig | None = None):
        config = config or TrainConfig()
        if model.gradients is None:
            raise ValueError("this model was made for inference: it has no gradients")
        if config.sequence_length > model.config.context:
            raise ValueError(
                f"sequence_length is {config.sequence_length}; this model's context is {model.config.context}"
            )
        self.model = model
        self.config = config
        ctx = model.ctx
        self.first_moments = ParameterArena(ctx, model.layout)
        self.second_moments = ParameterArena(ctx, model.layout)
        self._step = ctx.zeros((1,), "i32")
        self._lr = ctx.zeros((1,))
        self._norm = ctx.zeros((1,))
        self._clip = ctx.zeros((1,))

    @property
    def step(self) -> int:
        """Updates done."""
        return self._step.item()

    @step.setter
    def step(self, value: int) -> None:
        self._step.copy_(np.array([value], np.int32))

    def train_step(self, input_ids: np.ndarray | Tensor, targets: np.ndarray | Tensor) -> StepResult:
        """One update from ids and targets [batch, length]; targets of -100 count for nothing.

        The gradient is that of the mean cross-entropy over all targets of the batch, however it is cut into
        micro-batches, plus that of the load-balancing loss, which is the mean over micro-batches by their tokens.
        Raises ValueError when no target counts, and nncuda.Error when an id is out of range; the parameters then stay.
        """
        if tuple(input_ids.shape) != tuple(targets.shape) or len(input_ids.shape) != 2:
            raise ValueError(
                f"input_ids {list(input_ids.shape)} and targets {list(targets.shape)} must have one shape, "
                "[batch, length]"
            )
        model, ctx = self.model, self.model.ctx
        input_ids, targets = np.asarray(input_ids), np.asarray(targets)
        batch, length = input_ids.shape
        tokens = int(np.count_nonzero(targets != IGNORE_INDEX))
        if tokens == 0:
            raise ValueError("no target counts: all are -100")
        micro = self.config.micro_batch_size or batch
        starts = range(0, batch, micro)
        sizes = [min(micro, batch - start) for start in starts]
        shares = [size / batch for size in sizes]
        pieces = [model.loss_pieces(size * length) for size in sizes]
        losses, aux = ctx.empty((sum(pieces),)), ctx.zeros((len(sizes),))
        loss_scale = ctx.tensor(np.array([1.0 / tokens], np.float32))
        aux_scales = ctx.tensor(np.array(shares, np.float32))

        piece = 0
        for index, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            model.forward_backward(
                input_ids[start : start + size],
                targets[start : start + size],
                loss_scale,
                aux_scales.narrow(0, index, 1),
                losses.narrow(0, piece, pieces[index]),
                aux.narrow(0, index, 1),
                accumulate=index > 0,
            )
            piece += pieces[index]
        self._update()
        return StepResult(self.step, tokens, shares, losses, aux, self._norm, self._lr)

    def _update(self) -> None:
        config, model = self.config, self.model
        gradients = model.gradients.data
        kernels.grad_norm(gradients, norm=self._norm)
        limit = math.inf if config.clip_norm is None else config.clip_norm
        kernels.grad_clip(self._norm, scale=self._clip, max_norm=limit)
        warmup, total = config.schedule_steps
        kernels.lr_schedule(
            None,
            self._step,
            lr=self._lr,
            warmup=warmup,
            total=total,
            max_lr=config.learning_rate,
            min_lr=config.learning_rate * config.min_rate_share,
        )
        kernels.adamw_step(
            gradients,
            self._lr,
            self._step,
            self._clip,
            None,
            model.parameters.data,
            self.first_moments.data,
            self.second_moments.data,
            n_decay=model.layout.num_decayed,
            beta1=config.beta1,
            beta2=config.beta2,
            eps=config.eps,
            weight_decay=config.weight_decay,
        )
