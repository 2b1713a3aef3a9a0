"""`nncuda inspect`: what is in a file or folder."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table
from rich.text import Text

from ..formats import FormatError, SafetensorsFile, TokenShard
from ..formats.errors import printable
from ..formats.gguf import MAGIC as GGUF_MAGIC
from ..formats.gguf import Value, open_gguf
from ..formats.json_values import read_json
from ..formats.regular import open_regular, present
from ..formats.safetensors import SafetensorsFolder
from ..formats.shards import MAGIC
from ..models import StoredModel
from ..models.adapter import CONFIG as ADAPTER_CONFIG
from ..models.adapter import WEIGHTS as ADAPTER_WEIGHTS
from ..models.mixtral import DENSE_KINDS
from ..tokenizer import Tokenizer
from ..train import Checkpoint, resolve_checkpoint
from ..train.checkpoint import TrainingState, read_training_state
from .terminal import bytes_text, console, count_text, tell

_ELEMENTS_SHOWN = 8
_CHARACTERS_SHOWN = 200


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")
@click.option(
    "--ternary",
    is_flag=True,
    help="Also show the scale and the share of zeros of each ternary matrix; this reads all of them.",
)
def inspect(path: Path, as_json: bool, ternary: bool) -> None:
    """Show what is in PATH: config, tensors, shapes, dtypes, sizes.

    PATH is a checkpoint, a run (its last checkpoint), a folder of Hugging Face, of PEFT, a GGUF file, a
    safetensors file, a token shard or a tokenizer. Everything shown has been checked, including every id of a shard.
    Long arrays of a GGUF file's metadata are shortened.
    """
    content = describe(path)
    if ternary:
        content["tensors"] = _with_ternary(path, content.get("tensors", []))
    if as_json:
        click.echo(json.dumps(content, indent=2))
        return
    terminal = console()
    for name, value in content.items():
        if name == "tensors":
            table = Table("tensor", "shape", "dtype", "size", *(("scale", "zeros") if ternary else ()))
            for tensor in value:
                shape = " × ".join(map(str, tensor["shape"])) or "scalar"
                row = [_shown(tensor["name"]), shape, tensor["dtype"], bytes_text(tensor["bytes"])]
                if "scale" in tensor:
                    row += [f"{tensor['scale']:.6g}", f"{100 * tensor['zeros']:.1f} %"]
                table.add_row(*row)
            terminal.print(table)
        elif isinstance(value, dict):
            terminal.print(_table(name, value))
        else:
            tell(_shown(f"{name}: {value}"))


def _table(name: str, values: dict[str, Any]) -> Table:
    """A row for each value. Values that all are groups of the same names have a column for each of these."""
    groups = [tuple(value) if isinstance(value, dict) else () for value in values.values()]
    if groups and groups[0] and len(set(groups)) == 1:
        table = Table(name, *("size" if key == "bytes" else key for key in groups[0]))
        for key, group in values.items():
            cells = (bytes_text(value) if of == "bytes" else _text(value) for of, value in group.items())
            table.add_row(_shown(key), *map(_shown, cells))
        return table
    table = Table(name, "value")
    for key, value in _flat(values):
        table.add_row(_shown(key), _shown(_text(value)))
    return table


def _flat(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Each value that is not a group, with its path: "loss_scaling.scale"."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, value


def _text(value: Any) -> str:
    """A value for people, as configuration files write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)


def _shown(text: str) -> Text:
    # Names and values are those of a file: neither orders to the terminal nor rich's markup.
    return Text(printable(text))


def describe(path: Path) -> dict[str, Any]:
    """What is in a file or folder, as plain values."""
    if path.is_dir():
        return _describe_folder(resolve_checkpoint(path))
    with open_regular(path) as file:
        head = file.read(len(MAGIC))
    if head == MAGIC:
        shard = TokenShard(path)
        shard.check_ids()
        return {
            "kind": "token shard",
            "path": str(path),
            "tokens": shard.count,
            "vocabulary": shard.vocab_size,
            "bytes per token": shard.width,
            "tokenizer": shard.tokenizer.hex() if any(shard.tokenizer) else "unknown",
            **(_documents(shard) if shard.has_documents else {}),
        }
    if head.startswith(GGUF_MAGIC):
        return _describe_gguf(path)
    if path.suffix == ".model":
        tokenizer = Tokenizer.load(path)
        return {"kind": "tokenizer", "path": str(path), "pieces": tokenizer.vocab_size}
    if path.suffix == ".safetensors":
        return {"kind": "safetensors", "path": str(path), **_describe_tensors(SafetensorsFile(path))}
    raise FormatError(
        path, "is not a kind of file that nncuda knows: GGUF, token shard, tokenizer (.model), .safetensors"
    )


def _documents(shard: TokenShard) -> dict[str, Any]:
    documents = targets = 0
    for _, ends, counted in shard.chunks():
        documents, targets = documents + int(ends.sum()), targets + int(counted.sum())
    return {"documents": documents, "targets": targets}


