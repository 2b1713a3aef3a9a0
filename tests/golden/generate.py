"""Makes the fixtures of tests/golden/ from the reference, to the byte.

python tests/golden/generate.py            writes every file, and removes those that no case makes any more
python tests/golden/generate.py --check    writes nothing; exits with 1 when a file differs, naming it
python tests/golden/generate.py silu ...   only these kernels
"""

import argparse
import importlib.util
import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
if importlib.util.find_spec("nncuda") is None:  # in a checkout from which nothing was installed
    sys.path.insert(0, str(HERE.parents[1] / "python"))

from cases import by_kernel  # noqa: E402
from cases.case import Case  # noqa: E402
from expected import Built, build  # noqa: E402

from nncuda.formats.safetensors import write_safetensors  # noqa: E402


def plain(value: Any) -> Any:
    """A scalar as JSON has it; infinities as text."""
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def contents(cases: list[Case]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Tensors and metadata of one kernel's file."""
    tensors, metadata = {}, {}
    for case in cases:
        if case.name in metadata:
            raise ValueError(f"{case.kernel} has two cases {case.name}")
        made: Built = build(case)
        for side, arrays in (("in", made.inputs), ("out", made.outputs)):
            for name, array in arrays.items():
                tensors[f"{case.name}/{side}/{name}"] = array
        scalars = {name: plain(value) for name, value in made.scalars.items()}
        entry = {"scalars": scalars, "tolerance": made.tolerance, "zeros": made.zeros}
        metadata[case.name] = entry
    return tensors, {"cases": json.dumps(metadata, separators=(",", ":"))}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", help="only these")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args(arguments)
    wanted = {}
    for (family, kernel), cases in by_kernel().items():
        wanted[HERE / family / f"{kernel}.safetensors"] = cases
    different = []
    for path, cases in wanted.items():
        if options.kernels and path.stem not in options.kernels:
            continue
        tensors, metadata = contents(cases)
        with tempfile.TemporaryDirectory() as folder:
            fresh = Path(folder) / path.name
            write_safetensors(fresh, tensors, metadata)
            new = fresh.read_bytes()
        if not path.exists() or path.read_bytes() != new:
            different.append(path)
            if not options.check:
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(new)
    if not options.kernels:
        for path in sorted(set(HERE.glob("*/*.safetensors")) - set(wanted)):
            different.append(path)
            if not options.check:
                path.unlink()
    for path in different:
        print(f"{'differs' if options.check else 'written'}: {os.path.relpath(path)}")
    if options.check and different:
        print("run: python tests/golden/generate.py")
    return int(options.check and bool(different))


if __name__ == "__main__":
    sys.exit(main())
