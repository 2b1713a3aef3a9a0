"""Makes a Python function of each kernel in the header: its source, signature, annotations and docstring.

The functions are compiled from generated source instead of being closures over a general one: a training step makes
hundreds of calls, and straight-line code that looks up the sizes by its tensors' layouts costs a few microseconds each.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from .. import errors
from ..device import Tensor
from . import call_sizes
from .header import VALUE_DTYPES, Function, Header, Param

#: How many layouts a kernel remembers the sizes of.
_SOLUTIONS_KEPT = 4096

#: Types in signatures, by what an argument may be.
_TENSOR, _OPTIONAL, _WANTED = "Tensor", "Tensor | None", "Tensor | bool | None"
#: An optional output, to a type checker: not asked for, or asked for.
_ABSENT, _GIVEN = "Literal[False] | None", "Tensor | Literal[True]"


@dataclass(frozen=True)
class Argument:
    """One argument of the generated function."""

    param: Param | None  # None for `ctx`
    name: str
    annotation: str
    default: str  # Python source; empty when required
    positional: bool

    @property
    def source(self) -> str:
        return f"{self.name}={self.default}" if self.default else self.name


class Signature:
    """How a kernel looks from Python: positional inputs, then by keyword its options, flags, the sizes and dtypes that
    its inputs do not give, and its outputs."""

    def __init__(self, function: Function, header: Header) -> None:
        self.function = function
        self.header = header
        # With `beta`, the old values of an in-out result are not always read, so it may be allocated like an output.
        self.has_beta = "beta" in function.by_name
        self.inputs = tuple(param for param in function.pointers if param.direction != "out")
        self.outputs = tuple(param for param in function.pointers if param.direction == "out")
        self.optional_result = tuple(p for p in self.inputs if p.direction == "inout" and self.has_beta)
        required = tuple(p for p in self.inputs if not p.nullable and p not in self.optional_result)
        self.required = required
        self.told_dtypes = {param.dtype for param in required}
        # Sizes that a plain dimension of an input gives need no keyword. Those in a product (batch*q_len) have one even
        # where the other inputs would give them, so that the calls of a family take the same keywords.
        dims = [dim for param in function.pointers for dim in param.dims]
        told = {dim.text for param in required for dim in param.dims} | {param.ld for param in function.pointers}
        told -= {name for dim in dims if len(dim.names) > 1 for name in dim.names}
        self.sizes = tuple(param for param in function.of_kind("size") if param.name not in told)
        self.dtypes = tuple(param for param in function.of_kind("dtype") if param.name not in self.told_dtypes)
        self.flags = tuple(sorted({param.swap_flag for param in function.pointers if param.swap_flag}))
        self.arguments = tuple(self._arguments())

    def _arguments(self) -> list[Argument]:
        arguments = []
        for index, param in enumerate(self.inputs):
            annotation = _OPTIONAL if param.nullable or param in self.optional_result else _TENSOR
            # Python allows a default only where everything after it has one too.
            last = all(p.nullable or p in self.optional_result for p in self.inputs[index:])
            arguments.append(Argument(param, param.name, annotation, "None" if last else "", True))
        outputs = [
            Argument(p, p.name, _WANTED if p.nullable else _OPTIONAL, "None", not self.inputs) for p in self.outputs
        ]
        if not self.inputs:
            arguments += outputs
        keywords = [self._option(param) for param in self.function.params if param.kind in ("option", "flag")]
        arguments += [argument for argument in keywords if not argument.default]
        arguments += [argument for argument in keywords if argument.default]
        for param in self.sizes:
            shape = any(p.dims[0].text == param.name and len(p.dims) == 1 for p in self.outputs) and not self.inputs
            arguments.append(
                Argument(param, param.name, "int | tuple[int, ...] | None" if shape else "int | None", "None", False)
            )
        arguments += [Argument(param, param.name, _dtype_annotation(param), "None", False) for param in self.dtypes]
        if self.inputs:
            arguments += outputs
        if not self.required:
            arguments.append(Argument(None, "ctx", "Context | None", "None", False))
        return arguments

    def _option(self, param: Param) -> Argument:
        if param.kind == "flag":
            return Argument(param, param.name, "bool", "False", False)
        if param.constants:
            names = choice_names(param)
            default = names[param.constants.index(param.default)] if param.default else ""
            values = ", ".join(map(repr, names))
            return Argument(param, param.name, f"Literal[{values}] | int", repr(default) if default else "", False)
        python = "float" if param.ctype in ("float", "double") else "int"
        if param.root_of:
            return Argument(param, param.name, f"{python} | None", "None", False)
        default = str(self.header.constants.get(param.default, param.default))
        if default and python == "float":
            default = repr(float(default))
        return Argument(param, param.name, python, default, False)

    @property
    def results(self) -> tuple[Param, ...]:
        """What the function returns, in header order."""
        return tuple(p for p in self.function.pointers if p.direction == "out" or p in self.optional_result)

    @property
    def returns(self) -> str:
        """The type of the result, whatever is asked for."""
        return " | ".join(dict.fromkeys(returns for _, returns in self.forms))

    @property
    def forms(self) -> list[tuple[dict[str, str], str]]:
        """What a call may be, as far as types are concerned: the annotation of each optional output, and the type of
        the result, which has those outputs that were asked for."""
        optional = [param.name for param in self.results if param.nullable]
        sure = len(self.results) - len(optional)
        found = []
        for wanted in itertools.product((False, True), repeat=len(optional)):
            count = sure + sum(wanted)
            returns = f"tuple[{', '.join([_TENSOR] * count)}]" if count > 1 else _TENSOR if count else "None"
            found.append(
                ({name: _GIVEN if yes else _ABSENT for name, yes in zip(optional, wanted, strict=True)}, returns)
            )
        return found

    @property
    def source(self) -> str:
        """The parameter list."""
        positional = [a.source for a in self.arguments if a.positional]
        keywords = [a.source for a in self.arguments if not a.positional]
        return ", ".join(positional + (["*"] if keywords else []) + keywords)

    def stub(self, outputs: dict[str, str]) -> str:
        """The parameter list with types; `outputs` has those of the optional outputs, one of `forms`."""

        def one(argument: Argument) -> str:
            annotation = outputs.get(argument.name, argument.annotation)
            default = "" if annotation == _GIVEN else argument.default
            return f"{argument.name}: {annotation}" + (f" = {default}" if default else "")

        positional = [one(a) for a in self.arguments if a.positional]
        keywords = [one(a) for a in self.arguments if not a.positional]
        return ", ".join(positional + (["*"] if keywords else []) + keywords)


def _dtype_annotation(param: Param) -> str:
    allowed = {name for name in param.dtypes if name in VALUE_DTYPES}
    return "FloatLike | None" if allowed <= {"f32", "f16", "bf16"} else "DTypeLike | None"


def choice_names(param: Param) -> tuple[str, ...]:
    """The names of an option's values in Python: NNCUDA_ROPE_HALF is "half"."""
    prefix = len(param.text.split("*")[0])
    return tuple(constant[prefix:].lower() for constant in param.constants)


