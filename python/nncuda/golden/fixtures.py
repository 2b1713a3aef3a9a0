"""The fixtures: one safetensors file a kernel, in a folder a family. Their format stands in tests/golden/README.md."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..formats.safetensors import SafetensorsFile

#: Chooses another folder of fixtures than that of this installation.
ENVIRONMENT_VARIABLE = "NNCUDA_GOLDEN"


class FixtureError(ValueError):
    """A fixture does not follow its format. The message names the file and the case."""


@dataclass(frozen=True)
class Fixture:
    """One call of a kernel: what goes in, what must come out, and how near.

    Arrays are flat or shaped as they lie in memory; `outputs` hold float32 or int32, NaN where nothing may be written.
    `tolerance` is the largest absolute error of each floating-point output; 0 means equal. In the outputs named in
    `zeros` an element that is expected to be 0 must be 0: a masked score, a dropped token, an ignored row give exactly
    nothing.
    """

    family: str
    kernel: str
    name: str
    scalars: dict[str, Any]
    tolerance: dict[str, float]
    zeros: list[str]
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]

    @property
    def id(self) -> str:
        return f"{self.kernel}/{self.name}"

    @property
    def dtype(self) -> str:
        """The dtypes of the case, as its name begins: "bf16", "f16-f32"; "i32" for a kernel of whole numbers alone."""
        return self.name.split(".", 1)[0]


def find_folder(path: str | os.PathLike[str] | None = None) -> Path:
    """The folder of fixtures: `path`, else $NNCUDA_GOLDEN, else the installed ones, else those of the source tree."""
    chosen = path or os.environ.get(ENVIRONMENT_VARIABLE)
    if chosen:
        places = [Path(chosen)]
    else:
        here = Path(__file__).resolve()
        places = [here.parent / "fixtures", here.parents[3] / "tests" / "golden"]
    for place in places:
        if any(place.glob("*/*.safetensors")):
            return place
    raise FixtureError(
        f"no fixtures in {' or '.join(map(str, places))}; name their folder, or set {ENVIRONMENT_VARIABLE}"
    )


def _scalar(value: Any) -> Any:
    return float(value) if value in ("inf", "-inf") else value


def read_file(path: Path) -> list[Fixture]:
    """All cases of one kernel's file."""
    file = SafetensorsFile(path)
    try:
        entries = dict(json.loads(file.metadata["cases"]))
    except (ValueError, KeyError, TypeError) as error:
        raise FixtureError(f"{path}: the metadata has no list of cases as the format says ({error!r})") from error
    cases: dict[str, Fixture] = {}
    for name, entry in entries.items():
        try:
            scalars = {key: _scalar(value) for key, value in entry["scalars"].items()}
            tolerance = {key: float(value) for key, value in entry["tolerance"].items()}
            zeros = [str(key) for key in entry["zeros"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FixtureError(
                f"{path}: the metadata of case {name!r} is not what the format says ({error!r})"
            ) from error
        if not all(math.isfinite(value) and value >= 0 for value in tolerance.values()):
            raise FixtureError(f"{path}: a tolerance of case {name!r} is negative or not finite")
        cases[name] = Fixture(path.parent.name, path.stem, name, scalars, tolerance, zeros, {}, {})
    for key in file:
        name, side, param = [*key.split("/"), "", ""][:3]
        if name not in cases or side not in ("in", "out") or not param:
            raise FixtureError(f"{path}: tensor {key!r} is not case/in/parameter or case/out/parameter of a known case")
        (cases[name].inputs if side == "in" else cases[name].outputs)[param] = file[key]
    return list(cases.values())


def read_folder(folder: Path, kernels: Sequence[str] = ()) -> Iterator[Fixture]:
    """The cases of a folder, file after file by name; only those of `kernels` when any are named."""
    files = sorted(folder.glob("*/*.safetensors"))
    unknown = set(kernels) - {file.stem for file in files}
    if unknown:
        raise FixtureError(f"no fixtures for {', '.join(sorted(unknown))} in {folder}")
    for file in files:
        if not kernels or file.stem in kernels:
            yield from read_file(file)
