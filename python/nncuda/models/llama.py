"""What a Llama is made of, and how GGUF files and Hugging Face folders describe one.

A Llama here is a pre-norm decoder with RMSNorm, rotary attention of grouped heads and a SwiGLU, or a mixture of SwiGLU
experts behind a router (Mixtral, and this library's own models), or with ternary weights, further norms and a squared
ReLU as the gate (BitNet b1.58). Tensors are named as in Hugging Face transformers:

    model.embed_tokens.weight                                  [vocab, hidden]
    for each layer L, with the prefix model.layers.L:
      input_layernorm.weight, post_attention_layernorm.weight  [hidden]
      self_attn.{q,k,v}_proj.weight                            [heads * head_dim, hidden]
      self_attn.o_proj.weight                                  [hidden, heads * head_dim]
      self_attn.{q,k,v,o}_proj.bias                            with attention_bias
      mlp.{gate,up}_proj.weight, mlp.down_proj.weight          [ffn, hidden], [hidden, ffn]
    or, with experts, all of them in one tensor a matrix:
      block_sparse_moe.gate.weight                             [experts, hidden]
      block_sparse_moe.{w1,w3}.weight                          [experts, ffn, hidden]: gate and up
      block_sparse_moe.w2.weight                               [experts, hidden, ffn]: down
    with sub_norms, before the projections of the attention and of the feed-forward network:
      self_attn.attn_sub_norm.weight, mlp.ffn_sub_norm.weight  [heads * head_dim], [ffn]
    model.norm.weight, lm_head.weight                          [hidden], [vocab, hidden]

(Touvron et al. 2023, "Llama 2"; Jiang et al. 2024, "Mixtral of Experts"; Ma et al. 2025, "BitNet b1.58 2B4T Technical
Report")
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..formats.errors import shown
from .config import BOUNDS, _require, check_count, check_number, is_finite

LAYOUTS = ("half", "interleaved")
SCALINGS = ("none", "linear", "ntk", "llama3")
ACTIVATIONS = ("silu", "relu2")

#: What positions, or a frequency, may be divided by.
_STRETCH = (1e-6, 1e6)


@dataclass(frozen=True)
class Rope:
    """Rotary embedding.

    base       of the angles
    layout     which elements of a head make a pair: "half" (i, i + head_dim/2) or "interleaved" (2i, 2i + 1), as the
               rows of the stored query and key weights ask for
    scaling    "none"; "linear": positions are divided by `factor` (Chen et al. 2023, "Extending Context Window");
               "ntk": the base grows with `factor` as alpha, beyond `context` alone (bloc97 2023); "llama3": each
               frequency is divided by its entry of `divisors` (Dubey et al. 2024, "The Llama 3 Herd of Models")
    """

    base: float = 10000.0
    layout: str = "half"
    scaling: str = "none"
    factor: float = 1.0
    divisors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_number("rope.base", self.base, BOUNDS["rope_base"])
        check_number("rope.factor", self.factor, BOUNDS["ntk_alpha"] if self.scaling == "ntk" else _STRETCH)
        _require(self.layout in LAYOUTS, "rope.layout", self.layout, f"one of {', '.join(LAYOUTS)}")
        _require(self.scaling in SCALINGS, "rope.scaling", self.scaling, f"one of {', '.join(SCALINGS)}")
        for value in self.divisors:
            check_number("a divisor of rope", value, _STRETCH)
        needs, has = self.scaling == "llama3", bool(self.divisors)
        _require(needs == has, "rope.divisors", self.divisors, "given with the scaling llama3, and only then")


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes and options of a Llama.

    context             longest sequence without stretching beyond what the model was made for
    extended_context    longest sequence at all; above `context` with the scaling "ntk" alone
    ffn_size            inner width of the SwiGLU, or of one expert
    num_experts         0 without experts
    experts_per_token   0 without experts
    norm_topk_prob      whether a token's expert weights are divided by their sum
    tie_embeddings      whether the LM head is the table of embeddings
    attention_bias      whether the four products of attention have biases
    activation          of the gate: "silu", or "relu2", max(x, 0)^2
    sub_norms           whether there are norms before the projections of attention and feed-forward network
    ternary             whether the weights of all layers' products are -1, 0 and 1 times a number, and activations are
                        rounded to 8 bits before them

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
    attention_bias: bool = False
    activation: str = "silu"
    sub_norms: bool = False
    ternary: bool = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type == "int":
                check_count(field.name, value, 0 if field.name in ("num_experts", "experts_per_token") else 1)
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
        if self.sub_norms or self.ternary or self.activation != "silu":
            _require(not self.num_experts, "num_experts", self.num_experts, "0 in a model of the kind of BitNet")
        _require(not (self.ternary and self.attention_bias), "attention_bias", True, "false with ternary weights")
        divisors = len(self.rope.divisors)
        _require(divisors in (0, dim // 2), "the number of divisors of rope", divisors, f"head_dim / 2 ({dim // 2})")

    def rope_options(self, positions: int) -> dict[str, float]:
        """Options of `kernels.rope_freqs_scaled` for sequences of up to that many positions; its `factors` are
        `rope.divisors`. ValueError beyond `extended_context`."""
        if positions > self.extended_context:
            raise ValueError(f"{positions} positions; this model has at most {self.extended_context}")
        rope = self.rope
        stretched = rope.scaling == "ntk" and positions > self.context
        return {
            "base": rope.base,
            "ntk_alpha": rope.factor if stretched else 1.0,
            "scale": 1 / rope.factor if rope.scaling == "linear" else 1.0,
        }

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
                if self.attention_bias:
                    shapes[f"{prefix}.self_attn.{part}_proj.bias"] = (rows,)
            if self.sub_norms:
                shapes[f"{prefix}.self_attn.attn_sub_norm.weight"] = (queries,)
            shapes[f"{prefix}.post_attention_layernorm.weight"] = (hidden,)
            if self.num_experts:
                experts = self.num_experts
                shapes[f"{prefix}.block_sparse_moe.gate.weight"] = (experts, hidden)
                shapes[f"{prefix}.block_sparse_moe.w1.weight"] = (experts, ffn, hidden)
                shapes[f"{prefix}.block_sparse_moe.w3.weight"] = (experts, ffn, hidden)
                shapes[f"{prefix}.block_sparse_moe.w2.weight"] = (experts, hidden, ffn)
            else:
                shapes[f"{prefix}.mlp.gate_proj.weight"] = (ffn, hidden)
                shapes[f"{prefix}.mlp.up_proj.weight"] = (ffn, hidden)
                shapes[f"{prefix}.mlp.down_proj.weight"] = (hidden, ffn)
            if self.sub_norms:
                shapes[f"{prefix}.mlp.ffn_sub_norm.weight"] = (ffn,)
        shapes["model.norm.weight"] = (hidden,)
        shapes["lm_head.weight"] = (self.vocab_size, hidden)
        return shapes

    def to_dict(self) -> dict[str, Any]:
        """All options by name."""
        return dataclasses.asdict(self)


def llama3_divisors(
    base: float, head_dim: int, factor: float, low: float, high: float, original_context: float
) -> tuple[float, ...]:
    """What the frequencies of Llama 3.1 are divided by, a number a pair, rounded to f32.

    Waves shorter than original_context/high stay, those longer than original_context/low are stretched by `factor`,
    between them the frequency goes over linearly in original_context/wavelength. (Dubey et al. 2024, and its reference
    code; https://github.com/meta-llama/llama-models)
    """
    divisors = []
    for pair in range(head_dim // 2):
        turns = original_context * base ** (-2 * pair / head_dim) / (2 * math.pi)
        share = min(max((turns - low) / (high - low), 0.0), 1.0)
        divisors.append(float(np.float32(1 / ((1 - share) / factor + share))))
    return tuple(divisors)


# Small weights, which are multiplied element by element in f32 and so cannot be in blocks.
_PLAIN = ("layernorm.weight", "sub_norm.weight", ".bias", "model.norm.weight", "block_sparse_moe.gate.weight")


def is_plain(name: str) -> bool:
    """Whether a tensor must be in f32, f16 or bf16: norms, biases, routers."""
    return name.endswith(_PLAIN)


def is_projection(name: str) -> bool:
    """Whether a tensor is one of the matrices that are ternary in a model with ternary weights."""
    return name.endswith("_proj.weight")


def config_from_folder(values: Mapping[str, Any]) -> LlamaConfig:
    """Reads the content of a `config.json` of Hugging Face transformers, model_type llama, mixtral or bitnet.

    Raises ValueError when it is of another model, lacks something, or asks for what this engine does not do.
    """
    kind = values.get("model_type")
    if kind not in ("llama", "mixtral", "bitnet"):
        raise ValueError(f"the model_type is {shown(kind)}; this program runs 'llama', 'mixtral' and 'bitnet'")
    given = _Values(values)
    mixtral, bitnet = kind == "mixtral", kind == "bitnet"
    for name, needed in (("mlp_bias", False), ("partial_rotary_factor", 1.0)):
        if values.get(name) not in (None, needed):
            raise ValueError(f"{name} is {shown(values[name])}; this engine has {needed!r}")
    activation = values.get("hidden_act")
    if activation is None:
        activation = "relu2" if bitnet else "silu"
    elif type(activation) is not str or activation not in (ACTIVATIONS if bitnet else ("silu",)):
        has = "'silu' and 'relu2'" if bitnet else "'silu'"
        raise ValueError(f"hidden_act is {shown(activation)}; this engine has {has} for model_type {shown(kind)}")
    heads, hidden = given.whole("num_attention_heads"), given.whole("hidden_size")
    head_dim = given.whole("head_dim", hidden // heads)
    context = given.whole("max_position_embeddings", None if mixtral else 2048)
    _check_window(values.get("sliding_window"), "sliding_window", context)
    extra = values.get("nncuda", {})
    known = ("extended_context", "ntk_alpha", "norm_topk_prob", "capacity_factor")
    if not isinstance(extra, Mapping) or any(name not in known for name in extra):
        raise ValueError(f"the options under 'nncuda' must be among {', '.join(known)}")
    base = {"mixtral": 1e6, "bitnet": 5e5}.get(kind, 1e4)  # this and others are transformers' own defaults
    rope = _rope_from_folder(values, head_dim, base)
    longest = _Values(extra).whole("extended_context", context)
    if longest > context:
        if rope.scaling != "none":
            raise ValueError(f"extended_context of a model whose rotary embedding is scaled already ({rope.scaling})")
        rope = dataclasses.replace(rope, scaling="ntk", factor=_Values(extra).number("ntk_alpha", 1.0))
    return LlamaConfig(
        vocab_size=given.whole("vocab_size"),
        hidden_size=hidden,
        num_layers=given.whole("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=given.whole("num_key_value_heads", 8 if mixtral else 5 if bitnet else heads),
        head_dim=head_dim,
        ffn_size=given.whole("intermediate_size"),
        context=context,
        extended_context=longest,
        norm_eps=given.number("rms_norm_eps", 1e-5 if mixtral or bitnet else 1e-6),
        rope=rope,
        num_experts=given.whole("num_local_experts", 8) if mixtral else 0,
        experts_per_token=given.whole("num_experts_per_tok", 2) if mixtral else 0,
        norm_topk_prob=_Values(extra).flag("norm_topk_prob", True),
        tie_embeddings=given.flag("tie_word_embeddings", False),
        attention_bias=given.flag("attention_bias", False),
        activation=activation,
        sub_norms=bitnet,
        ternary=bitnet,
    )


def _rope_from_folder(values: Mapping[str, Any], head_dim: int, default_base: float) -> Rope:
    # transformers 5 writes rope_parameters; earlier ones rope_theta and, for stretched models, rope_scaling.
    rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        raise ValueError(f"rope_parameters is {shown(rope)}; it must be an object")
    given = _Values(rope)
    kind = rope.get("rope_type", rope.get("type", "default"))
    base = given.number("rope_theta", _Values(values).number("rope_theta", default_base))
    if rope.get("partial_rotary_factor") not in (None, 1.0):
        raise ValueError(
            f"partial_rotary_factor is {shown(rope['partial_rotary_factor'])}; this engine rotates whole heads"
        )
    if kind == "default":
        return Rope(base=base)
    if kind == "linear":
        return Rope(base=base, scaling="linear", factor=given.number("factor"))
    if kind != "llama3":
        raise ValueError(f"rotary embedding of type {shown(kind)}; this engine has 'default', 'linear' and 'llama3'")
    low, high = given.number("low_freq_factor"), given.number("high_freq_factor")
    factor, original = given.number("factor"), given.number("original_max_position_embeddings")
    if base < 1 or factor < 1 or not 0 < low < high or original < 1:
        raise ValueError(
            f"rotary embedding of llama3 with base {base}, factor {factor}, low_freq_factor {low}, high_freq_factor "
            f"{high} and original_max_position_embeddings {original}: they must be above 0, the base, the factor and "
            f"the context at least 1, low below high"
        )
    if head_dim > 256:  # the most that a head may have: see LlamaConfig; there is a divisor for every pair of it
        raise ValueError(f"head_dim is {head_dim}; it must be a multiple of 8, at most 256")
    divisors = llama3_divisors(base, head_dim, factor, low, high, original)
    return Rope(base=base, scaling="llama3", factor=factor, divisors=divisors)


#: The gate's activation by the architecture of a GGUF file with ternary weights: llama.cpp computes all of "bitnet"
#: with SiLU, as the first such models had it; bitnet.cpp gave those with a squared ReLU other names.
BITNET_ARCHITECTURES = {"bitnet": "silu", "bitnet-25": "relu2", "bitnet-b1.58": "relu2"}


def config_from_gguf(metadata: Mapping[str, Any], *, tied: bool, biased: bool, divisors: Any = None) -> LlamaConfig:
    """Reads the metadata of a GGUF file of the architecture llama (which Mixtral's have too) or of a BitNet.

    `tied`: there is no output.weight; `biased`: attention has biases; `divisors`: the values of rope_freqs.weight, or
    None. Raises ValueError when it is of another model, lacks something, or asks for what this engine does not do.
    """
    architecture = metadata.get("general.architecture")
    if type(architecture) is not str or architecture not in ("llama", *BITNET_ARCHITECTURES):
        names = ", ".join(map(repr, ("llama", *BITNET_ARCHITECTURES)))
        raise ValueError(f"general.architecture is {shown(architecture)}; this program runs {names}")
    bitnet = architecture in BITNET_ARCHITECTURES
    prefix = f"{architecture}."
    given = _Values(metadata, prefix)
    heads, hidden = given.whole("attention.head_count"), given.whole("embedding_length")
    head_dim = given.whole("attention.key_length", hidden // heads)
    for name in ("attention.value_length", "rope.dimension_count"):
        if given.whole(name, head_dim) != head_dim:
            raise ValueError(f"{prefix}{name} is {given.whole(name)}; it must be the size of a head ({head_dim})")
    context = given.whole("context_length")
    window = prefix + "attention.sliding_window"
    _check_window(metadata.get(window), window, context)
    experts = given.whole("expert_count", 0)
    rope = Rope(base=given.number("rope.freq_base", 10000.0), layout="half" if bitnet else "interleaved")
    linear = prefix + "rope.scale_linear"
    kind = metadata.get(prefix + "rope.scaling.type", "linear" if linear in metadata else "none")
    factor = given.number("rope.scaling.factor", given.number("rope.scale_linear", 1.0))
    longest = given.whole("nncuda.extended_context", context)
    if type(kind) is not str or kind not in ("none", "linear"):
        raise ValueError(f"{prefix}rope.scaling.type is {shown(kind)}; this engine has 'none' and 'linear'")
    stretched = [kind == "linear" and factor != 1, divisors is not None, longest > context]
    if sum(stretched) > 1:
        raise ValueError("the rotary embedding is scaled in more than one way (linear, rope_freqs.weight, ntk)")
    if stretched[0]:
        rope = dataclasses.replace(rope, scaling="linear", factor=factor)
    elif stretched[1]:
        rope = dataclasses.replace(rope, scaling="llama3", divisors=tuple(map(float, divisors)))
    elif stretched[2]:
        rope = dataclasses.replace(rope, scaling="ntk", factor=given.number("nncuda.ntk_alpha", 1.0))
    tokens = metadata.get("tokenizer.ggml.tokens")
    return LlamaConfig(
        vocab_size=given.whole("vocab_size", len(tokens) if isinstance(tokens, Sequence) else None),
        hidden_size=hidden,
        num_layers=given.whole("block_count"),
        num_heads=heads,
        num_kv_heads=given.whole("attention.head_count_kv", heads),
        head_dim=head_dim,
        ffn_size=given.whole("feed_forward_length"),
        context=context,
        extended_context=longest,
        norm_eps=given.number("attention.layer_norm_rms_epsilon"),
        rope=rope,
        num_experts=experts,
        experts_per_token=given.whole("expert_used_count", 0 if not experts else None),
        norm_topk_prob=given.flag("expert_weights_norm", True),
        tie_embeddings=tied,
        attention_bias=biased,
        activation=BITNET_ARCHITECTURES.get(architecture, "silu"),
        sub_norms=bitnet,
        ternary=bitnet,
    )


def _check_window(window: Any, name: str, context: int) -> None:
    if window is None:
        return
    if type(window) is not int or 0 != window < context:
        raise ValueError(f"{name} is {shown(window)}; this engine attends to all of the context ({context})")


class _Values:
    """Options of a file by name, each checked for its type; those without a default must be there."""

    def __init__(self, values: Mapping[str, Any], prefix: str = ""):
        self._values, self._prefix = values, prefix

    def _get(self, name: str, default: Any) -> Any:
        value = self._values.get(self._prefix + name)
        if value is None:
            if default is None:
                raise ValueError(f"{self._prefix}{name} is missing")
            return default
        if isinstance(value, np.ndarray) and value.size and (value == value[0]).all():
            return value[0].item()  # one number a layer, the same in all
        return value

    def whole(self, name: str, default: int | None = None) -> int:
        value = self._get(name, default)
        check_count(self._prefix + name, value, 0 if default == 0 else 1)
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._get(name, default)
        if not is_finite(value):
            raise ValueError(f"{self._prefix}{name} is {shown(value)}; it must be a finite number")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self._get(name, default)
        if type(value) is not bool:
            raise ValueError(f"{self._prefix}{name} is {shown(value)}; it must be true or false")
        return value
