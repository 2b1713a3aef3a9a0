"""How the config.json of a Hugging Face folder describes a model of one of the families.

An option that is neither read here nor known to change nothing is refused by its name, unless it says no: false, null
or an empty list. So a model runs as transformers runs it, or not at all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from ..formats.errors import shown
from .config import check_count
from .families import CAPS, COMMON_OPTIONS, FAMILIES, NEUTRAL_OPTIONS, SCALES, Experts, Family, Gemma, Switch
from .llama import LlamaConfig, Rope
from .rope_scaling import (
    llama3_divisors,
    longrope_magnitude,
    rope_options,
    yarn_divisors,
    yarn_magnitude,
    yarn_magnitude_ratio,
)
from .values import Values

_OURS = ("extended_context", "ntk_alpha", "norm_topk_prob", "capacity_factor")

#: The options of each kind of rotary embedding; all have rope_theta, and those of `_ROPE`.
_SCALINGS = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor", "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"),
    "longrope": ("factor", "short_factor", "long_factor", "attention_factor"),
}
_ROPE = ("rope_type", "type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings")


def config_from_folder(values: Mapping[str, Any]) -> LlamaConfig:
    """Reads the content of a `config.json` of Hugging Face transformers, of a model_type among `FAMILIES`.

    Raises ValueError when it is of another model, lacks something, or asks for what this engine does not do.
    """
    kind = values.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        names = ", ".join(map(repr, FAMILIES))
        raise ValueError(f"the model_type is {shown(kind)}; this program runs {names}")
    _check_options(values, family)
    given = Values(values)

    def switch(part: Switch) -> bool:
        return part.usual if part.key is None else given.flag(part.key, part.usual)

    activation = family.activations[0]
    for key in ("hidden_act", family.activation_key):
        found = values.get(key)
        if found is not None and (type(found) is not str or found not in family.activations):
            has = " and ".join(map(repr, sorted(family.activations, reverse=True)))
            raise ValueError(f"{key} is {shown(found)}; this engine has {has} for model_type {shown(kind)}")
        activation = activation if found is None else found
    heads, hidden = given.whole("num_attention_heads"), given.whole("hidden_size")
    head_dim = given.whole("head_dim", family.head_dim or hidden // heads)
    context = given.whole("max_position_embeddings", family.context)
    layers = given.whole("num_hidden_layers")
    window, period = _windows(values, family, context, layers)
    extra = values.get("nncuda", {})
    if not isinstance(extra, Mapping) or any(name not in _OURS for name in extra):
        raise ValueError(f"the options under 'nncuda' must be among {', '.join(_OURS)}")
    rope_values, local_base = _local_rope(values, family)
    rope = rope_from_folder(rope_values, family, head_dim, context)
    longest = Values(extra).whole("extended_context", context)
    if longest > context:
        if rope.scaling != "none":
            raise ValueError(f"extended_context of a model whose rotary embedding is scaled already ({rope.scaling})")
        rope = dataclasses.replace(rope, scaling="ntk", factor=Values(extra).number("ntk_alpha", 1.0))
    mixture: dict[str, Any] = {"ffn_size": given.whole("intermediate_size")}
    if experts := family.experts:
        mixture = {
            "ffn_size": given.whole(experts.ffn),
            "num_experts": _number_of_experts(values, experts),
            "experts_per_token": given.whole("num_experts_per_tok", experts.usual_chosen),
            "norm_topk_prob": Values(extra).flag("norm_topk_prob", switch(experts.norm)),
        }
        if experts.shared is not None:
            mixture["shared_ffn_size"] = given.whole(experts.shared, experts.usual_shared)
            mixture["shared_gate"] = experts.shared_gate
    scales = {ours: given.number(theirs, 1.0) for theirs, ours, _ in SCALES} if family.scaled else {}
    if scales.get("attention_scale") == 0:
        raise ValueError("attention_multiplier is 0; it must be another number")
    if family.gemma is not None:
        scales = _gemma(values, family.gemma, hidden)
    biased = family.experts is not None and family.experts.biased
    if biased:
        _check_gpt_oss(values, mixture["experts_per_token"])
    return LlamaConfig(
        vocab_size=given.whole("vocab_size"),
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=given.whole("num_key_value_heads", family.kv_heads or heads),
        head_dim=head_dim,
        context=context,
        extended_context=longest,
        norm_eps=given.number("rms_norm_eps", family.norm_eps),
        rope=rope,
        tie_embeddings=given.flag("tie_word_embeddings", family.tied),
        qkv_bias=switch(family.qkv_bias),
        o_bias=switch(family.o_bias),
        qk_norm=family.qk_norm,
        activation=activation,
        sub_norms=family.ternary,
        ternary=family.ternary,
        window=window,
        window_period=period,
        local_rope_base=local_base,
        post_norms=family.gemma is not None,
        norms_less_one=family.gemma is not None,
        sinks=family.sinks,
        biased_experts=biased,
        family=family.name,
        **mixture,
        **scales,
    )


def _gemma(values: Mapping[str, Any], gemma: Gemma, hidden: int) -> dict[str, float]:
    """The numbers that Gemma's families have: fields of `LlamaConfig`."""
    given = Values(values)
    scalar = given.number("query_pre_attn_scalar", gemma.query_scalar)
    caps = {ours: values.get(theirs, getattr(gemma, ours) or None) for theirs, ours, _ in CAPS}
    found = {ours: given.number(theirs, caps[ours]) for theirs, ours, _ in CAPS if caps[ours] is not None}
    for name, value in (("query_pre_attn_scalar", scalar), *((one[0], found.get(one[1], 1.0)) for one in CAPS)):
        if value <= 0:
            raise ValueError(f"{name} is {value}; it must be above 0")
    return {"embedding_scale": math.sqrt(hidden), "attention_scale": 1 / math.sqrt(scalar), **found}


