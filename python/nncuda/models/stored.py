"""Stored models: one of `families` in a GGUF file, in a Hugging Face folder or in memory, as one description.

Nothing is read ahead, copied or converted: tensors are the mapped pages of the files, in their format and in the order
of rows they have. (GGUF files order the rows of queries and keys for interleaved pairs in some families, folders for
half-split ones; `config.rope.layout` says which.) There are two exceptions. Experts that a folder has in a tensor each
are multiplied by one call: where they do not follow each other in the file, the first look-up of such a matrix copies
them into one piece. And gpt-oss' folders have the elements of experts in an order of their own, from which each reading
makes ours (`gpt_oss`).
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..formats.block_formats import StoredTensor
from ..formats.errors import FormatError, shown, told_of
from ..formats.gguf import ARCHITECTURE_KEY, GGUFFile, SplitGGUF, open_gguf
from ..formats.json_values import read_json
from ..formats.run_folder import check_no_adapter, last_checkpoint
from ..formats.safetensors import read_safetensors_folder
from ..formats.ternary import TernaryMatrix, from_master
from ..tokenizer.chat_template import ChatTemplate, special_names, template_from_folder, template_from_gguf
from ..tokenizer.folder import tokenizer_from_folder
from ..tokenizer.gguf import tokenizer_from_gguf
from ..tokenizer.tokenizer import TextTokenizer
from .bitnet import (
    is_part_of_matrix,
    matrices_from_folder,
    matrices_from_gguf,
    quantization_from_folder,
    table_in_blocks,
)
from .gguf_names import LONG_FACTORS, ROPE_FREQUENCIES, SHORT_FACTORS, gguf_name, name_of_gguf
from .gpt_oss import packed_experts
from .llama import LlamaConfig, is_plain, is_projection
from .llama_folder import config_from_folder
from .llama_gguf import BITNET_ARCHITECTURES, Seen, config_from_gguf
from .mixtral import config_to_mixtral
from .tensor_names import cut_rows, own_names

if TYPE_CHECKING:
    from .moe import MoETransformer
    from .parameters import ParameterArena

_EXPERT = re.compile(r"(model\.layers\.\d{1,5}\.block_sparse_moe)\.experts\.(\d{1,5})\.(w[123])\.weight")
# Tables that old versions of transformers saved with the weights; the configuration gives them too.
_REDUNDANT = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")


class StoredTensors(Mapping[str, StoredTensor]):
    """The tensors of a model by the names of `LlamaConfig.shapes`."""

    def __init__(self, parts: dict[str, list[StoredTensor]], shapes: Mapping[str, tuple[int, ...]]):
        self._parts, self._shapes = parts, shapes
        self._merged: dict[str, StoredTensor] = {}

    def parts(self, name: str) -> list[StoredTensor]:
        """What the files have of a tensor, in order: itself, or the same matrix of each expert."""
        return self._parts[name]

    def __getitem__(self, name: str) -> StoredTensor:
        parts = self._parts[name]
        if len(parts) == 1:
            return parts[0]
        if name not in self._merged:
            self._merged[name] = StoredTensor(name, parts[0].format, self._shapes[name], _in_one_piece(parts))
        return self._merged[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def of_experts(self, own: range, others: bool = True) -> StoredTensors:
        """The same with the matrices of some experts alone; without `others`, nothing but these. Reads nothing."""
        parts, shapes = dict(self._parts), dict(self._shapes)
        for name, shape in self._shapes.items():
            if len(shape) == 3:
                shapes[name] = (len(own), *shape[1:])
                parts[name] = _parts_of_experts(parts[name], own)
            elif not others:
                del parts[name], shapes[name]
        return StoredTensors(parts, shapes)

    @property
    def nbytes(self) -> int:
        """Bytes in the files; the head of a tied model counts once."""
        unique = {part.data.ctypes.data: part.nbytes for parts in self._parts.values() for part in parts}
        return sum(unique.values())


def _parts_of_experts(parts: list[StoredTensor], own: range) -> list[StoredTensor]:
    """Of a tensor with all experts, or of a tensor for each, those of neighbouring experts."""
    if len(parts) > 1:
        return parts[own.start : own.stop]
    (whole,) = parts
    size = whole.nbytes // whole.shape[0]
    data = whole.data.reshape(-1)[own.start * size : own.stop * size]
    return [dataclasses.replace(whole, shape=(len(own), *whole.shape[1:]), data=data)]


def _in_one_piece(parts: list[StoredTensor]) -> np.ndarray:
    if parts[0].made is not None:
        return np.concatenate([part.bytes().reshape(-1) for part in parts])
    whole, size = parts[0].data.base, parts[0].nbytes
    addresses = [part.data.ctypes.data for part in parts]
    in_a_row = all(after - before == size for before, after in itertools.pairwise(addresses))
    if in_a_row and isinstance(whole, np.ndarray) and all(part.data.base is whole for part in parts):
        start = addresses[0] - whole.ctypes.data
        return whole.reshape(-1).view(np.uint8)[start : start + len(parts) * size]
    return np.concatenate([part.data for part in parts])


class StoredModel:
    """A model as its files have it: `config`, `path`, and `file`, the opened GGUF file, None of a folder; `tensors`,
    and `matrices`, in a model with ternary weights those of its layers, which are not among `tensors`; `arena`, where
    the tensors of a model in memory are on its device, by the names that they have."""

    arena: ParameterArena | None = None

    def __init__(
        self,
        path: Path,
        config: LlamaConfig,
        tensors: StoredTensors,
        file: GGUFFile | SplitGGUF | None = None,
        matrices: Mapping[str, TernaryMatrix] | None = None,
    ):
        self.path, self.config, self.tensors, self.file = path, config, tensors, file
        self.matrices: Mapping[str, TernaryMatrix] = matrices or {}

    def ternary(self, name: str) -> TernaryMatrix:
        """A matrix of a layer of a model with ternary weights, by its name in `LlamaConfig.shapes`; else KeyError."""
        return self.matrices[name]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors in the files; the head of a tied model counts once."""
        return self.tensors.nbytes + sum(matrix.nbytes for matrix in self.matrices.values())

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> StoredModel:
        """Opens a GGUF file (of a split one its first part), a Hugging Face folder of one of `families`, a
        checkpoint, or the last checkpoint of a run. All but the values of the tensors is checked; FormatError says what
        is wrong."""
        path = Path(path)
        return _open_folder(last_checkpoint(path)) if path.is_dir() else _open_gguf(path)

    @classmethod
    def of(cls, model: MoETransformer, tokenizer: TextTokenizer | None = None) -> StoredModel:
        """A model in memory, with the weights that it computes with now, as its checkpoint would have them."""
        return _ModelInMemory(model, tokenizer)

    def of_experts(self, own: range, others: bool = True) -> StoredModel:
        """The same model with some of its experts alone, as `StoredTensors.of_experts`."""
        part = copy.copy(self)
        part.tensors = self.tensors.of_experts(own, others)
        return part

    @property
    def num_parameters(self) -> int:
        """Parameters in all; a head that is the table of embeddings does not count."""
        shapes = self.config.shapes()
        if self.config.tie_embeddings:
            del shapes["lm_head.weight"]
        return sum(map(math.prod, shapes.values()))

    @functools.cached_property
    def tokenizer(self) -> TextTokenizer | None:
        """The model's tokenizer; None when the files have none. FormatError when it is wrong, or has more tokens than
        the model."""
        if self.file is not None:
            tokenizer = tokenizer_from_gguf(self.file.metadata, self.path)
        else:
            tokenizer = tokenizer_from_folder(self.path)
        if tokenizer is not None and tokenizer.vocab_size > self.config.vocab_size:
            raise FormatError(
                self.path, f"has a tokenizer of {tokenizer.vocab_size} tokens for a model of {self.config.vocab_size}"
            )
        return tokenizer

    @functools.cached_property
    def chat_template(self) -> ChatTemplate:
        """The model's chat template; a plain one, and `plain` set, when the files have none."""
        if self.file is None:
            return ChatTemplate(template_from_folder(self.path), self.path, **special_names(self.path))
        names = {}
        if self.tokenizer is not None:
            ends = self.file.metadata.get("tokenizer.ggml.eos_token_id")
            for name, token in (("begin", self.tokenizer.begin_id), ("end", -1 if ends is None else ends)):
                names[name] = self.tokenizer.piece(token) if token >= 0 else ""
        return ChatTemplate(template_from_gguf(self.file.metadata, self.path), self.path, **names)


