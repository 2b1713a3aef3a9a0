"""The kernels in Go: in package `cuda` as they are in C, in package `tensor` as functions of tensors, where everything
that tensors give follows `signature`."""

from __future__ import annotations

from collections.abc import Iterable

from nncuda.binding.agreement import agreement, factors
from nncuda.binding.header import Dim, Function, Param, Section

from .golang_names import MARK, comment, exported, local, option_type, parameter_line, purpose
from .signature import Signature, Solve, signature

_LIMIT = 120


def _grouped(pairs: Iterable[tuple[str, str]]) -> str:
    """Go parameters: neighbours of one type share it."""
    groups: list[tuple[list[str], str]] = []
    for name, kind in pairs:
        if groups and groups[-1][1] == kind:
            groups[-1][0].append(name)
        else:
            groups.append(([name], kind))
    return ", ".join(f"{', '.join(names)} {kind}" for names, kind in groups)


def _wrapped(head: str, arguments: str | list[str], tail: str, indent: str = "") -> list[str]:
    """A line of code, broken between arguments where it would be too long. A tab counts as four."""
    pieces = arguments.split(", ") if isinstance(arguments, str) else arguments
    line = f"{indent}{head}{', '.join(pieces)}{tail}"
    if len(line.expandtabs(4)) <= _LIMIT:
        return [line]
    lines, current = [], f"{indent}{head}"
    inner = indent + "\t"
    pieces = [f"{piece}, " for piece in pieces]
    pieces[-1] = pieces[-1].removesuffix(", ")
    for at, piece in enumerate(pieces):
        last = tail if at == len(pieces) - 1 else ""
        if len((current + piece.rstrip() + last).expandtabs(4)) > _LIMIT:
            lines.append(current.rstrip())
            current = inner
        current += piece
    return [*lines, current + tail]


# Package cuda


def raw(kernels: list[Function]) -> str:
    """The methods of cuda.Context for the kernels of a section."""
    lines = [MARK, "", "package cuda", "", "/*", '#include "calls_gen.h"', "*/", 'import "C"']
    for function in kernels:
        lines += ["", *_raw(function)]
    return "\n".join(lines) + "\n"


def _raw_type(param: Param) -> str:
    return {"pointer": "Memory", "size": "int64", "flag": "bool", "dtype": "DType"}.get(param.kind) or option_type(
        param
    )


def _raw_value(param: Param) -> str:
    if param.kind == "flag":
        return f"flag({local(param.name)})"
    return f"C.{param.ctype}({local(param.name)})"


def _raw(function: Function) -> list[str]:
    name = exported(function.kernel)
    params = function.params[1:]
    pointers = [param for param in params if param.kind == "pointer"]
    text = f"{name} calls {function.name} as it is in bindings.h: sizes are not compared with those of the buffers."
    lines = comment([f"{text} See tensor.{name}."])
    arguments = _grouped((local(param.name), _raw_type(param)) for param in params)
    lines += _wrapped(f"func (ctx *Context) {name}(", arguments, ") error {")
    lines.append("\tin := ctx.enter()")
    for param in pointers:
        lines.append(f'\t{local(param.name)}At := in.at("{param.name}", {local(param.name)})')
    given = ", ".join(["in.handle", *(f"{local(p.name)}At" if p.kind == "pointer" else _raw_value(p) for p in params)])
    lines += ["\tif in.refused() {", f'\t\treturn in.refuse("{function.name}")', "\t}"]
    lines += _wrapped(f"status := C.call_{function.name}(", given, ")", "\t")
    return [*lines, f'\treturn in.leave("{function.name}", status)', "}"]


# Package tensor


def typed(section: Section, kernels: list[Function]) -> str:
    """The functions of tensors for the kernels of a section."""
    bodies = [line for function in kernels for line in ["", *_typed(signature(function))]]
    lines = [MARK, "", "package tensor"]
    if any("cuda." in line for line in bodies if not line.startswith("//")):
        lines += ["", 'import "github.com/nncuda/nncuda/go/cuda"']
    return "\n".join([*lines, *bodies]) + "\n"


def _typed_type(param: Param) -> str:
    kind = {"pointer": "*Tensor", "size": "int", "flag": "bool", "dtype": "cuda.DType"}.get(param.kind)
    if kind:
        return kind
    kind = option_type(param)
    return f"cuda.{kind}" if param.constants else kind


def _rank(param: Param) -> int:
    return len(param.dims)


