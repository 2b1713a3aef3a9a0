"""Metrics of a run: one JSON object a line, and the same for TensorBoard where its package is installed."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from pathlib import Path
from types import TracebackType
from typing import TextIO

from ..extras import left_out
from ..formats.atomic import naming, replace_file
from ..formats.json_values import json_lines
from ..formats.regular import present


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, object]]:
    """The records of a metrics file, up to a line that a kill cut off. FormatError when it cannot be read."""
    records = itertools.takewhile(lambda record: record is not None, (record for _, record in json_lines(path)))
    return list(records)  # type: ignore[arg-type]


def drop_records(path: str | os.PathLike[str], step: int) -> None:
    """Takes the records after `step` out of a file of them, and what stands after a line that a kill cut off; the
    other lines stay as they are. Nothing happens when there is no file; FormatError when it cannot be read."""
    if not present(path):
        return
    with replace_file(path) as file:
        for line, record in json_lines(path):
            if record is None:
                break
            at = record.get("step")
            if not isinstance(at, (int, float)) or at <= step:
                file.write(line.rstrip(b"\r\n") + b"\n")


def board_left_out() -> str | None:
    """What to tell whoever starts a run that will have no events for TensorBoard; None when it will."""
    return left_out("tensorboard", "events for TensorBoard")


class MetricsLog:
    """Appends records to `metrics.jsonl` in a run folder, and to `tensorboard/` with the extra of that name.

    What an earlier process wrote beyond `step`, where this one takes over, is dropped: those steps will come again.
    The lines that this one writes go to `echo` too, when it is given, each as soon as it is there.
    """

    def __init__(self, folder: str | os.PathLike[str], step: int = 0, echo: TextIO | None = None):
        folder = Path(folder)
        path = folder / "metrics.jsonl"
        drop_records(path, step)
        self._path = path
        self._file = open(path, "a", encoding="utf-8")
        self._echo = echo
        self._board = None
        if board_left_out() is None:
            from .tensorboard import Board

            self._board = Board(folder / "tensorboard", step + 1 if step else None)

    def write(self, record: dict[str, object]) -> None:
        """One record, which has a "step"; its known numbers go to TensorBoard too. An OSError names the file."""
        line = json.dumps(record) + "\n"
        with naming(self._path):
            self._file.write(line)
            self._file.flush()
        if self._echo is not None:
            self._echo.write(line)
            self._echo.flush()
        if self._board is not None:
            self._board.write(record)

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What a full disk refused before it refuses again; the first error is the one to tell.
        with contextlib.suppress(OSError) if error is not None else contextlib.nullcontext():
            self.close()