class _ModelInMemory(StoredModel):
    """Its tensors are the model's own on a CPU, a copy of them on a GPU."""

    def __init__(self, model: MoETransformer, tokenizer: TextTokenizer | None):
        if model.experts is not None:
            raise model.experts.partial()
        path = Path("a MoETransformer")
        config = config_from_folder(config_to_mixtral(model.config))
        self.arena = model.weights
        tensors = {
            name: StoredTensor(name, model.weights.data.dtype, array.shape, array.reshape(-1).view(np.uint8))
            for name, array in model.weights.arrays().items()
        }
        matrices: dict[str, TernaryMatrix] = {}
        if config.ternary:
            masters = [name for name in tensors if is_projection(name)]
            matrices = {name: from_master(path, tensors.pop(name)) for name in masters}
        found = _checked(path, config, _with_experts_together(path, config, tensors))
        super().__init__(path, config, found, matrices=matrices)
        if tokenizer is not None and tokenizer.vocab_size > config.vocab_size:
            raise ValueError(f"the tokenizer has {tokenizer.vocab_size} tokens, the model {config.vocab_size}")
        self.tokenizer = tokenizer  # in place of the files'
        self.chat_template = ChatTemplate(None, path)


def _with_experts_together(
    path: Path, config: LlamaConfig, tensors: Mapping[str, StoredTensor]
) -> dict[str, list[StoredTensor]]:
    """Tensors by their names in `LlamaConfig.shapes`, the same matrix of all experts under one."""
    found: dict[str, list[StoredTensor]] = {}
    experts: dict[str, dict[int, StoredTensor]] = {}
    for name, tensor in tensors.items():
        if match := _EXPERT.fullmatch(name):
            experts.setdefault(f"{match[1]}.{match[3]}.weight", {})[int(match[2])] = tensor
        else:
            found[name] = [tensor]
    for name, pieces in experts.items():
        if len(pieces) != config.num_experts or max(pieces) >= len(pieces) or name in found:
            raise FormatError(path, f"{name} has {len(pieces)} experts; config.json makes it {config.num_experts}")
        found[name] = [pieces[expert] for expert in range(config.num_experts)]
    return found


