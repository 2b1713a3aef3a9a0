"""Writing a stored model as a GGUF file, its matrices in another format.

Tensor by tensor and within a tensor in pieces, so that what a run needs in memory is two pieces, whatever the model's
size. The rounding is that of `kernels.quantize`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import kernels
from ..device import Context
from ..formats.block_formats import FORMATS, BlockFormat, StoredTensor, TernaryFormat
from ..formats.errors import FormatError, told_of
from ..formats.gguf import ALIGNMENT_KEY, ARCHITECTURE_KEY
from ..formats.gguf_writer import NewTensor, write_gguf
from ..models.families import CAPS, FAMILIES, SCALES
from ..models.gguf_names import LONG_FACTORS, ROPE_FREQUENCIES, SHORT_FACTORS, gguf_name
from ..models.llama import LlamaConfig, is_norm, is_plain
from ..models.llama_gguf import BITNET_ARCHITECTURES
from ..models.rope_scaling import yarn_divisors, yarn_magnitude
from ..models.stored import StoredModel
from ..models.transformer import check_finite
from ..tokenizer.to_gguf import tokenizer_metadata

_HEAD = "lm_head.weight"
_EMBEDDINGS = "model.embed_tokens.weight"
_PIECE_BYTES = 64 << 20

#: What a matrix gets whose rows are not whole blocks of its format: the next larger one with blocks of 32, then f16.
FALLBACK = {"q2_k": "q4_0", "q3_k": "q4_0", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}


def head_format(format_name: str) -> str:
    """The format of the LM head when none is asked for: 6 bits where the others have fewer, since rounding of the head
    goes into the logits as it is."""
    return "q6_k" if FORMATS[format_name].bits < FORMATS["q6_k"].bits else format_name


def choose_formats(config: LlamaConfig, format_name: str, output_format: str | None = None) -> dict[str, str]:
    """The format of every tensor by name: f32 of norms, biases and routers; `output_format` (see `head_format`) of the
    LM head, and of the embeddings that serve as one; `format_name`, or its `FALLBACK`, of all other matrices."""
    formats = {}
    for name, shape in config.shapes().items():
        if name == _HEAD and config.tie_embeddings:
            continue
        wanted = format_name
        if name == _HEAD or (name == _EMBEDDINGS and config.tie_embeddings):
            wanted = output_format or head_format(format_name)
        if is_plain(name):
            wanted = "f32"
        for fallback in (FALLBACK.get(wanted, "f16"), "f16"):
            if shape[-1] % FORMATS[wanted].elements:
                wanted = fallback
        formats[name] = wanted
    return formats


def gguf_metadata(config: LlamaConfig) -> dict[str, Any]:
    """A configuration in the words of GGUF files. What they have no key for is under `ARCHITECTURE.nncuda`.

    ValueError for a rotary embedding, or windows, that they have no words for.
    """
    family = FAMILIES[config.family]
    architecture = family.architectures[0]
    if config.ternary:
        architecture = {BITNET_ARCHITECTURES[name]: name for name in ("bitnet", "bitnet-b1.58")}[config.activation]
    values: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "context_length": config.context,
        "embedding_length": config.hidden_size,
        "block_count": config.num_layers,
        "feed_forward_length": config.ffn_size,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.layer_norm_rms_epsilon": float(config.norm_eps),
        "rope.dimension_count": config.rope.rotated or config.head_dim,
        "rope.freq_base": float(config.rope.base),
        **_rope_metadata(config),
    }
    if config.num_experts:
        values["expert_count"] = config.num_experts
        values["expert_used_count"] = config.experts_per_token
        values["expert_weights_norm"] = config.norm_topk_prob
        if architecture != "llama":
            values["expert_feed_forward_length"] = config.ffn_size
    if config.shared_ffn_size:
        values["expert_shared_feed_forward_length"] = config.shared_ffn_size
    if family.scaled:
        values |= {theirs: float(getattr(config, ours)) for _, ours, theirs in SCALES}
    if family.gemma is not None:
        values |= {theirs: float(getattr(config, ours)) for _, ours, theirs in CAPS}
        values["attention.scale"] = float(config.attention_scale)
    if config.local_rope_base:
        values["rope.freq_base_swa"] = float(config.local_rope_base)
    if config.window:
        if architecture == "llama":  # Mistral's, whose windows nothing reads there
            raise ValueError(f"GGUF files of {architecture!r} have no windows, as this model's layers have")
        values["attention.sliding_window"] = config.window
    if config.window_period != (family.window_period or 0):
        values["attention.sliding_window_pattern"] = config.window_period
    return {ARCHITECTURE_KEY: architecture, **{f"{architecture}.{key}": value for key, value in values.items()}}


def _rope_metadata(config: LlamaConfig) -> dict[str, Any]:
    rope = config.rope
    if rope.scaling == "linear":
        return {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope.factor)}
    if rope.scaling == "ntk":
        return {"nncuda.extended_context": config.extended_context, "nncuda.ntk_alpha": float(rope.factor)}
    if rope.scaling == "longrope":
        return {
            "rope.scaling.type": "longrope",
            "rope.scaling.original_context_length": rope.original_context,
            "rope.scaling.attn_factor": float(rope.magnitude),
        }
    if rope.scaling == "yarn":
        original = rope.original_context
        rotated = rope.rotated or config.head_dim
        whole = FAMILIES[config.family].whole_turns
        usual = yarn_divisors(rope.base, rotated, rope.factor, 32.0, 1.0, float(original), whole)
        if usual != rope.divisors or yarn_magnitude(rope.factor) != rope.magnitude:
            raise ValueError("the YaRN of this model has options of its own, which GGUF files do not have")
        return {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": float(rope.factor),
            "rope.scaling.original_context_length": original,
        }
    return {}


def quantize_model(
    model: StoredModel,
    path: str | os.PathLike[str],
    format_name: str,
    ctx: Context,
    *,
    output_format: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, str]:
    """Writes `model` to the GGUF file `path`, in one step, and returns the format of each tensor by name.

    `progress` is called with the number of elements done after each piece. What is in a format that is read alone, such
    as gpt-oss' experts in mxfp4, stays as it is. FormatError when the model is stored in other blocks already, has a
    weight that is not finite, or that f16 cannot hold, or a rotary embedding or windows that GGUF files have no words
    for.
    """
    if model.config.ternary:
        raise FormatError(model.path, "has ternary weights; nncuda convert writes them in other forms")
    config, formats = model.config, choose_formats(model.config, format_name, output_format)
    for name in formats:
        stored = model.tensors.parts(name)[0]
        if FORMATS[stored.format].numpy is not None:
            continue
        formats[name] = stored.format
        if FORMATS[stored.format].stores:
            raise FormatError(
                model.path,
                f"tensor {stored.name} is in {stored.format} already; what is rounded here is f32, f16 or bf16",
            )
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, shape in config.shapes().items():
        if name in formats:
            theirs = _name_in_file(name, config)
            rows = shape[0] + (shapes[theirs][1][0] if theirs in shapes else 0)
            shapes[theirs] = formats[name], (rows, *shape[1:])
    new = [NewTensor(theirs, kind, shape) for theirs, (kind, shape) in shapes.items()]
    divisors = _divisors(config)
    new += [NewTensor(theirs, "f32", (len(values),)) for theirs, values in divisors.items()]
    turns = config.rope.layout == "half" and FAMILIES[config.family].interleaved
    with write_gguf(path, file_metadata(model, FORMATS[format_name]), new) as writer:
        for name in formats:
            for part in model.tensors.parts(name):
                if FORMATS[part.format].numpy is None:
                    writer.write(_name_in_file(name, config), part.bytes())
                    if progress is not None:
                        progress(part.elements)
                    continue
                for piece in pieces(model, part):
                    if config.norms_less_one and is_norm(name):
                        piece = piece.astype(np.float32) + np.float32(1)
                    if turns and _is_rotated(name):
                        piece = _interleaved(piece, config.head_dim)
                    writer.write(_name_in_file(name, config), stored_bytes(ctx, model.path, part, piece, formats[name]))
                    if progress is not None:
                        progress(piece.size)
        for theirs, values in divisors.items():
            writer.write(theirs, np.array(values, "<f4").view(np.uint8))
    return formats


def _name_in_file(name: str, config: LlamaConfig) -> str:
    """What the file calls a tensor: in Phi-3's, q, k and v are one tensor, and gate and up another; in gpt-oss' the
    norm before the experts has the name of Gemma's behind attention."""
    if config.family == "gpt_oss":
        name = name.replace(".post_attention_layernorm.", ".self_attn.post_norm.")
    if config.family == "phi3":
        for part in ("q", "k", "v"):
            name = name.replace(f".self_attn.{part}_proj.", ".self_attn.qkv_proj.")
        name = name.replace(".mlp.gate_proj.", ".mlp.up_proj.")
    return gguf_name(name)


