"""Where two runs differ: the first step, tensor, index and both values."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from nncuda.formats import SafetensorsFile
from nncuda.train import list_checkpoints, read_metrics

#: What a run measures about itself; everything else is a function of options and data.
MEASURED = {"seconds", "tokens_per_second", "bytes_peak"}


def of_arrays(name: str, expected: np.ndarray, found: np.ndarray) -> str:
    """The first differing element of two arrays; empty when dtype, shape and all bits are equal."""
    if expected.dtype != found.dtype or expected.shape != found.shape:
        return f"{name} is {found.dtype} {list(found.shape)}, expected {expected.dtype} {list(expected.shape)}"
    bits = f"u{expected.dtype.itemsize}"
    a, b = (np.asarray(array, order="C") for array in (expected, found))
    wrong = np.argwhere(a.view(bits) != b.view(bits))
    if not len(wrong):
        return ""
    at = tuple(wrong[0].tolist())
    return (
        f"{name}{list(at)} is {found[at]!r}, expected {expected[at]!r} "
        f"({len(wrong)} of {expected.size} elements of this tensor differ)"
    )


def of_tensors(expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> str:
    """The first difference of two sets of tensors, in the order of their names."""
    if set(expected) != set(found):
        missing, more = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
        return f"tensors missing: {missing}, too many: {more}"
    for name in sorted(expected):
        difference = of_arrays(name, expected[name], found[name])
        if difference:
            return difference
    return ""


def of_values(place: str, expected: object, found: object) -> str:
    """The first difference of two JSON values, by its path. 1 and 1.0 are one number, and keys have no order."""
    alike = type(expected) is type(found) or {type(expected), type(found)} == {int, float}
    if isinstance(expected, dict) and isinstance(found, dict):
        if set(expected) != set(found):
            return f"{place} has the keys {sorted(found)}, expected {sorted(expected)}"
        pairs = [(f"{place}.{key}", expected[key], found[key]) for key in expected if key not in MEASURED]
    elif isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return f"{place} has {len(found)} entries, expected {len(expected)}"
        pairs = [(f"{place}[{i}]", a, b) for i, (a, b) in enumerate(zip(expected, found, strict=True))]
    elif alike and (expected == found or (expected != expected and found != found)):
        return ""
    else:
        return f"{place} is {found!r}, expected {expected!r}"
    return next((text for pair in pairs if (text := of_values(*pair))), "")


def facts(sentence: str) -> set[str | float]:
    """What a sentence names, in whatever words: numbers, by their values, and names with a sign that no word has."""
    found: set[str | float] = set()
    for word in re.findall(r"[^\s'\"(),;:=…]*[\d_/][^\s'\"(),;:=…]*", sentence):
        word = word.rstrip(".")
        try:
            found.add(float(word.replace(",", "")))
        except ValueError:
            found.add(word)
    return found


def of_json(name: str, expected: Path, found: Path) -> str:
    return of_values(name, *(json.loads((folder / name).read_text(encoding="utf-8")) for folder in (expected, found)))


def of_checkpoints(expected: Path, found: Path) -> str:
    """The first difference of two checkpoint folders: files, weights, moments, options and state of training."""
    names = [sorted(entry.name for entry in folder.iterdir()) for folder in (expected, found)]
    if names[0] != names[1]:
        return f"the folder holds {names[1]}, expected {names[0]}"
    for name in (name for name in names[0] if name.endswith(".safetensors")):
        difference = of_tensors(SafetensorsFile(expected / name), SafetensorsFile(found / name))
        if difference:
            return f"{name}: {difference}"
    if (expected / "tokenizer.model").exists():
        contents = [(folder / "tokenizer.model").read_bytes() for folder in (expected, found)]
        if contents[0] != contents[1]:
            return "tokenizer.model has other bytes"
    described = [name for name in names[0] if name.endswith(".json") and name != "model.safetensors.index.json"]
    return next((text for name in described if (text := of_json(name, expected, found))), "")


def of_runs(expected: Path, found: Path) -> str:
    """The first difference of two runs: of their last checkpoints, traced back to the first saved step that differs, or
    of their metrics."""
    a, b = ({folder.name: folder for folder in list_checkpoints(run / "checkpoints")} for run in (expected, found))
    if not a or not b or list(a)[-1] != list(b)[-1]:
        return f"the last checkpoint is {list(b)[-1:]}, expected {list(a)[-1:]}"
    steps = [name for name in a if name in b]
    if of_checkpoints(a[steps[-1]], b[steps[-1]]):
        # What differs stays different: every step continues from the one before.
        low, high = 0, len(steps) - 1
        while low < high:
            middle = (low + high) // 2
            if of_checkpoints(a[steps[middle]], b[steps[middle]]):
                high = middle
            else:
                low = middle + 1
        first = steps[low]
        before = f"equal up to {steps[low - 1]}" if low else "the first one saved"
        return f"{first} differs ({before}): {of_checkpoints(a[first], b[first])}"
    return of_metrics(expected, found)


def of_metrics(expected: Path, found: Path) -> str:
    """The first differing line of two runs' metrics, apart from what is measured."""
    a, b = (read_metrics(run / "metrics.jsonl") for run in (expected, found))
    for one, other in zip(a, b, strict=False):
        difference = of_values(f"metrics of step {one.get('step')}", one, other)
        if difference:
            return difference
    return "" if len(a) == len(b) else f"metrics.jsonl has {len(b)} lines, expected {len(a)}"
