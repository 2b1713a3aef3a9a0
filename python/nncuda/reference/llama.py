"""The forward pass of a Llama, dense or with experts, in the precision of its parameters.

Pre-norm blocks: RMSNorm -> attention with rotary positions and grouped key heads -> +; RMSNorm -> SwiGLU or a mixture
of them -> +; then RMSNorm -> LM head (Touvron et al. 2023, "Llama 2", section 2.2; Jiang et al. 2024, "Mixtral").
Parameters carry the names and shapes of `nncuda.models.llama.LlamaConfig.shapes`.
"""

import math

import numpy as np

from nncuda.models.llama import LlamaConfig
from nncuda.reference import attention, elementwise, rmsnorm, rope, softmax
from nncuda.reference.arithmetic import Array
from nncuda.reference.layers import Parameters, linear

__all__ = ["attended", "forward", "tables"]


def tables(config: LlamaConfig, positions: int, dtype: type = np.float64) -> tuple[Array, Array]:
    """Cosines and sines of the rotary embedding for sequences of that many positions. Su et al. 2021, eq. 15."""
    options = config.rope_options(positions)
    angles = rope.rope_freqs_scaled(
        positions,
        config.head_dim,
        0,
        factors=np.array(config.rope.divisors) if config.rope.divisors else None,
        **options,
    )
    return angles["cosine"].astype(dtype), angles["sine"].astype(dtype)


def forward(params: Parameters, config: LlamaConfig, ids: Array) -> Array:
    """Logits [length, vocab] of one sequence of ids, f64 or f32 as the parameters are."""
    dtype = params["model.norm.weight"].dtype
    cosine, sine = tables(config, len(ids), dtype)
    x = params["model.embed_tokens.weight"][ids]
    for layer in range(config.num_layers):
        block = f"model.layers.{layer}"
        h = rmsnorm.rmsnorm(x, params[f"{block}.input_layernorm.weight"], config.norm_eps)["y"]
        x = x + self_attention(h, params, f"{block}.self_attn", config, cosine, sine)
        h = rmsnorm.rmsnorm(x, params[f"{block}.post_attention_layernorm.weight"], config.norm_eps)["y"]
        if config.num_experts:
            x = x + mixture(h, params, f"{block}.block_sparse_moe", config)
        else:
            x = x + gated(h, *(params[f"{block}.mlp.{name}_proj.weight"] for name in ("gate", "up", "down")))
    h = rmsnorm.rmsnorm(x, params["model.norm.weight"], config.norm_eps)["y"]
    return linear(h, params["lm_head.weight"])


def self_attention(x: Array, params: Parameters, prefix: str, config: LlamaConfig, cosine: Array, sine: Array) -> Array:
    """Vaswani et al. 2017, eq. 1; Su et al. 2021, eq. 34; Ainslie et al. 2023, "GQA", for the groups of heads."""

    def product(h: Array, name: str) -> Array:
        bias = params[f"{prefix}.{name}_proj.bias"] if config.attention_bias else 0
        return linear(h, params[f"{prefix}.{name}_proj.weight"]) + bias

    return product(attended(*(product(x, name) for name in "qkv"), config, cosine, sine), "o")


def attended(q: Array, k: Array, v: Array, config: LlamaConfig, cosine: Array, sine: Array) -> Array:
    """What attention gives to the projection, [length, heads * head_dim], of rows of queries, keys and values."""
    q, k, v = (rows.reshape(len(rows), -1, config.head_dim) for rows in (q, k, v))
    layout = rope.HALF if config.rope.layout == "half" else rope.INTERLEAVED
    turned = rope.rope_qk(q, k, cosine, sine, np.arange(len(q)), layout)
    scale = 1 / math.sqrt(config.head_dim)
    out = attention.flash_attention(turned["q"], turned["k"], v, 1, scale, causal=1)["out"]
    return out.reshape(len(q), -1)


def gated(x: Array, gate: Array, up: Array, down: Array) -> Array:
    """down (silu(gate x) * (up x)). Shazeer 2020, "GLU Variants", eq. 6."""
    return linear(elementwise.swiglu(linear(x, gate), linear(x, up))["y"], down)


def mixture(x: Array, params: Parameters, prefix: str, config: LlamaConfig) -> Array:
    """Each token's experts, weighed by the router. Jiang et al. 2024, section 2.1."""
    router = linear(x, params[f"{prefix}.gate.weight"])
    chosen = softmax.softmax_topk(router, config.experts_per_token, int(config.norm_topk_prob))
    y = np.zeros_like(x)
    w1, w3, w2 = (params[f"{prefix}.{name}.weight"] for name in ("w1", "w3", "w2"))
    for token, experts in enumerate(chosen["indices"]):
        for weight, expert in zip(chosen["weights"][token], experts, strict=True):
            y[token] += weight * gated(x[token : token + 1], w1[expert], w3[expert], w2[expert])[0]
    return y