def _number_of_experts(values: Mapping[str, Any], experts: Experts) -> int:
    if experts.also is None or values.get(experts.also) is None:
        return Values(values).whole(experts.count, experts.usual)
    found = Values(values).whole(experts.also)
    _check_again(values, experts.count, experts.also, found)
    return found


def _check_again(values: Mapping[str, Any], name: str, option: str, found: int) -> None:
    """ValueError when an option says otherwise what another one has said."""
    if values.get(name) not in (None, found) or values.get(name) is True:
        raise ValueError(f"{name} is {shown(values[name])}; {option} makes it {found}")


def _check_gpt_oss(values: Mapping[str, Any], chosen: int) -> None:
    """ValueError for what gpt-oss' files say twice and otherwise, and for experts in a form that is not read."""
    _check_again(values, "experts_per_token", "num_experts_per_tok", chosen)
    quantized = values.get("quantization_config")
    if not quantized:  # the tensors say which form they have
        return
    if not isinstance(quantized, Mapping) or quantized.get("quant_method") != "mxfp4":
        raise ValueError(f"quantization_config is {shown(quantized)}; this engine has the quant_method 'mxfp4'")
    for name in quantized:
        if name not in ("quant_method", "modules_to_not_convert"):
            raise ValueError(f"quantization_config has the option {shown(name)}, which is unknown here")


def options_of(family: Family) -> frozenset[str]:
    """The options of config.json that decide what a model of a family computes."""
    own = {part.key for part in (family.qkv_bias, family.o_bias) if part.key is not None}
    own.add(family.activation_key)
    if experts := family.experts:
        own |= {experts.count, experts.ffn, "num_experts_per_tok", experts.norm.key or experts.count}
        own |= {experts.shared or experts.count, experts.also or experts.count}
        if experts.biased:
            own |= {"experts_per_token", "initial_context_length", "quantization_config"}
    if family.window_flag is not None:
        own.add(family.window_flag)
    if family.scaled:
        own |= {theirs for theirs, _, _ in SCALES}
    if family.gemma is not None:
        own |= {"query_pre_attn_scalar", *(theirs for theirs, _, _ in CAPS)}
        if family.gemma.local_base:
            own |= {"rope_local_base_freq", "sliding_window_pattern"}
    if family.ternary:
        own.add("quantization_config")
    if family.original_context:
        own.add("original_max_position_embeddings")
    return COMMON_OPTIONS | own | {name for name, _ in family.fixed}


def _check_options(values: Mapping[str, Any], family: Family) -> None:
    for name, needed in family.fixed:
        if values.get(name) not in (None, needed) or values.get(name) is True:
            raise ValueError(f"{name} is {shown(values[name])}; this engine has {needed!r}")
    known = options_of(family) | NEUTRAL_OPTIONS
    for name, value in values.items():
        says_no = value is None or value is False or value in ("", [], {})
        if name not in known and not name.startswith("_") and not says_no:
            raise ValueError(
                f"{shown(name)} is {shown(value)}; this engine does not know that option of model_type {family.name!r}"
            )


