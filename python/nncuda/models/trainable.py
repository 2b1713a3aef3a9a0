"""A stored model as one that trains: its sizes as those of a `MoEConfig`, and its rows in the order of folders.

Beside an adapter the weights stay as they are stored, so more will do: `config_beside`. Where all weights are trained
the model becomes one of this library, whose checkpoints are folders: `config_of_all`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..formats.errors import shown
from .adapter_gguf import interleaved_order, is_rotated
from .config import MoEConfig
from .llama import LlamaConfig
from .rope_scaling import llama3_divisors

#: What else than the matrices of queries and keys has a row for each element of a head.
_ROTATED = (".q_proj.bias", ".k_proj.bias", ".q_norm.weight", ".k_norm.weight")

#: What a layer may have that those which train have not, and what it then is.
_PLAIN: dict[str, object] = {
    "post_norms": False,
    "norms_less_one": False,
    "sinks": False,
    "shared_ffn_size": 0,
    "biased_experts": False,
    "embedding_scale": 1.0,
    "residual_scale": 1.0,
    "attention_scale": 0.0,
    "logits_scaling": 1.0,
    "scores_cap": 0.0,
    "logits_cap": 0.0,
    "local_rope_base": 0.0,
}

#: How far from ours a divisor of llama3's scaling may be: converters compute in f32, and where the frequency begins to
#: be stretched, a few of its roundings (2^-24) are as many times more as it is stretched by.
_NEAR = 1e-4

#: The error of a part that a model has in place of the usual: its name, what it is, and what it would be.
_Other = Callable[[str, object, str], ValueError]


def config_beside(config: LlamaConfig) -> MoEConfig:
    """The sizes of a model beside which an adapter is trained. Its context is what all of its layers see. ValueError
    for a model beside which none is, which names what it has."""
    other = _other_for("adapters are trained beside")
    if config.num_experts:
        raise other("num_experts", config.num_experts, "0")
    _check_layers(config, config.ternary, other)
    _check_rope(config, ("none", "linear", "ntk", "llama3"), other)
    context = _seen_by_all(config)
    return MoEConfig(
        **_sizes(config),
        context=context,
        extended_context=context,
        ntk_alpha=1.0,
        qkv_bias=config.qkv_bias and config.qk_norm == "none",
        ternary=config.ternary,
        squared_relu=config.activation == "relu2",
    )


def config_of_all(config: LlamaConfig) -> MoEConfig:
    """The options of a model of which all weights are trained, which this library's own then computes. Its context is
    what all of its layers see. ValueError for one that has something besides, which names it."""
    other = _other_for("all weights are trained of")
    _check_layers(config, False, other)
    _check_rope(config, ("none", "ntk", "llama3"), other)
    if config.o_bias:
        raise other("o_bias", True, "False")
    context, rope = _seen_by_all(config), config.rope
    options: dict[str, Any] = {"extended_context": context, "ntk_alpha": 1.0}
    if rope.scaling == "ntk":
        options = {"extended_context": config.extended_context, "ntk_alpha": rope.factor}
    elif rope.scaling == "llama3":
        options["rope_factor"] = _llama3_factor(config)
    if config.num_experts:
        options["norm_topk_prob"] = config.norm_topk_prob
    return MoEConfig(**_sizes(config), context=context, qkv_bias=config.qkv_bias, **options)


def half_split(config: LlamaConfig, name: str, rows: np.ndarray) -> np.ndarray:
    """The rows of a tensor by its name in `LlamaConfig.shapes`, what is of queries or keys with half-split pairs, the
    order of folders: as they are, or a copy."""
    if config.rope.layout == "half" or not (is_rotated(name) or name.endswith(_ROTATED)):
        return rows
    order = np.argsort(interleaved_order(config.head_dim))
    return rows.reshape(-1, len(order), *rows.shape[1:])[:, order].reshape(rows.shape)


def _other_for(what: str) -> _Other:
    return lambda name, value, usual: ValueError(f"{name} is {shown(value)}; {what} models with {usual}")


def _check_layers(config: LlamaConfig, ternary: bool, other: _Other) -> None:
    gates = ("silu", "relu2") if ternary else ("silu",)
    if config.activation not in gates:
        raise other("activation", config.activation, " or ".join(map(repr, gates)))
    for name, usual in {"ternary": ternary, **_PLAIN, "sub_norms": ternary}.items():
        if getattr(config, name) != usual:
            raise other(name, getattr(config, name), f"{usual!r}")
    if config.qk_norm == "whole":
        raise other("qk_norm", config.qk_norm, "'none' or 'head'")


def _check_rope(config: LlamaConfig, scalings: tuple[str, ...], other: _Other) -> None:
    if config.rope.scaling not in scalings:
        raise other("rope.scaling", config.rope.scaling, " or ".join(map(repr, scalings)))
    if config.rope.rotated not in (0, config.head_dim):
        raise other("rope.rotated", config.rope.rotated, "0, which is all of a head")


def _seen_by_all(config: LlamaConfig) -> int:
    """The longest sequence of which every layer sees all tokens."""
    return min(config.context, config.window or config.context)


def _sizes(config: LlamaConfig) -> dict[str, Any]:
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_layers": config.num_layers,
        "num_heads": config.num_heads,
        "num_kv_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "num_experts": config.num_experts,
        "experts_per_token": config.experts_per_token,
        "ffn_size": config.ffn_size,
        "rope_base": config.rope.base,
        "norm_eps": config.norm_eps,
        "qk_norm": config.qk_norm == "head",
        "tie_embeddings": config.tie_embeddings,
    }


def _llama3_factor(config: LlamaConfig) -> float:
    """The factor of llama3's scaling with the divisors of a model. GGUF files have these alone, so the other numbers
    must be those of Llama 3.1 to 3.3, which are ours where nothing is said."""
    divisors, factor = config.rope.divisors, max(1.0, *config.rope.divisors)
    low, high, original = MoEConfig.rope_low, MoEConfig.rope_high, MoEConfig.rope_original
    ours = llama3_divisors(config.rope.base, config.head_dim, factor, low, high, float(original))
    if any(abs(one - found) > _NEAR * one for one, found in zip(ours, divisors, strict=True)):
        raise ValueError(
            f"rope.divisors are not those of Llama 3.1, of {low:g} and {high:g} turns in {original} positions; all "
            "weights are trained of models with these, or without"
        )
    return factor
