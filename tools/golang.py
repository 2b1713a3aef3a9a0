"""What the Go module has from ``bindings.h``:

- `cuda/bindings.h`, a copy, since the module is usable without the rest of the source tree;
- `cuda/symbols_gen.h`, the functions' names, from which the table of pointers is made;
- `cuda/calls_gen.h`, a C function each that calls through its pointer, since Go cannot;
- `cuda/dispatch_gen.c`, the call of a kernel by its number, for programs that learn the kernel's name when they run;
- `cuda/constants_gen.go`, the enums; `cuda/table_gen.go`, the kernels and their parameters as data;
- `cuda/<section>_gen.go`, the kernels as they are in C, and `tensor/<section>_gen.go`, as functions of tensors;
- `tensor/table_gen_test.go`, those functions by name, for the test that calls them all.
"""

from __future__ import annotations

import hashlib

from nncuda.binding.header import Header, Param

from . import golang_kernels
from .golang_names import MARK, comment, constant, exported

OWNED = ("go/*/*_gen.*", "go/*/*_gen_test.go")

_C_MARK = "/* Generated from bindings.h by `make generate`. Do not edit. */"


def files(contract: Header, source: bytes) -> dict[str, str]:
    """The text of each file, by its path. `source` is the header as it is."""
    made = {
        "cuda/bindings.h": source.decode("utf-8"),
        "cuda/symbols_gen.h": _symbols(contract),
        "cuda/calls_gen.h": _calls(contract),
        "cuda/dispatch_gen.c": _dispatch(contract),
        "cuda/constants_gen.go": _constants(contract),
        "cuda/table_gen.go": _table(source, contract),
        "tensor/table_gen_test.go": golang_kernels.table(contract.kernels.values()),
    }
    for section in contract.sections:
        kernels = [function for function in section.functions if function.is_kernel]
        if kernels:
            made[f"cuda/{section.name}_gen.go"] = golang_kernels.raw(kernels)
            made[f"tensor/{section.name}_gen.go"] = golang_kernels.typed(section, kernels)
    return {f"go/{name}": text for name, text in made.items()}


def _symbols(contract: Header) -> str:
    names = [f"  X({name})" for name in contract.functions]
    return f"{_C_MARK}\n#define NN_FUNCTIONS(X) \\\n" + " \\\n".join(names) + "\n"


# C calls


def _passed_type(param: Param) -> str:
    """The C type by which Go passes a parameter. Device memory is a number to Go: its rules for pointers are about
    Go's own memory, and checking them would cost time at every call."""
    if param.ctype == "void **":
        return "uintptr_t *"
    if (param.kind == "pointer" and not param.host) or param.ctype == "void *":
        return "uintptr_t "
    return param.ctype if param.ctype.endswith("*") else param.ctype + " "


def _argument(param: Param, value: str) -> str:
    """The C expression that turns `value` of the passed type into the parameter's own."""
    return value if _passed_type(param).strip() == param.ctype else f"({param.ctype}){value}"


def _calls(contract: Header) -> str:
    lines = [
        _C_MARK,
        "#ifndef NNCUDA_GO_CALLS_H",
        "#define NNCUDA_GO_CALLS_H",
        "",
        '#include "loader.h"',
        "",
        "/* Places in device memory are numbers here: to Go they are no pointers. */",
    ]
    for function in contract.functions.values():
        passed = ", ".join(_passed_type(param) + param.name for param in function.params) or "void"
        given = ", ".join(_argument(param, param.name) for param in function.params)
        returns = function.returns if function.returns.endswith("*") else function.returns + " "
        lines += [
            f"static inline {returns}call_{function.name}({passed}) {{",
            f"  return nn_api.{function.name}({given});",
            "}",
        ]
    return "\n".join([*lines, "", "#endif", ""])


def _slot(param: Param, number: int) -> str:
    if param.kind == "pointer":
        return f"({param.ctype})(uintptr_t)slots[{number}].bits"
    if param.ctype in ("float", "double"):
        return f"({param.ctype})slots[{number}].real"
    return f"({param.ctype})slots[{number}].integer"