class _Choice(dict):  # type: ignore[type-arg]
    """Numbers of an option's values by their names."""

    def __init__(self, where: str, names: tuple[str, ...], values: list[int]) -> None:
        super().__init__(zip(names, values, strict=True))
        self.where = where

    def __missing__(self, name: str) -> int:
        raise ValueError(f"{self.where} is {name!r}; it must be one of {', '.join(map(repr, self))}")


def docstring(function: Function, signature: Signature) -> str:
    """The docstring of a kernel's function: formula and source, arguments with shapes and dtypes, results, errors."""
    lines = [function.doc, ""]
    for param in function.of_kind("dtype"):
        lines += [f"{param.name} is {param.text}.", ""]
    lines.append("Arguments:")
    for argument in signature.arguments:
        lines.append(f"    {argument.name}: {_describe(argument, signature)}")
    if signature.results:
        lines += ["", "Returns:"]
        for param in signature.results:
            asked = f"; only when asked for with {param.name}=True or a tensor" if param.nullable else ""
            lines.append(f"    {param.name}: {_shape(param)}, {param.text}{asked}")
    else:
        written = ", ".join(param.name for param in function.pointers if param.writes)
        lines += ["", f"Returns nothing; writes {written} in place."]
    lines += [
        "",
        "Raises:",
        "    ValueError: shapes disagree, or a value is not allowed (nncuda.ArgumentError when the library says so)",
        "    TypeError: an argument is no Tensor, or a dtype is not one of those above",
    ]
    if any(param.dtype == "i32" and param.direction == "in" for param in function.pointers):
        lines.append("    IndexError: an id, index or position is out of range (nncuda.OutOfRangeError)")
    lines += ["", f"C: {function.declaration}"]
    return "\n".join(lines)


def _shape(param: Param) -> str:
    return f"{param.dtype} {param.shape_text}"


def _describe(argument: Argument, signature: Signature) -> str:
    param = argument.param
    if param is None:
        return "the context to work on; needed when no tensor tells it"
    if param.kind == "pointer":
        how = {"in": "", "inout": ", read and overwritten", "acc": ", added to", "out": ""}[param.direction]
        if param.direction == "out":
            alias = f", may be {' or '.join(param.alias)}" if param.alias else ""
            absent = "True allocates it, left out it is not computed" if param.nullable else "allocated when not given"
            return f"{_shape(param)}, where to put the result{alias}; {absent}"
        if param in signature.optional_result:
            how += "; allocated when not given, which needs beta = 0"
        return f"{_shape(param)}, {param.text}{how}"
    if param.kind == "size":
        return f"{param.text} (size; needed when the shapes do not tell it)"
    if param.kind == "dtype":
        return f"{param.text} (dtype; needed when no tensor tells it)"
    if param.constants:
        return f"one of {', '.join(map(repr, choice_names(param)))}"
    if param.root_of:
        return f"{param.text}; {param.default} when not given"
    return param.text


