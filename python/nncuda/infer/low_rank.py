"""The factors of an adapter on a device, as the products of the layers take them.

y = x W^T + (x A^T) (scale B)^T: the product with the weights as they are stored, and two with A and scale * B as stored
matrices in f32, the last of them added to y. All give a row the same bits in any company, and so does their sum.
(Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import kernels
from ..device import Context, Tensor
from ..formats.block_formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..models.adapter import Adapter
    from ..models.llama import LlamaConfig

_F32 = FORMATS["f32"].code


class LowRank(NamedTuple):
    """Rows of f32 as bytes: `a` [rank, 4 * in], and `b`, with the scale in it, [out, 4 * rank]."""

    a: Tensor
    b: Tensor

    @property
    def nbytes(self) -> int:
        return self.a.nbytes + self.b.nbytes

    def add(self, x: Tensor, inner: Tensor, y: Tensor) -> None:
        """y += the product of x f32 [tokens, in]; `inner` f32 [tokens, rank] is room for its first half."""
        kernels.gemm_quant(x, self.a, format=_F32, y=inner)
        kernels.gemm_quant(inner, self.b, None, None, y, format=_F32, y=y)


def low_rank_factors(
    ctx: Context, adapter: Adapter, config: LlamaConfig, order: Sequence[int] | None
) -> Mapping[str, LowRank]:
    """An adapter's factors by the names of their matrices. `order` is that of the rows of a head in which queries and
    keys are read, None for the order of the folders that adapters are of."""
    if config.ternary:
        raise ValueError("the model has ternary weights, beside which this engine runs no adapter")
    if config.rope.layout == "interleaved":
        if config.rope.rotated:
            raise ValueError("a part of each head is rotated, in neighbouring pairs, where this engine runs no adapter")
        half = config.head_dim // 2
        order = [row for pair in range(half) for row in (pair, pair + half)]
    made = {}
    for name, pair in adapter.factors.items():
        b = pair.b.f32()
        if order is not None and name.endswith(("q_proj.weight", "k_proj.weight")):
            b = b.reshape(-1, config.head_dim, adapter.rank)[:, order].reshape(b.shape)
        scaled = kernels.scale(ctx.tensor(np.ascontiguousarray(b)), alpha=adapter.scale)
        made[name] = LowRank(ctx.tensor(pair.a.f32()).as_bytes(), scaled.as_bytes())
    return made
