"""Writing a BitNet in another form: its ternary matrices as every reader of `formats.ternary` takes them.

Codes and scales stay what they are, to the bit. One matrix at a time is in memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..device import Context
from ..formats.atomic import write_folder
from ..formats.block_formats import FORMATS, TERNARY_FORMATS, StoredTensor
from ..formats.errors import FormatError, told_of
from ..formats.gguf_writer import NewTensor, write_gguf
from ..formats.json_values import read_json
from ..formats.mapped import release
from ..formats.piece_writer import PieceWriter
from ..formats.safetensors_writer import NewArray, write_in_pieces
from ..formats.ternary import checked_scale, tern2_shape
from ..models.bitnet import OUR_METHOD, TABLES
from ..models.gguf_names import gguf_name
from ..models.llama import LlamaConfig, is_plain
from ..models.stored import StoredModel
from ..models.transformer import check_finite
from ..tokenizer.carried import tokenizer_files
from ..tokenizer.to_folder import write_gguf_tokenizer
from .quantize import file_metadata, pieces, stored_bytes
from .ternary import packed_rows, tern2_bytes, ternary_bytes

#: What `convert_model` writes: folders, of Hugging Face with codes as numbers, the same packed, of this library; and
#: GGUF files, which are named for the type of their matrices.
FOLDERS = ("hf", "hf-packed", "packed")
FORMS = (*FOLDERS, *TERNARY_FORMATS)


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Copies what of a tokenizer, and of how texts are generated, the folder `source` has."""
    for name, content in tokenizer_files(source).items():
        (folder / name).write_bytes(content)


def head_name(config: LlamaConfig) -> str:
    """The tensor that makes the logits."""
    return TABLES[0] if config.tie_embeddings else TABLES[1]


