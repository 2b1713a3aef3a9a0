"""The layers of the transformer, forward and backward, made of the kernels' references.

A forward function returns its output and a ``Saved`` record; the backward function of the same name takes the gradient
of the output and that record, adds the parameters' gradients into ``grads`` and returns the gradient of the input.
Tokens are rows: [batch*length, hidden].
"""

import math
from dataclasses import dataclass
from types import SimpleNamespace as Saved

import numpy as np

from nncuda.reference import activation, attention, elementwise, moe, rmsnorm, rope, softmax, ternary
from nncuda.reference.arithmetic import Array

Parameters = dict[str, Array]


@dataclass(frozen=True)
class Config:
    """The sizes and options of a mixture-of-experts transformer, under the names of Mixtral's config.json where it has
    them."""

    vocab_size: int = 32000
    hidden_size: int = 768
    num_hidden_layers: int = 30
    num_attention_heads: int = 12
    num_key_value_heads: int = 1
    head_dim: int = 64
    num_local_experts: int = 16  # 0: one network for all tokens, as Llama has it, and no router
    num_experts_per_tok: int = 4
    intermediate_size: int = 6144
    rope_theta: float = 10000.0
    rope_ntk_alpha: float = 1.0
    rms_norm_eps: float = 1e-5
    norm_topk_prob: bool = True
    capacity_factor: float | None = None
    router_aux_loss_coef: float = 0.01
    qk_norm: bool = False  # of each head of queries and keys, as Qwen3 has them
    qkv_bias: bool = False  # of queries, keys and values, as Qwen2 has them
    tie_word_embeddings: bool = False
    rope_divisors: tuple[float, ...] = ()  # of the frequencies, one a pair; none of plain ones
    ternary: bool = False  # weights and rows of the blocks' products are rounded, as BitNet b1.58 has them
    squared_relu: bool = False  # in the gate, as BitNet b1.58 2B4T has it

    def capacity(self, tokens: int) -> int:
        """The most rows that an expert takes of ``tokens`` tokens; 0 for no limit. Lepikhin et al. 2020, 2.2."""
        if self.capacity_factor is None:
            return 0
        return math.ceil(self.capacity_factor * tokens * self.num_experts_per_tok / self.num_local_experts)


class Roundings:
    """What a product with ternary weights takes of its factors. In the backward direction both are the identity.
    (Ma et al. 2024, section 2, eqs. 1 to 4; Bengio, Léonard, Courville 2013, section 4)"""

    def rows(self, x: Array) -> Array:
        """Rows in 8 bits each."""
        rounded = ternary.act_quant_i8(x)
        return rounded["codes"].astype(x.dtype) * rounded["scale"].astype(x.dtype)[:, None]

    def weight(self, name: str, weight: Array) -> Array:
        """-1, 0 and 1 times a number."""
        rounded = ternary.ternary_quantize(weight)
        return rounded["codes"].astype(weight.dtype) * rounded["scale"].astype(weight.dtype)

    def weights(self, params: Parameters) -> Parameters:
        """The parameters with every matrix of a block's products as these take it."""
        return {name: self.weight(name, one) if name.endswith("_proj.weight") else one for name, one in params.items()}


def accumulate(grads: Parameters, name: str, value: Array) -> None:
    """grads[name] += value."""
    grads[name] = grads[name] + value if name in grads else value


def linear(x: Array, weight: Array) -> Array:
    """y = x W^T."""
    return x @ weight.T


def linear_backward(dy: Array, x: Array, params: Parameters, name: str, grads: Parameters) -> Array:
    """dW += dy^T x; dx = dy W."""
    accumulate(grads, name, dy.T @ x)
    return dy @ params[name]


def norm(x: Array, params: Parameters, name: str, config: Config) -> tuple[Array, Saved]:
    """RMSNorm. Zhang, Sennrich 2019, eq. 4."""
    out = rmsnorm.rmsnorm(x, params[name], config.rms_norm_eps)
    return out["y"], Saved(x=x, rstd=out["rstd"])


def norm_backward(dy: Array, saved: Saved, params: Parameters, name: str, grads: Parameters) -> Array:
    """Differentiated from Zhang, Sennrich 2019, eq. 4."""
    zero = np.zeros_like(params[name])
    out = rmsnorm.rmsnorm_backward(dy, saved.x, params[name], saved.rstd, zero)
    accumulate(grads, name, out["dweight"])
    return out["dx"]


