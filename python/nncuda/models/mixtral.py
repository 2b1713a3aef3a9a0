"""A `MoEConfig` and its parameters in the words of Mixtral in Hugging Face transformers, or, of a dense model, of
Llama, Qwen2, Qwen3 or BitNet, and back. A Mistral, too, is read: within its window it is a Llama, and written as one.

Every option of ours that these lack stands under the key "nncuda". transformers ignores it, so a model with
`norm_topk_prob` false runs there as if it were true, and nothing else differs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from ..formats.errors import shown
from .bitnet import quantization_from_folder
from .config import BOUNDS, MoEConfig, check_number, is_finite
from .families import FAMILIES
from .rope_scaling import rope_options

_TO_MIXTRAL = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "num_experts": "num_local_experts",
    "experts_per_token": "num_experts_per_tok",
    "ffn_size": "intermediate_size",
    "context": "max_position_embeddings",
    "norm_eps": "rms_norm_eps",
    "aux_alpha": "router_aux_loss_coef",
    "init_std": "initializer_range",
}
_CONTEXT = _TO_MIXTRAL["context"]
_OURS = ("extended_context", "ntk_alpha", "norm_topk_prob", "capacity_factor")

# The same of a dense model, whose options of experts and router have one value.
_OF_EXPERTS = ("num_experts", "experts_per_token", "aux_alpha", "norm_topk_prob", "capacity_factor")
_TO_LLAMA = {ours: theirs for ours, theirs in _TO_MIXTRAL.items() if ours not in _OF_EXPERTS}
_OURS_OF_DENSE = tuple(name for name in _OURS if name not in _OF_EXPERTS)
#: Our options of llama3's scaling and what rope_scaling calls them.
_TO_LLAMA3 = {
    "rope_factor": "factor",
    "rope_low": "low_freq_factor",
    "rope_high": "high_freq_factor",
    "rope_original": "original_max_position_embeddings",
}

#: The kinds of dense models, with the class of transformers and the options that have one value here.
_DENSE: dict[str, tuple[str, dict[str, object]]] = {
    "llama": ("LlamaForCausalLM", {"attention_bias": False, "mlp_bias": False}),
    "qwen2": ("Qwen2ForCausalLM", {"use_sliding_window": False}),
    "qwen3": ("Qwen3ForCausalLM", {"attention_bias": False, "use_sliding_window": False}),
    "bitnet": ("BitNetForCausalLM", {"attention_bias": False}),
    "mistral": ("MistralForCausalLM", {}),
}
#: The `model_type`s of dense models whose folders are read here.
DENSE_KINDS = tuple(_DENSE)
#: With which transformers rounds master weights while it runs.
_ONLINE = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "online"}


def config_to_mixtral(config: MoEConfig) -> dict[str, object]:
    """The content of `config.json`: of a Mixtral, or, of a dense model, of a Qwen2, Qwen3, BitNet or Llama."""
    values = config.to_dict()
    if not config.num_experts:
        kind = "qwen2" if config.qkv_bias else "qwen3" if config.qk_norm else "bitnet" if config.ternary else "llama"
        name, fixed = _DENSE[kind]
        return {
            "architectures": [name],
            "model_type": kind,
            **{theirs: values[ours] for ours, theirs in _TO_LLAMA.items()},
            **_rope_to_folder(config),
            "hidden_act": "relu2" if config.squared_relu else "silu",
            **fixed,
            **({"quantization_config": _ONLINE} if config.ternary else {}),
            "attention_dropout": 0.0,
            "tie_word_embeddings": config.tie_embeddings,
            "torch_dtype": "float32",
            "pad_token_id": 0,
            "bos_token_id": 2,
            "eos_token_id": 3,
            "nncuda": {name: values[name] for name in _OURS_OF_DENSE},
        }
    return {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        **{theirs: values[ours] for ours, theirs in _TO_MIXTRAL.items()},
        **_rope_to_folder(config),
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "router_jitter_noise": 0.0,
        "output_router_logits": False,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "pad_token_id": 0,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "nncuda": {name: values[name] for name in _OURS},
    }


def config_from_mixtral(values: Mapping[str, object]) -> MoEConfig:
    """Reads the content of a `config.json` of a Mixtral, Llama, Qwen2, Qwen3, BitNet or Mistral, of this program or
    another. The context of a Mistral is no longer than its window.

    Raises ValueError when it is of another model, lacks something, or asks for what this model does not do.
    """
    kind = values.get("model_type")
    dense = type(kind) is str and kind in _DENSE
    if not dense and kind != "mixtral":
        names = ", ".join(map(repr, _DENSE))
        raise ValueError(f"the model_type is {shown(kind)}; this program trains 'mixtral', {names}")
    fixed = {"hidden_act": "silu", **(_DENSE[str(kind)][1] if dense else {"tie_word_embeddings": False})}
    if kind == "bitnet":
        del fixed["hidden_act"]
        _check_masters(values)
    for name, needed in fixed.items():
        if values.get(name, needed) != needed:
            raise ValueError(f"{name} is {shown(values[name])}; this model has {needed!r}")
    options = _usual_of_dense(values, str(kind)) if dense else {}
    for ours, theirs in (_TO_LLAMA if dense else _TO_MIXTRAL).items():
        if values.get(theirs) is not None:
            options[ours] = values[theirs]
        elif ours == "head_dim" and ours not in options:
            options[ours] = _whole(values, "hidden_size") // _whole(values, "num_attention_heads")
        elif ours == "num_kv_heads" and dense and ours not in options:
            options[ours] = options["num_heads"]
        elif ours in ("aux_alpha", "init_std", "norm_eps") or ours in options:
            pass  # not needed to run the model, or with one default everywhere: ours stands
        else:
            raise ValueError(f"{theirs} is missing")
    if not dense and options["num_experts"] == 0:
        raise ValueError("num_local_experts is 0; a model of type 'mixtral' has experts")
    options |= _rope_from_folder(values, FAMILIES[str(kind)].rope_base if dense else 1e6)
    window = None if "use_sliding_window" in fixed else values.get("sliding_window")  # which means nothing there
    if kind == "mistral":
        options["context"] = window_from_mixtral(values) or options["context"]
    elif window is not None and _whole(values, "sliding_window") < _whole(options, "context"):
        raise ValueError(
            f"sliding_window is {shown(window)}; this model attends to all of its context ({shown(options['context'])})"
        )
    extra = values.get("nncuda", {})
    known = _OURS_OF_DENSE if dense else _OURS
    if not isinstance(extra, Mapping) or any(name not in known for name in extra):
        raise ValueError(f"the options under 'nncuda' must be among {', '.join(known)}")
    if "extended_context" not in extra:
        options.update(extended_context=options["context"], ntk_alpha=1.0)
    return MoEConfig.from_dict({**options, **extra})


def window_from_mixtral(values: Mapping[str, object]) -> int:
    """The most tokens that one sees of those before it and itself, by the content of a `config.json`, where that is
    fewer than the context; 0 where a token sees all."""
    if values.get("model_type") != "mistral":
        return 0
    family = FAMILIES["mistral"]
    window, context = values.get("sliding_window", family.window), values.get(_CONTEXT)
    if window is None:
        return 0
    seen = _whole({"sliding_window": window}, "sliding_window")
    return 0 if seen >= (_whole(values, _CONTEXT) if context is not None else family.context or 0) else seen


def _usual_of_dense(values: Mapping[str, object], kind: str) -> dict[str, object]:
    """Options of a dense model: those that its kind decides, and what transformers takes for others where config.json
    does not say."""
    family = FAMILIES[kind]
    kinds = values.get("layer_types")
    if kinds is not None and (not isinstance(kinds, list) or any(one != "full_attention" for one in kinds)):
        raise ValueError(f"layer_types is {shown(kinds)}; this model has 'full_attention' in all layers")
    usual: dict[str, object] = {"num_experts": 0, "experts_per_token": 0, "norm_eps": family.norm_eps}
    usual["context"] = family.context
    if family.kv_heads:
        usual["num_kv_heads"] = family.kv_heads
    if family.head_dim:
        usual["head_dim"] = family.head_dim
    usual["qkv_bias"] = family.qkv_bias.usual and family.qk_norm == "none"
    usual["qk_norm"] = family.qk_norm == "head"
    if values.get("tie_word_embeddings") is not None:
        usual["tie_embeddings"] = values["tie_word_embeddings"]
    if family.ternary:
        gate = values.get("hidden_act", family.activations[0])
        if gate not in family.activations:
            raise ValueError(
                f"hidden_act is {shown(gate)}; this model has {' or '.join(map(repr, family.activations))}"
            )
        usual.update(ternary=True, squared_relu=gate == "relu2")
    return usual


def _check_masters(values: Mapping[str, object]) -> None:
    """ValueError for a BitNet whose weights are rounded already. Whatever numbers would be rounded to them again, what
    they were rounded from is lost, and with it how near each is to its neighbour."""
    if not quantization_from_folder(values).online:
        raise ValueError(
            "quantization_config says that the weights are ternary already; training needs the master weights that "
            "they were rounded from: take the folder with these, in bf16 or f32"
        )


def _whole(values: Mapping[str, object], name: str) -> int:
    value = values.get(name)
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} is {shown(value)}; it must be a whole number, at least 1")
    return value


def _rope_to_folder(config: MoEConfig) -> dict[str, object]:
    values = config.to_dict()
    found: dict[str, object] = {"rope_theta": config.rope_base}
    if any(values[ours] != getattr(MoEConfig, ours) for ours in _TO_LLAMA3):
        scaling = {theirs: values[ours] for ours, theirs in _TO_LLAMA3.items()}
        found["rope_scaling"] = {"rope_type": "llama3", **scaling}
    return found


def _rope_from_folder(values: Mapping[str, object], usual: float) -> dict[str, object]:
    rope = rope_options(values)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "llama3"):
        raise ValueError(f"rotary embedding of type {shown(kind)}; this model has 'default' and 'llama3'")
    base = rope.get("rope_theta", values.get("rope_theta", usual))
    check_number("rope_theta", base, BOUNDS["rope_base"])
    found: dict[str, object] = {"rope_base": float(base)}  # type: ignore[arg-type]
    for ours, theirs in _TO_LLAMA3.items() if kind == "llama3" else ():
        if rope.get(theirs) is None:
            raise ValueError(f"{theirs} of the rotary embedding is missing")
        value = rope[theirs]
        found[ours] = float(value) if ours in BOUNDS and is_finite(value) else value
    return found


def parameters_from_mixtral(tensors: Mapping[str, np.ndarray], tied: bool = False) -> Mapping[str, np.ndarray]:
    """Tensors by the names of our layout, whichever of Mixtral's two layouts they come in, or of a dense model.

    The usual one has a tensor an expert and matrix and is taken as it is; the one that transformers 5 holds in memory
    has all experts of a layer in `mlp.experts.gate_up_proj` and `down_proj`, which are cut up here, without a copy.
    Frequencies of the rotary embedding, which old Llamas store, are left out, and of a model with a `tied` head the
    copy of the embeddings that some folders have.
    """
    left_out = {name for name in tensors if _REDUNDANT.fullmatch(name) or (tied and name == "lm_head.weight")}
    if not left_out and not any(_FUSED.fullmatch(name) for name in tensors):
        return tensors
    return _Unfused(tensors, left_out)


_FUSED = re.compile(r"(model\.layers\.\d+)\.mlp\.experts\.(gate_up_proj|down_proj)")
_REDUNDANT = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")


class _Unfused(Mapping[str, np.ndarray]):
    def __init__(self, tensors: Mapping[str, np.ndarray], left_out: Collection[str]):
        self._tensors = tensors
        self._source: dict[str, tuple[str, int, slice] | str] = {}
        for name in tensors:
            match = _FUSED.fullmatch(name)
            if name in left_out:
                continue
            if not match:
                self._source[name.replace(".mlp.gate.", ".block_sparse_moe.gate.")] = name
                continue
            shape = tensors[name].shape
            if len(shape) != 3:
                raise ValueError(f"tensor {name} has shape {list(shape)}; it must have three dimensions")
            parts = {"w2": slice(None)}
            if match[2] == "gate_up_proj":
                parts = {"w1": slice(0, shape[1] // 2), "w3": slice(shape[1] // 2, None)}
            for expert in range(shape[0]):
                for part, rows in parts.items():
                    target = f"{match[1]}.block_sparse_moe.experts.{expert}.{part}.weight"
                    self._source[target] = name, expert, rows

    def __getitem__(self, name: str) -> np.ndarray:
        source = self._source[name]
        if isinstance(source, str):
            return self._tensors[source]
        return self._tensors[source[0]][source[1]][source[2]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._source)

    def __len__(self) -> int:
        return len(self._source)
