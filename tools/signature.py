"""What a caller of a compiled language passes to a kernel, and how the rest of its arguments follows from the tensors.

Python solves sizes when a kernel is called (see `plan`). Go and Rust have typed functions, whose text is made from the
header, so the order of solving is fixed here, once a kernel: each size that a tensor tells is solved from one of its
dimensions, all other dimensions become checks, and only what no tensor tells is passed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from nncuda.binding.header import Dim, Function, Param

__all__ = ["Check", "Signature", "Solve", "signature"]


@dataclass(frozen=True)
class Check:
    """Dimension `at` of the tensor `param`, counted in the header's shape, must be the value of `dim`.

    Where the tensor's last two dimensions may be swapped (`param.swap_flag`), `at` counts in the shape without the
    swap: with the flag set, the tensor's own dimension is the other of the two.
    """

    param: Param
    at: int
    dim: Dim


@dataclass(frozen=True)
class Solve(Check):
    """The size `size` is ``(extent - dim.offset) * dim.divisor / (dim.coefficient * the dimension's other names)``,
    where `extent` is the tensor's dimension. A remainder is an error, and so is an extent that is not zero over other
    names that are. Where both are zero the size is 1: such a call does nothing. A nullable tensor solves only what no
    required one tells; when it is not given, the size is 1, since it does not matter but must not be zero."""

    size: str

    @property
    def others(self) -> tuple[str, ...]:
        """The dimension's other names, all of them solved or passed before."""
        return tuple(name for name in self.dim.names if name != self.size)


@dataclass(frozen=True)
class Signature:
    """One kernel as a compiled language calls it.

    arguments   what the caller passes, in the header's order: pointers (as tensors), options, flags, and the sizes and
                dtypes that no tensor tells
    solves      the other sizes, in an order in which each needs only those before it and the arguments
    checks      all dimensions that were not used for solving; those of a nullable tensor hold only when it is given
    dtypes      for each dtype parameter: the tensors that tell it, required ones first; they must agree, and the first
                one given tells it. If none is given it is f32
    strides     for each stride: the tensors that have it. It is their common row stride; a tensor of at most one row
                has none of its own, and if none has one the stride is the largest of their rows' lengths
    """

    function: Function
    arguments: tuple[Param, ...]
    solves: tuple[Solve, ...]
    checks: tuple[Check, ...]
    dtypes: dict[str, tuple[Param, ...]]
    strides: dict[str, tuple[Param, ...]]


@functools.cache
def signature(function: Function) -> Signature:
    """The signature of a kernel. It depends on the header alone."""
    strides: dict[str, tuple[Param, ...]] = {}
    dtypes: dict[str, tuple[Param, ...]] = {}
    dtype_names = {param.name for param in function.of_kind("dtype")}
    for param in sorted(function.pointers, key=lambda param: param.nullable):
        if param.ld:
            strides[param.ld] = (*strides.get(param.ld, ()), param)
        if param.dtype in dtype_names:
            dtypes[param.dtype] = (*dtypes.get(param.dtype, ()), param)
    unsolved = [param.name for param in function.of_kind("size") if param.name not in strides]

    def rank(check: Check) -> tuple[bool, bool, bool]:
        # A reader calls that tensor wrong which disagrees with a more obvious one: inputs before outputs, plain names
        # before expressions. A nullable tensor comes last.
        dim = check.dim
        plain = (dim.coefficient, dim.divisor, dim.offset, len(dim.names)) == (1, 1, 0, 1)
        return check.param.nullable, not check.param.reads, not plain

    checks = [Check(param, at, dim) for param in function.pointers for at, dim in enumerate(param.dims)]
    pending = sorted(checks, key=rank)
    # What a required tensor has among its dimensions matters to the kernel even when a nullable one is not given.
    matters = {name for param in function.pointers if not param.nullable for dim in param.dims for name in dim.names}

    def solvable(check: Check, unknown: list[str]) -> str:
        """The one size that the dimension tells; empty when it tells none."""
        found = [name for name in check.dim.names if name in unknown]
        return found[0] if len(found) == 1 and not (check.param.nullable and found[0] in matters) else ""

    passed: list[str] = []
    solves: list[Solve] = []
    while unsolved:
        found = next((check for check in pending if solvable(check, unsolved)), None)
        if found is not None:
            size = solvable(found, unsolved)
            solves.append(Solve(found.param, found.at, found.dim, size))
            pending.remove(found)
        else:
            size = max(unsolved, key=lambda name: _opened(name, unsolved, pending, solvable))
            passed.append(size)
        unsolved.remove(size)
    passed_dtypes = dtype_names - set(dtypes)
    arguments = tuple(
        param
        for param in function.params
        if param.kind in ("pointer", "handle", "option", "flag") or param.name in passed or param.name in passed_dtypes
    )
    order = {id(check): number for number, check in enumerate(checks)}
    left = tuple(sorted(pending, key=lambda check: order[id(check)]))
    return Signature(function, arguments, tuple(solves), left, dtypes, strides)


def _opened(size: str, unsolved: list[str], pending: list[Check], solvable: Callable[[Check, list[str]], str]) -> int:
    """How many sizes follow once `size` is passed."""
    rest = [name for name in unsolved if name != size]
    while found := next((name for check in pending if (name := solvable(check, rest))), ""):
        rest.remove(found)
    return len(unsolved) - len(rest)