def _windows(values: Mapping[str, Any], family: Family, context: int, layers: int) -> tuple[int, int]:
    """`window` and `window_period` of `LlamaConfig`."""
    window = values.get("sliding_window", family.window)
    if family.window_flag is not None and not Values(values).flag(family.window_flag, False):
        window = None
    window, period = window_of_files(window, "sliding_window", family, context)
    if family.gemma is not None and family.gemma.local_base:
        period = Values(values).whole("sliding_window_pattern", period)
    kinds = values.get("layer_types")
    if kinds is None:
        return window, period
    if not period:
        if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
            raise ValueError(f"layer_types is {shown(kinds)}; this engine has 'full_attention' in all layers")
        return window, period
    if isinstance(kinds, list) and len(kinds) == layers:
        first = kinds.index("full_attention") if "full_attention" in kinds else layers
        for number in (period, first + 1):
            if kinds == [f"{'full' if at % number == 0 else 'sliding'}_attention" for at in range(1, layers + 1)]:
                return window, number
    raise ValueError(
        f"layer_types is {shown(kinds)}; this engine has 'sliding_attention' in all of {layers} layers, or "
        f"'full_attention' in each so-manyth"
    )


def window_of_files(window: Any, name: str, family: Family, context: int) -> tuple[int, int]:
    """`window` and `window_period` of `LlamaConfig` for a window; None is none, and 0, too. ValueError for one that is
    narrower than the context in a family that has none, and for none in one that needs it."""
    period = family.window_period
    if period:
        check_count(name, window, 1)
        return window, period
    if window is None:
        return 0, 0
    if type(window) is not int or window < 0 or (0 != window < context and period is None):
        raise ValueError(f"{name} is {shown(window)}; this engine attends to all of the context ({context})")
    return (window if window < context else 0), 0


def _local_rope(values: Mapping[str, Any], family: Family) -> tuple[Mapping[str, Any], float]:
    """The options of the rotary embedding in layers without a window, and the base in those with one; 0 where they have
    the same. Of the latter, transformers 5 writes an entry for each kind of layer into rope_parameters; earlier ones
    wrote rope_local_base_freq."""
    usual = 0.0 if family.gemma is None else family.gemma.local_base
    if not usual:
        return values, 0.0
    base = Values(values).number("rope_local_base_freq", usual)
    found = values.get("rope_parameters")
    if not found:
        return values, base
    kinds = ("full_attention", "sliding_attention")
    parts = [found.get(kind) for kind in kinds] if isinstance(found, Mapping) else []
    if not parts or not set(found) <= set(kinds) or any(not isinstance(part or {}, Mapping) for part in parts):
        raise ValueError(
            f"rope_parameters is {shown(found)}; it must be an object with {' and '.join(map(repr, kinds))}"
        )
    full, local = (part or {} for part in parts)
    for name, value in local.items():
        right = name == "rope_theta" or (name in ("rope_type", "type") and value == "default")
        if not right and value is not None:
            raise ValueError(f"{name} of 'sliding_attention' is {shown(value)}; this engine has plain angles there")
    both = {**full, **rope_options({"rope_scaling": values.get("rope_scaling")})}
    return {**values, "rope_parameters": both, "rope_scaling": None}, Values(local).number("rope_theta", base)