def _open_gguf(path: Path) -> StoredModel:
    file = open_gguf(path)

    def divisors(name: str) -> tuple[float, ...]:
        return tuple(file[name].f32().reshape(-1).tolist()) if name in file else ()

    try:
        # BitNet files of bitnet.cpp have the frequencies themselves under this name, and nothing reads them there.
        scaled = str(file.metadata.get(ARCHITECTURE_KEY)) not in BITNET_ARCHITECTURES
        config = config_from_gguf(
            file.metadata,
            Seen(
                tied="output.weight" not in file,
                qkv_bias="blk.0.attn_q.bias" in file,
                o_bias="blk.0.attn_output.bias" in file,
                shared="blk.0.ffn_up_shexp.weight" in file,
                divisors=divisors(ROPE_FREQUENCIES) if scaled else (),
                short_divisors=divisors(SHORT_FACTORS),
                long_divisors=divisors(LONG_FACTORS),
            ),
        )
    except FormatError:
        raise
    except (ValueError, TypeError) as error:
        raise FormatError(path, str(error)) from error
    _check_layers(path, config, len(file))
    matrices = matrices_from_gguf(path, config, file) if config.ternary else {}
    found: dict[str, list[StoredTensor]] = {}
    for theirs in file:
        if theirs in (ROPE_FREQUENCIES, SHORT_FACTORS, LONG_FACTORS):
            continue
        whole = name_of_gguf(re.sub(r"\.scale$", ".weight", theirs))
        if whole in matrices and theirs.startswith(gguf_name(whole).removesuffix("weight")):
            continue
        name = name_of_gguf(theirs)
        if name is not None and config.family == "gpt_oss":  # its name of the norm before the experts
            name = name.replace(".self_attn.post_norm.", ".post_attention_layernorm.")
        if name is None or name in found or name in matrices:
            raise FormatError(path, f"has the tensor {shown(theirs)}, which no model of this architecture has")
        tensor = file[theirs]
        if name.endswith(".mlp.up_proj.weight") and tensor.shape[0] == 2 * config.ffn_size:  # Phi-3's, with the gate's
            name = name.replace(".up_proj.", ".gate_up_proj.")
        found |= cut_rows(path, config, name, tensor)
    return StoredModel(path, config, _checked(path, config, found), file, matrices)


