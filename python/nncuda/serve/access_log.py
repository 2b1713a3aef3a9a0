"""One line a request, as text for people or as JSON for programs."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

FORMATS = ("text", "json")


class AccessLog:
    """Writes what happened to `write`, by default standard error, one line a record."""

    def __init__(self, format: str, write: Callable[[str], object] | None = None):
        self._json = format == "json"
        self._write = write or sys.stderr.write

    def record(self, **values: Any) -> None:
        """A line with these values; those that are None are left out."""
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"
        known = {name: value for name, value in values.items() if value is not None}
        if self._json:
            self._write(json.dumps({"time": stamp, **known}) + "\n")
        else:
            self._write(" ".join([stamp, *(f"{name}={_word(value)}" for name, value in known.items())]) + "\n")


class LogLines(logging.Handler):
    """What this package and uvicorn log, as records of an `AccessLog`."""

    def __init__(self, log: AccessLog):
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.record(level=record.levelname.lower(), message=self.format(record))


def _word(value: Any) -> str:
    """A value without spaces around it that could be taken for the next; line ends and quotes of strangers escaped."""
    text = str(value)
    return text if text and text.isascii() and not set(text) & set(' "\\=') and text.isprintable() else json.dumps(text)
