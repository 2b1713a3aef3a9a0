"""The C side of the library: argument structs and entry points of the kernels, and what of the header the rest needs.

A family (section) has a header of structs, ``cuda/abi/generated/<family>.h``, and a file of entry points, ``.c``, which
check all that bindings.h says. What it cannot say is written in ``cuda/abi/<family>_checks.h``, a `check_<kernel>`
or `lower_<kernel>` for each; without one the entry point does not compile.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from nncuda.binding.header import FIXED_DTYPES, Dim, Function, Header, Param, Section

OWNED = ("cuda/abi/generated/*", "cuda/interface.h", "cuda/runtime/ops.h")

#: Kernels that are run with another struct than that of their parameters, which `lower_<kernel>` makes. It is that of
#: the kernel named, or is written by hand in cuda/abi/<family>.h.
SHARED = {
    **dict.fromkeys(
        ("gemm", "gemm_beta", "gemm_epilogue", "batched_gemm", "grouped_gemm", "grouped_gemm_wgrad"), "gemm"
    ),
    **dict.fromkeys(("gemm_quant", "gemm_quant_qkv", "gemm_quant_swiglu"), "gemm_quant"),
    **dict.fromkeys(("sample", "topk_sample", "topp_sample", "minp_sample"), "sample"),
    "grad_norm": "grad_norm",
    "attention_decode_paged": "flash_attention_paged",
    "rope_backward": "rope_forward",
}  # fmt: skip
#: Parameters that lie together in structs, since kernels hand them on together.
NESTED: dict[str, tuple[str, tuple[str, ...]]] = {
    "attention": ("shape", ("batch", "q_len", "kv_len", "heads", "kv_heads", "head_dim"))
}

_MARK = "/* Generated from bindings.h by `make generate`. Do not edit. */\n/* clang-format off */\n"
_CODES = {
    "f32": "NNCUDA_F32",
    "bf16": "NNCUDA_BF16",
    "i32": "NNCUDA_I32",
    "i8": "NNCUDA_I8",
    "i64": "NN_I64",
    "u8": "NN_U8",
}
_ROLES = {"in": "NN_ROLE_IN", "out": "NN_ROLE_OUT", "inout": "NN_ROLE_INOUT", "acc": "NN_ROLE_ACC"}
_FLOATS = {"f32", "f16", "bf16"}
#: How a scalar is printed: the conversion, and what it is cast to.
_PRINTED = {
    "int64_t": ("%lld", "(long long)"),
    "int32_t": ("%d", ""),
    "float": ("%g", "(double)"),
    "double": ("%g", ""),
}


def files(contract: Header, _source: bytes) -> dict[str, str]:
    """The C files, by their path."""
    made = {"cuda/interface.h": _interface(contract), "cuda/runtime/ops.h": _ops(contract)}
    for section in contract.sections:
        if section.functions and section.functions[0].is_kernel:
            made[f"cuda/abi/generated/{section.name}.h"] = _structs(section)
            made[f"cuda/abi/generated/{section.name}.c"] = _entries(section, contract)
    return made


def _guarded(name: str, lines: list[str]) -> str:
    guard = f"NN_{name.upper()}_H"
    return "\n".join([_MARK + f"#ifndef {guard}", f"#define {guard}", "", *lines, "", "#endif", ""])


def _interface(contract: Header) -> str:
    """bindings.h without the kernels, so that an edit of one of them leaves the others' files as they are."""
    lines = ["#include <stdint.h>", "", '#define NNCUDA_API __attribute__((visibility("default")))']
    lines += [f"#define {name} {value}" for name, value in contract.macros.items()]
    for enum in contract.enums:
        lines += ["", "enum {", *(f"  {constant.name} = {constant.value}," for constant in enum.constants), "};"]
    lines += ["", *(f"typedef struct {handle} {handle};" for handle in contract.handles)]
    others = [f"NNCUDA_API {f.declaration}" for f in contract.functions.values() if not f.is_kernel]
    lines += ["", "#ifdef __cplusplus", 'extern "C" {', "#endif", *others, "#ifdef __cplusplus", "}", "#endif"]
    return _guarded("interface", lines)


def _ops(contract: Header) -> str:
    return _guarded("runtime_ops", ["#define NN_OPS(X) \\", " \\\n".join(f"  X({name})" for name in contract.kernels)])


