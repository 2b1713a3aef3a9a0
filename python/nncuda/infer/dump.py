"""What a forward pass computes on its way, step by step: kept, described, and compared with another's.

The steps of layer L, in order, for a prompt of T tokens:

    embedding                                   [T, hidden]
    layers.L.attn_norm                          [T, hidden]
    layers.L.q, .k, .v                          [T, heads, head_dim], before rotary embedding
    layers.L.q_rope, .k_rope                    [T, heads, head_dim], after it
    layers.L.attention                          [T, heads, head_dim]: softmax(q k) v
    layers.L.attn_output                        [T, hidden]: projected
    layers.L.attn_residual                      [T, hidden]: added to what came in
    layers.L.ffn_norm                           [T, hidden]
    layers.L.gate, .up, .ffn_inner              [T, ffn]: both products, and silu(gate) * up, or max(gate, 0)^2 * up
    layers.L.router                             [T, experts], and for each of the k experts of a token
    layers.L.experts, .expert_weights           [T, k]: which they are, and how much each counts
    layers.L.ffn                                [T, hidden]: the feed-forward network, or its experts, weighted
    layers.L.output                             [T, hidden]
    norm, logits                                [T, hidden], [T, vocab]

A model with ternary weights has, in front of each product, what goes into it: NAME_codes in 8 bits, and NAME_scale [T],
which they are multiplied with, for each NAME of

    layers.L.attn_norm, .attn_sub_norm          [T, hidden], [T, heads * head_dim], in front of q, k, v and attn_output
    layers.L.ffn_norm, .ffn_sub_norm            [T, hidden], [T, ffn], in front of gate, up and ffn

where the norm itself is not shown if the model lacks it.

Queries and keys are kept with the pairs of rotary embedding half a head apart, as Hugging Face has them, also where a
GGUF file has a pair side by side, so that dumps of both can be compared.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import Tensor
from ..formats.errors import FormatError
from ..formats.safetensors import SafetensorsFile, write_safetensors

if TYPE_CHECKING:
    from .engine import Engine

_ROTATED = ("q", "k", "q_rope", "k_rope")


@dataclass(frozen=True)
class Dump:
    """The steps of a pass over `ids`, in order; `source` says whose."""

    source: str
    ids: tuple[int, ...]
    steps: Mapping[str, np.ndarray]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a safetensors file. Its one entry of metadata has the order of the steps, too."""
        note = {"source": self.source, "ids": list(self.ids), "steps": list(self.steps)}
        write_safetensors(path, self.steps, {"nncuda.dump": json.dumps(note)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Dump:
        """Reads what `save` wrote; FormatError for anything else."""
        file = SafetensorsFile(path)
        try:
            note = json.loads(file.metadata["nncuda.dump"])
            source, ids, names = str(note["source"]), tuple(map(int, note["ids"])), list(map(str, note["steps"]))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise FormatError(path, "is not a dump that `nncuda dump --save` wrote") from error
        if sorted(names) != sorted(file):
            raise FormatError(path, "has tensors that do not match the steps that it names")
        return cls(source, ids, {name: file[name] for name in names})


def record(engine: Engine, ids: Sequence[int], layers: Collection[int], source: str) -> Dump:
    """Runs a prompt and keeps the steps of these layers, and those outside the layers. ValueError for a layer that the
    model lacks."""
    for layer in layers:
        if not 0 <= layer < engine.config.num_layers:
            raise ValueError(f"layer is {layer}; this model has 0 .. {engine.config.num_layers - 1}")
    parts: dict[str, list[np.ndarray]] = {}
    side_by_side = engine.config.rope.layout == "interleaved"

    def watch(name: str, tensor: Tensor) -> None:
        layer, step = _place(name)
        if layer is None or layer in layers:
            array = tensor.numpy()
            parts.setdefault(name, []).append(_halves(array) if side_by_side and step in _ROTATED else array.copy())

    engine.logits(ids, watch)
    # A long prompt is run in pieces, and some steps take fewer rows at a time: these come several times.
    return Dump(source, tuple(ids), {name: np.concatenate(pieces) for name, pieces in parts.items()})


def _place(name: str) -> tuple[int | None, str]:
    """The layer of a step, None outside the layers, and its name there."""
    if not name.startswith("layers."):
        return None, name
    _, layer, step = name.split(".", 2)
    return int(layer), step


def _halves(array: np.ndarray) -> np.ndarray:
    """Pairs (2i, 2i+1) of the last axis to (i, i + half)."""
    return np.concatenate([array[..., 0::2], array[..., 1::2]], axis=-1)


@dataclass(frozen=True)
class Statistics:
    """Of a step's finite values: least, greatest, mean, standard deviation, Euclidean norm (in f64); how many are not
    finite; and the first few values as they are."""

    shape: tuple[int, ...]
    least: float
    greatest: float
    mean: float
    deviation: float
    norm: float
    not_finite: int
    first: tuple[float, ...]

    @classmethod
    def of(cls, array: np.ndarray, values: int) -> Statistics:
        finite = array[np.isfinite(array)].astype(np.float64)
        if not finite.size:
            finite = np.array([np.nan])
        return cls(
            shape=array.shape,
            least=float(finite.min()),
            greatest=float(finite.max()),
            mean=float(finite.mean()),
            deviation=float(finite.std()),
            norm=float(np.sqrt(np.square(finite).sum())),
            not_finite=int(array.size - np.isfinite(array).sum()),
            first=tuple(float(value) for value in array.reshape(-1)[:values]),
        )


@dataclass(frozen=True)
class Difference:
    """How a step differs: the largest and the mean absolute difference, the largest as a share of the largest magnitude
    of the other side, and the first place beyond the tolerance with both values, if there is one."""

    step: str
    largest: float
    mean: float
    share: float
    index: tuple[int, ...] | None = None
    mine: float = 0.0
    theirs: float = 0.0


def compare(mine: Dump, theirs: Dump, tolerance: float) -> list[Difference]:
    """The differences of the steps that both have, in order. A value is beyond the tolerance when it differs by more
    than `tolerance` times the largest magnitude of the other side's step, or when one side alone is not finite.

    ValueError when the dumps are of other tokens, of other shapes, or have no step in common.
    """
    if mine.ids != theirs.ids:
        raise ValueError(
            f"the dumps are of different tokens: {_shown(mine.ids)} of {mine.source}, {_shown(theirs.ids)} of "
            f"{theirs.source}"
        )
    common = [name for name in mine.steps if name in theirs.steps]
    if not common:
        raise ValueError(f"{theirs.source} has no step in common: {', '.join(theirs.steps) or 'none'}")
    found = []
    for name in common:
        one, other = mine.steps[name].astype(np.float64), theirs.steps[name].astype(np.float64)
        if one.shape != other.shape:
            raise ValueError(f"{name} has shape {list(one.shape)} here and {list(other.shape)} in {theirs.source}")
        found.append(_difference(name, one, other, tolerance))
    return found


def _difference(name: str, one: np.ndarray, other: np.ndarray, tolerance: float) -> Difference:
    with np.errstate(invalid="ignore"):
        apart = np.abs(one - other)
    # Infinities of one sign agree, as do two values that are not numbers.
    apart[(one == other) | (np.isnan(one) & np.isnan(other))] = 0.0
    apart[np.isnan(apart)] = np.inf
    scale = float(np.abs(other[np.isfinite(other)]).max(initial=0.0))
    largest = float(apart.max(initial=0.0))
    beyond = np.argwhere(apart > tolerance * scale)
    values: dict[str, Any] = {}
    if len(beyond):
        index = tuple(map(int, beyond[0]))
        values = {"index": index, "mine": float(one[index]), "theirs": float(other[index])}
    share = largest / scale if scale else (0.0 if largest == 0 else float("inf"))
    return Difference(name, largest, float(apart.mean()) if apart.size else 0.0, share, **values)


def _shown(ids: Sequence[int]) -> str:
    return f"{list(ids[:8])}{' ...' if len(ids) > 8 else ''} ({len(ids)})"


def is_dump(path: Path) -> bool:
    """Whether a path names a dump, rather than a model."""
    return path.is_file() and path.suffix == ".safetensors"