def _text(param: Param) -> str:
    return param.shape_text.split("^")[0]


def _dim(dim: Dim) -> str:
    """The value of a dimension, of sizes that are known."""
    factors = [local(name) for name in dim.names]
    if dim.coefficient != 1 or not factors:
        factors.insert(0, str(dim.coefficient))
    product = "*".join(factors)
    # Without spaces: so gofmt writes an expression among arguments.
    if dim.divisor != 1:
        product += f"/{dim.divisor}"
    return product + (f"+{dim.offset}" if dim.offset else "")


def _extent(solve: Solve) -> str:
    param, rank = solve.param, _rank(solve.param)
    name = local(param.name)
    if param.swap_flag and solve.at >= rank - 2:
        other = 2 * rank - 3 - solve.at
        return f"{name}.extentIf({local(param.swap_flag)}, {rank}, {other}, {solve.at})"
    return f"{name}.extent({rank}, {solve.at})"


def _solve(solve: Solve) -> list[str]:
    size, dim = local(solve.size), solve.dim
    plain = (dim.coefficient, dim.divisor, dim.offset, len(dim.names)) == (1, 1, 0, 1)
    value = _extent(solve)
    if not plain:
        factors = ([str(dim.coefficient)] if dim.coefficient != 1 else []) + [local(name) for name in solve.others]
        value = (
            f'check.solve("{solve.param.name}", "{dim.text}", "{solve.size}", {value}, '
            f"{dim.offset}, {dim.divisor}, {'*'.join(factors) or '1'})"
        )
    if not solve.param.nullable:
        return [f"\t{size} := {value}"]
    # What only an absent tensor has does not matter, but must not be zero: a size of zero makes a call do nothing.
    return [f"\t{size} := 1", f"\tif {local(solve.param.name)} != nil {{", f"\t\t{size} = {value}", "\t}"]


def _origins(rule: Signature) -> str:
    """Which tensor gives which size, for error messages."""
    by_tensor: dict[str, list[str]] = {}
    for solve in rule.solves:
        by_tensor.setdefault(solve.param.name, []).append(solve.size)
    return ", ".join(f"{' and '.join(sizes)} from {tensor}" for tensor, sizes in by_tensor.items())


def _takes(param: Param) -> str:
    kind = "optional" if param.nullable else "required"
    layout = "strided" if param.ld else "dense"
    if param.swap_flag and _rank(param) == 2:
        layout += f".exactIf({local(param.swap_flag)})"
    return f'check.{kind}("{param.name}", {local(param.name)}, {_rank(param)}, {layout})'


def _dtypes(rule: Signature) -> list[str]:
    lines = []
    for param in rule.function.of_kind("dtype"):
        tensors = rule.dtypes.get(param.name, ())
        if not tensors:
            continue
        name = local(param.name)
        if tensors[0].nullable:
            lines.append(f"\t{name} := firstDType({', '.join(local(tensor.name) for tensor in tensors)})")
        else:
            lines.append(f"\t{name} := {local(tensors[0].name)}.dtype")
        told = tensors if tensors[0].nullable else tensors[1:]
        lines += [f'\tcheck.dtype("{tensor.name}", {local(tensor.name)}, {name})' for tensor in told]
    known = {param.name for param in rule.function.of_kind("dtype")}
    for param in rule.function.pointers:
        if param.dtype not in known:
            lines.append(f'\tcheck.dtype("{param.name}", {local(param.name)}, cuda.{param.dtype.upper()})')
    return lines


def _shape(param: Param) -> list[str]:
    dims = ", ".join(_dim(dim) for dim in param.dims)
    name = local(param.name)
    if param.swap_flag:
        *rest, last = (dim.text for dim in param.dims)
        swapped = f"[{', '.join([*rest[:-1], last, rest[-1]])}]"
        head = f'check.shapeIf({local(param.swap_flag)}, "{param.name}", {name}, "{_text(param)}", "{swapped}", '
        return _wrapped(head, dims, ")", "\t")
    return _wrapped(f'check.shape("{param.name}", {name}, "{_text(param)}", ', dims, ")", "\t")


def _named(param: Param) -> str:
    return f'named{{"{param.name}", {local(param.name)}}}'


