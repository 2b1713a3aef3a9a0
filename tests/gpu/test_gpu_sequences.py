"""Kernels that are a launch or two in place of several calls: the bits of these calls, and how many launches."""

from __future__ import annotations

import numpy as np
import pytest
from devices import launch_counter
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
from nncuda.layers.linear import Linear
from nncuda.layers.moe import MoELayer, Router


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("sizes", ROUTES, ids=str)
def test_the_router_has_the_bits_of_its_parts(gpu: nncuda.Context, sizes: tuple[int, ...], dtype: str) -> None:
    check_route(gpu, dtype, *sizes)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("sizes", GRADIENTS, ids=str)
def test_gradients_of_a_layer_of_experts_have_the_bits_of_their_parts(
    gpu: nncuda.Context, sizes: tuple[int, ...], dtype: str
) -> None:
    check_gradients(gpu, dtype, *sizes)


@pytest.mark.parametrize("sizes", STORED, ids=str)
def test_stored_experts_have_the_bits_of_their_parts(gpu: nncuda.Context, sizes: tuple) -> None:
    check_stored(gpu, *sizes)


#: Enough tiles for large ones, and for those of wgmma: the last rows of groups, which go another way, one by one.
LARGE_GATES = (((300, 1, 17, 0, 530, 15), 900, 520, 64), ((1100, 900), 2000, 1088, 72))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("sizes", (*GATES, *LARGE_GATES), ids=str)
def test_gated_products_have_the_bits_of_their_parts(gpu: nncuda.Context, sizes: tuple, dtype: str) -> None:
    check_gate(gpu, dtype, *sizes)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("sizes", NORMED, ids=str)
def test_ternary_products_with_a_norm_have_the_bits_of_their_parts(
    gpu: nncuda.Context, sizes: tuple, dtype: str
) -> None:
    check_norm_product(gpu, dtype, *sizes)


def test_launches_of_a_layer_of_experts(gpu: nncuda.Context) -> None:
    """As docs/gpu.md has them, where no product is cut into pieces of k."""
    launches = launch_counter()
    tokens, hidden, ffn, experts = 256, 128, 64, 8
    draw = np.random.default_rng(0)

    def tensor(*shape: int) -> nncuda.Tensor:
        return gpu.tensor(draw.standard_normal(shape, np.float32))

    gate = Linear(tensor(experts, hidden), gpu.zeros((experts, hidden)))
    w13, w2 = (experts, 2 * ffn, hidden), (experts, hidden, ffn)
    layer = MoELayer(Router(gate, 2, True, 0.01), tensor(*w13), tensor(*w2), gpu.zeros(w13), gpu.zeros(w2))
    x, dout, aux, factor = tensor(tokens, hidden), tensor(tokens, hidden), gpu.zeros(1), tensor(1)
    begin = launches()
    _, _, kept = layer.forward_keeping(x, x, 0, aux)
    forward = launches()
    layer.backward(dout, x, kept, factor)
    assert (forward - begin, launches() - forward) == (6, 6)
