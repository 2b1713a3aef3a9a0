"""The bar of commands that write a model. Apart from `terminal`, so that only they load it."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


def element_progress(title: str, terminal: Console) -> Progress:
    """A bar with an estimate, over the elements that are written; none where the output is not a terminal."""
    return Progress(
        TextColumn(title),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=terminal,
        disable=not terminal.is_terminal,
    )