def _with_ternary(path: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`rows`, those of ternary matrices with scale and share of zeros."""
    model = StoredModel.open(path)
    if not model.matrices:
        raise FormatError(path, "has no ternary weights")
    found = {}
    for matrix in model.matrices.values():
        zeros = 1 - np.count_nonzero(matrix.codes()) / matrix.elements
        found[matrix.name] = {"scale": matrix.scale, "zeros": zeros}
    return [{**row, **found.get(row["name"], {})} for row in rows]


def _describe_gguf(path: Path) -> dict[str, Any]:
    file = open_gguf(path)
    rows, formats, total = [], {}, 0
    for name, entry in file.entries.items():
        size = max(entry.nbytes, 0)
        rows.append({"name": name, "shape": list(entry.shape), "dtype": entry.type_name, "bytes": size})
        count, held = formats.get(entry.type_name, (0, 0))
        formats[entry.type_name] = count + 1, held + size
        total += math.prod(entry.shape)
    content: dict[str, Any] = {
        "kind": f"GGUF, version {file.version}",
        "path": str(path),
        "parameters": count_text(total),
        "metadata": {key: _shortened(entry) for key, entry in file.typed.items()},
        "formats": {name: {"tensors": count, "bytes": size} for name, (count, size) in sorted(formats.items())},
    }
    total_bytes = sum(row["bytes"] for row in rows)
    return {**content, "total": f"{len(rows)} tensors, {bytes_text(total_bytes)}", "tensors": rows}


def _shortened(entry: Value) -> Any:
    if not entry.type.endswith("[]"):
        return entry.value if entry.type != "string" else _cut(entry.value)
    first = [_cut(value) if isinstance(value, str) else value.item() for value in entry.value[:_ELEMENTS_SHOWN]]
    if len(entry.value) <= _ELEMENTS_SHOWN:
        return first
    return f"{len(entry.value)} × {entry.type[:-2]}: {', '.join(map(json.dumps, first))}, …"


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS_SHOWN else f"{text[:_CHARACTERS_SHOWN]}… ({len(text)} characters)"


def _describe_folder(folder: Path) -> dict[str, Any]:
    if present(folder / ADAPTER_CONFIG):
        return _describe_adapter(folder)
    training = present(folder / "training.json")
    if not training and read_json(folder / "config.json").get("model_type") in DENSE_KINDS:
        return _describe_model(StoredModel.open(folder))
    try:
        return _describe_checkpoint(folder)
    except FormatError as error:
        # The engine runs Mixtrals that cannot be trained here, such as those with a scaled rotary embedding. What has
        # been trained here is a checkpoint or wrong.
        if training:
            raise
        try:
            return _describe_model(StoredModel.open(folder))
        except FormatError:
            raise error from None


def _describe_model(model: StoredModel) -> dict[str, Any]:
    tensors = model.tensors
    content: dict[str, Any] = {
        "kind": "model",
        "path": str(model.path),
        "parameters": count_text(model.num_parameters),
        "model": model.config.to_dict(),
    }
    if model.tokenizer is not None:
        content["tokenizer"] = f"{model.tokenizer.vocab_size} pieces"
    rows = []
    for name in model.config.shapes():
        if name in model.matrices:
            matrix = model.matrices[name]
            form = f"ternary, {matrix.form}"
            rows.append({"name": matrix.name, "shape": list(matrix.shape), "dtype": form, "bytes": matrix.nbytes})
        elif name != "lm_head.weight" or not model.config.tie_embeddings:
            for part in tensors.parts(name):
                shape = list(part.shape)
                rows.append({"name": part.name, "shape": shape, "dtype": part.format, "bytes": part.nbytes})
    return {**content, "total": f"{len(rows)} tensors, {bytes_text(model.nbytes)}", "tensors": rows}


def _describe_checkpoint(folder: Path) -> dict[str, Any]:
    checkpoint = Checkpoint(folder)
    config = checkpoint.config
    total, active = count_text(config.num_parameters), count_text(config.num_active_parameters)
    content: dict[str, Any] = {
        "kind": "checkpoint" if checkpoint.training else "model",
        "path": str(folder),
        "parameters": f"{total}, {active} active per token",
        "model": config.to_dict(),
    }
    if checkpoint.tokenizer is not None:
        content["tokenizer"] = f"{checkpoint.tokenizer.vocab_size} pieces"
    if checkpoint.training is not None:
        content |= _described_state(checkpoint.training)
    return {**content, **_describe_tensors(checkpoint.files)}


def _described_state(training: TrainingState) -> dict[str, Any]:
    state = training.to_dict()
    return {"train": state.pop("train"), "training state": state}


def _describe_adapter(folder: Path) -> dict[str, Any]:
    """An adapter by itself: whether it is of a model, that model says."""
    state = folder / "training.json"
    tensors = SafetensorsFile(folder / ADAPTER_WEIGHTS)
    total = sum(math.prod(tensors.shape(name)) for name in tensors)
    return {
        "kind": "adapter that is trained" if present(state) else "adapter",
        "path": str(folder),
        "parameters": count_text(total),
        "adapter": read_json(folder / ADAPTER_CONFIG),
        **(_described_state(read_training_state(state)) if present(state) else {}),
        **_describe_tensors(tensors),
    }


def _describe_tensors(tensors: SafetensorsFile | SafetensorsFolder) -> dict[str, Any]:
    rows = []
    for name in tensors:
        dtype, shape = tensors.dtype(name), tensors.shape(name)
        size = math.prod(shape) * dtype.itemsize
        rows.append({"name": name, "shape": list(shape), "dtype": str(dtype), "bytes": size})
    return {"total": f"{len(rows)} tensors, {bytes_text(sum(row['bytes'] for row in rows))}", "tensors": rows}
