"""Ternary weights as bytes, against what the gguf package and transformers made of them in `make interop`."""

from __future__ import annotations

import json

import numpy as np
import pytest
import ternary_cases as cases
from quant_cases import digest

from nncuda.convert.ternary import packed_rows, ternary_bytes
from nncuda.formats.ternary import from_packed
from nncuda.formats.ternary_blocks import from_blocks

RECORDED = json.loads(cases.RECORD.read_text(encoding="utf-8"))
SHAPE = cases.ROWS, cases.COLUMNS


@pytest.mark.parametrize("name", cases.BLOCKS)
def test_blocks_as_by_the_package(name: str) -> None:
    assert digest(ternary_bytes(name, cases.codes(), cases.SCALE)) == RECORDED["stored"][name]
    read = from_blocks("a file", "a tensor", name, SHAPE, cases.stored_bytes(name).reshape(-1))
    assert read.scale == 1 and digest(read.codes().astype(np.float32)) == RECORDED["read"][name]


def test_packed_as_by_transformers() -> None:
    packed = packed_rows(cases.codes())
    assert packed.shape == (cases.ROWS // 4, cases.COLUMNS) and digest(packed) == RECORDED["packed"]
    read = from_packed("a folder", "a tensor", SHAPE, packed.reshape(-1), 2.0)
    assert digest(read.codes().astype(np.float32)) == RECORDED["unpacked"]
