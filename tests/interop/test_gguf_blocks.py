"""Stored weights against the gguf package and llama.cpp, from what `make interop` recorded.

What the package stores and reads, our kernels and the reference give to the bit. The K formats, which the package does
not store, have no more squared error than llama.cpp leaves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import quant_cases as cases

import nncuda
from nncuda import kernels
from nncuda.formats.block_formats import FORMATS
from nncuda.reference.quant import decoded, encoded

RECORDED = Path(__file__).parent / "recorded"
GGUF = json.loads((RECORDED / "quant_by_gguf.json").read_text(encoding="utf-8"))
LLAMA_CPP = json.loads((RECORDED / "quant_by_llama_cpp.json").read_text(encoding="utf-8"))
#: What a search may leave beyond llama.cpp's, which is no optimum either.
ALLOWED = 1.02


@pytest.fixture(scope="module", params=["baseline", "avx2", "avx512"])
def ctx(request: pytest.FixtureRequest) -> Iterator[nncuda.Context]:
    with nncuda.Context("cpu", threads=2) as context:
        try:
            context.isa = request.param
        except nncuda.Error as error:
            pytest.skip(str(error))
        yield context


def stored(ctx: nncuda.Context, name: str, x: np.ndarray) -> np.ndarray:
    return kernels.quantize(ctx.tensor(x), format=name, row_bytes=FORMATS[name].row_bytes(x.shape[1])).numpy()


def read(ctx: nncuda.Context, name: str, rows: np.ndarray) -> np.ndarray:
    return kernels.dequantize(ctx.tensor(rows), format=name, k=cases.K, dtype="f32").numpy()


@pytest.mark.parametrize("name", cases.STORED)
def test_stored_as_by_the_package(ctx: nncuda.Context, name: str) -> None:
    for n in cases.NUMBERS:
        x = cases.numbers(n)
        assert cases.digest(encoded(x, FORMATS[name].code)) == GGUF["stored"][name][n], n
        assert cases.digest(stored(ctx, name, x)) == GGUF["stored"][name][n], n


@pytest.mark.parametrize("name", FORMATS)
def test_read_as_by_the_package(ctx: nncuda.Context, name: str) -> None:
    rows = cases.stored_bytes(name)
    with np.errstate(all="ignore"):
        assert cases.digest(decoded(rows, FORMATS[name].code)) == GGUF["read"][name]
    assert cases.digest(read(ctx, name, rows)) == GGUF["read"][name]


@pytest.mark.parametrize("numbers", cases.ORDINARY)
@pytest.mark.parametrize("name", cases.SEARCHED)
def test_no_worse_than_llama_cpp(ctx: nncuda.Context, name: str, numbers: str) -> None:
    x = cases.numbers(numbers)
    wide = x.astype(np.float64)
    errors = np.sum((read(ctx, name, stored(ctx, name, x)) - wide) ** 2, axis=1) / np.sum(wide**2, axis=1)
    assert np.mean(errors) <= ALLOWED * LLAMA_CPP["squared_error"][name][numbers]
