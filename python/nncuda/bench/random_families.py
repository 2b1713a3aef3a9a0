"""The tensors of the families whose folders have names of their own, for models with random weights."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..models.llama import LlamaConfig

#: What transformers calls their classes, before "ForCausalLM".
CLASSES = {
    "mistral": "Mistral",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "qwen3_moe": "Qwen3Moe",
    "olmoe": "Olmoe",
    "granite": "Granite",
    "granitemoe": "GraniteMoe",
    "granitemoeshared": "GraniteMoeShared",
    "qwen2_moe": "Qwen2Moe",
    "phi3": "Phi3",
    "gemma2": "Gemma2",
    "gemma3_text": "Gemma3",
    "gpt_oss": "GptOss",
}

Tensor = tuple[str, tuple[int, ...], float]


def tensors(config: LlamaConfig) -> Iterator[Tensor]:
    """Name, shape and standard deviation of each tensor, as `random_model.tensors` gives them."""
    hidden = config.hidden_size
    tied = config.tie_embeddings
    yield "model.embed_tokens.weight", (config.vocab_size, hidden), 3.0 / math.sqrt(hidden) if tied else 1.0
    for layer in range(config.num_layers):
        block = f"model.layers.{layer}"
        yield f"{block}.input_layernorm.weight", (hidden,), 0.1
        yield from _attention(config, f"{block}.self_attn")
        yield f"{block}.post_attention_layernorm.weight", (hidden,), 0.1
        if config.post_norms:
            yield f"{block}.pre_feedforward_layernorm.weight", (hidden,), 0.1
            yield f"{block}.post_feedforward_layernorm.weight", (hidden,), 0.1
        if not config.num_experts:
            yield from _gated(config, f"{block}.mlp", config.ffn_size)
        elif config.family.startswith("granite"):
            yield from _granite(config, block)
        elif config.biased_experts:
            yield from _gpt_oss(config, f"{block}.mlp")
        else:
            yield from _experts(config, f"{block}.mlp")
    yield "model.norm.weight", (hidden,), 0.1
    if not tied:
        yield _matrix("lm_head", config.vocab_size, hidden, 3.0)


def _matrix(name: str, rows: int, columns: int, gain: float = 1.0) -> Tensor:
    return f"{name}.weight", (rows, columns), gain / math.sqrt(columns)


def _added(config: LlamaConfig) -> float:
    """The gain of what is added to the residual stream."""
    return 1 / (math.sqrt(2 * config.num_layers) * config.residual_scale)


def _attention(config: LlamaConfig, prefix: str) -> Iterator[Tensor]:
    hidden, dim = config.hidden_size, config.head_dim
    queries, keys = config.num_heads * dim, config.num_kv_heads * dim
    if config.family == "phi3":
        yield _matrix(f"{prefix}.qkv_proj", queries + 2 * keys, hidden, 1.5)
    else:
        for name, rows, gain in (("q", queries, 1.5), ("k", keys, 1.5), ("v", keys, 1.0)):
            yield _matrix(f"{prefix}.{name}_proj", rows, hidden, gain)
            if config.qkv_bias:
                yield f"{prefix}.{name}_proj.bias", (rows,), 0.3
    if config.qk_norm != "none":
        whole = config.qk_norm == "whole"
        yield f"{prefix}.q_norm.weight", (queries if whole else dim,), 0.1
        yield f"{prefix}.k_norm.weight", (keys if whole else dim,), 0.1
    if config.sinks:
        yield f"{prefix}.sinks", (config.num_heads,), 1.0
    yield _matrix(f"{prefix}.o_proj", hidden, queries, _added(config))
    if config.o_bias:
        yield f"{prefix}.o_proj.bias", (hidden,), 0.3


def _gated(config: LlamaConfig, prefix: str, ffn: int) -> Iterator[Tensor]:
    hidden = config.hidden_size
    if config.family == "phi3":
        yield _matrix(f"{prefix}.gate_up_proj", 2 * ffn, hidden)
    else:
        yield _matrix(f"{prefix}.gate_proj", ffn, hidden)
        yield _matrix(f"{prefix}.up_proj", ffn, hidden)
    yield _matrix(f"{prefix}.down_proj", hidden, ffn, _added(config))


def _experts(config: LlamaConfig, prefix: str) -> Iterator[Tensor]:
    hidden = config.hidden_size
    yield _matrix(f"{prefix}.gate", config.num_experts, hidden, 2.0)
    for expert in range(config.num_experts):
        yield from _gated(config, f"{prefix}.experts.{expert}", config.ffn_size)
    if config.shared_ffn_size:
        yield from _gated(config, f"{prefix}.shared_expert", config.shared_ffn_size)
    if config.shared_gate:
        yield _matrix(f"{prefix}.shared_expert_gate", 1, hidden, 2.0)


def _granite(config: LlamaConfig, block: str) -> Iterator[Tensor]:
    """All experts in one tensor, gate and up one below the other."""
    hidden, ffn, experts, added = config.hidden_size, config.ffn_size, config.num_experts, _added(config)
    mixture = f"{block}.block_sparse_moe"
    yield _matrix(f"{mixture}.router.layer", experts, hidden, 2.0)
    yield f"{mixture}.input_linear.weight", (experts, 2 * ffn, hidden), 1 / math.sqrt(hidden)
    yield f"{mixture}.output_linear.weight", (experts, hidden, ffn), added / math.sqrt(ffn)
    if shared := config.shared_ffn_size:
        yield _matrix(f"{block}.shared_mlp.input_linear", 2 * shared, hidden)
        yield _matrix(f"{block}.shared_mlp.output_linear", hidden, shared, added)


def _gpt_oss(config: LlamaConfig, prefix: str) -> Iterator[Tensor]:
    """All experts in one tensor, transposed, gate and up in turns: so large that some of either are out of bounds."""
    hidden, ffn, experts, sharp = config.hidden_size, config.ffn_size, config.num_experts, 4.0
    yield _matrix(f"{prefix}.router", experts, hidden, 2.0)
    yield f"{prefix}.router.bias", (experts,), 0.3
    yield f"{prefix}.experts.gate_up_proj", (experts, hidden, 2 * ffn), sharp / math.sqrt(hidden)
    yield f"{prefix}.experts.gate_up_proj_bias", (experts, 2 * ffn), 0.5
    yield f"{prefix}.experts.down_proj", (experts, ffn, hidden), _added(config) / (sharp * sharp * math.sqrt(ffn))
    yield f"{prefix}.experts.down_proj_bias", (experts, hidden), 0.3