def _divisors(config: LlamaConfig) -> dict[str, tuple[float, ...]]:
    """Tensors with what frequencies are divided by."""
    rope = config.rope
    if rope.scaling == "llama3":
        return {ROPE_FREQUENCIES: rope.divisors}
    if rope.scaling == "longrope":
        return {SHORT_FACTORS: rope.divisors, LONG_FACTORS: rope.long_divisors}
    return {}


def file_metadata(model: StoredModel, layout: BlockFormat | TernaryFormat) -> dict[str, Any]:
    """All metadata of a GGUF file of this model with its matrices in a format: the tokenizer, and what a file had."""
    if model.file is not None:
        kept: Mapping[str, Any] = model.file.typed
        left_out = ("split.", "general.quantization_version", "general.file_type", ALIGNMENT_KEY)
        values = {key: value for key, value in kept.items() if not key.startswith(left_out)}
    else:
        try:
            described = gguf_metadata(model.config)
        except ValueError as error:
            raise FormatError(model.path, str(error)) from error
        values = {**described, "general.name": model.path.resolve().name}
        values.update(tokenizer_metadata(model.path, model.config.vocab_size))
    values["general.file_type"] = layout.file_type
    if not isinstance(layout, BlockFormat) or layout.numpy is None:
        values["general.quantization_version"] = 2
    return values


