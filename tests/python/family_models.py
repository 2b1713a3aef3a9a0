"""Small models of every family that the engine runs, with the options of config.json that change what it computes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from nncuda.bench.random_model import Shape

_SMALL = Shape(layers=2, hidden=64, ffn=96, heads=4, kv_heads=2, vocabulary=600, context=512)
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
_GRANITE = {
    "embedding_multiplier": 4.0,
    "residual_multiplier": 0.5,
    "attention_multiplier": 0.125,
    "logits_scaling": 2.0,
    "attention_bias": False,
}
_LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0 + pair / 16 for pair in range(6)],
    "long_factor": [2.0 + pair for pair in range(6)],
}
_SPARSE = {"decoder_sparse_step": 1, "mlp_only_layers": [], "num_experts": 8, "num_experts_per_tok": 3,
           "moe_intermediate_size": 64}  # fmt: skip
_GEMMA2 = {"query_pre_attn_scalar": 24, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 16}
_GEMMA3 = {**_GEMMA2, "sliding_window_pattern": 3, "rope_local_base_freq": 2000.0}
_GPT_OSS = {
    "num_local_experts": 6,
    "num_experts_per_tok": 3,
    "experts_per_token": 3,
    "initial_context_length": 128,
    "sliding_window": 16,
    "swiglu_limit": 7.0,
}
_BY_KIND = {
    "full_attention": {"rope_type": "default", "rope_theta": 5e4},
    "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
}


def _of(family: str, own: dict[str, object] | None = None, **changes: object) -> Shape:
    return replace(_SMALL, family=family, own=own or {}, **changes)


FAMILIES = {
    "mistral": _of("mistral", {"sliding_window": None}, head_dim=32),
    "mistral_yarn": _of("mistral", {"sliding_window": 512}, rope_scaling=_YARN),
    "mistral_window": _of("mistral", {"sliding_window": 16}),
    "mistral_dynamic": _of("mistral", {"sliding_window": None}, rope_scaling={"rope_type": "dynamic", "factor": 2.0}),
    "qwen2": _of("qwen2", {"use_sliding_window": False, "sliding_window": 64}, rope_base=1e6),
    "qwen2_tied": _of("qwen2", {}, tied=True, kv_heads=1),
    "qwen3": _of("qwen3", {"attention_bias": False}, head_dim=32, rope_base=1e6),
    "qwen3_biases": _of("qwen3", {"attention_bias": True}, head_dim=16),
    "qwen3_yarn": _of(
        "qwen3", {}, head_dim=32, rope_scaling={**_YARN, "beta_fast": 16.0, "beta_slow": 0.5, "truncate": False}
    ),
    "qwen3_moe": _of("qwen3_moe", {**_SPARSE, "norm_topk_prob": True}, head_dim=24),
    "qwen3_moe_unnormed": _of("qwen3_moe", {**_SPARSE, "norm_topk_prob": False}),
    "olmoe": _of("olmoe", {"num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": False, "clip_qkv": None}),
    "granite": _of("granite", _GRANITE),
    "granitemoe": _of("granitemoe", {**_GRANITE, "num_local_experts": 6, "num_experts_per_tok": 2}),
    "granitemoeshared": _of(
        "granitemoeshared",
        {**_GRANITE, "num_local_experts": 6, "num_experts_per_tok": 2, "shared_intermediate_size": 80},
    ),
    "qwen2_moe": _of("qwen2_moe", {**_SPARSE, "norm_topk_prob": False, "shared_expert_intermediate_size": 112}),
    "phi3": _of("phi3", {"sliding_window": None, "pad_token_id": 0}),
    "phi3_window": _of("phi3", {"sliding_window": 12, "pad_token_id": 0}),
    "phi3_partial": _of(
        "phi3",
        {"pad_token_id": 0, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 512},
        rope_base=10000.0,
    ),
    "phi3_long": _of(
        "phi3",
        {"pad_token_id": 0, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 256},
        rope_scaling=_LONG,
    ),
    "gemma2": _of("gemma2", _GEMMA2, tied=True, head_dim=32),
    "gemma2_caps": _of(
        "gemma2",
        {
            **_GEMMA2,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": None,
            "attention_bias": True,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        },
        layers=3,
    ),
    "gemma3": _of(
        "gemma3_text",
        _GEMMA3,
        layers=4,
        tied=True,
        head_dim=32,
        rope_base=1e6,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
    ),
    "gemma3_by_kind": _of(
        "gemma3_text",
        {
            **_GEMMA2,
            "rope_parameters": _BY_KIND,
            "layer_types": ["sliding_attention", "full_attention"],
            "final_logit_softcapping": 3.0,
        },
        layers=2,
        tied=True,
        head_dim=16,
    ),
    "gpt_oss": _of(
        "gpt_oss",
        {**_GPT_OSS, "attention_bias": True, "layer_types": ["sliding_attention", "full_attention"]},
        head_dim=32,
        rope_base=150000.0,
        rope_scaling={**_YARN, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
    ),
    "gpt_oss_unbiased": _of(
        "gpt_oss",
        {
            **_GPT_OSS,
            "attention_bias": False,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        },
        layers=3,
    ),
}

#: Models that GGUF files have no words for, with those that refuse them.
IN_NO_GGUF = {
    "qwen3_yarn": "the YaRN of this model has options of its own",
    "mistral_window": "GGUF files of 'llama' have no windows",
}

#: The numbers of 4 bits. (Open Compute Project 2023, "OCP Microscaling Formats (MX) Specification", 5.3.3)
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def pack_experts(source: Path, target: Path) -> None:
    """Writes a gpt-oss folder in f32 anew, its experts in blocks as they are published: of the nearest numbers."""
    target.mkdir(parents=True)
    for file in source.iterdir():
        if file.name.startswith("tokenizer"):
            shutil.copy(file, target)
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    (target / "config.json").write_text(json.dumps(config))
    tensors = load_file(source / "model.safetensors")
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        numbers = tensors.pop(name).transpose(0, 2, 1)
        parts = numbers.reshape(*numbers.shape[:2], -1, 32)
        powers = np.floor(np.log2(np.abs(parts).max(-1))) - 2  # of the largest number, 6, is 2
        codes = np.abs((parts / np.exp2(powers)[..., None])[..., None] - FP4).argmin(-1).astype(np.uint8)
        tensors[f"{name}_blocks"] = codes[..., 0::2] | codes[..., 1::2] << 4
        tensors[f"{name}_scales"] = (powers + 127).astype(np.uint8)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
