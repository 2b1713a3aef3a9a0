"""What a Llama is made of.

A Llama here is a pre-norm decoder with RMSNorm, rotary attention of grouped heads and a SwiGLU, or a mixture of SwiGLU
experts behind a router (Mixtral, and this library's own models), or with ternary weights, further norms and a squared
ReLU as the gate (BitNet b1.58), or with bounded scores, windows and norms behind its parts (Gemma 2 and 3), or with
sinks and biased experts (gpt-oss). `families` says which models are such, with which of the parts. Tensors are named as
in Hugging Face transformers' Llama and Mixtral, in every family:

    model.embed_tokens.weight                                  [vocab, hidden]
    for each layer L, with the prefix model.layers.L:
      input_layernorm.weight, post_attention_layernorm.weight  [hidden]
      self_attn.{q,k,v}_proj.weight                            [heads * head_dim, hidden]
      self_attn.o_proj.weight                                  [hidden, heads * head_dim]
      self_attn.{q,k,v}_proj.bias, self_attn.o_proj.bias       with qkv_bias, with o_bias
      self_attn.{q,k}_norm.weight                              with qk_norm: [head_dim], or [heads * head_dim]
      self_attn.sinks.weight                                   with sinks: [heads]
      mlp.{gate,up}_proj.weight, mlp.down_proj.weight          [ffn, hidden], [hidden, ffn]
    or, with experts, all of them in one tensor a matrix:
      block_sparse_moe.gate.weight                             [experts, hidden]
      block_sparse_moe.{w1,w3}.weight                          [experts, ffn, hidden]: gate and up
      block_sparse_moe.w2.weight                               [experts, hidden, ffn]: down
      block_sparse_moe.gate.bias, .{w1,w3}.bias, .w2.bias      with biased_experts: [experts], [experts, ffn] twice and
                                                               [experts, hidden]
    with shared_ffn_size, the expert that every token goes to, and with shared_gate what weighs it:
      block_sparse_moe.shared.{gate,up,down}_proj.weight       as those of mlp
      block_sparse_moe.shared_gate.weight                      [hidden]
    with sub_norms, before the projections of the attention and of the feed-forward network:
      self_attn.attn_sub_norm.weight, mlp.ffn_sub_norm.weight  [heads * head_dim], [ffn]
    with post_norms, of what attention and the feed-forward network add to the residual stream:
      self_attn.post_norm.weight, mlp.post_norm.weight         [hidden]
    model.norm.weight, lm_head.weight                          [hidden], [vocab, hidden]

(Touvron et al. 2023, "Llama 2"; Jiang et al. 2024, "Mixtral of Experts"; Ma et al. 2025, "BitNet b1.58 2B4T Technical
Report"; Agarwal et al. 2025, "gpt-oss-120b & gpt-oss-20b Model Card")
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from .config import BOUNDS, _require, check_count, check_number
from .families import FAMILIES
from .rope_scaling import UNROTATED, base_of_part

LAYOUTS = ("half", "interleaved")
SCALINGS = ("none", "linear", "dynamic", "ntk", "llama3", "yarn", "longrope")
ACTIVATIONS = ("silu", "relu2", "gelu_pytorch_tanh")
QK_NORMS = ("none", "head", "whole")

#: The scalings with a divisor for each pair.
_DIVIDED = ("llama3", "yarn", "longrope")

#: What positions, or a frequency, may be divided by.
_STRETCH = (1e-6, 1e6)


@dataclass(frozen=True)
class Rope:
    """Rotary embedding.

    base       of the angles
    layout     which elements of a head make a pair: "half" (i, i + head_dim/2) or "interleaved" (2i, 2i + 1), as the
               rows of the stored query and key weights ask for
    rotated    elements at the head's beginning that are rotated, 0 for all. Where they make half-split pairs, rows of
               queries and keys are read in an order in which they are the pairs of a whole head
    scaling    "none"; "linear": positions are divided by `factor` (Chen et al. 2023, "Extending Context Window");
               "dynamic": beyond `context` alone, where a model with it does not go here; "ntk": the base grows with
               `factor` as alpha, beyond `context` alone (bloc97 2023); "llama3", "yarn" and "longrope": each frequency
               is divided by its entry of `divisors` (Dubey et al. 2024, "The Llama 3 Herd of Models"; Peng et al. 2023,
               "YaRN"; Ding et al. 2024, "LongRoPE")
    long_divisors, original_context
               of "longrope": what takes the place of `divisors` for sequences longer than that context
    magnitude  what cosines and sines are multiplied with
    """

    base: float = 10000.0
    layout: str = "half"
    rotated: int = 0
    scaling: str = "none"
    factor: float = 1.0
    divisors: tuple[float, ...] = ()
    long_divisors: tuple[float, ...] = ()
    original_context: int = 0
    magnitude: float = 1.0

    def __post_init__(self) -> None:
        check_number("rope.base", self.base, BOUNDS["rope_base"])
        check_number("rope.factor", self.factor, BOUNDS["ntk_alpha"] if self.scaling == "ntk" else _STRETCH)
        check_number("rope.magnitude", self.magnitude, _STRETCH)
        _require(self.layout in LAYOUTS, "rope.layout", self.layout, f"one of {', '.join(LAYOUTS)}")
        _require(self.scaling in SCALINGS, "rope.scaling", self.scaling, f"one of {', '.join(SCALINGS)}")
        for value in (*self.divisors, *self.long_divisors):
            check_number("a divisor of rope", value, _STRETCH)
        needs, has = self.scaling in _DIVIDED, bool(self.divisors)
        rule = f"given with the scalings {', '.join(_DIVIDED)}, and only then"
        _require(needs == has, "rope.divisors", self.divisors, rule)
        if self.scaling == "longrope":
            _require(len(self.long_divisors) == len(self.divisors), "rope.long_divisors", self.long_divisors, "as many")
            check_count("rope.original_context", self.original_context, 1)


_MAY_BE_ZERO = ("num_experts", "experts_per_token", "shared_ffn_size", "window", "window_period")


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes and options of a Llama.

    family              which of `FAMILIES` it is
    context             longest sequence without stretching beyond what the model was made for
    extended_context    longest sequence at all; above `context` with the scaling "ntk" alone
    ffn_size            inner width of the SwiGLU, or of one expert
    num_experts         0 without experts
    experts_per_token   0 without experts
    norm_topk_prob      whether a token's expert weights are divided by their sum
    tie_embeddings      whether the LM head is the table of embeddings
    qkv_bias, o_bias    whether the products for queries, keys and values have biases, and that behind attention
    qk_norm             norms of queries and keys before they are rotated: "none"; "head", of each head by itself, with
                        gains [head_dim]; "whole", of all heads together
    activation          of the gate: "silu"; "relu2", max(x, 0)^2; "gelu_pytorch_tanh", GELU by its approximation
    sub_norms           whether there are norms before the projections of attention and feed-forward network
    ternary             whether the weights of all layers' products are -1, 0 and 1 times a number, and activations are
                        rounded to 8 bits before them
    shared_ffn_size     inner width of the expert that every token goes to; 0 without one
    shared_gate         whether that one is weighed by a sigmoid of the token
    embedding_scale, residual_scale
                        factors of the embeddings, and of what is added to the residual stream
    attention_scale     factor of the products of queries and keys; 0 for 1 / sqrt(head_dim)
    logits_scaling      what logits are divided by
    scores_cap, logits_cap
                        soft bounds c * tanh(x / c) of attention's scores and of the logits; 0 for none
    window              most tokens that a token sees in layers with a window, itself the last of them; 0 for all
    window_period       n where each n-th layer has no window, 0 where all have
    local_rope_base     base of the rotary embedding in layers with a window, where it is not scaled; 0 for that of all
    sinks               whether each head has a score without a key, of which its softmax has the sum alone
    biased_experts      whether the router and the experts have biases, and the gates of these are clipped: of
                        min(g, 7) sigmoid(1.702 g) (u + 1) with u held between -7 and 7
    post_norms          whether there are norms of what attention and feed-forward network add to the residual stream
    norms_less_one      whether the stored gains of norms are less by 1 than what is multiplied with

    Others as in `MoEConfig`.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    context: int
    extended_context: int
    norm_eps: float = 1e-5
    rope: Rope = Rope()
    num_experts: int = 0
    experts_per_token: int = 0
    norm_topk_prob: bool = True
    tie_embeddings: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: str = "none"
    activation: str = "silu"
    sub_norms: bool = False
    ternary: bool = False
    shared_ffn_size: int = 0
    shared_gate: bool = False
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    attention_scale: float = 0.0
    logits_scaling: float = 1.0
    scores_cap: float = 0.0
    logits_cap: float = 0.0
    window: int = 0
    window_period: int = 0
    local_rope_base: float = 0.0
    post_norms: bool = False
    norms_less_one: bool = False
    sinks: bool = False
    biased_experts: bool = False
    family: str = "llama"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type == "int":
                check_count(field.name, value, 0 if field.name in _MAY_BE_ZERO else 1)
            elif field.type == "bool":
                _require(type(value) is bool, field.name, value, "true or false")
        check_number("norm_eps", self.norm_eps, BOUNDS["norm_eps"])
        heads, dim = self.num_heads, self.head_dim
        _require(self.num_layers <= 10000, "num_layers", self.num_layers, "at most 10000")
        _require(heads % self.num_kv_heads == 0, "num_kv_heads", self.num_kv_heads, f"a divisor of num_heads ({heads})")
        _require(dim % 8 == 0 and dim <= 256, "head_dim", dim, "a multiple of 8, at most 256")
        most = min(self.num_experts, 64)
        least = min(self.num_experts, 1)
        chosen = self.experts_per_token
        _require(least <= chosen <= most, "experts_per_token", chosen, f"{least} to {most}")
        longest, ntk = self.extended_context, self.rope.scaling == "ntk"
        allowed = f"at least context ({self.context})" if ntk else f"context ({self.context}) without the scaling ntk"
        _require(longest >= self.context if ntk else longest == self.context, "extended_context", longest, allowed)
        _require(self.activation in ACTIVATIONS, "activation", self.activation, f"one of {', '.join(ACTIVATIONS)}")
        if self.sub_norms or self.ternary or self.post_norms or self.activation != "silu":
            _require(
                not self.num_experts, "num_experts", self.num_experts, "0 in a model of the kind of BitNet or Gemma"
            )
        _require(self.qk_norm in QK_NORMS, "qk_norm", self.qk_norm, f"one of {', '.join(QK_NORMS)}")
        for name, there in (
            ("qkv_bias", self.qkv_bias),
            ("o_bias", self.o_bias),
            ("qk_norm", self.qk_norm != "none"),
            ("rope.rotated", self.rope.rotated != 0),
            ("attention_scale", self.attention_scale != 0),
            ("embedding_scale", self.embedding_scale != 1),
            ("residual_scale", self.residual_scale != 1),
            ("post_norms", self.post_norms),
            ("norms_less_one", self.norms_less_one),
        ):
            _require(not (self.ternary and there), name, getattr(self, name, True), "absent with ternary weights")
        _require(self.family in FAMILIES, "family", self.family, f"one of {', '.join(FAMILIES)}")
        for name in ("embedding_scale", "residual_scale", "logits_scaling"):
            check_number(name, getattr(self, name), _STRETCH)
        for name in ("attention_scale", "scores_cap", "logits_cap"):
            check_number(name, getattr(self, name), (0.0, 1e6))
        if self.local_rope_base:
            check_number("local_rope_base", self.local_rope_base, BOUNDS["rope_base"])
            whole = not self.rope.rotated and bool(self.window)
            _require(whole, "local_rope_base", self.local_rope_base, "0 without windows, and where a part is rotated")
        rule = "0 in a model without windows"
        _require(bool(self.window) or not self.window_period, "window_period", self.window_period, rule)
        _require(not (self.o_bias and self.residual_scale != 1), "o_bias", True, "false with a residual_scale")
        rule = "0 in a model without experts"
        _require(bool(self.num_experts) or not self.shared_ffn_size, "shared_ffn_size", self.shared_ffn_size, rule)
        lone = self.num_experts > 0 and not self.shared_ffn_size and self.residual_scale == 1
        rule = "false without experts, with a shared one, and with a residual_scale"
        _require(lone or not self.biased_experts, "biased_experts", self.biased_experts, rule)
        rule = "false in a model without a shared expert"
        _require(bool(self.shared_ffn_size) or not self.shared_gate, "shared_gate", self.shared_gate, rule)
        rotated = self.rope.rotated or dim
        rule = f"an even number below head_dim ({dim}), or 0"
        _require(rotated % 2 == 0 and rotated <= dim, "rope.rotated", rotated, rule)
        if rotated < dim:
            plain = not self.qkv_bias and self.qk_norm == "none"
            _require(plain, "rope.rotated", rotated, "0 with biases or norms of queries and keys")
        divisors = len(self.rope.divisors)
        rule = f"half of the rotated elements ({rotated // 2})"
        _require(divisors in (0, rotated // 2), "the number of divisors of rope", divisors, rule)

    def window_of(self, layer: int) -> int:
        """Most tokens that a token sees in a layer, counted from 0; 0 for all."""
        period = self.window_period
        return 0 if period and (layer + 1) % period == 0 else self.window

    def rope_options(self, positions: int) -> dict[str, float]:
        """Options of `kernels.rope_freqs_scaled` for sequences of up to that many positions; its `factors` are
        `rope_divisors`. ValueError beyond `extended_context`."""
        if positions > self.extended_context:
            raise ValueError(f"{positions} positions; this model has at most {self.extended_context}")
        rope = self.rope
        stretched = rope.scaling == "ntk" and positions > self.context
        return {
            "base": base_of_part(rope.base, self.head_dim, rope.rotated or self.head_dim),
            "ntk_alpha": rope.factor if stretched else 1.0,
            "scale": 1 / rope.factor if rope.scaling == "linear" else 1.0,
        }

    def rope_divisors(self, positions: int) -> tuple[float, ...]:
        """What the frequencies of each pair of a head are divided by, for sequences of up to that many positions; empty
        for ones."""
        rope = self.rope
        long = rope.scaling == "longrope" and positions > rope.original_context
        divisors = rope.long_divisors if long else rope.divisors
        if not rope.rotated or rope.rotated == self.head_dim:
            return divisors
        rotated = rope.rotated // 2
        return (*(divisors or (1.0,) * rotated), *(UNROTATED,) * (self.head_dim // 2 - rotated))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor by name, in the order of the layers; `lm_head.weight` in tied models too."""
        hidden, ffn = self.hidden_size, self.ffn_size
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, hidden)}
        for layer in range(self.num_layers):
            prefix = f"model.layers.{layer}"
            shapes[f"{prefix}.input_layernorm.weight"] = (hidden,)
            for part, rows, columns in (
                ("q", queries, hidden),
                ("k", keys, hidden),
                ("v", keys, hidden),
                ("o", hidden, queries),
            ):
                shapes[f"{prefix}.self_attn.{part}_proj.weight"] = (rows, columns)
                if self.o_bias if part == "o" else self.qkv_bias:
                    shapes[f"{prefix}.self_attn.{part}_proj.bias"] = (rows,)
            if self.qk_norm != "none":
                whole = self.qk_norm == "whole"
                shapes[f"{prefix}.self_attn.q_norm.weight"] = (queries if whole else self.head_dim,)
                shapes[f"{prefix}.self_attn.k_norm.weight"] = (keys if whole else self.head_dim,)
            if self.sinks:
                shapes[f"{prefix}.self_attn.sinks.weight"] = (self.num_heads,)
            if self.sub_norms:
                shapes[f"{prefix}.self_attn.attn_sub_norm.weight"] = (queries,)
            if self.post_norms:
                shapes[f"{prefix}.self_attn.post_norm.weight"] = (hidden,)
            shapes[f"{prefix}.post_attention_layernorm.weight"] = (hidden,)
            if self.num_experts:
                experts = self.num_experts
                shapes[f"{prefix}.block_sparse_moe.gate.weight"] = (experts, hidden)
                shapes[f"{prefix}.block_sparse_moe.w1.weight"] = (experts, ffn, hidden)
                shapes[f"{prefix}.block_sparse_moe.w3.weight"] = (experts, ffn, hidden)
                shapes[f"{prefix}.block_sparse_moe.w2.weight"] = (experts, hidden, ffn)
                if self.biased_experts:
                    shapes[f"{prefix}.block_sparse_moe.gate.bias"] = (experts,)
                    shapes[f"{prefix}.block_sparse_moe.w1.bias"] = (experts, ffn)
                    shapes[f"{prefix}.block_sparse_moe.w3.bias"] = (experts, ffn)
                    shapes[f"{prefix}.block_sparse_moe.w2.bias"] = (experts, hidden)
                if shared := self.shared_ffn_size:
                    shapes[f"{prefix}.block_sparse_moe.shared.gate_proj.weight"] = (shared, hidden)
                    shapes[f"{prefix}.block_sparse_moe.shared.up_proj.weight"] = (shared, hidden)
                    shapes[f"{prefix}.block_sparse_moe.shared.down_proj.weight"] = (hidden, shared)
                if self.shared_gate:
                    shapes[f"{prefix}.block_sparse_moe.shared_gate.weight"] = (hidden,)
            else:
                shapes[f"{prefix}.mlp.gate_proj.weight"] = (ffn, hidden)
                shapes[f"{prefix}.mlp.up_proj.weight"] = (ffn, hidden)
                shapes[f"{prefix}.mlp.down_proj.weight"] = (hidden, ffn)
            if self.sub_norms:
                shapes[f"{prefix}.mlp.ffn_sub_norm.weight"] = (ffn,)
            if self.post_norms:
                shapes[f"{prefix}.mlp.post_norm.weight"] = (hidden,)
        shapes["model.norm.weight"] = (hidden,)
        shapes["lm_head.weight"] = (self.vocab_size, hidden)
        return shapes

    def to_dict(self) -> dict[str, Any]:
        """All options by name."""
        return dataclasses.asdict(self)


# Small weights, which are multiplied element by element in f32 and so cannot be in blocks.
_PLAIN = (
    "norm.weight",
    ".bias",
    "self_attn.sinks.weight",
    "block_sparse_moe.gate.weight",
    "block_sparse_moe.shared_gate.weight",
)


def is_plain(name: str) -> bool:
    """Whether a tensor must be in f32, f16 or bf16: norms, biases, routers, sinks."""
    return name.endswith(_PLAIN)


def is_norm(name: str) -> bool:
    """Whether a tensor has the gains of a norm."""
    return name.endswith("norm.weight")


def is_projection(name: str) -> bool:
    """Whether a tensor is one of the matrices that are ternary in a model with ternary weights."""
    return name.endswith("_proj.weight")
