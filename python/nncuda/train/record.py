"""What it takes to repeat a run: `run.json`, written when the run starts.

data, held_out                  where the shards lie; held_out is null without evaluation
data_sha256, held_out_sha256    of the bytes of the shards, one after the other
unigram_entropy                 of the held-out tokens, in nats, to six digits; null without evaluation
program, library, abi, device   what trained, on what
model, train                    all options, the seed among them
from                            where it began, unless with random weights: see `Origin.record`
extensions                      where it was extended: see extension.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ..binding import library
from ..device import Context
from ..formats import FormatError, write_file
from ..formats.errors import shown
from ..formats.json_values import read_json
from ..formats.regular import present
from ..models import MoEConfig
from .config import TrainConfig
from .data import TokenWindows, unigram_entropy

RECORD_FILE = "run.json"
_SHOWN = 12  # digits of a hash in a message


def write_record(
    folder: str | os.PathLike[str],
    ctx: Context,
    model: MoEConfig,
    train: TrainConfig,
    data: tuple[str | os.PathLike[str], TokenWindows],
    held_out: tuple[str | os.PathLike[str], TokenWindows] | None,
    extra: dict[str, object] | None = None,
) -> None:
    """Writes the record of a run that starts, `extra` entries after the usual ones.

    `data` and `held_out` are each where they lie, and what is there.
    """
    from .. import __version__

    loaded = library.load()
    record = {
        "data": str(Path(data[0]).resolve()),
        "held_out": None if held_out is None else str(Path(held_out[0]).resolve()),
        "data_sha256": data[1].digest,
        "held_out_sha256": None if held_out is None else held_out[1].digest,
        # To six digits: no more differ in meaning, and logarithms differ in the last one from language to language.
        "unigram_entropy": None if held_out is None else float(f"{unigram_entropy(*held_out[1].shards):.5e}"),
        "program": f"nncuda {__version__}",
        "library": loaded.build_info,
        "abi": ".".join(map(str, loaded.abi)),
        "device": f"{loaded.device_text(ctx.device_type, ctx.device_index)}; {ctx.isa}",
        "model": model.to_dict(),
        "train": train.to_dict(),
        **(extra or {}),
    }
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_file(Path(folder) / RECORD_FILE, json.dumps(record, indent=2) + "\n")


def read_record(folder: str | os.PathLike[str]) -> dict[str, object]:
    """The record of a run. Raises FormatError when it does not say where the data is."""
    path = Path(folder) / RECORD_FILE
    record = read_json(path)
    if not isinstance(record.get("data"), str) or not isinstance(record.get("held_out"), str | None):
        raise FormatError(path, "does not say where the data is")
    return record


def check_digest(
    folder: str | os.PathLike[str], name: str, source: str | os.PathLike[str], windows: TokenWindows
) -> None:
    """FormatError when the windows of `source`, a run's `name` ("data", "held_out"), are not those it was started on.

    A run without a record, or with one from before there were hashes, takes any.
    """
    if not present(Path(folder) / RECORD_FILE):
        return
    recorded = read_json(Path(folder) / RECORD_FILE).get(f"{name}_sha256")
    if recorded is None:
        return
    if not isinstance(recorded, str):
        raise FormatError(Path(folder) / RECORD_FILE, f"{name}_sha256 is {shown(recorded)}; it must be text")
    found = windows.digest
    if found != recorded:
        raise FormatError(
            source,
            "holds different tokens from those this run was started on "
            f"(SHA-256 {recorded[:_SHOWN]}… there, {found[:_SHOWN]}… here)",
        )
