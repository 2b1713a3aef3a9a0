"""Kernels that stand for several calls, on every instruction set: the bits of these calls."""

from __future__ import annotations

import pytest
from parts import (
    GATES,
    GRADIENTS,
    NORMED,
    ROUTES,
    STORED,
    check_gate,
    check_gradients,
    check_norm_product,
    check_route,
    check_stored,
)

import nncuda
from nncuda.golden.runner import available_isas


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("sizes", ROUTES, ids=str)
def test_the_router_has_the_bits_of_its_parts(isa: str, sizes: tuple[int, ...]) -> None:
    with nncuda.Context("cpu", isa=isa) as ctx:
        check_route(ctx, "bf16", *sizes)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("sizes", GRADIENTS, ids=str)
def test_gradients_of_a_layer_of_experts_have_the_bits_of_their_parts(isa: str, sizes: tuple[int, ...]) -> None:
    with nncuda.Context("cpu", isa=isa) as ctx:
        check_gradients(ctx, "bf16", *sizes)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("sizes", GATES, ids=str)
def test_gated_products_have_the_bits_of_their_parts(isa: str, dtype: str, sizes: tuple) -> None:
    with nncuda.Context("cpu", isa=isa) as ctx:
        check_gate(ctx, dtype, *sizes)


@pytest.mark.parametrize("isa", [isa for isa in available_isas() if isa != "baseline"])
def test_a_large_gated_product_takes_the_workspace_that_it_states(isa: str) -> None:
    """One that is written past the caches, with sums in two pieces."""
    with nncuda.Context("cpu", isa=isa) as ctx:
        check_gate(ctx, "f32", (1000, 1048), 2048, 2048, 1024)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("sizes", NORMED, ids=str)
def test_ternary_products_with_a_norm_have_the_bits_of_their_parts(isa: str, dtype: str, sizes: tuple) -> None:
    with nncuda.Context("cpu", isa=isa) as ctx:
        check_norm_product(ctx, dtype, *sizes)


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("sizes", STORED, ids=str)
def test_stored_experts_have_the_bits_of_their_parts(isa: str, sizes: tuple) -> None:
    with nncuda.Context("cpu", isa=isa) as ctx:
        check_stored(ctx, *sizes)