def convert_model(
    model: StoredModel,
    path: str | os.PathLike[str],
    form: str,
    ctx: Context,
    *,
    head: str | None = None,
    dtype: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Writes `model`, which has ternary weights, in one of `FORMS`, in one step; a folder must not exist before.

    `head` is the format of the LM head, or of the embeddings that serve as one; without it they stay as they are.
    `dtype` is that of all numbers in the forms of Hugging Face, the scales included, since transformers computes in the
    one that it finds; without it that of the embeddings. f32 keeps a scale as it is.
    `progress` is called with the number of elements done after each piece. FormatError when the model has no ternary
    weights, or something in it is wrong or has no place in that form.
    """
    config = model.config
    if not config.ternary:
        raise FormatError(model.path, "has no ternary weights; nncuda quantize writes other models")
    one_dtype = form in ("hf", "hf-packed")
    if head is not None and one_dtype:
        raise ValueError(f"a folder of the form {form} has one dtype for all numbers, and no other for its head")
    if dtype is not None and not one_dtype:
        raise ValueError(f"{form} has no dtype to choose; hf and hf-packed have")
    formats = {}
    for name, stored in model.tensors.items():
        if name == TABLES[1] and config.tie_embeddings:
            continue
        formats[name] = "f32" if is_plain(name) and form not in FOLDERS else stored.format
        if one_dtype:
            formats[name] = dtype or model.tensors[TABLES[0]].format
        if head is not None and name == head_name(config):
            formats[name] = head
        if formats[name] != stored.format and FORMATS[stored.format].numpy is None:
            problem = f"is in {stored.format} already; rounding it again, to {formats[name]}, would add errors"
            raise FormatError(model.path, f"tensor {stored.name} {problem}")
        if form in FOLDERS and form != "packed" and FORMATS[formats[name]].numpy is None:
            raise FormatError(
                model.path,
                f"tensor {stored.name} would be in {formats[name]}; a folder of the form {form} has f32, f16 and bf16",
            )
        if stored.columns % FORMATS[formats[name]].elements:
            raise FormatError(
                model.path,
                f"tensor {stored.name} has rows of {stored.columns} elements; blocks of {formats[name]} have "
                f"{FORMATS[formats[name]].elements}",
            )
    _check_shapes(model, form)
    report = progress or (lambda elements: None)
    if form in FOLDERS:
        with write_folder(path) as folder:
            _write_folder(model, folder, form, formats, ctx, report)
    else:
        _write_gguf(model, path, form, formats, ctx, report)


def _check_shapes(model: StoredModel, form: str) -> None:
    for matrix in model.matrices.values():
        rows, columns = matrix.shape
        if form in TERNARY_FORMATS and columns % TERNARY_FORMATS[form].elements:
            blocks = TERNARY_FORMATS[form].elements
            raise matrix.wrong(f"has rows of {columns} weights; blocks of {form} have {blocks}")
        if form == "hf-packed" and rows % 4:
            raise matrix.wrong(f"has {rows} outputs; packed weights need a multiple of 4")


def _write_gguf(
    model: StoredModel,
    path: str | os.PathLike[str],
    form: str,
    formats: dict[str, str],
    ctx: Context,
    progress: Callable[[int], None],
) -> None:
    # The scales of llama.cpp's blocks are f16, in which 1 is exact: the scale itself is a tensor next to the matrix.
    apart = form != "i2_s"
    new = []
    for name, shape in model.config.shapes().items():
        if name in model.matrices:
            new.append(NewTensor(gguf_name(name), form, shape))
            if apart:
                new.append(NewTensor(_scale_name(name), "f32", (1,)))
        elif name in formats:
            new.append(NewTensor(gguf_name(name), formats[name], shape))
    with write_gguf(path, file_metadata(model, TERNARY_FORMATS[form]), new) as writer:
        for name in model.config.shapes():
            if name in model.matrices:
                codes, scale = _codes(model, name)
                writer.write(gguf_name(name), ternary_bytes(form, codes, 1.0 if apart else scale))
                if apart:
                    writer.write(_scale_name(name), np.array([scale], "<f4").view(np.uint8))
                progress(codes.size)
            elif name in formats:
                _copy(writer, model, name, gguf_name(name), formats[name], ctx, progress)


def _scale_name(name: str) -> str:
    return gguf_name(name).removesuffix("weight") + "scale"


def _codes(model: StoredModel, name: str) -> tuple[np.ndarray, float]:
    matrix = model.ternary(name)
    codes = matrix.codes()
    release(matrix.data)
    return codes, matrix.scale


def _copy(
    writer: PieceWriter,
    model: StoredModel,
    name: str,
    theirs: str,
    format_name: str,
    ctx: Context,
    progress: Callable[[int], None],
) -> None:
    """A tensor that is not a ternary matrix, in its own format or another."""
    stored = model.tensors[name]
    if FORMATS[stored.format].numpy is None:
        writer.write(theirs, stored.data)
        progress(stored.elements)
        return
    if len(stored.shape) == 1:
        writer.write(theirs, _vector(model, stored, format_name))
        progress(stored.elements)
        return
    for piece in pieces(model, stored):
        writer.write(theirs, stored_bytes(ctx, model.path, stored, piece, format_name))
        progress(piece.size)
    release(stored.data)


def _vector(model: StoredModel, stored: StoredTensor, format_name: str) -> np.ndarray:
    """The bytes of a norm in another dtype."""
    with told_of(model.path):
        check_finite(stored.name, stored.numbers())
    with np.errstate(over="ignore"):
        values = stored.f32().astype(FORMATS[format_name].numpy)
    if not np.isfinite(values.astype(np.float32)).all():
        raise FormatError(model.path, f"tensor {stored.name} has values that {format_name} cannot hold")
    return values.view(np.uint8)


def _scale_bytes(model: StoredModel, name: str, scale: float, dtype: np.dtype) -> np.ndarray:
    with np.errstate(over="ignore"):
        value = np.array([scale], np.float32).astype(dtype)
    checked_scale(float(value[0]), model.ternary(name).wrong, f"scale in {dtype.name}")
    return value.view(np.uint8)


def _write_folder(
    model: StoredModel,
    folder: Path,
    form: str,
    formats: dict[str, str],
    ctx: Context,
    progress: Callable[[int], None],
) -> None:
    values = _folder_config(model, form, formats)
    (folder / "config.json").write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    if model.file is not None:
        write_gguf_tokenizer(model.file.metadata, model.path, folder)
    else:
        copy_tokenizer(model.path, folder)
    floats = _float_dtype(form, formats)
    new = list(_new_arrays(model, form, formats, floats))
    with write_in_pieces(folder / "model.safetensors", new) as writer:
        for name in model.config.shapes():
            if name in model.matrices:
                codes, scale = _codes(model, name)
                writer.write(name, _folder_bytes(form, codes, floats).reshape(-1))
                writer.write(f"{name}_scale", _scale_bytes(model, name, scale, floats))
                progress(codes.size)
            elif name in formats:
                _copy(writer, model, name, name, formats[name], ctx, progress)


def _float_dtype(form: str, formats: dict[str, str]) -> np.dtype:
    """The dtype of the scales, and of codes as numbers."""
    found = None if form == "packed" else FORMATS[formats[TABLES[0]]].numpy
    return found or np.dtype(np.float32)


def _folder_bytes(form: str, codes: np.ndarray, floats: np.dtype) -> np.ndarray:
    if form == "packed":
        return tern2_bytes(codes)
    if form == "hf-packed":
        return packed_rows(codes)
    return np.take(np.array([-1, 0, 1]).astype(floats), codes + 1).view(np.uint8)


def _new_arrays(model: StoredModel, form: str, formats: dict[str, str], floats: np.dtype) -> Iterator[NewArray]:
    for name, shape in model.config.shapes().items():
        if name in model.matrices:
            rows, columns = shape
            if form == "hf":
                yield NewArray(name, floats, shape)
            else:
                packed = tern2_shape((rows, columns)) if form == "packed" else (rows // 4, columns)
                yield NewArray(name, np.dtype(np.uint8), packed)
            yield NewArray(f"{name}_scale", floats, (1,))
        elif name in formats:
            entry = FORMATS[formats[name]]
            if entry.numpy is None:
                yield NewArray(name, np.dtype(np.uint8), (shape[0], entry.row_bytes(shape[1])))
            else:
                yield NewArray(name, entry.numpy, shape)


def _folder_config(model: StoredModel, form: str, formats: dict[str, str]) -> dict[str, Any]:
    """The content of config.json: that of the folder, or made of the configuration, and how the weights are stored."""
    if model.file is None:
        values = read_json(model.path / "config.json")
    else:
        begin, ends = (-1, ()) if model.tokenizer is None else (model.tokenizer.begin_id, model.tokenizer.end_ids)
        values = config_to_folder(model.config)
        # Without them, transformers takes those of 2B-4T.
        values |= {"bos_token_id": begin if begin >= 0 else None, "eos_token_id": sorted(ends) or None}
    if form == "packed":
        method: dict[str, Any] = {"quant_method": OUR_METHOD}
        blocks = {name: found for name, found in formats.items() if FORMATS[found].numpy is None}
        if blocks:
            method["blocks"] = blocks
    else:
        method = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}
        values |= dict.fromkeys(("dtype", "torch_dtype"), _float_dtype(form, formats).name)
    return {**values, "quantization_config": method}


def config_to_folder(config: LlamaConfig) -> dict[str, Any]:
    """A BitNet's configuration in the words of a config.json. ValueError for a rotary embedding that has none there."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope.base}
    if config.rope.scaling == "linear":
        rope |= {"rope_type": "linear", "factor": config.rope.factor}
    elif config.rope.scaling != "none":
        raise ValueError(f"the rotary embedding is scaled by {config.rope.scaling}; this program writes 'linear'")
    return {
        "architectures": ["BitNetForCausalLM"],
        "model_type": "bitnet",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.ffn_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": config.activation,
        "max_position_embeddings": config.context,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope.base,
        "rope_parameters": rope,
        "tie_word_embeddings": config.tie_embeddings,
    }
