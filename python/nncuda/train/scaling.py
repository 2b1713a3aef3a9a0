"""Dynamic loss scaling, which training in f16 needs: all of it happens on the device, and nothing is read back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import kernels
from ..device import Context, Tensor
from .config import TrainConfig


@dataclass(frozen=True)
class LossScalingState:
    """What the next step depends on.

    scale           what the losses of the next step are multiplied by
    good_steps      steps since the scale last changed
    skipped         steps skipped so far
    """

    scale: float
    good_steps: int = 0
    skipped: int = 0


class LossScaling:
    """Multiplies losses by a scale, so that small gradients do not vanish in f16; finds the largest that fits.

    A step whose gradients overflow is skipped, and the scale backs off; after that many good steps it grows.
    (Micikevicius et al. 2018, section 3.2)
    """

    def __init__(self, ctx: Context, config: TrainConfig):
        self._growth = config.loss_scale_growth
        self._backoff = config.loss_scale_backoff
        self._interval = config.loss_scale_interval
        self._next = ctx.empty((1,))
        self._good_steps, self._skipped = ctx.empty((1,), "i32"), ctx.empty((1,), "i32")
        self.scale = ctx.zeros((1,))  # of the last step, f32 [1]
        self.skip = ctx.zeros((1,), "i32")  # 1 when the last step was skipped, i32 [1]
        self.state = LossScalingState(config.loss_scale)

    @property
    def state(self) -> LossScalingState:
        """What the next step depends on, read from the device."""
        return LossScalingState(self._next.item(), int(self._good_steps), int(self._skipped))

    @state.setter
    def state(self, state: LossScalingState) -> None:
        self._next.copy_(np.array([state.scale], np.float32))
        self._good_steps.copy_(np.array([state.good_steps], np.int32))
        self._skipped.copy_(np.array([state.skipped], np.int32))

    def counters(self) -> dict[str, Tensor]:
        """The same on the device."""
        return {"loss_scale": self._next, "good_steps": self._good_steps, "skipped_steps": self._skipped}

    def begin(self) -> None:
        """Takes the scale of a step, which `update` leaves as it is."""
        self.scale.copy_(self._next)

    def scaled(self, factors: Tensor, y: Tensor) -> None:
        """y = factors * scale, both f32 [k]."""
        for at in range(factors.shape[0]):
            kernels.mul(factors.narrow(0, at, 1), self.scale, y=y.narrow(0, at, 1))

    def update(self, norm: Tensor) -> None:
        """Sets `skip`, and the scale of the next step, from the norm f32 [1] of the gradients of the scaled losses."""
        kernels.loss_scale_update(
            norm,
            self._next,
            self._good_steps,
            self._skipped,
            skip=self.skip,
            growth=self._growth,
            backoff=self._backoff,
            interval=self._interval,
        )
