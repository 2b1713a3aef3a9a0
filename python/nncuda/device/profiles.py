"""What the profiler and the trace of a context found out."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
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

    def _read(self, text: str) -> None:
        self.text = text

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class _Spot:
    """An element in a call, and where in its tensor it is; without a label, that is empty."""

    call: int
    label: str
    kernel: str
    argument: str
    dtype: str
    shape: tuple[int, ...]
    index: tuple[int, ...]
    value: float


@dataclass(frozen=True)
class NonFinite(_Spot):
    """A value that is not finite: written by the call, or read by it and not written by a call before it."""

    written: bool
    address: int  # of the element


class NonFiniteTrace:
    """The first value that is not finite in the calls of a ``with`` block, or None."""

    def __init__(self) -> None:
        self.calls = 0
        self.found: NonFinite | None = None

    def _read(self, text: str) -> None:
        values = json.loads(text)
        self.calls, found = values["calls"], values["found"]
        if found is not None:
            written = found.pop("use") == "out"
            self.found = NonFinite(**_spot(found), written=written)


@dataclass(frozen=True)
class Difference(_Spot):
    """An element that differs from the reference's; `share` is that of the bound, infinite where no bound would do."""

    reference: float
    bound: float
    share: float


@dataclass(frozen=True)
class ShadowedKernel:
    """The calls of one kernel: all, those compared, those over their bound; why one was not compared, if so."""

    kernel: str
    calls: int
    compared: int
    over: int
    why: str | None
    largest: Difference | None


@dataclass
class ShadowRun:
    """What a shadow run found: `moves` are copies and fills of bytes, which do not run twice; `over` calls went beyond
    their bound, `first` among them; `largest` is the largest share of a bound."""

    calls: int = 0
    compared: int = 0
    moves: int = 0
    over: int = 0
    first: Difference | None = None
    largest: Difference | None = None
    kernels: list[ShadowedKernel] = field(default_factory=list)
    _text: str = field(default="{}", repr=False)

    def json(self) -> Any:
        """All of it as the library gives it."""
        return json.loads(self._text)

    def _read(self, text: str) -> None:
        self._text = text
        values = self.json()
        for name in ("calls", "compared", "moves", "over"):
            setattr(self, name, values[name])
        self.first, self.largest = _difference(values["first"]), _difference(values["largest"])
        for kernel in values["kernels"]:
            self.kernels.append(ShadowedKernel(**{**kernel, "largest": _difference(kernel["largest"])}))


def _spot(values: dict[str, Any]) -> dict[str, Any]:
    shape, index = tuple(values["shape"]), tuple(values["index"])
    return {**values, "label": values["label"] or "", "shape": shape, "index": index, "value": float(values["value"])}


def _difference(values: dict[str, Any] | None) -> Difference | None:
    if values is None:
        return None
    share = math.inf if values["share"] is None else values["share"]
    return Difference(**{**_spot(values), "reference": float(values["reference"]), "share": share})
