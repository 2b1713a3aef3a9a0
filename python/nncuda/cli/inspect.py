"""`nncuda inspect`: what is in a file or folder."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from ..formats import FormatError, SafetensorsFile, Tokenizer, TokenShard
from ..formats.safetensors import SafetensorsFolder
from ..formats.shards import MAGIC
from ..train import Checkpoint, resolve_checkpoint
from .terminal import bytes_text, console, count_text


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def inspect(path: Path, as_json: bool) -> None:
    """Show what is in PATH: config, tensors, shapes, dtypes, sizes.

    PATH is a checkpoint, a run (its last checkpoint), a Mixtral folder from elsewhere, a safetensors file, a token
    shard or a tokenizer. Everything shown was checked; of a shard, every id.
    """
    content = describe(path)
    if as_json:
        click.echo(json.dumps(content, indent=2))
        return
    terminal = console()
    for name, value in content.items():
        if name == "tensors":
            table = Table("tensor", "shape", "dtype", "size")
            for tensor in value:
                shape = " × ".join(map(str, tensor["shape"])) or "scalar"
                table.add_row(tensor["name"], shape, tensor["dtype"], bytes_text(tensor["bytes"]))
            terminal.print(table)
        elif isinstance(value, dict):
            table = Table(name, "", show_header=True)
            for key, entry in value.items():
                table.add_row(key, json.dumps(entry) if isinstance(entry, dict) else str(entry))
            terminal.print(table)
        else:
            terminal.print(f"{name}: {value}", highlight=False, soft_wrap=True)


def describe(path: Path) -> dict[str, Any]:
    """What is in a file or folder, as plain values."""
    if path.is_dir():
        return _describe_folder(resolve_checkpoint(path))
    with open(path, "rb") as file:
        head = file.read(len(MAGIC))
    if head == MAGIC:
        shard = TokenShard(path)
        shard.check_ids()
        return {
            "kind": "token shard",
            "path": str(path),
            "tokens": shard.count,
            "vocabulary": shard.vocab_size,
            "bytes a token": shard.width,
            "tokenizer": shard.tokenizer.hex() if any(shard.tokenizer) else "unknown",
        }
    if path.suffix == ".model":
        tokenizer = Tokenizer.load(path)
        return {"kind": "tokenizer", "path": str(path), "pieces": tokenizer.vocab_size}
    if path.suffix == ".safetensors":
        return {"kind": "safetensors", "path": str(path), **_describe_tensors(SafetensorsFile(path))}
    raise FormatError(path, "is none of the files that nncuda knows: token shard, tokenizer (.model), .safetensors")


def _describe_folder(folder: Path) -> dict[str, Any]:
    checkpoint = Checkpoint(folder)
    config = checkpoint.config
    content: dict[str, Any] = {
        "kind": "checkpoint" if checkpoint.training else "model",
        "path": str(folder),
        "parameters": f"{count_text(config.num_parameters)}, {count_text(config.num_active_parameters)} active a token",
        "model": config.to_dict(),
    }
    if checkpoint.tokenizer is not None:
        content["tokenizer"] = f"{checkpoint.tokenizer.vocab_size} pieces"
    if checkpoint.training is not None:
        state = checkpoint.training.to_dict()
        content["train"] = state.pop("train")
        content["training state"] = state
    return {**content, **_describe_tensors(checkpoint.files)}


def _describe_tensors(tensors: SafetensorsFile | SafetensorsFolder) -> dict[str, Any]:
    rows = []
    for name in tensors:
        dtype, shape = tensors.dtype(name), tensors.shape(name)
        size = math.prod(shape) * dtype.itemsize
        rows.append({"name": name, "shape": list(shape), "dtype": str(dtype), "bytes": size})
    return {"total": f"{len(rows)} tensors, {bytes_text(sum(row['bytes'] for row in rows))}", "tensors": rows}
