"""The oracle: every kernel of bindings.h and a training step made of them, from the equations, in NumPy.

One module a family, with the family's name. A function has its kernel's name without the ``cuda_`` prefix, takes the
header's parameter names and returns its outputs in a dict by their header names. What the header calls ``size`` follows
from the arrays and is a parameter only where it does not; leading dimensions are a matter of storage and never appear.

Functions compute in the precision of the arrays they are given (those without any take ``precision``). In float64 they
are the oracle. In float32 they are the plain formula in that precision, whose error against float64 is what the
tolerances in tests/golden/ are made of.
"""

from nncuda.reference import (
    activation,
    attention,
    decode,
    digest,
    elementwise,
    embedding,
    gemm,
    kvcache,
    lora,
    loss,
    moe,
    optimizer,
    quant,
    random,
    rmsnorm,
    rope,
    softmax,
    ternary,
)

FAMILIES = (
    elementwise,
    activation,
    softmax,
    rmsnorm,
    gemm,
    embedding,
    rope,
    attention,
    kvcache,
    moe,
    loss,
    optimizer,
    decode,
    quant,
    ternary,
    lora,
    digest,
    random,
)


def kernel(name: str):
    """The reference of kernel ``name`` (without ``cuda_``). KeyError when there is none."""
    for family in FAMILIES:
        if name in family.__all__:
            return getattr(family, name)
    raise KeyError(f"no reference for kernel {name!r}")


__all__ = ["FAMILIES", "kernel"]