# Structs


def _struct_name(function: Function) -> str:
    return f"nn_{function.kernel}_{'parameters' if function.kernel in SHARED else 'args'}"


def _is_nested(function: Function) -> bool:
    names = [param.name for param in function.of_kind("size")]
    nested = NESTED.get(function.section, ("", ()))[1]
    return nested != () and tuple(name for name in names if name in nested) == nested


def _structs(section: Section) -> str:
    lines = ["#include <stdint.h>"]
    if section.name in NESTED:
        name, members = NESTED[section.name]
        lines += ["", f"typedef struct nn_{section.name}_{name} {{"]
        lines += [*(f"  int64_t {member};" for member in members), f"}} nn_{section.name}_{name};"]
    for function in section.functions:
        name, members = NESTED[section.name] if _is_nested(function) else ("", ())
        lines += ["", f"typedef struct {_struct_name(function)} {{"]
        for param in function.params[1:]:
            if param.name not in members:
                lines.append(f"  {_field_type(param)}{param.name};")
            elif param.name == members[0]:
                lines.append(f"  nn_{section.name}_{name} {name};")
        lines.append(f"}} {_struct_name(function)};")
        if function.kernel in SHARED:
            lines.append(f"enum {{ {_struct_name(function)}_count = {len(function.params) - 1} }};")
        if SHARED.get(function.kernel, function.kernel) != function.kernel and SHARED[function.kernel] not in SHARED:
            lines += ["", f"typedef nn_{SHARED[function.kernel]}_args nn_{function.kernel}_args;"]
    return _guarded(f"abi_{section.name}_generated", lines)


def _field_type(param: Param) -> str:
    ctype = param.ctype.replace("void", "int8_t") if param.dtype == "i8" else param.ctype
    return ctype if ctype.endswith("*") else f"{ctype} "


# Entry points


def _entries(section: Section, contract: Header) -> str:
    conditions = [param.condition for function in section.functions for param in function.params if param.condition]
    lines = [_MARK + f'#include "abi/{section.name}_checks.h"', "", '#include "runtime/call.h"']
    if any(term.kind == "finite" for condition in conditions for term in condition.terms):
        lines += ["", "#include <math.h>"]
    for function in section.functions:
        lines += ["", *_entry(function, contract)]
    return "\n".join(lines) + "\n"


def _entry(function: Function, contract: Header) -> Iterator[str]:
    yield from _wrapped("", f"NNCUDA_API {function.declaration.rstrip(';')} {{")
    yield "  nn_call call;"
    yield f"  nn_call_begin(&call, ctx, NN_OP_{function.kernel});"
    for statement in _checks(function, contract):
        yield from _wrapped("  ", statement)
    name, members = NESTED[function.section] if _is_nested(function) else ("", ())
    values = [param.name for param in function.params[1:] if param.name not in members[1:]]
    values = ["{" + ", ".join(members) + "}" if name and value == members[0] else value for value in values]
    shared = SHARED.get(function.kernel)
    given = "given" if shared else "args"
    yield from _wrapped("  ", f"const {_struct_name(function)} {given} = {{{', '.join(values)}}};")
    if shared:
        yield f"  const nn_{shared}_args args = lower_{function.kernel}(&call, &given);"
    else:
        yield f"  check_{function.kernel}(&call, &args);"
    yield "  return nn_call_launch(&call, &args, sizeof args);"
    yield "}"


def _checks(function: Function, contract: Header) -> Iterator[str]:
    """The statements that declare and check the parameters: what others depend on comes first."""
    for param in function.of_kind("dtype"):
        yield f'nn_call_dtype(&call, "{param.name}", {param.name}, {_dtype_set(param)});'
    for param in function.of_kind("flag"):
        yield f'nn_call_flag(&call, "{param.name}", {param.name});'
    strides = {param.ld for param in function.pointers}
    for param in function.of_kind("size"):
        if param.name not in strides:  # a stride is held against the elements in a row
            yield _size(function, param)
    for kind, status in (("size", "SIZE"), ("option", "VALUE")):
        for param in function.of_kind(kind):
            if param.condition:
                yield _condition(function, param, f"NNCUDA_ERROR_INVALID_{status}")
    for param in function.of_kind("option"):
        if param.taken:
            yield _enum(param, contract)
    for param in function.pointers:
        yield _tensor(param)
    for param in function.pointers:
        for other in param.alias:
            yield f'nn_call_alias(&call, "{param.name}", "{other}");'