def pieces(model: StoredModel, stored: StoredTensor) -> Iterator[np.ndarray]:
    """The numbers of a tensor as [rows, columns], so many whole heads of rows at a time; a vector in one column.
    FormatError for one that is not finite, which cannot be rounded."""
    numbers = stored.numbers().reshape(-1, stored.columns if len(stored.shape) > 1 else 1)
    head_dim = model.config.head_dim
    heads = max(1, _PIECE_BYTES // (numbers.itemsize * numbers.shape[1] * head_dim))
    for first in range(0, len(numbers), heads * head_dim):
        piece = numbers[first : first + heads * head_dim]
        with told_of(model.path):
            check_finite(stored.name, piece if len(stored.shape) > 1 else piece[:, 0], first)
        yield piece


def _is_rotated(name: str) -> bool:
    return ".self_attn.q_proj." in name or ".self_attn.k_proj." in name


def _interleaved(rows: np.ndarray, head_dim: int) -> np.ndarray:
    """The rows of whole heads in the order of interleaved pairs, from that of half-split ones."""
    pairs = rows.reshape(-1, 2, head_dim // 2, rows.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def stored_bytes(ctx: Context, path: Path, stored: StoredTensor, piece: np.ndarray, format_name: str) -> np.ndarray:
    """The bytes of a piece in another format, u8 in one dimension."""
    target = FORMATS[format_name]
    if target.numpy == piece.dtype:
        return np.ascontiguousarray(piece).view(np.uint8).reshape(-1)
    if piece.shape[1] == 1:  # vectors, in f32
        return piece.astype(np.float32).view(np.uint8).reshape(-1)
    rounded = kernels.quantize(
        ctx.tensor(np.ascontiguousarray(piece)), format=target.code, row_bytes=target.row_bytes(piece.shape[1])
    ).numpy()
    if target.numpy is not None and not np.isfinite(rounded.view(target.numpy)).all():
        raise FormatError(path, f"tensor {stored.name} has values that {format_name} cannot hold")
    return rounded.reshape(-1)
