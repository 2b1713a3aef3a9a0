"""The forward pass of a Llama, dense or with experts, in the precision of its parameters.

Pre-norm blocks: RMSNorm -> attention with rotary positions and grouped key heads -> +; RMSNorm -> SwiGLU or a mixture
of them -> +; then RMSNorm -> LM head (Touvron et al. 2023, "Llama 2", section 2.2; Jiang et al. 2024, "Mixtral").
Parameters carry the names and shapes of `nncuda.models.llama.LlamaConfig.shapes`.
"""

import math
from dataclasses import replace

import numpy as np

from nncuda.models.llama import LlamaConfig, Rope, is_norm
from nncuda.reference import activation, attention, elementwise, rmsnorm, rope, softmax
from nncuda.reference.arithmetic import Array
from nncuda.reference.layers import Parameters, linear

__all__ = ["attended", "forward", "tables"]


def tables(config: LlamaConfig, positions: int, dtype: type = np.float64) -> tuple[Array, Array]:
    """Cosines and sines of the rotated elements of a head, for sequences of that many positions. Su et al. 2021, eq.
    15; Peng et al. 2023, "YaRN", eq. 22, for their magnitude."""
    rotated = config.rope.rotated or config.head_dim
    options = {**config.rope_options(positions), "base": config.rope.base}
    divisors = config.rope_divisors(positions)[: rotated // 2]
    angles = rope.rope_freqs_scaled(positions, rotated, 0, factors=np.array(divisors) if divisors else None, **options)
    cosine, sine = (angles[name] * config.rope.magnitude for name in ("cosine", "sine"))
    return cosine.astype(dtype), sine.astype(dtype)


def forward(params: Parameters, config: LlamaConfig, ids: Array) -> Array:
    """Logits [length, vocab] of one sequence of ids, f64 or f32 as the parameters are."""
    dtype = params["model.norm.weight"].dtype
    everywhere = tables(config, len(ids), dtype)
    local = everywhere
    if config.local_rope_base:
        plain = Rope(config.local_rope_base, config.rope.layout)
        local = tables(replace(config, rope=plain, local_rope_base=0), len(ids), dtype)
    if config.norms_less_one:
        params = {name: values + 1 if is_norm(name) else values for name, values in params.items()}
    x = params["model.embed_tokens.weight"][ids] * config.embedding_scale
    for layer in range(config.num_layers):
        block = f"model.layers.{layer}"
        h = rmsnorm.rmsnorm(x, params[f"{block}.input_layernorm.weight"], config.norm_eps)["y"]
        window = config.window_of(layer)
        cosine, sine = local if window else everywhere
        added = self_attention(h, params, f"{block}.self_attn", config, cosine, sine, window)
        x = x + config.residual_scale * _behind(added, params, f"{block}.self_attn", config)
        h = rmsnorm.rmsnorm(x, params[f"{block}.post_attention_layernorm.weight"], config.norm_eps)["y"]
        if config.num_experts:
            x = x + config.residual_scale * mixture(h, params, f"{block}.block_sparse_moe", config)
        else:
            added = gated(h, *_matrices(params, f"{block}.mlp"), config.activation)
            x = x + config.residual_scale * _behind(added, params, f"{block}.mlp", config)
    h = rmsnorm.rmsnorm(x, params["model.norm.weight"], config.norm_eps)["y"]
    logits = linear(h, params["lm_head.weight"]) / config.logits_scaling
    return activation.softcap(logits, config.logits_cap)["y"] if config.logits_cap else logits


def _behind(added: Array, params: Parameters, prefix: str, config: LlamaConfig) -> Array:
    """What a part adds to the residual stream, with the norm behind it. Gemma Team 2024, "Gemma 2", section 2."""
    if not config.post_norms:
        return added
    return rmsnorm.rmsnorm(added, params[f"{prefix}.post_norm.weight"], config.norm_eps)["y"]


def _matrices(params: Parameters, prefix: str) -> list[Array]:
    return [params[f"{prefix}.{name}_proj.weight"] for name in ("gate", "up", "down")]


def self_attention(
    x: Array, params: Parameters, prefix: str, config: LlamaConfig, cosine: Array, sine: Array, window: int
) -> Array:
    """Vaswani et al. 2017, eq. 1; Su et al. 2021, eq. 34; Ainslie et al. 2023, "GQA", for the groups of heads."""

    def product(h: Array, name: str) -> Array:
        biased = config.o_bias if name == "o" else config.qkv_bias
        bias = params[f"{prefix}.{name}_proj.bias"] if biased else 0
        return linear(h, params[f"{prefix}.{name}_proj.weight"]) + bias

    q, k, v = (product(x, name) for name in "qkv")
    if config.qk_norm != "none":
        q, k = (_normed(rows, params[f"{prefix}.{name}_norm.weight"], config) for rows, name in ((q, "q"), (k, "k")))
    sinks = params[f"{prefix}.sinks.weight"] if config.sinks else None
    return product(attended(q, k, v, config, cosine, sine, window, sinks), "o")


def _normed(rows: Array, gain: Array, config: LlamaConfig) -> Array:
    """As many elements at a time as there are gains: a head, or all of them."""
    return rmsnorm.rmsnorm(rows.reshape(-1, len(gain)), gain, config.norm_eps)["y"].reshape(rows.shape)


def attended(
    q: Array,
    k: Array,
    v: Array,
    config: LlamaConfig,
    cosine: Array,
    sine: Array,
    window: int = 0,
    sinks: Array | None = None,
) -> Array:
    """What attention gives to the projection, [length, heads * head_dim], of rows of queries, keys and values. With a
    window a query sees so many keys at most; `sinks` [heads] are scores without a key."""
    q, k, v = (rows.reshape(len(rows), -1, config.head_dim) for rows in (q, k, v))
    layout = rope.HALF if config.rope.layout == "half" else rope.INTERLEAVED
    rotated = config.rope.rotated or config.head_dim
    turned = rope.rope_qk(q[..., :rotated], k[..., :rotated], cosine, sine, np.arange(len(q)), layout)
    q, k = (np.concatenate([turned[name], rows[..., rotated:]], -1) for name, rows in (("q", q), ("k", k)))
    scale = config.attention_scale or 1 / math.sqrt(config.head_dim)
    return attention.last_of(q, k, v, scale, sinks, window, config.scores_cap).reshape(len(q), -1)


def gated(x: Array, gate: Array, up: Array, down: Array, act: str = "silu") -> Array:
    """down (act(gate x) * (up x)). Shazeer 2020, "GLU Variants", eq. 6."""
    both = linear(x, gate), linear(x, up)
    return linear((activation.geglu(*both) if act == "gelu_pytorch_tanh" else elementwise.swiglu(*both))["y"], down)


def mixture(x: Array, params: Parameters, prefix: str, config: LlamaConfig) -> Array:
    """Each token's experts, weighed by the router, and the one of all tokens. Jiang et al. 2024, section 2.1."""
    if config.biased_experts:
        return biased_mixture(x, params, prefix, config)
    router = linear(x, params[f"{prefix}.gate.weight"])
    chosen = softmax.softmax_topk(router, config.experts_per_token, int(config.norm_topk_prob))
    y = np.zeros_like(x)
    w1, w3, w2 = (params[f"{prefix}.{name}.weight"] for name in ("w1", "w3", "w2"))
    for token, experts in enumerate(chosen["indices"]):
        for weight, expert in zip(chosen["weights"][token], experts, strict=True):
            y[token] += weight * gated(x[token : token + 1], w1[expert], w3[expert], w2[expert])[0]
    if config.shared_ffn_size:
        shared = gated(x, *_matrices(params, f"{prefix}.shared"))
        if config.shared_gate:
            shared = shared / (1 + np.exp(-linear(x, params[f"{prefix}.shared_gate.weight"][None])))
        y = y + shared
    return y


def biased_mixture(x: Array, params: Parameters, prefix: str, config: LlamaConfig) -> Array:
    """Each token's experts, weighed by the softmax of the largest of the router's logits; every product has a bias, and
    gates are clipped. Agarwal et al. 2025, "gpt-oss-120b & gpt-oss-20b Model Card", section 2."""

    def product(h: Array, name: str, expert: int) -> Array:
        return linear(h, params[f"{prefix}.{name}.weight"][expert]) + params[f"{prefix}.{name}.bias"][expert]

    router = linear(x, params[f"{prefix}.gate.weight"]) + params[f"{prefix}.gate.bias"]
    y = np.zeros_like(x)
    for token, logits in enumerate(router):
        chosen = np.argsort(-logits, kind="stable")[: config.experts_per_token]
        for weight, expert in zip(softmax.softmax(logits[chosen][None])["y"][0], chosen, strict=True):
            gate, up = (product(x[token : token + 1], name, expert) for name in ("w1", "w3"))
            y[token] += weight * product(activation.swiglu_clipped(gate, up, 1.702, 7.0)["y"], "w2", expert)[0]
    return y
