"""The reference as a model in 16 bits computes it: each result that the library stores in 16 bits is rounded to them.

What stays as exact as it is are the gradients of weights and gains, the router's logits and probabilities, the logits
of the head, and sums inside a kernel. Numbers are rounded to the dtype's bits of mantissa, and exponents have no
limits: in f16 that is what loss scaling is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np

from nncuda.reference import layers, model

MANTISSA = {"bf16": 8, "f16": 11}

#: What kernels give in f32, or in whole numbers, whatever their inputs are.
NOT_STORED = {
    *("rstd", "lse", "weights", "indices", "probs", "dweights", "dweight", "dprobs", "cosine", "sine"),
    *("counts", "offsets", "slot_row", "row_slot"),
}


def rounded(x: np.ndarray, bits: int) -> np.ndarray:
    """To so many bits of mantissa, to nearest, ties to even."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits)


class Stored(np.ndarray):
    """An activation in 16 bits: what is added to it is rounded again."""

    bits = 0

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        result = getattr(ufunc, method)(*map(plain, inputs), **options)
        return stored(result, self.bits) if ufunc is np.add and method == "__call__" else result

    def __array_finalize__(self, source: Any) -> None:
        self.bits = getattr(source, "bits", 0)


def plain(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, Stored) else x


def stored(x: np.ndarray, bits: int) -> Stored:
    array = rounded(plain(x), bits).view(Stored)
    array.bits = bits
    return array


class _Kernels:
    """A module of reference kernels, their results rounded."""

    def __init__(self, module: ModuleType, bits: int):
        self._module = module
        self._bits = bits

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)
        if not callable(function):
            return function

        def call(*arguments: Any, **options: Any) -> dict[str, Any]:
            found = function(*map(plain, arguments), **{key: plain(value) for key, value in options.items()})
            return {key: value if key in NOT_STORED else stored(value, self._bits) for key, value in found.items()}

        return call


@contextmanager
def in_precision(precision: str, experts: int) -> Iterator[None]:
    """While it lasts, `nncuda.reference.model` computes so; parameters must be `stored`. `experts` tells the router."""
    bits = MANTISSA[precision]
    linear, linear_backward = layers.linear, layers.linear_backward

    def product(x: Any, weight: Any) -> Any:
        y = linear(plain(x), plain(weight))
        return y if len(weight) == experts else stored(y, bits)

    def head(x: Any, weight: Any) -> Any:
        return linear(plain(x), plain(weight))

    def product_backward(dy: Any, x: Any, params: Any, name: str, grads: Any) -> Any:
        weight = {name: plain(params[name])}
        return stored(linear_backward(rounded(plain(dy), bits), plain(x), weight, name, grads), bits)

    with (
        mock.patch.multiple(
            layers,
            linear=product,
            linear_backward=product_backward,
            **{
                name: _Kernels(getattr(layers, name), bits)
                for name in ("attention", "elementwise", "moe", "rmsnorm", "rope", "softmax")
            },
        ),
        mock.patch.multiple(model, linear=head, linear_backward=product_backward),
    ):
        yield
