"""What Hugging Face folders call the tensors of `LlamaConfig.shapes`, family by family, and which of them hold several.

Several matrices in one tensor lie one below the other: their rows are cut out of it where they are, without a copy.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..formats.block_formats import StoredTensor
from ..formats.errors import FormatError
from .gpt_oss import experts_of_gpt_oss
from .llama import LlamaConfig

_LAYER = re.compile(r"(model\.layers\.\d{1,5})\.(.+)")
_EXPERT = re.compile(r"mlp\.experts\.(\d{1,5})\.(gate|up|down)_proj\.weight")
_PARTS = {"gate": "w1", "up": "w3", "down": "w2"}
#: Qwen's, OLMoE's, Granite's and gpt-oss' names of what is in a tensor of its own.
_RENAMED = {
    "mlp.gate.weight": "block_sparse_moe.gate.weight",
    "block_sparse_moe.router.layer.weight": "block_sparse_moe.gate.weight",
    "mlp.shared_expert.gate_proj.weight": "block_sparse_moe.shared.gate_proj.weight",
    "mlp.shared_expert.up_proj.weight": "block_sparse_moe.shared.up_proj.weight",
    "mlp.shared_expert.down_proj.weight": "block_sparse_moe.shared.down_proj.weight",
    "shared_mlp.output_linear.weight": "block_sparse_moe.shared.down_proj.weight",
    "mlp.shared_expert_gate.weight": "block_sparse_moe.shared_gate.weight",
    "mlp.router.weight": "block_sparse_moe.gate.weight",
    "mlp.router.bias": "block_sparse_moe.gate.bias",
    "self_attn.sinks": "self_attn.sinks.weight",
}
#: Gemma's names of its norms: those that others have in front of the feed-forward network, and those behind parts.
_NORMS_OF_GEMMA = {
    "pre_feedforward_layernorm.weight": "post_attention_layernorm.weight",
    "post_attention_layernorm.weight": "self_attn.post_norm.weight",
    "post_feedforward_layernorm.weight": "mlp.post_norm.weight",
}
#: Tensors with the matrices of all experts: of gate and up, one after the other for each expert, and of down.
_GATES_OF_EXPERTS = ("mlp.experts.gate_up_proj", "block_sparse_moe.input_linear.weight")
_DOWNS_OF_EXPERTS = ("mlp.experts.down_proj", "block_sparse_moe.output_linear.weight")


def own_names(path: Path, config: LlamaConfig, name: str, tensor: StoredTensor) -> dict[str, list[StoredTensor]]:
    """A tensor of a folder under the names of `LlamaConfig.shapes`, that of an expert alone under Mixtral's.

    FormatError when it holds several matrices and its shape is not the one that the configuration makes it.
    """
    match = _LAYER.fullmatch(name)
    if match is None:
        return {name: [tensor]}
    layer, part = match[1], match[2]
    if expert := _EXPERT.fullmatch(part):
        return {f"{layer}.block_sparse_moe.experts.{expert[1]}.{_PARTS[expert[2]]}.weight": [tensor]}
    if part == "mlp.shared_expert_gate.weight" and tensor.shape == (1, config.hidden_size):
        tensor = replace(tensor, shape=tensor.shape[1:])
    if config.post_norms and part in _NORMS_OF_GEMMA:
        return {f"{layer}.{_NORMS_OF_GEMMA[part]}": [tensor]}
    if part in _RENAMED:
        return {f"{layer}.{_RENAMED[part]}": [tensor]}
    if config.biased_experts and (own := experts_of_gpt_oss(path, config, layer, part, tensor)) is not None:
        return own
    mixture = f"{layer}.block_sparse_moe"
    experts, ffn, hidden = config.num_experts, config.ffn_size, config.hidden_size
    if part in _DOWNS_OF_EXPERTS:
        _check_shape(path, tensor, (experts, hidden, ffn))
        return {f"{mixture}.w2.weight": [tensor]}
    if part in _GATES_OF_EXPERTS:
        _check_shape(path, tensor, (experts, 2 * ffn, hidden))
        halves = tensor.data.reshape(2 * experts, -1)
        pieces = [StoredTensor(tensor.name, tensor.format, (ffn, hidden), half) for half in halves]
        return {f"{mixture}.w1.weight": pieces[0::2], f"{mixture}.w3.weight": pieces[1::2]}
    return cut_rows(path, config, name, tensor)


def cut_rows(path: Path, config: LlamaConfig, name: str, tensor: StoredTensor) -> dict[str, list[StoredTensor]]:
    """A tensor with the rows of several matrices as these, any other as it is; errors as of `own_names`."""
    layer, _, part = name.rpartition(".self_attn." if ".self_attn." in name else ".mlp." if ".mlp." in name else ".")
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    rows: Sequence[tuple[str, int]]
    if part == "qkv_proj.weight":
        rows = [(f"{layer}.self_attn.{which}_proj.weight", keys if which in "kv" else queries) for which in "qkv"]
    elif part == "gate_up_proj.weight":
        rows = [(f"{layer}.mlp.{which}_proj.weight", config.ffn_size) for which in ("gate", "up")]
    elif name.endswith(".shared_mlp.input_linear.weight"):
        mixture = name.removesuffix(".shared_mlp.input_linear.weight") + ".block_sparse_moe.shared"
        rows = [(f"{mixture}.{which}_proj.weight", config.shared_ffn_size) for which in ("gate", "up")]
    else:
        return {name: [tensor]}
    _check_shape(path, tensor, (sum(count for _, count in rows), config.hidden_size))
    found, first = {}, 0
    for own, count in rows:
        data = tensor.data.reshape(-1)[first * tensor.row_bytes : (first + count) * tensor.row_bytes]
        found[own] = [StoredTensor(tensor.name, tensor.format, (count, config.hidden_size), data)]
        first += count
    return found


def _check_shape(path: Path, tensor: StoredTensor, right: tuple[int, ...]) -> None:
    if tensor.shape != right:
        raise FormatError(
            path, f"tensor {tensor.name} has shape {list(tensor.shape)}; the configuration makes it {list(right)}"
        )
