"""The vector of a text: the mean of its tokens' hidden states, brought to length 1."""

from __future__ import annotations

import numpy as np

from .. import kernels
from ..device import Context, Tensor


class Pool:
    """Takes hidden states of `width` numbers in the order of the tokens; the pieces that they come in change no bit."""

    def __init__(self, ctx: Context, width: int):
        self._sum = ctx.zeros((2, width))
        self._vector = ctx.empty((width,))

    def add(self, states: Tensor) -> None:
        """Hidden states after the final norm, f32 [tokens, width]."""
        kernels.pool_rows(states, self._sum)

    def vector(self) -> np.ndarray:
        """The vector of those that were added, f32 [width]. The length of a mean is not its sum's, but the direction
        is."""
        kernels.pool_unit(self._sum, y=self._vector)
        return self._vector.numpy()
