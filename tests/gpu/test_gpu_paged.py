"""Paged caches on a GPU: beside the CPU engine, and the promise that a token's bits do not depend on its company."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import nncuda
from paged_cases import FORMATS, Sequences


@pytest.fixture(scope="module")
def cpu() -> Iterator[nncuda.Context]:
    with nncuda.Context("cpu") as ctx:
        yield ctx


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("shift", [0, 1, 2])
def test_appended_bytes_are_those_of_the_cpu(
    gpu: nncuda.Context, cpu: nncuda.Context, form: str, dtype: str, shift: int
) -> None:
    some = Sequences([3, 131, 128, 257], 3, 3, 64, form, dtype)
    steps = [[(0, 2), (0, 130), (0, 1), (0, 128)], [(2, 2), (130, 131), (1, 128), (128, 257)]]
    stored = []
    for ctx in (gpu, cpu):
        caches = some.caches(ctx, shift if ctx is gpu else 0)
        for cuts in steps:
            some.append(ctx, caches, cuts)
        stored.append([cache.numpy() for cache in caches])
    for ours, theirs in zip(*stored, strict=True):
        np.testing.assert_array_equal(ours, theirs)
