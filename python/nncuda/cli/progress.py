"""The bar of commands that write a model. Apart from `terminal`, so that only they load it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from .terminal import console


@contextlib.contextmanager
def element_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar with an estimate, over the elements that are written; none where the output is not a terminal. Returns the
    function to call with each further number of them."""
    terminal = console()
    bar = Progress(
        TextColumn(title),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=terminal,
        disable=not terminal.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=total)
        yield lambda elements: bar.advance(task, elements)
