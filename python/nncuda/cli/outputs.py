"""Files that commands write: none is replaced unawares, and no folder is made for one."""

from __future__ import annotations

from pathlib import Path

import click


def require_room(path: Path, force: bool) -> None:
    """Refuses a file to write that exists, unless it may be replaced, and one in a folder that does not exist: a
    mistyped path would otherwise grow into folders."""
    if path.exists() and not force:
        raise click.UsageError(f"{path} exists; --force replaces it")
    if not path.parent.is_dir():
        raise click.UsageError(f"{path} would be in {path.parent}, which is no folder; make it first")
