"""Metrics of a run: one JSON object a line, and the same for TensorBoard."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import TextIO

from tensorboardX import SummaryWriter

from ..formats import write_file

# Name in the file, tag in TensorBoard.
_SCALARS = {
    "loss": "loss/train",
    "held_out_loss": "loss/held-out",
    "aux_loss": "loss/balance",
    "grad_norm": "training/gradient norm",
    "learning_rate": "training/learning rate",
    "tokens_per_second": "training/tokens per second",
    "loss_scale": "training/loss scale",
    "skipped_steps": "training/skipped steps",
}


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, object]]:
    """The lines of a metrics file; a last line that a kill cut off is left out."""
    records = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            break
        if isinstance(record, dict):
            records.append(record)
    return records


class MetricsLog:
    """Appends records to `metrics.jsonl` and `tensorboard/` in a run folder.

    What an earlier process wrote beyond `step`, where this one takes over, is dropped: those steps will come again.
    The lines that this one writes go to `echo` too, when it is given, each as soon as it is there.
    """

    def __init__(self, folder: str | os.PathLike[str], step: int = 0, echo: TextIO | None = None):
        folder = Path(folder)
        path = folder / "metrics.jsonl"
        if path.exists():
            kept = [record for record in read_metrics(path) if record.get("step", 0) <= step]
            write_file(path, "".join(json.dumps(record) + "\n" for record in kept))
        self._file = open(path, "a", encoding="utf-8")
        self._streams: list[TextIO] = [self._file] if echo is None else [self._file, echo]
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1 if step else None)

    def write(self, record: dict[str, object]) -> None:
        """One record, which has a "step"; its known numbers go to TensorBoard too."""
        line = json.dumps(record) + "\n"
        for stream in self._streams:
            stream.write(line)
            stream.flush()
        for name, tag in _SCALARS.items():
            if record.get(name) is not None:
                self._board.add_scalar(tag, record[name], record["step"])

    def close(self) -> None:
        self._file.close()
        self._board.close()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