def rope_from_folder(values: Mapping[str, Any], family: Family, head_dim: int, context: int) -> Rope:
    """The rotary embedding."""
    found = rope_options(values) or dict(family.rope)
    given = Values(found)
    kind = found.get("rope_type", found.get("type", "default"))
    if family.original_context and kind in ("su", "yarn"):  # what Phi-3's first releases called it
        kind = "longrope"
    base = given.number("rope_theta", Values(values).number("rope_theta", family.rope_base))
    if not isinstance(kind, str) or kind not in _SCALINGS:
        raise ValueError(f"rotary embedding of type {shown(kind)}; this engine has {', '.join(map(repr, _SCALINGS))}")
    for name, value in found.items():
        if name not in _ROPE and name not in _SCALINGS[kind] and value is not None:
            raise ValueError(
                f"the rotary embedding of type {kind!r} has the option {shown(name)}, which is unknown here"
            )
    if head_dim > 256:  # the most that a head may have: see LlamaConfig; there is a divisor for every pair of it
        raise ValueError(f"head_dim is {head_dim}; it must be a multiple of 8, at most 256")
    rotated = _rotated(values, found, family, head_dim)
    rope = Rope(base=base, rotated=0 if rotated == head_dim else rotated)
    if kind == "default":
        return rope
    if kind in ("linear", "dynamic"):
        return dataclasses.replace(rope, scaling=kind, factor=given.number("factor"))
    original = given.number("original_max_position_embeddings", float(context))
    if family.original_context:
        original = Values(values).number("original_max_position_embeddings", float(family.original_context))
    if kind == "llama3":
        factor = given.number("factor")
        return dataclasses.replace(rope, scaling=kind, factor=factor, divisors=_llama3(given, base, head_dim, original))
    if base <= 1 or original <= 1 or original > 1e9:
        raise ValueError(
            f"rotary embedding of {kind} with base {base} and original_max_position_embeddings {original}: they must "
            "be above 1, the latter at most 1e9"
        )
    if kind == "yarn":
        return _yarn(rope, given, rotated, original)
    factor = given.number("factor", context / original)
    magnitude = given.number("attention_factor", longrope_magnitude(factor, original))
    return dataclasses.replace(
        rope,
        scaling=kind,
        factor=factor,
        divisors=given.numbers("short_factor", 128),
        long_divisors=given.numbers("long_factor", 128),
        original_context=int(original),
        magnitude=magnitude,
    )


def _rotated(values: Mapping[str, Any], found: Mapping[str, Any], family: Family, head_dim: int) -> int:
    share = found.get("partial_rotary_factor")
    if share is None:
        share = values.get("partial_rotary_factor")
    if share in (None, 1.0) and share is not True:
        return head_dim
    if not family.partial_rotary:
        raise ValueError(f"partial_rotary_factor is {shown(share)}; this engine rotates whole heads")
    number = Values({"partial_rotary_factor": share}).number("partial_rotary_factor")
    rotated = int(head_dim * number)
    if not 0 < number < 1 or rotated < 2 or rotated % 2:
        raise ValueError(
            f"partial_rotary_factor is {shown(share)}; of {head_dim} elements it must leave an even number"
        )
    return rotated


def _llama3(given: Values, base: float, head_dim: int, original: float) -> tuple[float, ...]:
    low, high = given.number("low_freq_factor"), given.number("high_freq_factor")
    factor = given.number("factor")
    if base < 1 or factor < 1 or not 0 < low < high or original < 1:
        raise ValueError(
            f"rotary embedding of llama3 with base {base}, factor {factor}, low_freq_factor {low}, high_freq_factor "
            f"{high} and original_max_position_embeddings {original}: they must be above 0, the base, the factor and "
            f"the context at least 1, low below high"
        )
    return llama3_divisors(base, head_dim, factor, low, high, original)


def _yarn(rope: Rope, given: Values, rotated: int, original: float) -> Rope:
    factor = given.number("factor")
    fast, slow = given.number("beta_fast", 32.0) or 32.0, given.number("beta_slow", 1.0) or 1.0
    weight, all_dims = given.number("mscale", 0.0), given.number("mscale_all_dim", 0.0)
    if not (1 <= factor <= 1e6 and 1e-3 <= slow <= fast <= 1e6 and 0 <= weight <= 100 and 0 <= all_dims <= 100):
        raise ValueError(
            f"rotary embedding of yarn with factor {factor}, beta_fast {fast}, beta_slow {slow}, mscale {weight} and "
            f"mscale_all_dim {all_dims}: the factor must be 1 to 1e6, the betas 0.001 to 1e6 and not below each other, "
            f"the mscales 0 to 100"
        )
    usual = yarn_magnitude_ratio(factor, weight, all_dims) if weight and all_dims else yarn_magnitude(factor)
    return dataclasses.replace(
        rope,
        scaling="yarn",
        factor=factor,
        divisors=yarn_divisors(rope.base, rotated, factor, fast, slow, original, given.flag("truncate", True)),
        original_context=int(original),
        magnitude=given.number("attention_factor", usual),
    )