def _open_folder(folder: Path) -> StoredModel:
    check_no_adapter(folder)
    values = read_json(folder / "config.json")
    with told_of(folder / "config.json"):
        config = config_from_folder(values)
        quantization = quantization_from_folder(values) if config.ternary else None
    files = read_safetensors_folder(folder)
    _check_layers(folder, config, len(files))
    matrices = None if quantization is None else matrices_from_folder(folder, config, quantization, files)
    found: dict[str, list[StoredTensor]] = {}
    plain: dict[str, StoredTensor] = {}  # of experts alone
    for theirs in files:
        if _REDUNDANT.fullmatch(theirs) or (theirs == "lm_head.weight" and config.tie_embeddings):
            continue
        if matrices is not None and is_part_of_matrix(theirs):
            if theirs not in matrices and theirs.removesuffix("_scale") not in matrices:
                raise FormatError(folder, f"has the tensor {shown(theirs)}, which no model of this configuration has")
            continue
        if quantization is not None and theirs in quantization.blocks:
            found[theirs] = [table_in_blocks(folder, config, theirs, quantization.blocks[theirs], files)]
            continue
        if config.biased_experts and (named := packed_experts(folder, config, theirs, files)) is not None:
            own = named
        else:
            own = own_names(folder, config, theirs, files.stored(theirs))
        for name, pieces in own.items():
            if name in found or name in plain:
                raise FormatError(folder, f"has {name} twice: of itself, and together with others")
            if _EXPERT.fullmatch(name):
                plain[name] = pieces[0]
            else:
                found[name] = pieces
    for name, parts in _with_experts_together(folder, config, plain).items():
        if name in found:
            raise FormatError(folder, f"has {name} twice: of each expert, and of all together")
        found[name] = parts
    return StoredModel(folder, config, _checked(folder, config, found), matrices=matrices)


def _check_layers(path: Path, config: LlamaConfig, tensors: int) -> None:
    if config.num_layers > tensors:  # before every tensor of every layer gets an entry in a table
        raise FormatError(path, f"has {tensors} tensors; the configuration makes it {config.num_layers} layers")


def _checked(path: Path, config: LlamaConfig, found: dict[str, list[StoredTensor]]) -> StoredTensors:
    shapes = config.shapes()
    if config.ternary:
        shapes = {name: shape for name, shape in shapes.items() if not is_projection(name)}
    if config.tie_embeddings and "model.embed_tokens.weight" in found:
        found["lm_head.weight"] = found["model.embed_tokens.weight"]
    for name in found:
        if name not in shapes:
            raise FormatError(path, f"has the tensor {shown(name)}, which no model of this configuration has")
    for name, shape in shapes.items():
        if name not in found:
            raise FormatError(path, f"lacks the tensor {name} of shape {list(shape)}")
        parts = found[name]
        right = shape if len(parts) == 1 else shape[1:]
        for part in parts:
            if part.shape != right:
                problem = f"has shape {list(part.shape)}; the configuration makes it {list(right)}"
                raise FormatError(path, f"tensor {part.name} {problem}")
            if part.format != parts[0].format:
                raise FormatError(path, f"the experts of {name} are in {parts[0].format} and {part.format}")
        if is_plain(name) and parts[0].format not in ("f32", "f16", "bf16"):
            raise FormatError(path, f"tensor {parts[0].name} is in {parts[0].format}; it must be in f32, f16 or bf16")
    return StoredTensors({name: found[name] for name in shapes}, shapes)