def source_of(signature: Signature) -> str:
    """The source of a kernel's function. Names that start with an underscore come from `namespace_of`."""
    function = signature.function
    name = function.kernel
    body = []
    for param in function.params:
        if param.constants:
            body += [f"if {param.name}.__class__ is str:", f"    {param.name} = _choice_{param.name}[{param.name}]"]
    # The key: what decides the sizes.
    parts = []
    for param in function.pointers:
        if param in signature.required:
            parts.append(f"{param.name}._layout")
        elif param.direction == "out" and param.nullable:
            parts.append(
                f"({param.name} if {param.name} is None or {param.name} is True or {param.name} is False"
                f" else {param.name}._layout)"
            )
        else:
            parts.append(f"(None if {param.name} is None else {param.name}._layout)")
    parts += [param.name for param in (*signature.sizes, *signature.dtypes)] + list(signature.flags)
    key = ", ".join(parts) + ","
    everything = "{" + ", ".join(f"{param.name!r}: {param.name}" for param in function.pointers) + "}"
    body += [
        "try:",
        f"    _key = ({key})",
        "except AttributeError:",
        f"    raise _no_tensor({everything}) from None",
        "_solution = _solutions.get(_key)",
        "if _solution is None:",
        "    _solution = _solve(_key)",
    ]
    roots = [p for p in function.of_kind("option") if p.root_of]
    sizes = [f"_size_{p.name}" for p in function.of_kind("size")]
    codes = [f"_code_{p.name}" for p in function.of_kind("dtype")]
    layouts = [f"_new_{p.name}" for p in function.pointers if p in signature.results]
    unpack = [*sizes, *codes, *(f"_root_{p.name}" for p in roots), *layouts, "_call"]
    body.append(f"{', '.join(unpack)}, = _solution")
    for param in roots:
        body += [f"if {param.name} is None:", f"    {param.name} = _root_{param.name}"]
    body += _context_lines(signature)
    for param in signature.results:
        test = f"{param.name} is None or {param.name} is False" if param.nullable else ""
        if param.nullable:
            body += [f"if {test}:", f"    {param.name} = None", f"elif {param.name} is True:"]
            body += [f"    {param.name} = ctx._new(_new_{param.name})"]
        else:
            body += [f"if {param.name} is None:"]
            if param in signature.optional_result:
                body += ["    if beta != 0:", f"        raise _needs_old({param.name!r}, beta)"]
            body += [f"    {param.name} = ctx._new(_new_{param.name})"]
    arguments = ["ctx._handle"]
    for param in function.params[1:]:
        if param.kind == "pointer":
            null = f"ctx._null if {param.name} is None else " if param.nullable else ""
            arguments.append(f"{null}{param.name}._pointer")
        elif param.kind == "size":
            arguments.append(f"_size_{param.name}")
        elif param.kind == "dtype":
            arguments.append(f"_code_{param.name}")
        elif param.kind == "flag":
            arguments.append(f"1 if {param.name} else 0")
        else:
            arguments.append(param.name)
    body += [
        f"_status = _call({', '.join(arguments)})",
        "if _status:",
        "    ctx._fail(_status)",
        "if ctx._capture is not None:",
        f"    ctx._capture.keep({', '.join(param.name for param in function.pointers)})",
    ]
    body += _return_lines(signature)
    text = "\n".join("    " + line for line in body)
    return f"def {name}({signature.source}):\n{text}\n"


def _context_lines(signature: Signature) -> list[str]:
    """Finds the context and checks that all tensors are of it."""
    function = signature.function
    lines = []
    others = list(function.pointers)
    if signature.required:
        first = signature.required[0]
        lines.append(f"ctx = {first.name}.ctx")
        others.remove(first)
    else:
        lines += ["if ctx is None:", f"    ctx = _context_of({', '.join(p.name for p in others)})"]
    for param in others:
        if param in signature.required:
            test = f"{param.name}.ctx is not ctx"
        elif param.direction == "out" and param.nullable:
            test = f"{param.name} is not None and {param.name}.__class__ is not bool and {param.name}.ctx is not ctx"
        else:
            test = f"{param.name} is not None and {param.name}.ctx is not ctx"
        lines += [f"if {test}:", f"    raise _foreign({param.name!r})"]
    return lines