def _agreement(function: Function) -> list[str]:
    """What `agreement` says of shapes, before any size is known."""
    rules = agreement(function)
    lines = [line for group in rules.same for line in _wrapped("check.same(", list(map(_named, group)), ")", "\t")]
    for fold in rules.further_folds:
        text = fold.dim.text
        for inner in fold.inner:
            assert not inner.param.nullable, f"{function.kernel}: {inner.param.name} may be absent, and has {text}"
            flag = local(inner.param.swap_flag)
            condition = {None: "", True: flag, False: f"!{flag}"}[inner.when]
            unfolded = []
            for param in fold.tensors:
                if param != inner.param:
                    dims = f"[{', '.join(dim.text for dim in param.dims)}]"
                    head = f'check.unfolded("{param.name}", {local(param.name)}, '
                    unfolded += _wrapped(head, f'{_rank(param)}, "{dims}", "{text}", "{inner.param.name}"', ")", "\t")
            lines += [f"\tif {condition} {{", *(f"\t{line}" for line in unfolded), "\t}"] if condition else unfolded
        if len(fold.tensors) > 1 and not any(inner.when is None for inner in fold.inner):
            folding = [f"ranked{{{_named(param)}, {_rank(param)}}}" for param in fold.tensors]
            lines += _wrapped(f'check.folds("{text}", ', folding, ")", "\t")
    return lines


def _factors(param: Param) -> list[str]:
    """The check of sizes that were folded into a product of as many names."""
    names = list(map(local, factors(param)))
    head = f'check.factors("{param.name}", {local(param.name)}, {_rank(param)}, "{_text(param)}", '
    return _wrapped(head, names, ")", "\t") if names else []


def _stride(ld: str, tensors: tuple[Param, ...]) -> list[str]:
    rank = _rank(tensors[0])
    if len(tensors) == 1:
        return [f"\t{local(ld)} := {local(tensors[0].name)}.stride({rank})"]
    return _wrapped(f'{local(ld)} := check.strides("{ld}", {rank}, ', list(map(_named, tensors)), ")", "\t")


def _typed(rule: Signature) -> list[str]:
    function = rule.function
    name = exported(function.kernel)
    arguments = _grouped((local(param.name), _typed_type(param)) for param in rule.arguments)
    lines = comment(
        [f"{name} calls {function.name}.", *purpose(function), *(parameter_line(param) for param in rule.arguments)]
    )
    lines += _wrapped(f"func {name}(", arguments, ") error {")
    opening, origins = f'\tcheck := begin("{function.kernel}",', f'"{_origins(rule)}")'
    fits = len(f"{opening} {origins}".expandtabs(4)) <= _LIMIT
    lines += [f"{opening} {origins}"] if fits else [opening, f"\t\t{origins}"]
    takes = [_takes(param) for param in function.pointers]
    lines += [f"\tif !{takes[0]}" + (" ||" if len(takes) > 1 else " {")]
    for at, take in enumerate(takes[1:], 2):
        lines.append(f"\t\t!{take}" + (" ||" if at < len(takes) else " {"))
    lines += ["\t\treturn check.err", "\t}"]
    lines += [f'\tcheck.size("{param.name}", {local(param.name)})' for param in rule.arguments if param.kind == "size"]
    lines += _agreement(function)
    for solve in rule.solves:
        lines += _solve(solve)
    lines += _dtypes(rule)
    for param in function.pointers:
        lines += _shape(param)
        if not agreement(function).led(param):
            lines += _factors(param)
    for ld, tensors in rule.strides.items():
        lines += _stride(ld, tensors)
    lines += ["\tif check.err != nil {", "\t\treturn check.err", "\t}"]
    given = ", ".join(_given(param) for param in function.params[1:])
    return [*lines, *_wrapped(f"return check.ctx.{name}(", given, ")", "\t"), "}"]


def _given(param: Param) -> str:
    name = local(param.name)
    if param.kind == "pointer":
        return f"{name}.memory()"
    return f"int64({name})" if param.kind == "size" else name


def table(kernels: Iterable[Function]) -> str:
    """The typed functions by their kernel's name, with their arguments' names in the header, as a test calls them."""
    lines = [MARK, "", "package tensor_test", "", 'import "github.com/nncuda/nncuda/go/tensor"', ""]
    lines += ["var typed = []typedKernel{"]
    for function in kernels:
        names = ", ".join(f'"{param.name}"' for param in signature(function).arguments)
        lines += _wrapped(f'{{"{function.kernel}", tensor.{exported(function.kernel)}, []string{{', names, "}},", "\t")
    return "\n".join([*lines, "}", ""])
