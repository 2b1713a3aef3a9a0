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
from ..formats.errors import FormatError, shown, told_of
from ..formats.mapped import release
from ..layers import RopeTables
from .adapter_gguf import interleaved_order
from .config import MoEConfig
from .llama import LlamaConfig
from .packed import PackedTernary, packed
from .stored import StoredModel

_ROTATED = (".q_proj.weight", ".k_proj.weight", ".q_proj.bias", ".k_proj.bias", ".q_norm.weight", ".k_norm.weight")
_PIECE = 1 << 24  # bytes of a tensor that are looked at together

#: What a layer may have that those which train have not, and what it then is.
_PLAIN: dict[str, object] = {
    "num_experts": 0,
    "post_norms": False,
    "norms_less_one": False,
    "sinks": False,
    "embedding_scale": 1.0,
    "residual_scale": 1.0,
    "attention_scale": 0.0,
    "logits_scaling": 1.0,
    "scores_cap": 0.0,
    "logits_cap": 0.0,
    "local_rope_base": 0.0,
}
_SCALINGS = ("none", "linear", "ntk", "llama3")


def trained_config(config: LlamaConfig) -> MoEConfig:
    """The sizes of a stored model as those of one that trains. Its context is what all of its layers see. ValueError
    for a model beside which no adapter is trained, which names what it has."""
    gates = ("silu", "relu2") if config.ternary else ("silu",)
    if config.activation not in gates:
        raise ValueError(_other("activation", config.activation, " or ".join(map(repr, gates))))
    for name, usual in {**_PLAIN, "sub_norms": config.ternary}.items():
        if getattr(config, name) != usual:
            raise ValueError(_other(name, getattr(config, name), f"{usual!r}"))
    if config.qk_norm == "whole":
        raise ValueError(_other("qk_norm", config.qk_norm, "'none' or 'head'"))
    if config.rope.scaling not in _SCALINGS:
        raise ValueError(_other("rope.scaling", config.rope.scaling, " or ".join(map(repr, _SCALINGS))))
    if config.rope.rotated not in (0, config.head_dim):
        raise ValueError(_other("rope.rotated", config.rope.rotated, "0, which is all of a head"))
    context = min(config.context, config.window or config.context)
    return MoEConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        num_experts=0,
        experts_per_token=0,
        ffn_size=config.ffn_size,
        context=context,
        extended_context=context,
        rope_base=config.rope.base,
        ntk_alpha=1.0,
        norm_eps=config.norm_eps,
        qkv_bias=config.qkv_bias and config.qk_norm == "none",
        qk_norm=config.qk_norm == "head",
        tie_embeddings=config.tie_embeddings,
        ternary=config.ternary,
        squared_relu=config.activation == "relu2",
    )


def _other(name: str, value: object, usual: str) -> str:
    return f"{name} is {shown(value)}; adapters are trained beside models with {usual}"


class FrozenBase:
    """A stored model, opened, none of it loaded yet, or one in memory. FormatError when no adapter is trained beside
    it.

    stored      the model
    config      its sizes as of a model that trains
    """

    def __init__(self, model: str | os.PathLike[str] | StoredModel):
        self.stored = model if isinstance(model, StoredModel) else StoredModel.open(model)
        with told_of(self.stored.path):
            self.config = trained_config(self.stored.config)

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
            self._check_finite(tensor, first, piece)
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
        rows = self._in_order(name, stored.rows())
        copied = ctx.tensor(np.ascontiguousarray(rows))
        release(stored.data)
        return copied, stored.code

    def ternary(self, ctx: Context, name: str) -> PackedTernary:
        """A ternary matrix, packed on the device. FormatError when its bytes are wrong."""
        assert self.stored.config.rope.layout == "half"  # in every BitNet, so that no rows have another order
        return packed(ctx, [self.stored.ternary(name)])

    def vector(self, ctx: Context, name: str) -> Tensor:
        """A norm's gain or a bias, in f32."""
        return ctx.tensor(np.ascontiguousarray(self._in_order(name, self.stored.tensors[name].f32().reshape(-1))))

    def has(self, name: str) -> bool:
        return name in self.stored.tensors

    def _names(self) -> list[str]:
        tied = self.config.tie_embeddings
        return [name for name in self.stored.config.shapes() if not (tied and name == "lm_head.weight")]

    def _in_order(self, name: str, rows: np.ndarray) -> np.ndarray:
        """What is of queries or keys, with half-split pairs."""
        if self.stored.config.rope.layout == "half" or not name.endswith(_ROTATED):
            return rows
        order = np.argsort(interleaved_order(self.config.head_dim))
        return rows.reshape(-1, len(order), *rows.shape[1:])[:, order].reshape(rows.shape)

    def _check_finite(self, tensor: StoredTensor, first: int, rows: np.ndarray) -> None:
        dtype = FORMATS[tensor.format].numpy
        if dtype is None:
            return
        numbers = rows.view(dtype)
        wrong = ~np.isfinite(numbers)
        if wrong.any():
            row, column = map(int, np.unravel_index(int(wrong.argmax()), numbers.shape))
            at = [first + row, column] if len(tensor.shape) > 1 else [column]
            raise FormatError(
                self.stored.path, f"tensor {tensor.name} is not finite, first at {at} ({numbers[row, column]:g})"
            )
