"""What the profiler and the trace of a context found out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .. import errors


class Profile:
    """What the profiler measured between the start and the end of its ``with`` block."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}

    def _text(self, form: int) -> str:
        # Read at the end of the block, since the next profile of the context starts afresh.
        if form not in self._texts:
            raise errors.StateError(51, "the profile has not ended: read it after its with block")
        return self._texts[form]

    def table(self) -> str:
        """One line a kernel: calls, time, bytes, operations."""
        return self._text(0)

    def json(self) -> Any:
        """The same as Python objects."""
        return json.loads(self._text(1))

    def chrome_trace(self) -> str:
        """Every call, as JSON for chrome://tracing or ui.perfetto.dev."""
        return self._text(2)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the Chrome trace to a file."""
        Path(path).write_text(self.chrome_trace(), encoding="utf-8")

    def __str__(self) -> str:
        return self.table()


class Trace:
    """The lines that traced kernel calls left: names, dtypes, shapes and, if asked for, values."""

    def __init__(self) -> None:
        self.text = ""

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def __str__(self) -> str:
        return self.text
