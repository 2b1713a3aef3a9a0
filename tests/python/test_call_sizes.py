"""Sizes solved from shapes, for every kernel: random sizes in, the same sizes and the shapes of the header out."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nncuda.binding import call_sizes, generate, header
from nncuda.binding.header import Function, Param
from nncuda.device import Layout

CONTRACT = header.parse()


def half_of(function: Function) -> str:
    """f16, or bf16 where the function does not take that."""
    return (
        "f16"
        if all("bf16" not in param.dtypes or "f16" in param.dtypes for param in function.of_kind("dtype"))
        else "bf16"
    )


def layout_of(param: Param, sizes: dict[str, int], swapped: bool, strided: bool, half: str) -> Layout:
    """The layout that a parameter has by the header's line."""
    dims = list(param.dims)
    if swapped and param.swap_flag:
        dims[-2:] = [dims[-1], dims[-2]]
    shape = tuple(dim.value(sizes) for dim in dims)
    dtype = param.dtype if param.dtype in header.FIXED_DTYPES else half
    return Layout.of(shape, dtype, sizes[param.ld] if param.ld and strided else None)


def random_sizes(function: Function, rng: random.Random) -> dict[str, int]:
    """Sizes of at least 2, so that no dimension is without a stride; strides that leave a gap after the widest row."""
    sizes = {param.name: 2 * rng.randint(1, 9) for param in function.of_kind("size")}
    for ld in {param.ld for param in function.pointers if param.ld}:
        # Rows of any tensor with this stride must fit, also when a flag swaps its dimensions.
        sizes[ld] = 100_000 + rng.randint(0, 9)
    return sizes


@pytest.mark.parametrize("name", CONTRACT.kernels)
@pytest.mark.parametrize("strided", [False, True])
def test_every_kernel(name: str, strided: bool) -> None:
    function = CONTRACT.kernels[name]
    signature = generate.Signature(function, CONTRACT)
    solver = call_sizes.CallSizes(function, signature.results)
    half = half_of(function)
    rng = random.Random(name)
    for trial in range(20):
        sizes = random_sizes(function, rng)
        flags = {flag: rng.random() < 0.5 for flag in signature.flags}
        layouts: dict[str, Any] = {}
        for param in function.pointers:
            if param in signature.results or (param.nullable and trial % 2):
                layouts[param.name] = call_sizes.ALLOCATE if param in signature.results else None
            else:
                layouts[param.name] = layout_of(param, sizes, bool(flags.get(param.swap_flag)), strided, half)
        given = {param.name: sizes[param.name] for param in signature.sizes}
        chosen = {param.name: half for param in signature.dtypes}
        made = solver.solve(layouts, given, chosen, flags)
        names = [param.name for param in function.of_kind("size")]
        solved = dict(zip(names, made, strict=False))
        inputs = [param for param in function.pointers if isinstance(layouts[param.name], Layout)]
        strides = {param.ld for param in inputs if param.ld}
        for size in names:
            if size in strides and strided:
                assert solved[size] == sizes[size]
            elif size not in solver.strides:
                assert solved[size] == sizes[size], size
        for param, layout in zip(signature.results, made[len(made) - len(signature.results) :], strict=True):
            assert layout.shape == tuple(dim.value(sizes) for dim in param.dims), param.name
            assert layout.ld == (solved[param.ld] if param.ld else layout.inner)
            assert not layout.readonly
        codes = made[len(names) : len(names) + len(solver.dtypes)]
        assert set(codes) <= {CONTRACT.constants[f"NNCUDA_{half.upper()}"]}, "every dtype is the same"


@pytest.mark.parametrize("name", CONTRACT.kernels)
def test_one_dimension_too_long_is_refused(name: str) -> None:
    """Whichever dimension of whichever input is too long: the shapes do not agree, unless it stands alone."""
    function = CONTRACT.kernels[name]
    signature = generate.Signature(function, CONTRACT)
    solver = call_sizes.CallSizes(function, signature.results)
    half = half_of(function)
    sizes = random_sizes(function, random.Random(name))
    flags = dict.fromkeys(signature.flags, False)
    given = {param.name: sizes[param.name] for param in signature.sizes}
    chosen = {param.name: half for param in signature.dtypes}
    inputs = [param for param in function.pointers if param not in signature.results]
    right = {param.name: layout_of(param, sizes, False, False, half) for param in inputs}
    right |= dict.fromkeys((param.name for param in signature.results), call_sizes.ALLOCATE)
    solver.solve(right, given, chosen, flags)
    for param in inputs:
        for axis, dim in enumerate(param.dims):
            shape = list(right[param.name].shape)
            shape[axis] += 2  # one more would leave head_dim/2 the same
            wrong = {**right, param.name: Layout.of(tuple(shape), right[param.name].dtype)}
            uses = sum(dim.names == other.dims[i].names for other in inputs for i in range(len(other.dims)))
            alone = uses == 1 and len(dim.names) == 1 and dim.names[0] not in given and dim.text == dim.names[0]
            shared = [other for other in inputs if other is not param and set(dim.names) & _names(other)]
            if alone and not shared:
                solver.solve(wrong, given, chosen, flags)
            else:
                with pytest.raises(ValueError, match=name):
                    solver.solve(wrong, given, chosen, flags)


def _names(param: Param) -> set[str]:
    return {name for dim in param.dims for name in dim.names}


def test_folded_rows_have_a_stride_even_if_the_first_dimension_is_one() -> None:
    function = CONTRACT.kernels["swiglu"]
    solver = call_sizes.CallSizes(function, generate.Signature(function, CONTRACT).results)
    # The stride of its first dimension, of one entry, says nothing about the rows that are folded into it.
    folded = Layout.of((1, 5, 4), "f32", 99)
    assert folded.dense
    assert solver.solve({"gate": folded, "up": folded, "used": None, "y": call_sizes.ALLOCATE}, {}, {}, {})[:3] == (
        5,
        4,
        4,
    )
    apart = Layout.of((5, 4), "f32", 8)
    with pytest.raises(ValueError, match="both must be the same"):
        solver.solve(
            {"gate": apart, "up": Layout.of((5, 4), "f32"), "used": None, "y": call_sizes.ALLOCATE}, {}, {}, {}
        )
