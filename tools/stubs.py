"""The type stubs of `nncuda.kernels`: editors and type checkers cannot see functions that are made at import."""

from __future__ import annotations

from nncuda.binding import generate
from nncuda.binding.header import Header

OWNED = ("python/nncuda/kernels.pyi",)


def files(contract: Header, _source: bytes) -> dict[str, str]:
    """The stub file, by its path."""
    lines = [
        "# Generated from bindings.h by `make generate`. Do not edit.",
        "from typing import Literal, overload",
        "",
        "from .device import Context, Tensor",
        "from .dtypes import DTypeLike, FloatLike",
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
    return {OWNED[0]: "\n".join(lines) + "\n"}
