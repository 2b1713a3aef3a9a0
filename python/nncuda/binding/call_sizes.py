"""Sizes, strides and dtypes of a kernel call, solved from the layouts of its tensors by the shapes in the header.

A shape's dimensions are expressions over the kernel's size parameters. Each tensor gives an equation a dimension;
`CallSizes.solve` solves them, checks that they agree, and lays out the outputs that the call must allocate. The result
depends on the layouts and the sizes given by keyword alone, so callers keep it.

How a tensor's shape meets the header's:

- a shape of one dimension, such as ``[n]`` or ``[tokens*k]``, takes a dense tensor of any shape, flattened;
- leading dimensions beyond those of the header's shape are folded into the first:
  ``[rows, cols]`` takes (4, 5, cols);
- where the first dimension is a product of as many names, they are matched one by one: ``[batch*q_len, heads]`` takes
  (batch, q_len, heads) and needs no keyword.

So that this hides no mistake, shapes must also agree as `agreement` says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from .. import dtypes
from ..device import Layout
from .agreement import agreement, factors
from .header import Dim, Function, Param

#: In place of a layout: an output that the call allocates.
ALLOCATE = True


@dataclass
class _Equation:
    param: Param
    dim: Dim
    value: int


class CallSizes:
    """Solves the sizes of one kernel's calls; `results` are the outputs that a call may have to allocate."""

    def __init__(self, function: Function, results: tuple[Param, ...]) -> None:
        self.results = results
        self.name = function.kernel
        self.pointers = function.pointers
        self.sizes = tuple(param.name for param in function.of_kind("size"))
        self.dtypes = function.of_kind("dtype")
        self.strides = {param.ld for param in self.pointers if param.ld}
        self.has_inputs = any(param.direction != "out" for param in self.pointers)
        self.agreement = agreement(function)
        # The sizes under the roots that are options' defaults.
        self.roots = [param.root_of for param in function.of_kind("option") if param.root_of]

    def solve(
        self, layouts: Mapping[str, Any], sizes: Mapping[str, Any], chosen: Mapping[str, Any], flags: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """The values of: every size, every dtype (its code), every option with a root as its default, every result's
        layout (None where it is not to be allocated), in the header's order.

        `layouts` holds for each pointer a Layout, None (null) or ALLOCATE; `sizes` and `chosen` what the caller said by
        keyword (None where nothing), `flags` the flags that swap dimensions. ValueError when shapes disagree,
        TypeError when dtypes do.
        """
        tensors = {param.name: (param, layouts[param.name]) for param in self.pointers}
        present = [(param, layout) for param, layout in tensors.values() if isinstance(layout, Layout)]
        wanted = [param for param, layout in tensors.values() if layout is ALLOCATE]
        for param, layout in present:
            if param.writes and layout.readonly:
                raise ValueError(f"{self.name}: {param.name} is written, but its memory is read-only")
        self._same_shapes(layouts)
        names = self._dtypes(present, wanted, chosen)
        known, origin, shapes = self._given(sizes)
        self._folds(layouts, flags, shapes)
        equations = [equation for param, layout in present for equation in self._equations(param, layout, flags)]
        self._propagate(equations, known, origin)
        self._unused(known, [param for param, _ in present] + wanted)
        self._require(known, [param for param, _ in present] + wanted, present, equations)
        self._agree(equations, known, origin, present)
        self._strides(present, wanted, known)
        outputs = [
            self._output(param, known, names, present, shapes, flags) if layouts[param.name] is ALLOCATE else None
            for param in self.results
        ]
        roots = [1.0 / math.sqrt(known[name] or 1) for name in self.roots]
        codes = [dtypes.DTYPES[names[param.name]].code for param in self.dtypes]
        return (*(known[name] for name in self.sizes), *codes, *roots, *outputs)

    def _given(self, sizes: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, str], dict[str, tuple[int, ...]]]:
        """What the keywords say: the sizes, that they say it, and those that were given as a shape."""
        known: dict[str, int] = {}
        shapes = {}
        for name, value in sizes.items():
            if value is None:
                continue
            if isinstance(value, tuple):
                shapes[name] = value
                value = math.prod(value)
            if not hasattr(value, "__index__"):
                raise TypeError(f"{self.name}: {name} is {value!r}; a size is an int")
            known[name] = value.__index__()
            if known[name] < 0:
                raise ValueError(f"{self.name}: {name} is {known[name]}; a size is not negative")
        return known, dict.fromkeys(known, "given"), shapes

    # dtypes

    def _dtypes(
        self, present: list[tuple[Param, Layout]], wanted: list[Param], chosen: Mapping[str, Any]
    ) -> dict[str, str]:
        """The name of each dtype parameter's dtype; TypeError when tensors or keywords disagree."""
        names: dict[str, str] = {}
        origin: dict[str, str] = {}
        for param in self.dtypes:
            if chosen.get(param.name) is not None:
                names[param.name] = dtypes.name_of(chosen[param.name])
                origin[param.name] = f"{param.name}= says"
        for param, layout in present:
            if param.dtype in names:
                if layout.dtype != names[param.dtype]:
                    raise TypeError(
                        f"{self.name}: {param.name} is {layout.dtype}, but {origin[param.dtype]} {names[param.dtype]}"
                    )
            elif param.dtype in {dtype.name for dtype in self.dtypes}:
                names[param.dtype] = layout.dtype
                origin[param.dtype] = f"{param.name} is"
            elif layout.dtype != param.dtype:
                raise TypeError(f"{self.name}: {param.name} is {layout.dtype}; it must be {param.dtype}")
        for param in self.dtypes:
            if param.name not in names:
                names[param.name] = self._default_dtype(param, names, wanted)
            allowed = [names[name] if name in names else name for name in param.dtypes]
            if names[param.name] not in allowed:
                raise TypeError(f"{self.name}: {param.name} is {names[param.name]}; it must be {' or '.join(allowed)}")
        return names

    def _default_dtype(self, param: Param, names: dict[str, str], wanted: list[Param]) -> str:
        same_as = [name for name in param.dtypes if name in names]
        if same_as:
            return names[same_as[0]]
        needing = [other.name for other in wanted if other.dtype == param.name]
        if needing and self.has_inputs:
            give = f"give {param.name}= or {needing[0]}="
            raise TypeError(f"{self.name}: no input tells the dtype of {needing[0]}: {give}")
        return "f32" if "f32" in param.dtypes else param.dtypes[0]

    # Shapes

    def _dims(self, param: Param, flags: Mapping[str, Any]) -> tuple[Dim, ...]:
        """The dimensions of a tensor, in the order that the flag says."""
        dims = param.dims
        swapped = param.swap_flag and flags.get(param.swap_flag)
        return (*dims[:-2], dims[-1], dims[-2]) if swapped else dims

    def _same_shapes(self, layouts: Mapping[str, Any]) -> None:
        """Refuses tensors of different shapes where the header gives them the same one."""
        for group in self.agreement.same:
            present = [(param, layouts[param.name]) for param in group if isinstance(layouts[param.name], Layout)]
            for param, layout in present[1:]:
                other, other_layout = present[0]
                if layout.shape != other_layout.shape:
                    raise ValueError(
                        f"{self.name}: {param.name} has shape {layout.shape}, but {other.name} has shape "
                        f"{other_layout.shape}; both must have the same shape"
                    )

    def _folds(
        self, layouts: Mapping[str, Any], flags: Mapping[str, Any], given: Mapping[str, tuple[int, ...]]
    ) -> None:
        """Refuses a dimension that is folded from different sizes, or that is an inner one of another tensor."""
        for fold in self.agreement.folds:
            text = fold.dim.text
            where = [
                inner.param.name
                for inner in fold.inner
                if isinstance(layouts[inner.param.name], Layout)
                and inner.when in (None, bool(flags.get(inner.param.swap_flag)))
            ]
            shape = given.get(text, ())
            first = (f"{text}= says", shape) if len(shape) > 1 else None
            for param in fold.tensors:
                layout = layouts[param.name]
                if not isinstance(layout, Layout):
                    continue
                dims = self._dims(param, flags)
                axes = layout.shape[: len(layout.shape) - len(dims) + 1]
                if len(axes) < 2 or dims[0] != fold.dim:
                    continue
                if where:
                    raise ValueError(
                        f"{self.name}: {param.name} has shape {layout.shape}; {self._expected(dims)} was expected, "
                        f"where {text} cannot be folded, since {where[0]} has it as an inner dimension"
                    )
                first = first or (f"{param.name} folds", axes)
                if axes != first[1]:
                    raise ValueError(
                        f"{self.name}: {param.name} folds {axes} into {text}, but {first[0]} {first[1]}; both must "
                        "be the same, or one of them flat"
                    )

    # Sizes

    def _equations(self, param: Param, layout: Layout, flags: Mapping[str, Any]) -> list[_Equation]:
        dims = self._dims(param, flags)
        swapped = dims is not param.dims
        shape = layout.shape
        if not param.ld and not layout.dense:
            raise ValueError(
                f"{self.name}: {param.name} must be dense, but its rows of {layout.inner} elements lie {layout.ld} "
                "apart; contiguous() makes a dense copy"
            )
        extra = len(shape) - len(dims)
        if len(dims) > 1 and (extra < 0 or (extra and (not layout.dense or (swapped and len(dims) == 2)))):
            raise ValueError(f"{self.name}: {param.name} has shape {shape}; {self._expected(dims)} was expected")
        first, axes = dims[0], shape[: extra + 1]
        rest = [_Equation(param, dim, size) for dim, size in zip(dims[1:], shape[extra + 1 :], strict=True)]
        names = factors(param)
        if names and len(axes) == len(names):
            return [_Equation(param, Dim(n, (n,)), size) for n, size in zip(names, axes, strict=True)] + rest
        return [_Equation(param, first, math.prod(axes)), *rest]

    def _propagate(self, equations: list[_Equation], known: dict[str, int], origin: dict[str, str]) -> None:
        # Inputs before outputs and plain names before expressions, so that what is reported as wrong is what a reader
        # would call wrong: the tensor that disagrees with the more obvious one.
        def rank(equation: _Equation) -> tuple[bool, bool]:
            dim = equation.dim
            return not equation.param.reads, (dim.coefficient, dim.divisor, dim.offset, len(dim.names)) != (1, 1, 0, 1)

        pending = sorted(equations, key=rank)
        progress = True
        while progress:
            progress = False
            for equation in pending:
                solved = equation.dim.solve(equation.value, known)
                if solved is not None:
                    known[solved[0]] = solved[1]
                    origin[solved[0]] = f"from {equation.param.name}"
                    progress = True

    def _unused(self, known: dict[str, int], used: list[Param]) -> None:
        """A size that only absent tensors have does not matter to the kernel, but must not be zero: a size of zero
        makes a call do nothing."""
        needed = {name for param in used for dim in param.dims for name in dim.names}
        for name in self.sizes:
            if name not in needed and name not in self.strides:
                known.setdefault(name, 1)

    def _require(
        self,
        known: dict[str, int],
        used: list[Param],
        present: list[tuple[Param, Layout]],
        equations: list[_Equation],
    ) -> None:
        missing = [name for name in self.sizes if name not in known and name not in self.strides]
        if not missing:
            return
        for equation in equations:
            # Nothing times anything is nothing: such a call does nothing, whatever the other factor is.
            if equation.value == 0 and any(known.get(name) == 0 for name in equation.dim.names):
                known.update({name: known.get(name, 1) for name in equation.dim.names})
        missing = [name for name in missing if name not in known]
        if not missing:
            return
        shapes = ", ".join(f"{param.name} {layout.shape}" for param, layout in present)
        for equation in equations:
            # Every size but one known and still no solution: the value is not a multiple of the others.
            unknown = [name for name in equation.dim.names if name in missing]
            if len(unknown) == 1 and all(known[name] for name in equation.dim.names if name in known):
                others = ", ".join(f"{name} = {known[name]}" for name in equation.dim.names if name in known)
                raise ValueError(
                    f"{self.name}: {equation.param.name} has {equation.value} entries along {equation.dim.text}, which "
                    f"no {unknown[0]} gives" + (f" with {others}" if others else "")
                )
        enough = [name for name in missing if self._would_do(name, missing, equations)]
        hint = " or ".join(f"{name}=" for name in enough) or " and ".join(f"{name}=" for name in missing)
        if shapes:
            raise TypeError(f"{self.name}: the shapes ({shapes}) do not tell {', '.join(missing)}: give {hint}")
        raise TypeError(f"{self.name}: no tensor tells {', '.join(missing)}: give {hint}")

    def _would_do(self, name: str, missing: list[str], equations: list[_Equation]) -> bool:
        known = {size: 1 for size in self.sizes if size not in missing} | {name: 1}
        progress = True
        while progress:
            progress = False
            for equation in equations:
                unknown = [size for size in equation.dim.names if size not in known]
                if len(unknown) == 1:
                    known[unknown[0]] = 1
                    progress = True
        return all(size in known for size in missing)

    def _agree(
        self,
        equations: list[_Equation],
        known: dict[str, int],
        origin: dict[str, str],
        present: list[tuple[Param, Layout]],
    ) -> None:
        shape_of = {param.name: layout.shape for param, layout in present}
        for equation in equations:
            if equation.dim.value(known) != equation.value:
                param = equation.param
                names = dict.fromkeys(name for dim in param.dims for name in dim.names)
                values = ", ".join(f"{name} = {known[name]} ({origin.get(name, 'given')})" for name in names)
                raise ValueError(
                    f"{self.name}: {param.name} has shape {shape_of[param.name]}; {param.shape_text} with {values} "
                    f"was expected"
                    if values
                    else f"{self.name}: {param.name} has shape {shape_of[param.name]}; one element was expected"
                )

    def _expected(self, dims: tuple[Dim, ...]) -> str:
        return "[" + ", ".join(dim.text for dim in dims) + "]"

    # Strides and outputs

    def _inner(self, param: Param, known: dict[str, int], flags: Mapping[str, Any] | None = None) -> int:
        return math.prod(dim.value(known) for dim in param.dims[1:])

    def _strides(self, present: list[tuple[Param, Layout]], wanted: list[Param], known: dict[str, int]) -> None:
        """Strides are those of the tensors; a tensor of one row has none of its own."""
        origin: dict[str, str] = {}
        fallback: dict[str, int] = {}
        for param, layout in present:
            if not param.ld:
                continue
            extra = len(layout.shape) - len(param.dims)
            ld = layout.ld if extra == 0 else math.prod(layout.shape[extra + 1 :])
            if layout.numel == 0 or math.prod(layout.shape[: extra + 1]) == 1:
                fallback[param.ld] = max(ld, fallback.get(param.ld, 0))
            elif known.setdefault(param.ld, ld) != ld:
                raise ValueError(
                    f"{self.name}: the rows of {param.name} lie {ld} elements apart, but those of {origin[param.ld]} "
                    f"{known[param.ld]}; both must be the same ({param.ld})"
                )
            origin.setdefault(param.ld, param.name)
        for param in self.pointers:
            if param.ld and param.ld not in known:
                known[param.ld] = max(fallback.get(param.ld, 0), self._inner(param, known))

    def _output(
        self,
        param: Param,
        known: dict[str, int],
        names: dict[str, str],
        present: list[tuple[Param, Layout]],
        shapes: Mapping[str, tuple[int, ...]],
        flags: Mapping[str, Any],
    ) -> Layout:
        """The layout of an output to allocate: the shape of the first input with the same dimensions, else the
        header's."""
        dtype = cast(dtypes.DTypeName, names.get(param.dtype, param.dtype))
        shape = tuple(dim.value(known) for dim in param.dims)
        ld = known[param.ld] if param.ld and known[param.ld] != math.prod(shape[1:]) else None
        for other, layout in present:
            swapped = other.swap_flag and flags.get(other.swap_flag)
            if other.reads and other.dims == param.dims and not swapped:
                return Layout.of(layout.shape if ld is None or len(layout.shape) == len(shape) else shape, dtype, ld)
        if len(shape) == 1:
            shape = shapes.get(param.dims[0].text, shape)
        return Layout.of(shape, dtype, ld)