def _dtype_set(param: Param) -> str:
    if set(param.dtypes) == _FLOATS:
        return "NN_FLOATS"
    return " | ".join(
        f"1u << NNCUDA_{word.upper()}" if word in (*_FLOATS, *FIXED_DTYPES) else f"nn_dtype_bit({word})"
        for word in param.dtypes
    )


def _size(function: Function, param: Param) -> str:
    """A size of zero makes the call empty, unless only tensors have it that were not given."""
    users = [p for p in function.pointers if any(param.name in dim.names for dim in p.dims)]
    if not users or not all(user.nullable for user in users):
        return f'nn_call_size(&call, "{param.name}", {param.name});'
    given = " || ".join(f"{user.name} != NULL" for user in users)
    return f'nn_call_size_if(&call, "{param.name}", {param.name}, {given});'


def _condition(function: Function, param: Param, status: str) -> str:
    assert param.condition is not None
    conversion, cast = _PRINTED[param.ctype]
    words = param.condition.text
    for name in param.condition.names:
        words = words.replace(f" {name}", f" {name}, which is {_PRINTED[function.by_name[name].ctype][0]},").rstrip(",")
    values = [cast + param.name]
    values += [_PRINTED[function.by_name[name].ctype][1] + name for name in param.condition.names]
    sentence = f'"{param.name} is {conversion}; it must be {words}"'
    return f"nn_call_require(&call, {param.condition.in_c(param.name)}, {status}, {sentence}, {', '.join(values)});"


def _enum(param: Param, contract: Header) -> str:
    words = [f"{name} ({contract.constants[name]})" for name in param.taken]
    test = " || ".join(f"{param.name} == {name}" for name in param.taken)
    sentence = f'"{param.name} is %d; it must be {", ".join(words[:-1])} or {words[-1]}"'
    return f"nn_call_require(&call, {test}, NNCUDA_ERROR_INVALID_VALUE, {sentence}, {param.name});"


def _tensor(param: Param) -> str:
    role = _ROLES[param.direction] + (" | NN_ROLE_OPTIONAL" if param.nullable else "")
    dtype = _CODES.get(param.dtype, param.dtype)
    ld = f'"{param.ld}", {param.ld}' if param.ld else "NULL, 0"
    texts, values = [dim.text for dim in param.dims], [_dim(dim) for dim in param.dims]
    text = _shape_text(texts)
    if param.swap_flag:
        swapped = [*texts[:-2], texts[-1], texts[-2]]
        text = f"{param.swap_flag} ? {_shape_text(swapped)} : {text}"
        pair = [f"{param.swap_flag} ? {a} : {b}" for a, b in zip(values[:-3:-1], values[-2:], strict=True)]
        values = [*values[:-2], *pair]
    shape = f"NN_SHAPE({text}, {', '.join(values)})"
    return f'nn_call_tensor(&call, {role}, "{param.name}", {param.name}, {dtype}, {ld}, {shape});'


def _shape_text(dims: list[str]) -> str:
    return '"[' + ", ".join(dims) + ']"'


def _dim(dim: Dim) -> str:
    factors = [*([str(dim.coefficient)] if dim.coefficient != 1 or not dim.names else []), *dim.names]
    text = factors[0]
    for factor in factors[1:]:
        text = f"nn_mul({text}, {factor})"
    text += f" / {dim.divisor}" if dim.divisor != 1 else ""
    return f"nn_add({text}, {dim.offset})" if dim.offset else text


def _wrapped(indent: str, statement: str) -> list[str]:
    """The lines of a statement, which breaks after commas and connectives, and never inside a string."""
    kept = "".join(
        "\x00" if letter == " " and (inside or before not in ",|&") else letter
        for before, (letter, inside) in zip(" " + statement, _with_strings(statement), strict=False)
    )
    lines = textwrap.wrap(
        kept, 120, initial_indent=indent, subsequent_indent=indent + "    ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace("\x00", " ") for line in lines]


def _with_strings(text: str) -> Iterator[tuple[str, bool]]:
    """Each letter, and whether it is inside of a string."""
    inside = False
    for letter in text:
        inside ^= letter == '"'
        yield letter, inside