def norm_heads(x: Array, params: Parameters, name: str, config: Config) -> tuple[Array, Saved]:
    """RMSNorm of each head, x [tokens, heads, head_dim]."""
    y, saved = norm(x.reshape(-1, x.shape[-1]), params, name, config)
    return y.reshape(x.shape), saved


def self_attention(
    x: Array,
    params: Parameters,
    prefix: str,
    config: Config,
    batch: int,
    positions: Array,
    tables: dict[str, Array],
    roundings: Roundings,
) -> tuple[Array, Saved]:
    """Causal attention with rotary positions and shared key heads.

    Vaswani et al. 2017, eq. 1; Su et al. 2021, eq. 34; Shazeer 2019 ("Fast transformer decoding") for one key head.
    """
    flat = [linear(x, params[f"{prefix}.{name}_proj.weight"]) for name in "qkv"]
    if config.qkv_bias:
        flat = [part + params[f"{prefix}.{name}_proj.bias"] for name, part in zip("qkv", flat, strict=True)]
    q, k, v = (part.reshape(len(x), -1, config.head_dim) for part in flat)
    norms = {}
    if config.qk_norm:
        q, norms["q"] = norm_heads(q, params, f"{prefix}.q_norm.weight", config)
        k, norms["k"] = norm_heads(k, params, f"{prefix}.k_norm.weight", config)
    turned = rope.rope_qk(q, k, tables["cosine"], tables["sine"], positions, rope.HALF)
    q, k = turned["q"], turned["k"]
    scale = 1 / math.sqrt(config.head_dim)
    out = attention.flash_attention(q, k, v, batch, scale, causal=1)
    heads = out["out"].reshape(len(x), -1)
    if config.ternary:
        heads, norms["heads"] = norm(heads, params, f"{prefix}.attn_sub_norm.weight", config)
        heads = roundings.rows(heads)
    y = linear(heads, params[f"{prefix}.o_proj.weight"])
    return y, Saved(
        x=x, q=q, k=k, v=v, norms=norms, flat=heads, batch=batch, scale=scale, positions=positions, tables=tables, **out
    )


def self_attention_backward(dy: Array, saved: Saved, params: Parameters, prefix: str, grads: Parameters) -> Array:
    """The chain of self_attention, backwards. Dao 2023, algorithm 2, for the attention itself."""
    dflat = linear_backward(dy, saved.flat, params, f"{prefix}.o_proj.weight", grads)
    if "heads" in saved.norms:
        dflat = norm_backward(dflat, saved.norms["heads"], params, f"{prefix}.attn_sub_norm.weight", grads)
    d = attention.flash_attention_backward(
        dflat.reshape(saved.out.shape),
        saved.q,
        saved.k,
        saved.v,
        saved.out,
        saved.lse,
        saved.batch,
        saved.scale,
        causal=1,
    )
    cosine, sine = saved.tables["cosine"], saved.tables["sine"]
    dq, dk = (rope.rope_backward(d[name], cosine, sine, saved.positions, rope.HALF)["dx"] for name in ("dq", "dk"))
    dx = np.zeros_like(saved.x)
    for name, gradient in (("q", dq), ("k", dk), ("v", d["dv"])):
        if name in saved.norms:
            gradient = norm_backward(
                gradient.reshape(saved.norms[name].x.shape),
                saved.norms[name],
                params,
                f"{prefix}.{name}_norm.weight",
                grads,
            )
        flat = gradient.reshape(len(dx), -1)
        dx = dx + linear_backward(flat, saved.x, params, f"{prefix}.{name}_proj.weight", grads)
        if f"{prefix}.{name}_proj.bias" in params:
            accumulate(grads, f"{prefix}.{name}_proj.bias", flat.sum(axis=0))
    return dx


def expert(x: Array, params: Parameters, prefix: str) -> tuple[Array, Saved]:
    """w2 (silu(w1 x) * w3 x). Shazeer 2020, "GLU variants improve transformer", eq. 6."""
    gate, up = linear(x, params[f"{prefix}.w1.weight"]), linear(x, params[f"{prefix}.w3.weight"])
    hidden = elementwise.swiglu(gate, up)["y"]
    return linear(hidden, params[f"{prefix}.w2.weight"]), Saved(x=x, gate=gate, up=up, hidden=hidden)


