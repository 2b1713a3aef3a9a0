"""Low-rank adapters: for some matrices W of a model, W + scale * B * A. They are folders of Hugging Face's PEFT, or
GGUF files (`adapter_gguf`).

A folder has `adapter_config.json` and `adapter_model.safetensors`. Of each matrix that is adapted the latter has, under
the name of its module,

    base_model.model.MODULE.lora_A.weight   [rank, in]
    base_model.model.MODULE.lora_B.weight   [out, rank]

and scale is lora_alpha / r, with use_rslora lora_alpha / sqrt(r). The tensors say which matrices are adapted; what an
option asks for beyond that is refused by its name, unless it says no or only matters while an adapter is trained.

(Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1; Kalajdzievski 2023, "A Rank
Stabilization Scaling Factor for Fine-Tuning with LoRA"; PEFT's documentation, "LoRA" and "PEFT checkpoint format")
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..formats.atomic import write_folder
from ..formats.block_formats import FORMATS, StoredTensor
from ..formats.errors import FormatError, missing_file, shown, told_of
from ..formats.json_values import read_json
from ..formats.regular import present
from ..formats.run_folder import last_checkpoint
from ..formats.safetensors import SafetensorsFile, write_safetensors
from .adapter_gguf import Factor, GGUFAdapter
from .llama import LlamaConfig
from .values import Values

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
#: What the names of factors in a folder begin with.
PREFIX = "base_model.model."
#: The projections of a layer that may be adapted, in its order.
LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_TENSOR = re.compile(re.escape(PREFIX) + r"(.+)\.lora_(A|B)\.weight")
_ADAPTED = re.compile(r"model\.layers\.\d+\.(self_attn|mlp)\.[a-z]+_proj\.weight")
#: Ways to begin an adapter that leave the base's weights as they are.
_BEGINNINGS = (True, False, "gaussian", "eva", "orthogonal")
#: Options that say how an adapter is trained, or which matrices it is of, which its tensors say, too.
_NEUTRAL = frozenset(
    "auto_mapping base_model_name_or_path revision inference_mode peft_version lora_dropout target_modules "
    "exclude_modules layers_to_transform layers_pattern megatron_core eva_config ensure_weight_tying "
    "qalora_group_size runtime_config".split()
)
_READ = frozenset("peft_type task_type r lora_alpha use_rslora bias init_lora_weights".split())


class LowRank(NamedTuple):
    """The factors of one matrix: `a` [rank, in] and `b` [out, rank], each in f32, f16 or bf16."""

    a: StoredTensor
    b: StoredTensor


@dataclass(frozen=True)
class Adapter:
    """An adapter of a model: what is added to its matrices, which have the names of `LlamaConfig.shapes`."""

    path: Path
    rank: int
    scale: float
    factors: Mapping[str, LowRank]

    @property
    def alpha(self) -> float:
        """scale * rank, rounded to f32, in which GGUF files have it; infinite where it is too large for that."""
        with np.errstate(over="ignore"):
            return float(np.float32(self.scale * self.rank))

    @property
    def num_parameters(self) -> int:
        return sum(part.elements for pair in self.factors.values() for part in pair)

    @classmethod
    def open(cls, path: str | os.PathLike[str], config: LlamaConfig) -> Adapter:
        """Opens the PEFT folder, or the GGUF file, of an adapter of a model with that configuration; of a run that
        trains one, the last checkpoint. FormatError when it is of another, is wrong, or asks for what this program does
        not do."""
        path = last_checkpoint(path)
        if path.is_file():
            file = GGUFAdapter(path, config)
            return cls(path, file.rank, file.scale, _factors(path, file.factors(), file.rank, config))
        values = read_json(path / CONFIG)
        with told_of(path / CONFIG):
            rank, scale = _options(values)
        if not present(path / WEIGHTS):
            if present(path / "adapter_model.bin"):
                raise FormatError(path / "adapter_model.bin", f"is a pickle, which can run anything; save {WEIGHTS}")
            raise missing_file(path, f"holds no {WEIGHTS}")
        return cls(path, rank, scale, _factors(path / WEIGHTS, _of_folder(path / WEIGHTS), rank, config))


def _options(values: Mapping[str, Any]) -> tuple[int, float]:
    """Rank and scale. ValueError for what this program does not do."""
    given = Values(values)
    if values.get("peft_type") != "LORA":
        raise ValueError(f"peft_type is {shown(values.get('peft_type'))}; this program reads 'LORA'")
    if values.get("task_type") not in (None, "CAUSAL_LM"):
        raise ValueError(f"task_type is {shown(values['task_type'])}; this program reads adapters of 'CAUSAL_LM'")
    if values.get("bias") not in (None, "none"):
        raise ValueError(f"bias is {shown(values['bias'])}; this program reads adapters without biases, 'none'")
    begun = values.get("init_lora_weights")
    if begun is not None and not any(begun is way or (begun == way and type(begun) is str) for way in _BEGINNINGS):
        raise ValueError(f"init_lora_weights is {shown(begun)}, which may change the base's own weights")
    for name, value in values.items():
        says_no = value is None or value is False or value in ("", [], {})
        if name not in _READ | _NEUTRAL and not says_no:
            raise ValueError(f"{shown(name)} is {shown(value)}; this program does not know that option of an adapter")
    rank, alpha = given.whole("r"), given.number("lora_alpha")
    scale = alpha / (math.sqrt(rank) if given.flag("use_rslora", False) else rank)
    if abs(scale) > float(np.finfo(np.float32).max):
        raise ValueError(f"lora_alpha is {shown(values['lora_alpha'])}; divided by the rank it must fit f32")
    return rank, scale


def _of_folder(path: Path) -> Iterator[Factor]:
    file = SafetensorsFile(path)
    for theirs in file:
        match = _TENSOR.fullmatch(theirs)
        if match is None:
            yield Factor(theirs, None, None, "", file.stored(theirs))
        else:
            yield Factor(theirs, match[1], f"{match[1]}.weight", match[2], file.stored(theirs))


def _factors(path: Path, factors: Iterable[Factor], rank: int, config: LlamaConfig) -> dict[str, LowRank]:
    shapes = config.shapes()
    found: dict[str, dict[str, StoredTensor]] = {}
    for theirs, module, name, which, tensor in factors:
        if module is None:
            raise FormatError(path, f"has the tensor {shown(theirs)}, which is no factor of an adapted matrix")
        if name not in shapes or not _ADAPTED.fullmatch(name):
            raise FormatError(
                path, f"adapts {shown(module)}; of this model it may be the projections of a layer's attention and "
                "SwiGLU"
            )  # fmt: skip
        rows, columns = shapes[name]
        shape = (rank, columns) if which == "A" else (rows, rank)
        if tensor.shape != shape:
            raise FormatError(
                path, f"tensor {theirs} has shape {list(tensor.shape)}; with r {rank} the model makes it {list(shape)}"
            )
        if FORMATS[tensor.format].numpy is None:
            raise FormatError(path, f"tensor {theirs} is in {tensor.format}; factors must be in f32, f16 or bf16")
        if not np.isfinite(tensor.f32()).all():
            raise FormatError(path, f"tensor {theirs} has values that are not finite")
        if which in found.setdefault(name, {}):
            raise FormatError(path, f"has lora_{which} of {name.removesuffix('.weight')} twice")
        found[name][which] = tensor
    for name, pair in found.items():
        if len(pair) < 2:
            there = "A" if "A" in pair else "B"
            raise FormatError(path, f"has lora_{there} of {name.removesuffix('.weight')} alone")
    if not found:
        raise FormatError(path, "adapts nothing")
    return {name: LowRank(found[name]["A"], found[name]["B"]) for name in shapes if name in found}


def save_adapter(
    path: str | os.PathLike[str],
    factors: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    alpha: float,
    base: str = "",
) -> None:
    """Writes an adapter as a PEFT folder, in one step: of each matrix, by its name in `LlamaConfig.shapes`, A [rank,
    in] and B [out, rank], all of one rank. `base` is what is said of the model that it belongs to.

    The same arrays give the same bytes. OSError when the system refuses, ValueError when ranks differ, or `alpha` is no
    finite number.
    """
    if not math.isfinite(alpha):
        raise ValueError("the adapter's scale * rank is too large for f32, in which lora_alpha is written")
    ranks = {a.shape[0] for a, _ in factors.values()} | {b.shape[1] for _, b in factors.values()}
    if len(ranks) != 1:
        raise ValueError(f"factors of ranks {sorted(ranks)}; an adapter has one rank")
    targets = {name.removesuffix(".weight").rpartition(".")[2] for name in factors}
    values = adapter_values(ranks.pop(), alpha, targets, base)
    tensors: dict[str, np.ndarray] = {}
    for name, (a, b) in factors.items():
        module = f"{PREFIX}{name.removesuffix('.weight')}"
        tensors |= {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}
    with write_folder(path) as folder:
        (folder / CONFIG).write_bytes(adapter_document(values))
        write_safetensors(folder / WEIGHTS, tensors, {"format": "pt"})


def adapter_document(values: Mapping[str, Any]) -> bytes:
    """`adapter_config.json` with that content: text as it is, as the other languages write it, but for the bytes of a
    path that are no text, which JSON has escapes for."""
    text = json.dumps(values, indent=2, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "backslashreplace")


def adapter_values(rank: int, alpha: float, targets: Iterable[str], base: str) -> dict[str, Any]:
    """The content of adapter_config.json. A whole alpha is written as such, as PEFT's options have it, if every program
    that counts with f64 reads it again."""
    whole = float(alpha).is_integer() and abs(alpha) < 2**53
    return {
        "base_model_name_or_path": base or None,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": int(alpha) if whole else alpha,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": rank,
        "target_modules": sorted(targets),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }
