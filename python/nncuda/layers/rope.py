"""Tables of the rotary embedding. (Su et al. 2021, "RoFormer", eq. 15)"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import kernels
from ..device import Context, Tensor


class RopeTables:
    """Cosines and sines of the rotary embedding, made once for as many positions as were ever asked for.

    `divisors` of the frequencies, one a pair; `magnitude` is multiplied with the cosines and sines of the pairs of the
    first `rotated` elements, 0 for all of a head.
    """

    def __init__(
        self,
        ctx: Context,
        head_dim: int,
        base: float,
        ntk_alpha: float = 1.0,
        scale: float = 1.0,
        divisors: Sequence[float] = (),
        magnitude: float = 1.0,
        rotated: int = 0,
    ):
        self.ctx = ctx
        self.head_dim = head_dim
        self.base = base
        self.ntk_alpha = ntk_alpha
        self.scale = scale
        self.magnitude = magnitude
        self._rotated = rotated or head_dim
        self._factors = ctx.tensor(np.array(divisors, np.float32)) if divisors else None
        self._tables: tuple[Tensor, Tensor] | None = None
        self._positions: Tensor | None = None  # [batch, length] of the last length, for the largest batch

    @property
    def length(self) -> int:
        """Positions that the tables reach now."""
        return 0 if self._tables is None else self._tables[0].shape[0]

    def tables(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines, [at least length, head_dim/2]."""
        if self._tables is None or self._tables[0].shape[0] < length:
            half = self.head_dim // 2
            cosine, sine = self.ctx.empty((length, half)), self.ctx.empty((length, half))
            common = {"head_dim": self.head_dim, "base": self.base, "ntk_alpha": self.ntk_alpha}
            if self.scale == 1 and self._factors is None:
                kernels.rope_freqs(cosine=cosine, sine=sine, first=0, **common)
            else:
                kernels.rope_freqs_scaled(self._factors, cosine=cosine, sine=sine, scale=self.scale, **common)
            self._enlarge(cosine, sine)
            self._tables = cosine, sine
        return self._tables

    def _enlarge(self, cosine: Tensor, sine: Tensor) -> None:
        """Multiplies what rotates by `magnitude`: not the pairs that stay as they are."""
        if self.magnitude == 1:
            return
        if self._rotated == self.head_dim:
            for table in (cosine, sine):
                kernels.scale(table, alpha=self.magnitude, y=table)
            return
        factors = np.ones(cosine.shape, np.float32)
        factors[:, : self._rotated // 2] = self.magnitude
        spread = self.ctx.tensor(factors)
        for table in (cosine, sine):
            kernels.mul(table, spread, y=table)

    def positions(self, batch: int, length: int) -> Tensor:
        """0 .. length-1 for each of `batch` sequences, i32 [batch*length]."""
        if self._positions is None or self._positions.shape[1] != length or self._positions.shape[0] < batch:
            rows = np.arange(length, dtype=np.int32)
            self._positions = self.ctx.tensor(np.tile(rows, batch).reshape(batch, length))
        return self._positions.narrow(0, 0, batch).view(batch * length)
