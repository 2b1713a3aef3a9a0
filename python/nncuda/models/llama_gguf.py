"""How the metadata of a GGUF file describes a model of one of the families.

As in a folder's config.json, a key of the architecture that is unknown here is refused by its name, unless it says no.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..formats.errors import shown
from ..formats.gguf import ARCHITECTURE_KEY
from .families import CAPS, FAMILIES, GGUF_OPTIONS, SCALES, Family, family_of_architecture
from .llama import LlamaConfig, Rope
from .llama_folder import window_of_files
from .rope_scaling import longrope_magnitude, yarn_divisors, yarn_magnitude
from .values import Values

#: The gate's activation by the architecture of a GGUF file with ternary weights: llama.cpp computes all of "bitnet"
#: with SiLU, as the first such models had it; bitnet.cpp gave those with a squared ReLU other names.
BITNET_ARCHITECTURES = {"bitnet": "silu", "bitnet-25": "relu2", "bitnet-b1.58": "relu2"}

_YARN = ("ext_factor", "attn_factor", "beta_fast", "beta_slow", "log_multiplier")


@dataclass(frozen=True)
class Seen:
    """What a GGUF file's tensors say of its configuration.

    tied                whether there is no output.weight
    qkv_bias, o_bias    whether attention has biases
    shared              whether there is an expert for all tokens
    divisors            the values of rope_freqs.weight
    short_divisors, long_divisors
                        those of rope_factors_short.weight and rope_factors_long.weight
    """

    tied: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    shared: bool = False
    divisors: tuple[float, ...] = ()
    short_divisors: tuple[float, ...] = ()
    long_divisors: tuple[float, ...] = ()


def architectures() -> list[str]:
    """All names of architectures of GGUF files, in the order of the families."""
    return list(dict.fromkeys(name for family in FAMILIES.values() for name in family.architectures))


def config_from_gguf(metadata: Mapping[str, Any], seen: Seen) -> LlamaConfig:
    """Reads the metadata of a GGUF file of an architecture of `FAMILIES`.

    Raises ValueError when it is of another model, lacks something, or asks for what this engine does not do.
    """
    architecture = metadata.get(ARCHITECTURE_KEY)
    prefix = f"{architecture}." if type(architecture) is str else ""
    given = Values(metadata, prefix)
    count = metadata.get(f"{prefix}expert_count")
    family = family_of_architecture(architecture, experts=type(count) is int and count > 0, shared=seen.shared)
    if family is None:
        names = ", ".join(map(repr, architectures()))
        raise ValueError(f"general.architecture is {shown(architecture)}; this program runs {names}")
    _check_options(metadata, prefix, family)
    heads, hidden = given.whole("attention.head_count"), given.whole("embedding_length")
    head_dim = given.whole("attention.key_length", hidden // heads)
    if given.whole("attention.value_length", head_dim) != head_dim:
        found = given.whole("attention.value_length")
        raise ValueError(f"{prefix}attention.value_length is {found}; it must be the size of a head ({head_dim})")
    rotated = given.whole("rope.dimension_count", head_dim)
    if rotated != head_dim and not (family.partial_rotary and rotated < head_dim):
        raise ValueError(f"{prefix}rope.dimension_count is {rotated}; it must be the size of a head ({head_dim})")
    context = given.whole("context_length")
    key = prefix + "attention.sliding_window"
    asked = given.whole("attention.sliding_window") if family.window_period else metadata.get(key)
    window, period = window_of_files(asked, key, family, context)
    period = given.whole("attention.sliding_window_pattern", period or None) if period else 0
    layers = given.whole("block_count")
    longest = given.whole("nncuda.extended_context", context)
    tokens = metadata.get("tokenizer.ggml.tokens")
    ffn = given.whole("feed_forward_length")
    mixture: dict[str, Any] = {"ffn_size": ffn}
    if experts := family.experts:
        mixture = {
            "ffn_size": given.whole("expert_feed_forward_length", ffn),
            "num_experts": given.whole("expert_count"),
            "experts_per_token": given.whole("expert_used_count"),
            "norm_topk_prob": given.flag("expert_weights_norm", _normed(family)),
        }
        if experts.shared is not None:
            mixture["shared_ffn_size"] = given.whole("expert_shared_feed_forward_length", ffn)
            mixture["shared_gate"] = experts.shared_gate
    scales = {ours: given.number(theirs, 0.0 if ours == "attention_scale" else 1.0) for _, ours, theirs in SCALES}
    if gemma := family.gemma:
        scalar = hidden / heads if layers == gemma.largest else float(head_dim)
        scales = {ours: given.number(theirs, getattr(gemma, ours)) for _, ours, theirs in CAPS}
        if gemma.local_base:
            scales["local_rope_base"] = given.number("rope.freq_base_swa", gemma.local_base)
        scales["embedding_scale"] = math.sqrt(hidden)
        scales["attention_scale"] = given.number("attention.scale", 1 / math.sqrt(scalar))
    activation = BITNET_ARCHITECTURES[str(architecture)] if family.ternary else family.activations[0]
    return LlamaConfig(
        vocab_size=given.whole("vocab_size", len(tokens) if isinstance(tokens, Sequence) else None),
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=given.whole("attention.head_count_kv", heads),
        head_dim=head_dim,
        context=context,
        extended_context=longest,
        norm_eps=given.number("attention.layer_norm_rms_epsilon"),
        rope=_rope(metadata, given, prefix, family, seen, rotated, head_dim, context, longest),
        tie_embeddings=seen.tied,
        qkv_bias=seen.qkv_bias,
        o_bias=seen.o_bias,
        qk_norm=family.qk_norm,
        activation=activation,
        sub_norms=family.ternary,
        ternary=family.ternary,
        window=window,
        window_period=period,
        post_norms=family.gemma is not None,
        sinks=family.sinks,
        biased_experts=family.experts is not None and family.experts.biased,
        family=family.name,
        **mixture,
        **(scales if family.scaled or family.gemma else {}),
    )


def _normed(family: Family) -> bool:
    """Whether llama.cpp divides the weights of a token's experts by their sum: in Qwen3's, though their folders say it
    with an option."""
    return family.name == "qwen3_moe" or (family.experts is not None and family.experts.norm.usual)


def _check_options(metadata: Mapping[str, Any], prefix: str, family: Family) -> None:
    known = set(GGUF_OPTIONS) | {f"rope.scaling.yarn_{name}" for name in _YARN} | {"rope.scaling.attn_factor"}
    if family.scaled:
        known |= {theirs for _, _, theirs in SCALES}
    if family.gemma is not None:
        known |= {"attention.scale", *(theirs for _, _, theirs in CAPS)}
        if family.gemma.local_base:
            known.add("rope.freq_base_swa")
    if family.window_period:
        known.add("attention.sliding_window_pattern")
    for name, value in metadata.items():
        if name.startswith(prefix) and name.removeprefix(prefix) not in known and not _says_no(value):
            raise ValueError(f"{name} is {shown(value)}; this engine does not know that key of {prefix[:-1]!r}")
    if family.scaled and metadata.get(f"{prefix}rope.scaling.finetuned") is False:
        raise ValueError(f"{prefix}rope.scaling.finetuned is False; this engine rotates queries and keys in all layers")


def _says_no(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return not value.any()
    return value is False or value is None or (type(value) in (int, float) and value == 0)


def _rope(
    metadata: Mapping[str, Any],
    given: Values,
    prefix: str,
    family: Family,
    seen: Seen,
    rotated: int,
    head_dim: int,
    context: int,
    longest: int,
) -> Rope:
    rope = Rope(
        base=given.number("rope.freq_base", 10000.0),
        layout="interleaved" if family.interleaved else "half",
        rotated=0 if rotated == head_dim else rotated,
    )
    linear = prefix + "rope.scale_linear"
    kind = metadata.get(prefix + "rope.scaling.type", "linear" if linear in metadata else "none")
    factor = given.number("rope.scaling.factor", given.number("rope.scale_linear", 1.0))
    known = ("none", "linear", "yarn", "longrope")
    if type(kind) is not str or kind not in known:
        names = ", ".join(map(repr, known))
        raise ValueError(f"{prefix}rope.scaling.type is {shown(kind)}; this engine has {names}")
    long = bool(seen.long_divisors or seen.short_divisors)
    ways = [kind == "linear" and factor != 1, kind == "yarn", bool(seen.divisors), long, longest > context]
    if sum(ways) > 1:
        raise ValueError("the rotary embedding is scaled in more than one way (linear, yarn, rope_freqs.weight, ntk)")
    if kind == "longrope" and not long:
        raise ValueError(f"{prefix}rope.scaling.type is 'longrope'; the file lacks rope_factors_long.weight")
    if ways[0]:
        return dataclasses.replace(rope, scaling="linear", factor=factor)
    if ways[1]:
        return _yarn(rope, given, rotated, context, factor, family.whole_turns)
    if ways[2]:
        return dataclasses.replace(rope, scaling="llama3", divisors=seen.divisors)
    if ways[3]:
        original = given.whole("rope.scaling.original_context_length", context)
        usual = longrope_magnitude(context / original, float(original))
        return dataclasses.replace(
            rope,
            scaling="longrope",
            divisors=seen.short_divisors,
            long_divisors=seen.long_divisors,
            original_context=original,
            magnitude=given.number("rope.scaling.attn_factor", usual),
        )
    if ways[4]:
        return dataclasses.replace(rope, scaling="ntk", factor=given.number("nncuda.ntk_alpha", 1.0))
    return rope


def _yarn(rope: Rope, given: Values, rotated: int, context: int, factor: float, whole: bool) -> Rope:
    """llama.cpp's YaRN: both ends of the stretched part are whole numbers, or in a family whose folders say otherwise
    not: files have no key for it."""
    original = given.whole("rope.scaling.original_context_length", context)
    fast, slow = given.number("rope.scaling.yarn_beta_fast", 32.0), given.number("rope.scaling.yarn_beta_slow", 1.0)
    if not (rope.base > 1 and original > 1 and 1 <= factor <= 1e6 and 1e-3 <= slow <= fast <= 1e6):
        raise ValueError(
            f"rotary embedding of yarn with base {rope.base}, original_context_length {original}, factor {factor}, "
            f"yarn_beta_fast {fast} and yarn_beta_slow {slow}: the first two must be above 1, the factor 1 to 1e6, the "
            f"betas 0.001 to 1e6 and not below each other"
        )
    for name, right in (("ext_factor", 1.0), ("attn_factor", 1.0), ("log_multiplier", 0.0)):
        if given.number(f"rope.scaling.yarn_{name}", right) != right:
            raise ValueError(f"rope.scaling.yarn_{name} is not {right}, as this engine has it")
    return dataclasses.replace(
        rope,
        scaling="yarn",
        factor=factor,
        divisors=yarn_divisors(rope.base, rotated, factor, fast, slow, float(original), whole),
        original_context=original,
        magnitude=yarn_magnitude(factor),
    )
