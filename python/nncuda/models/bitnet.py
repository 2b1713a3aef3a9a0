"""The ternary matrices of a stored BitNet: which tensors of its files they are made of, and in which convention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..formats.block_formats import FORMATS, TERNARY_FORMATS, StoredTensor
from ..formats.errors import FormatError, shown
from ..formats.gguf import GGUFFile, SplitGGUF
from ..formats.safetensors import SafetensorsFolder
from ..formats.ternary import (
    TernaryMatrix,
    checked_scale,
    from_master,
    from_numbers,
    from_packed,
    from_tern2,
    tern2_shape,
)
from ..formats.ternary_blocks import from_blocks, from_multiples
from .gguf_names import gguf_name
from .llama import LlamaConfig, is_projection

#: The tensors of a BitNet that may be in blocks.
TABLES = ("model.embed_tokens.weight", "lm_head.weight")
#: `quant_method` in the config.json of a folder whose matrices are in tern2.
OUR_METHOD = "nncuda-tern2"
_SCALE = "_scale"


@dataclass(frozen=True)
class Quantization:
    """What `quantization_config` says.

    packed      ours: tern2, and `weight_scale` f32 [1] is the factor
    online      master weights: scale and codes come from them
    divides     weights are to be divided by `weight_scale`, and not multiplied
    blocks      ours: the formats of `TABLES` that are in blocks, by name
    """

    packed: bool = False
    online: bool = True
    divides: bool = False
    blocks: Mapping[str, str] = field(default_factory=dict)


def quantization_from_folder(values: Mapping[str, Any]) -> Quantization:
    """Reads `quantization_config` of a config.json; without it, weights are master weights.

    `linear_class` "bitlinear", the default, divides by weight_scale, "autobitlinear" multiplies; `quantization_mode`
    "online" has master weights. (transformers, `integrations/bitnet.py`) ValueError for what this engine does not do.
    """
    given = values.get("quantization_config")
    if given is None:
        return Quantization()
    if not isinstance(given, Mapping):
        raise ValueError(f"quantization_config is {shown(given)}; it must be an object")
    method = given.get("quant_method")
    if method == OUR_METHOD:
        blocks = given.get("blocks", {})
        known = [name for name, entry in FORMATS.items() if entry.numpy is None]
        if not isinstance(blocks, Mapping) or any(
            name not in TABLES or not isinstance(found, str) or found not in known for name, found in blocks.items()
        ):
            raise ValueError(f"blocks is {shown(blocks)}; it may give {' and '.join(TABLES)} one of {', '.join(known)}")
        return Quantization(packed=True, online=False, blocks=blocks)
    if method != "bitnet":
        raise ValueError(f"quant_method is {shown(method)}; this program reads 'bitnet' and {OUR_METHOD!r}")
    linear, mode = given.get("linear_class", "bitlinear"), given.get("quantization_mode", "offline")
    for name, value, allowed in (
        ("linear_class", linear, ("bitlinear", "autobitlinear")),
        ("quantization_mode", mode, ("offline", "online")),
        ("use_rms_norm", given.get("use_rms_norm", False), (False,)),
    ):
        if value not in allowed:
            raise ValueError(f"{name} is {shown(value)}; it may be {' or '.join(map(repr, allowed))}")
    kept = given.get("modules_to_not_convert") or []
    if not isinstance(kept, list) or any(type(name) is not str or "_proj" in name or "layers" in name for name in kept):
        raise ValueError(f"modules_to_not_convert is {shown(kept)}; this engine has ternary weights in all layers")
    return Quantization(online=mode == "online" and linear == "autobitlinear", divides=linear == "bitlinear")


def matrices_from_folder(
    folder: Path, config: LlamaConfig, quantization: Quantization, files: SafetensorsFolder
) -> dict[str, TernaryMatrix]:
    """The matrices by the names of `LlamaConfig.shapes`; all but the codes is checked."""
    shapes = config.shapes()
    matrices = {}
    for name in filter(is_projection, shapes):
        _check_there(folder, name, shapes[name], files)
        matrices[name] = _matrix(folder, name, shapes[name], quantization, files)
    return matrices


def _check_there(path: Path, name: str, shape: tuple[int, ...], files: Mapping[str, Any]) -> None:
    if name not in files:
        raise FormatError(path, f"lacks the tensor {name} of shape {list(shape)}")


def matrices_from_gguf(path: Path, config: LlamaConfig, file: GGUFFile | SplitGGUF) -> dict[str, TernaryMatrix]:
    """The matrices of a GGUF file by the names of `LlamaConfig.shapes`; all but the codes is checked.

    A tensor `NAME.scale`, f32 [1], multiplies the matrix `NAME.weight`: so does llama.cpp.
    """
    shapes = config.shapes()
    matrices = {}
    for name in filter(is_projection, shapes):
        theirs, shape = gguf_name(name), shapes[name]
        _check_there(path, theirs, shape, file)
        entry, factor = file.entries[theirs], 1.0
        if entry.shape != shape:
            problem = f"has shape {list(entry.shape)}; the configuration makes it {list(shape)}"
            raise FormatError(path, f"tensor {theirs} {problem}")
        scale = theirs.removesuffix("weight") + "scale"
        if scale in file:
            factor = _one_number(path, scale, file[scale])
            checked_scale(factor, lambda problem, key=scale: FormatError(path, f"tensor {key} {problem}"), "value")
        if entry.type_name in TERNARY_FORMATS:
            rows, columns = shape
            matrices[name] = from_blocks(path, theirs, entry.type_name, (rows, columns), file.mapped(theirs), factor)
        elif entry.type_name in ("f32", "f16", "bf16"):
            matrices[name] = from_multiples(path, file[theirs], factor)
        else:
            known = ", ".join(("f32", "f16", "bf16", *TERNARY_FORMATS))
            raise FormatError(path, f"tensor {theirs} is of type {entry.type_name}; ternary weights are {known}")
    return matrices


def _one_number(path: Path, name: str, stored: StoredTensor) -> float:
    if stored.elements != 1 or stored.format not in ("f32", "f16", "bf16"):
        raise FormatError(
            path, f"tensor {name} is {stored.format} {list(stored.shape)}; it must be one number in f32, f16 or bf16"
        )
    return float(stored.f32().reshape(-1)[0])


def table_in_blocks(
    folder: Path, config: LlamaConfig, name: str, format_name: str, files: SafetensorsFolder
) -> StoredTensor:
    """One of `TABLES` that a folder of ours has in blocks: their bytes, u8 [vocab, row_bytes]."""
    shape = config.vocab_size, config.hidden_size
    try:
        right = shape[0], FORMATS[format_name].row_bytes(shape[1])
    except ValueError as error:
        raise FormatError(folder, f"tensor {name}: {error}") from error
    if files.dtype(name) != np.uint8 or files.shape(name) != right:
        found = f"is {files.dtype(name)} {list(files.shape(name))}"
        raise FormatError(folder, f"tensor {name} {found}; in {format_name} it is uint8 {list(right)}")
    return StoredTensor(name, format_name, shape, files.mapped(name))


def is_part_of_matrix(name: str) -> bool:
    """Whether a tensor of a folder is one that `matrices_from_folder` reads, if it is one of the model."""
    return is_projection(name.removesuffix(_SCALE))


def _matrix(
    folder: Path, name: str, shape: tuple[int, ...], quantization: Quantization, files: SafetensorsFolder
) -> TernaryMatrix:
    rows, columns = shape
    dtype, found = files.dtype(name), files.shape(name)
    bytes_stored = dtype == np.uint8

    def need(right: tuple[int, ...], what: str) -> None:
        if found != right:
            raise FormatError(
                folder, f"tensor {name} has shape {list(found)}; the configuration makes it {list(right)}{what}"
            )

    if quantization.packed:
        if not bytes_stored:
            raise FormatError(folder, f"tensor {name} has dtype {dtype}; weights of {OUR_METHOD} are uint8")
        need(tern2_shape((rows, columns)), " in tern2")
        return from_tern2(folder, name, (rows, columns), files.mapped(name), _scale(folder, name, quantization, files))
    if bytes_stored:
        if quantization.online:
            raise FormatError(
                folder,
                f"tensor {name} has dtype uint8, that of packed weights, but config.json describes none",
            )
        if rows % 4:
            raise FormatError(folder, f"tensor {name} has {rows} outputs; packed weights need a multiple of 4")
        need((rows // 4, columns), ", four outputs to a byte")
        return from_packed(folder, name, (rows, columns), files.mapped(name), _scale(folder, name, quantization, files))
    stored = files.stored(name)
    need((rows, columns), "")
    if quantization.online:
        return from_master(folder, stored)
    return from_numbers(folder, stored, _scale(folder, name, quantization, files))


def _scale(folder: Path, name: str, quantization: Quantization, files: SafetensorsFolder) -> float:
    key = name + _SCALE
    if key not in files:
        raise FormatError(folder, f"lacks the tensor {key}, the scale of {name}")
    value = np.float32(_one_number(folder, key, files.stored(key)))

    def wrong(problem: str) -> FormatError:
        return FormatError(folder, f"tensor {name} {problem}")

    checked_scale(float(value), wrong)
    with np.errstate(over="ignore"):
        return checked_scale(float(np.float32(1) / value), wrong, "factor") if quantization.divides else float(value)
