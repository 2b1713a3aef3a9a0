"""What must hold between the parameters of a function in bindings.h: types, sizes, dtypes, aliases, defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .header import Param

#: dtypes that a pointer's line may name itself; any other word must be a `dtype` parameter of the same function.
FIXED_DTYPES = ("f32", "bf16", "i32", "i64", "i8", "u8", "handle")
#: dtypes that a `dtype` line may allow.
VALUE_DTYPES = ("f32", "f16", "bf16", "i32", "i8")

_POINTEE_OF_DTYPE = {
    "f32": ("float",),
    "bf16": ("void",),
    "i32": ("int32_t",),
    "i64": ("int64_t",),
    "i8": ("void",),
    "u8": ("void", "char"),
}


def problems(
    params: tuple[Param, ...], handles: frozenset[str], constants: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """(parameter, what is wrong) for each parameter of a function that is at odds with its type or the others."""
    checker = _Checker(params, handles, constants)
    for param in params:
        problem = checker.pointer(param) if param.kind == "pointer" else checker.scalar(param)
        if problem:
            yield param.name, problem


class _Checker:
    def __init__(self, params: tuple[Param, ...], handles: frozenset[str], constants: frozenset[str]) -> None:
        self.params = {param.name: param for param in params}
        self.handles = handles
        self.constants = constants

    def kind(self, name: str) -> str:
        return self.params[name].kind if name in self.params else ""

    def pointer(self, param: Param) -> str:
        const = param.ctype.startswith("const ")
        pointee = param.ctype.replace("const ", "").replace("*", "").strip()
        stars = param.ctype.count("*")
        if const != (param.direction == "in"):
            return f"is {param.direction}, but its type is {param.ctype!r}: exactly `in` is const"
        if param.dtype == "handle":
            if stars != 2 or (pointee != "void" and pointee not in self.handles):
                return f"is a handle, but its type is {param.ctype!r}"
        elif stars != 1:
            return f"is a pointer, but its type is {param.ctype!r}"
        elif param.dtype in _POINTEE_OF_DTYPE:
            if pointee not in _POINTEE_OF_DTYPE[param.dtype]:
                return f"is {param.dtype}, but its type is {param.ctype!r}"
        elif self.kind(param.dtype) != "dtype":
            return f"has the dtype {param.dtype}, which is neither one of {FIXED_DTYPES} nor a dtype parameter"
        elif pointee != "void":
            return f"has a dtype chosen by {param.dtype}, but its type is {param.ctype!r}"
        sizes = [name for dim in param.dims for name in dim.names] + [param.ld] * bool(param.ld)
        for name in sizes:
            if self.kind(name) != "size":
                return f"has a shape over {name}, which is no size parameter"
        if param.swap_flag and (self.kind(param.swap_flag) != "flag" or len(param.dims) < 2):
            return f"is swapped by {param.swap_flag}, which is no flag, or has fewer than two dimensions"
        for name in param.alias:
            other = self.params.get(name)
            if other is None or other.kind != "pointer" or param.direction != "out" or not other.reads:
                return f"is an alias of {name}: only an output may be one, and only of an input"
        return ""

    def scalar(self, param: Param) -> str:
        pointee = param.ctype.replace("*", "").strip()
        if param.kind == "handle":
            opaque = param.ctype.endswith("*") and (pointee == "void" or pointee in self.handles)
            return "" if opaque else f"is a handle, but its type is {param.ctype!r}"
        for name in param.condition.names if param.condition else ():
            if self.kind(name) not in ("size", "option") or self.params[name].ctype != param.ctype:
                return f"must be something of {name}, which is no size or option of its type"
        if param.condition and not param.condition.fits(param.ctype):
            return f"is {param.ctype}, which cannot be {param.condition.text}"
        if param.kind == "size":
            return "" if param.ctype == "int64_t" else f"is a size, but its type is {param.ctype!r}"
        if param.kind in ("flag", "dtype") and param.ctype != "int32_t":
            return f"is a {param.kind}, but its type is {param.ctype!r}"
        if param.kind == "option" and param.ctype not in ("int32_t", "int64_t", "float", "double"):
            return f"is an option, but its type is {param.ctype!r}"
        for dtype in param.dtypes:
            if dtype not in VALUE_DTYPES and self.kind(dtype) != "dtype":
                return f"allows {dtype!r}, which is neither one of {VALUE_DTYPES} nor a dtype parameter"
        if param.default:
            if param.root_of and self.kind(param.root_of) != "size":
                return f"has a default over {param.root_of}, which is no size parameter"
            if param.default.startswith("NNCUDA_") and param.default not in (param.constants or self.constants):
                return f"has the default {param.default}, which is none of its values"
        return ""