def _return_lines(signature: Signature) -> list[str]:
    results = signature.results
    if not results:
        return []
    sure = [param.name for param in results if not param.nullable]
    maybe = [param for param in results if param.nullable]
    if not maybe:
        return [f"return {', '.join(sure)}"]
    if len(maybe) == len(results) == 1:
        return [f"return {maybe[0].name}"]
    if len(maybe) == 1:
        everything = ", ".join(param.name for param in results)
        return [f"if {maybe[0].name} is None:", f"    return {', '.join(sure)}", f"return {everything}"]
    names = ", ".join(param.name for param in results)
    lines = [f"_results = tuple([_r for _r in ({names},) if _r is not None])"]
    return [*lines, "return _results[0] if _results[1:] == () and _results else _results or None"]


def function_of(function: Function, header: Header, module: str) -> FunctionType:
    """The Python function of a kernel."""
    signature = Signature(function, header)
    sizes_of = call_sizes.CallSizes(function, signature.results)
    solutions: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    pointers = function.pointers
    name = function.kernel

    def solve(key: tuple[Any, ...]) -> tuple[Any, ...]:
        from . import library

        values = iter(key)
        layouts: dict[str, Any] = {}
        for param in pointers:
            value = next(values)
            if value is False or (value is None and param.nullable):
                value = None
            elif value is None:
                value = call_sizes.ALLOCATE
            layouts[param.name] = value
        sizes = {param.name: next(values) for param in signature.sizes}
        chosen = {param.name: next(values) for param in signature.dtypes}
        flags = {flag: next(values) for flag in signature.flags}
        try:
            call = getattr(library.load().lib, function.name)
        except AttributeError:
            # cffi looks a function up when it is first used, so an older library can serve what it has.
            message = f"{library.load().path} has no {function.name}; install a newer libnncuda"
            raise errors.UnsupportedError(40, message) from None
        made = (*sizes_of.solve(layouts, sizes, chosen, flags), call)
        if len(solutions) >= _SOLUTIONS_KEPT:
            solutions.clear()
        solutions[key] = made
        return made

    def no_tensor(values: dict[str, Any]) -> Exception:
        for param in pointers:
            value = values[param.name]
            if value is None and (param.nullable or param in signature.results):
                continue
            if not isinstance(value, Tensor) and not (param.nullable and isinstance(value, bool)):
                copy = "; ctx.tensor(array) copies an array, ctx.from_dlpack(array) shares its memory"
                return TypeError(f"{name}: {param.name} is {type(value).__name__}; it must be a nncuda.Tensor{copy}")
        return AttributeError(f"{name}: an argument has no layout")

    def foreign(which: str) -> Exception:
        return ValueError(f"{name}: {which} belongs to another context than the other tensors")

    def needs_old(which: str, beta: float) -> Exception:
        return TypeError(f"{name}: beta is {beta}, so {which} must be given: its old values are read")

    def context_of(*tensors: Any) -> Any:
        for tensor in tensors:
            if isinstance(tensor, Tensor):
                return tensor.ctx
        raise TypeError(f"{name}: give ctx= or a tensor for the result")

    namespace: dict[str, Any] = {
        "_solutions": solutions,
        "_solve": solve,
        "_no_tensor": no_tensor,
        "_foreign": foreign,
        "_needs_old": needs_old,
        "_context_of": context_of,
        "__name__": module,
    }
    for param in function.params:
        if param.constants:
            values = [header.constants[constant] for constant in param.constants]
            namespace[f"_choice_{param.name}"] = _Choice(f"{name}: {param.name}", choice_names(param), values)
    source = source_of(signature)
    filename = f"<{function.name} of bindings.h>"
    # Tracebacks and debuggers then show the generated lines.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), namespace)
    made: FunctionType = namespace[name]
    made.__doc__ = docstring(function, signature)
    made.__annotations__ = {argument.name: argument.annotation for argument in signature.arguments}
    made.__annotations__["return"] = signature.returns
    made.__module__ = module
    return made


@contextlib.contextmanager
def intercepted(made: FunctionType, instead: Callable[..., int]) -> Iterator[None]:
    """Inside, a function of `function_of` calls ``instead(launch, *arguments)`` in place of the library's function,
    `launch`, with its arguments; at no cost to calls outside."""
    namespace = made.__globals__
    solutions, solve = namespace["_solutions"], namespace["_solve"]
    inside: dict[Any, tuple[Any, ...]] = {}

    def solve_inside(key: Any) -> tuple[Any, ...]:
        *rest, launch = solve(key)
        inside[key] = (*rest, functools.partial(instead, launch))
        return inside[key]

    namespace["_solutions"], namespace["_solve"] = inside, solve_inside
    try:
        yield
    finally:
        namespace["_solutions"], namespace["_solve"] = solutions, solve


__all__ = ["Argument", "Signature", "choice_names", "docstring", "function_of", "intercepted", "source_of"]
