"""Where a run keeps its checkpoints: RUN/checkpoints/step-NNNNNNNN, the last one with the highest number."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .errors import FormatError, missing_file
from .regular import present

_STEP_FOLDER = re.compile(r"step-(\d{8,})")


def list_checkpoints(root: str | os.PathLike[str]) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    found = []
    for entry in Path(root).glob("step-*"):
        match = _STEP_FOLDER.fullmatch(entry.name)
        if match and entry.is_dir():
            found.append((int(match[1]), entry))
    return [entry for _, entry in sorted(found)]


def last_checkpoint(path: str | os.PathLike[str]) -> Path:
    """The last checkpoint of a run; `path` itself when it is not a run. FormatError for a run without any."""
    path = Path(path)
    root = path / "checkpoints"
    if not root.is_dir():
        return path
    found = list_checkpoints(root)
    if not found:
        raise missing_file(root, "holds no checkpoint yet")
    return found[-1]


def check_no_adapter(folder: str | os.PathLike[str]) -> None:
    """FormatError for the folder of an adapter, in place of a model's."""
    folder = Path(folder)
    if present(folder / "adapter_config.json") and not present(folder / "config.json"):
        raise FormatError(folder, "holds an adapter alone; give the model that it is of, and this as its adapter")
