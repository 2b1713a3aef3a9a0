"""The cases of every kernel, one module a family."""

from collections.abc import Iterator

from . import (
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
from .case import Case

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


def by_kernel() -> dict[tuple[str, str], list[Case]]:
    """The cases by (family, kernel), in the order in which they are written."""
    found: dict[tuple[str, str], list[Case]] = {}
    for family in FAMILIES:
        for item in family.cases():
            found.setdefault((family.__name__.rsplit(".", 1)[-1], item.kernel), []).append(item)
    return found


def all_cases() -> Iterator[Case]:
    for items in by_kernel().values():
        yield from items
