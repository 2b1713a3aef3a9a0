"""The part of the Rust generator that writes nn-ffi's table of kernels, by which they are called by name."""

from __future__ import annotations

from nncuda.binding.header import Header, Param

from .rust_kernels import enum_of
from .rust_text import WIDTH, call, indented, mark
from .signature import signature


def files(contract: Header) -> dict[str, str]:
    """The generated files by their path below `nn-ffi/src/`."""
    return {"generated/catalogue.rs": _catalogue(contract), "generated/checked.rs": _checked(contract)}


def _catalogue(contract: Header) -> str:
    """The table of kernels: what each takes, and the function that calls it."""
    kernels = contract.kernels.values()
    lines = [
        *mark("The table of the kernels: what each takes, and how it is called when only its name is known."),
        "",
        "use crate::catalogue::{Kernel, Parameter};",
        "use crate::generated::checked;",
        "",
        "/// Every kernel, in the header's order.",
        f"pub static KERNELS: [Kernel; {len(kernels)}] = [",
    ]
    for function in kernels:
        lines += [
            "    Kernel {",
            f'        name: "{function.kernel}",',
            *_parameters([_parameter(param) for param in function.params[1:]]),
            f"        call: checked::{function.kernel},",
            "    },",
        ]
    return "\n".join([*lines, "];"]) + "\n"


def _parameters(each: list[str]) -> list[str]:
    line = f"        parameters: &[{', '.join(each)}],"
    return (
        [line]
        if len(line) <= WIDTH
        else ["        parameters: &[", *(f"            {one}," for one in each), "        ],"]
    )


def _parameter(param: Param) -> str:
    name = f'"{param.name}"'
    if param.kind == "pointer":
        return f'Parameter::tensor({name}, "{param.dtype}", "{param.shape_text}", "{param.ld}")'
    kind = "float" if param.ctype in ("float", "double") else "dtype" if param.kind == "dtype" else "integer"
    return f"Parameter::{kind}({name})"


def _checked(contract: Header) -> str:
    """A function a kernel that takes arguments of any kind and calls the typed one with those that it takes."""
    enums = {enum_of(param) for function in contract.kernels.values() for param in function.params} - {""}
    lines = [
        *mark("Typed functions by name: each takes an argument a parameter, and leaves out what its tensors tell."),
        "",
        "use crate::catalogue::Argument;",
        f"use crate::{{{', '.join(sorted([*enums, 'Result']))}, kernels}};",
    ]
    for function in contract.kernels.values():
        place = {param.name: index for index, param in enumerate(function.params[1:])}
        taken = [f"arguments[{place[param.name]}].{_taken(param)}" for param in signature(function).arguments]
        lines += [
            "",
            f"pub(super) fn {function.kernel}(arguments: &[Argument<'_>]) -> Result<()> {{",
            *indented(call(f"kernels::{function.kernel}", taken, "", 4)),
            "}",
        ]
    return "\n".join(lines) + "\n"


def _taken(param: Param) -> str:
    if param.kind == "pointer":
        return "optional()?" if param.nullable else "tensor()?"
    if enum_of(param):
        return f"choice({enum_of(param)}::from_code)?"
    if param.kind in ("size", "flag", "dtype"):
        return f"{param.kind}()?"
    return {"int32_t": "int32()?", "int64_t": "int64()?", "float": "float()?", "double": "double()?"}[param.ctype]
