"""The experts of gpt-oss as its folders have them: gate and up in alternate rows, in one of two forms.

What transformers writes is transposed, [experts, inputs, outputs] in f32, f16 or bf16. What is published has blocks of
32 elements in 4 bits, [experts, outputs, inputs/32, 16] bytes with element 2j in the low half of byte j and 2j+1 in the
high half, and beside them a byte for the scale of each block, its power of two plus 127 (Open Compute Project 2023,
"OCP Microscaling Formats (MX) Specification", 5.4). GGUF files have the same blocks behind their scale, elements j and
j+16 in byte j. From both a tensor for each expert is made when it is read.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ..formats.block_formats import FORMATS, StoredTensor
from ..formats.errors import FormatError, shown
from ..formats.mapped import release
from ..formats.safetensors import SafetensorsFolder
from .llama import LlamaConfig

_PACKED = re.compile(r"(model\.layers\.\d{1,5})\.mlp\.experts\.(gate_up|down)_proj_(blocks|scales)")
#: Of each tensor of a folder those of ours, which are its rows from the first given on, each so-manyth.
_MATRICES = {"gate_up": (("w1", 0, 2), ("w3", 1, 2)), "down": (("w2", 0, 1),)}
#: Elements of a block of mxfp4, and bytes of it without its scale.
_BLOCK, _HALF = 32, 16


def experts_of_gpt_oss(
    path: Path, config: LlamaConfig, layer: str, part: str, tensor: StoredTensor
) -> dict[str, list[StoredTensor]] | None:
    """The tensors of `LlamaConfig.shapes` that are made of one that transformers writes, `part` of a layer; None where
    it is not one of the experts'. FormatError for a shape that is not the configuration's."""
    name, _, bias = part.removeprefix("mlp.experts.").partition("_proj")
    if name not in _MATRICES or bias not in ("", "_bias") or not part.startswith("mlp.experts."):
        return None
    rows, columns = _sizes(config, name)
    right = (config.num_experts, rows) if bias else (config.num_experts, columns, rows)
    _check(path, tensor.name, tensor.shape, right)
    found: dict[str, list[StoredTensor]] = {}
    for own, first, step in _MATRICES[name]:
        if bias:
            found[f"{layer}.block_sparse_moe.{own}.bias"] = [_every(tensor, (right[0], rows // step), first, step)]
            continue
        experts = tensor.data.reshape(config.num_experts, -1)
        found[f"{layer}.block_sparse_moe.{own}.weight"] = [
            _turned(tensor, data, (rows // step, columns), first, step) for data in experts
        ]
    return found


def packed_experts(
    folder: Path, config: LlamaConfig, name: str, files: SafetensorsFolder
) -> dict[str, list[StoredTensor]] | None:
    """The same of a tensor of blocks, with its scales; none of the scales themselves; None where it is neither."""
    match = _PACKED.fullmatch(name)
    if match is None:
        return None
    prefix = name.removesuffix(match[3])
    rows, columns = _sizes(config, match[2])
    if columns % _BLOCK:
        raise FormatError(
            folder, f"tensor {shown(name)} has blocks of {_BLOCK}, of which {columns} inputs are not a whole number"
        )
    shape = config.num_experts, rows, columns // _BLOCK
    parts = []
    for kind, right in (("blocks", (*shape, _HALF)), ("scales", shape)):
        if prefix + kind not in files:
            raise FormatError(folder, f"lacks the tensor {prefix + kind} of shape {list(right)}")
        if files.dtype(prefix + kind) != np.uint8:
            raise FormatError(
                folder, f"tensor {prefix + kind} has dtype {files.dtype(prefix + kind)}; it must be uint8"
            )
        _check(folder, prefix + kind, files.shape(prefix + kind), right)
        parts.append(files.mapped(prefix + kind).reshape(config.num_experts, rows, -1))
    if match[3] == "scales":
        return {}
    blocks, scales = parts
    return {
        f"{match[1]}.block_sparse_moe.{own}.weight": [
            _repacked(name, blocks[expert, first:], scales[expert, first:], (rows // step, columns), step)
            for expert in range(config.num_experts)
        ]
        for own, first, step in _MATRICES[match[2]]
    }


def _sizes(config: LlamaConfig, name: str) -> tuple[int, int]:
    """Outputs and inputs of the product of an expert's tensor."""
    if name == "gate_up":
        return 2 * config.ffn_size, config.hidden_size
    return config.hidden_size, config.ffn_size


def _every(tensor: StoredTensor, shape: tuple[int, int], first: int, step: int) -> StoredTensor:
    """Each so-manyth element of rows."""
    if step == 1:
        return tensor
    size = FORMATS[tensor.format].bytes

    def made() -> np.ndarray:
        rows = tensor.data.reshape(shape[0], shape[1], step, size)
        return np.ascontiguousarray(rows[:, :, first]).reshape(-1)

    return StoredTensor(tensor.name, tensor.format, shape, tensor.data[first * size :], made)


def _turned(tensor: StoredTensor, data: np.ndarray, shape: tuple[int, int], first: int, step: int) -> StoredTensor:
    """The transpose of one expert's matrix, of it each so-manyth row."""
    numpy = FORMATS[tensor.format].numpy
    assert numpy is not None  # safetensors have no others
    words = np.dtype(f"<u{numpy.itemsize}")

    def made() -> np.ndarray:
        turned = np.ascontiguousarray(data.view(words).reshape(shape[1], -1)[:, first::step].T)
        release(data)
        return turned.reshape(-1).view(np.uint8)

    return StoredTensor(tensor.name, tensor.format, shape, data[first * words.itemsize :], made)


def _repacked(name: str, blocks: np.ndarray, scales: np.ndarray, shape: tuple[int, int], step: int) -> StoredTensor:
    """One expert's blocks as GGUF files have them; `blocks` u8 [rows, columns/2] and `scales` u8 [rows, columns/32]
    begin with the first row, of which each so-manyth is one."""

    def made() -> np.ndarray:
        pairs = blocks[::step].reshape(-1, 2, _HALF // 2)
        left, right = pairs[:, 0], pairs[:, 1]
        whole = np.empty((len(pairs), 1 + _HALF), np.uint8)
        whole[:, 0] = scales[::step].reshape(-1)
        whole[:, 1::2] = (left & 15) | (right << 4)
        whole[:, 2::2] = (left >> 4) | (right & 240)
        release(blocks)
        return whole.reshape(-1)

    return StoredTensor(name, "mxfp4", shape, blocks.reshape(-1), made)


def _check(path: Path, name: str, shape: tuple[int, ...], right: tuple[int, ...]) -> None:
    if shape != right:
        raise FormatError(path, f"tensor {name} has shape {list(shape)}; the configuration makes it {list(right)}")
