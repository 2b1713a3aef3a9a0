"""A stored model as the base of an adapter that is trained: its weights stay as they are stored.

Any stored model will do whose layers are those that train: a dense Llama, Qwen2, Qwen3 or BitNet, or what computes as
they do, from a folder or a GGUF file, in every format. Heads of queries and keys whose pairs lie side by side, as in
GGUF files of Llamas, are read with half-split pairs, the order of folders, in which adapters are saved.
"""

from __future__ import annotations

import functools
import hashlib
import os

import numpy as np

from ..device import Context, Tensor
from ..formats.block_formats import FORMATS, StoredTensor
from ..formats.errors import told_of
from ..formats.mapped import release
from ..layers import RopeTables
from .packed import PackedTernary, packed
from .stored import StoredModel
from .trainable import config_beside, half_split
from .transformer import check_finite

_PIECE = 1 << 24  # bytes of a tensor that are looked at together


class FrozenBase:
    """A stored model, opened, none of it loaded yet, or one in memory. FormatError when no adapter is trained beside
    it.

    stored      the model
    config      its sizes as of a model that trains
    """

    def __init__(self, model: str | os.PathLike[str] | StoredModel):
        self.stored = model if isinstance(model, StoredModel) else StoredModel.open(model)
        with told_of(self.stored.path):
            self.config = config_beside(self.stored.config)

    @functools.cached_property
    def sha256(self) -> str:
        """SHA-256 of the tensors' stored bytes, one after the other in the order of `LlamaConfig.shapes`, a tied head
        once; those of a ternary matrix are followed by its scale in f32, which of master weights they say themselves.
        FormatError where one in f32, f16 or bf16 is not finite, or a ternary matrix is wrong."""
        digest = hashlib.sha256()
        for name in self._names():
            matrix = self.stored.matrices.get(name)
            if matrix is None:
                self._add(digest, self.stored.tensors[name])
            elif matrix.master is not None:
                self._add(digest, StoredTensor(matrix.name, matrix.form, matrix.shape, matrix.data))
            else:
                digest.update(matrix.data)
                digest.update(np.array(matrix.scale, "<f4").tobytes())  # which looks at all codes
                release(matrix.data)
        return digest.hexdigest()

    def _add(self, digest: hashlib._Hash, tensor: StoredTensor) -> None:
        rows = tensor.bytes().reshape(-1, tensor.row_bytes)
        step = max(1, _PIECE // tensor.row_bytes)
        for first in range(0, len(rows), step):
            piece = np.ascontiguousarray(rows[first : first + step])
            digest.update(piece)
            if (dtype := FORMATS[tensor.format].numpy) is not None:
                numbers = piece.view(dtype)
                with told_of(self.stored.path):
                    check_finite(tensor.name, numbers if len(tensor.shape) > 1 else numbers[0], first)
            release(rows[first : first + step])

    def record(self) -> dict[str, object]:
        """What is kept of it beside an adapter: where it lies, and the hash of its weights."""
        return {"folder": str(self.stored.path.resolve()), "weights_sha256": self.sha256}

    def rope(self, ctx: Context) -> RopeTables:
        """Tables of the rotary embedding for sequences of up to its context."""
        config, context = self.stored.config, self.config.context
        return RopeTables(ctx, config.head_dim, divisors=config.rope_divisors(context), **config.rope_options(context))

    def matrix(self, ctx: Context, name: str) -> tuple[Tensor, int]:
        """A copy on the device, u8 [rows, row_bytes], and its NNCUDA_FORMAT_*."""
        stored = self.stored.tensors[name]
        rows = half_split(self.stored.config, name, stored.rows())
        copied = ctx.tensor(np.ascontiguousarray(rows))
        release(stored.data)
        return copied, stored.code

    def ternary(self, ctx: Context, name: str) -> PackedTernary:
        """A ternary matrix, packed on the device. FormatError when its bytes are wrong."""
        assert self.stored.config.rope.layout == "half"  # in every BitNet, so that no rows have another order
        return packed(ctx, [self.stored.ternary(name)])

    def vector(self, ctx: Context, name: str) -> Tensor:
        """A norm's gain or a bias, in f32."""
        values = self.stored.tensors[name].f32().reshape(-1)
        return ctx.tensor(np.ascontiguousarray(half_split(self.stored.config, name, values)))

    def has(self, name: str) -> bool:
        return name in self.stored.tensors

    def _names(self) -> list[str]:
        tied = self.config.tie_embeddings
        return [name for name in self.stored.config.shapes() if not (tied and name == "lm_head.weight")]
