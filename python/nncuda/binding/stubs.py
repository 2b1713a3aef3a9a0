"""Writes the type stubs of `nncuda.kernels` from the header:

    python -m nncuda.binding.stubs python/nncuda/kernels.pyi

Editors and type checkers cannot see functions that are made at import; the stubs are committed and a test compares them
with the header.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from . import generate, header


def text(contract: header.Header) -> str:
    """The stub file."""
    lines = [
        "# Generated from bindings.h by `python -m nncuda.binding.stubs python/nncuda/kernels.pyi`. Do not edit.",
        "from typing import Literal, overload",
        "",
        "from .context import Context",
        "from .dtypes import DTypeLike, FloatLike",
        "from .tensor import Tensor",
        "",
        "__all__: list[str]",
        "",
    ]
    params = [param for function in contract.kernels.values() for param in function.params]
    constants = [constant for param in params for constant in param.constants]
    lines += [f"{constant.removeprefix('NNCUDA_')}: int" for constant in dict.fromkeys(constants)]
    for function in contract.kernels.values():
        signature = generate.Signature(function, contract)
        summary = function.summary.replace("\\", "\\\\")
        for outputs, returns in signature.forms:
            lines += ["", *(["@overload"] if len(signature.forms) > 1 else [])]
            lines += [f"def {function.kernel}({signature.stub(outputs)}) -> {returns}:", f'    """{summary}"""']
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the type stubs of nncuda.kernels.")
    parser.add_argument("path", type=Path, help="where to, usually python/nncuda/kernels.pyi")
    parser.parse_args().path.write_text(text(header.parse()), encoding="utf-8")


if __name__ == "__main__":
    main()