def _dispatch(contract: Header) -> str:
    lines = [
        _C_MARK,
        '#include "dispatch.h"',
        "",
        "int32_t nn_call_kernel(int32_t kernel, nncuda_ctx *ctx, const nn_slot *slots) {",
        "  switch (kernel) {",
    ]
    for number, function in enumerate(contract.kernels.values()):
        arguments = ", ".join(_slot(param, at) for at, param in enumerate(function.params[1:]))
        lines += [f"  case {number}:", f"    return nn_api.{function.name}(ctx, {arguments});"]
    return "\n".join([*lines, "  default:", "    return NNCUDA_ERROR_INTERNAL;", "  }", "}", ""])


# Go constants and tables


def _constants(contract: Header) -> str:
    lines = [MARK, "", "package cuda", ""]
    statuses: list[tuple[str, str]] = []
    for enum in contract.enums:
        kinds = dict.fromkeys(constant(entry.name)[0] for entry in enum.constants)
        if len(kinds) != 1:
            raise ValueError(f"the enum of {enum.constants[0].name} has constants of several Go types: {list(kinds)}")
        kind = next(iter(kinds))
        lines += [*comment([f"{kind} is an enum of bindings.h. {enum.text}".strip()]), f"type {kind} int32", ""]
        lines += [f"// Values of {kind}.", "const ("]
        for at, entry in enumerate(enum.constants):
            _, name = constant(entry.name)
            text = " ".join(entry.text.split())
            lines += ([""] if at else []) + [
                f"\t{line}" for line in comment([f"{name} is {entry.name}{': ' + text if text else ''}."], 110)
            ]
            lines.append(f"\t{name} {kind} = {entry.value}")
            if kind == "Status":
                statuses.append((name, text or "success"))
        lines += [")", ""]
    lines += [
        "// statusText is what a status means; empty for a number that is none.",
        "func statusText(s Status) string {",
    ]
    lines += ["\tswitch s {"]
    for name, text in statuses:
        lines += [f"\tcase {name}:", f'\t\treturn "{text}"']
    return "\n".join([*lines, "\t}", '\treturn ""', "}", ""])


def _table(source: bytes, contract: Header) -> str:
    digest = hashlib.sha256(source).hexdigest()
    lines = [
        MARK, "", "//go:build cgo", "", "package cuda", "",
        "// HeaderSHA256 is the hash of the bindings.h that this package was made from.",
        f'const HeaderSHA256 = "{digest}"', "",
        "// kernels lists every kernel, in the header's order.",
        "var kernels = []Kernel{",
    ]  # fmt: skip
    for function in contract.kernels.values():
        family, name = function.section, exported(function.kernel)
        lines.append(f'\t{{Name: "{function.kernel}", Function: "{name}", Family: "{family}", Params: []Param{{')
        for param in function.params[1:]:
            lines += _fields("\t\t", _param(param))
        lines.append("\t}},")
    return "\n".join([*lines, "}", ""])


def _fields(indent: str, fields: list[str]) -> list[str]:
    """A composite literal, broken between fields where it would be too long."""
    lines, current = [], indent + "{"
    for at, field in enumerate(fields):
        end = "}," if at == len(fields) - 1 else ","
        if len((current + field + end).expandtabs(4)) > 120:
            lines.append(current.rstrip())
            current = indent + "\t"
        current += field + end + " "
    return [*lines, current.rstrip()]


def _param(param: Param) -> list[str]:
    kinds = {"pointer": "PointerParam", "size": "SizeParam", "option": "OptionParam", "flag": "FlagParam"}
    fields = [f'Name: "{param.name}"', f"Kind: {kinds.get(param.kind, 'DTypeParam')}", f'C: "{param.ctype}"']
    if param.kind == "pointer":
        fields += [f'DType: "{param.dtype}"', f'Shape: "{param.shape_text.split("^")[0]}"']
        fields += [f"{go}: true" for go, is_set in (("Reads", param.reads), ("Writes", param.writes)) if is_set]
        if param.nullable:
            fields.append("Nullable: true")
        if param.swap_flag:
            fields.append(f'Swap: "{param.swap_flag}"')
        if param.ld:
            fields.append(f'Stride: "{param.ld}"')
        if param.alias:
            fields.append("Alias: []string{" + ", ".join(f'"{other}"' for other in param.alias) + "}")
    return fields