def expert_backward(dy: Array, saved: Saved, params: Parameters, prefix: str, grads: Parameters) -> Array:
    """The chain of expert, backwards."""
    dhidden = linear_backward(dy, saved.hidden, params, f"{prefix}.w2.weight", grads)
    d = elementwise.swiglu_backward(dhidden, saved.gate, saved.up)
    dx = linear_backward(d["dgate"], saved.x, params, f"{prefix}.w1.weight", grads)
    return dx + linear_backward(d["dup"], saved.x, params, f"{prefix}.w3.weight", grads)


def dense(x: Array, params: Parameters, prefix: str, config: Config, roundings: Roundings) -> tuple[Array, Saved]:
    """down (silu(gate x) * up x). Touvron et al. 2023, "LLaMA", section 2.2. With ternary weights a norm before `down`
    (Ma et al. 2025, section 2)."""
    gate, up = linear(x, params[f"{prefix}.gate_proj.weight"]), linear(x, params[f"{prefix}.up_proj.weight"])
    hidden = (elementwise.relu2_gate if config.squared_relu else elementwise.swiglu)(gate, up)["y"]
    saved = Saved(x=x, gate=gate, up=up, squared_relu=config.squared_relu, norm=None)
    if config.ternary:
        hidden, saved.norm = norm(hidden, params, f"{prefix}.ffn_sub_norm.weight", config)
        hidden = roundings.rows(hidden)
    saved.hidden = hidden
    return linear(hidden, params[f"{prefix}.down_proj.weight"]), saved


def dense_backward(dy: Array, saved: Saved, params: Parameters, prefix: str, grads: Parameters) -> Array:
    """The chain of dense, backwards."""
    dhidden = linear_backward(dy, saved.hidden, params, f"{prefix}.down_proj.weight", grads)
    if saved.norm is not None:
        dhidden = norm_backward(dhidden, saved.norm, params, f"{prefix}.ffn_sub_norm.weight", grads)
    gate_backward = activation.relu2_gate_backward if saved.squared_relu else elementwise.swiglu_backward
    d = gate_backward(dhidden, saved.gate, saved.up)
    dx = linear_backward(d["dgate"], saved.x, params, f"{prefix}.gate_proj.weight", grads)
    return dx + linear_backward(d["dup"], saved.x, params, f"{prefix}.up_proj.weight", grads)


def mixture(x: Array, params: Parameters, prefix: str, config: Config) -> tuple[Array, Saved]:
    """Each token through its top experts, weighted. Shazeer et al. 2017, eq. 1; Jiang et al. 2024, section 2.1.

    ``Saved`` holds ``probs`` and ``counts`` for the auxiliary loss, and the ``indices`` chosen.
    """
    k = config.num_experts_per_tok
    routed = softmax.softmax_topk(linear(x, params[f"{prefix}.gate.weight"]), k, int(config.norm_topk_prob))
    plan = moe.moe_plan(routed["indices"], config.num_local_experts, config.capacity(len(x)))
    rows = moe.moe_gather(x, plan["row_slot"], k)["y"]
    y = np.zeros_like(rows)
    experts = []
    for e in range(config.num_local_experts):
        mine = slice(plan["offsets"][e], plan["offsets"][e + 1])
        y[mine], saved = expert(rows[mine], params, f"{prefix}.experts.{e}")
        experts.append((mine, saved))
    out = moe.moe_combine(y, routed["weights"], plan["slot_row"])["out"]
    return out, Saved(x=x, y=y, experts=experts, norm=int(config.norm_topk_prob), **routed, **plan)


def mixture_backward(
    dout: Array, saved: Saved, params: Parameters, prefix: str, grads: Parameters, dprobs: Array | None = None
) -> Array:
    """The chain of mixture, backwards; ``dprobs`` is what the auxiliary loss adds to the router's probabilities."""
    d = moe.moe_combine_backward(dout, saved.y, saved.weights, saved.slot_row, saved.row_slot)
    drows = np.zeros_like(d["dy"])
    for e, (mine, expert_saved) in enumerate(saved.experts):
        drows[mine] = expert_backward(d["dy"][mine], expert_saved, params, f"{prefix}.experts.{e}", grads)
    dx = moe.moe_gather_backward(drows, saved.slot_row)["dx"]
    dlogits = softmax.softmax_topk_backward(
        d["dweights"], saved.weights, saved.indices, saved.probs, saved.norm, dprobs
    )["dx"]
    return dx + linear_backward(dlogits, saved.x, params, f"{prefix}.gate.weight", grads)
