"""A run's metrics as TensorBoard reads them. Needs tensorboardX, the extra `tensorboard`."""

from __future__ import annotations

import time
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import scalar

from ..formats.atomic import naming

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


class Board:
    """A file of TensorBoard's events, written as they come.

    Its own writer has a thread for that, which a full disk ends; the next records would then wait for it for ever.
    """

    def __init__(self, folder: Path, purge_step: int | None):
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        with naming(folder):
            self._writer = EventsWriter(str(folder / "events"))
            if purge_step is not None:  # hides what an earlier process wrote from there on
                start = SessionLog(status=SessionLog.START)
                self._writer.write_event(Event(wall_time=time.time(), step=purge_step, session_log=start))

    def write(self, record: dict[str, object]) -> None:
        with naming(self._folder):
            for name, tag in _SCALARS.items():
                if record.get(name) is not None:
                    summary = scalar(tag, record[name])
                    self._writer.write_event(Event(wall_time=time.time(), step=record["step"], summary=summary))
            self._writer.flush()

    def close(self) -> None:
        with naming(self._folder):
            self._writer.close()
