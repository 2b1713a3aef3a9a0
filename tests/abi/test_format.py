"""Bytes of rows in every format, and invalid rows."""

from __future__ import annotations

import ctypes

import pytest
from raw import HEADER, LIB, C

#: Elements and bytes of a block.
BLOCKS = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
    "IQ4_NL": (32, 18),
    "MXFP4": (32, 17),
    "E4M3": (1, 1),
    "IQ4_XS": (256, 136),
    "Q2_K": (256, 84),
    "Q3_K": (256, 110),
    "Q4_0_R16": (32, 18),
    "Q4_1_R16": (32, 20),
    "Q5_0_R16": (32, 22),
    "Q5_1_R16": (32, 24),
    "Q8_0_R16": (32, 34),
    "Q4_K_R16": (256, 144),
    "Q5_K_R16": (256, 176),
    "Q6_K_R16": (256, 210),
    "IQ4_NL_R16": (32, 18),
    "MXFP4_R16": (32, 17),
    "IQ4_XS_R16": (256, 136),
    "Q2_K_R16": (256, 84),
    "Q3_K_R16": (256, 110),
}


def row_bytes(format_: int, elements: int) -> tuple[int, int]:
    bytes_ = ctypes.c_int64(-7)
    return LIB.nncuda_format_row_bytes(format_, elements, ctypes.byref(bytes_)), bytes_.value


def test_every_format_is_listed():
    assert {f"NNCUDA_FORMAT_{name}" for name in BLOCKS} == {
        name for name in HEADER.constants if name.startswith("NNCUDA_FORMAT_")
    }


@pytest.mark.parametrize("name", BLOCKS)
def test_rows(name):
    elements, bytes_ = BLOCKS[name]
    format_ = HEADER.constants[f"NNCUDA_FORMAT_{name}"]
    for blocks in (0, 1, 2, 7, 1000, 2**40):
        assert row_bytes(format_, blocks * elements) == (C.SUCCESS, blocks * bytes_)
    for wrong in (-1, -elements, -(2**63), *([1, elements - 1, elements + 1] if elements > 1 else [])):
        assert row_bytes(format_, wrong) == (C.ERROR_INVALID_SIZE, -7)
    if bytes_ > elements:
        assert row_bytes(format_, (2**63 - 1) // elements * elements) == (C.ERROR_INVALID_SIZE, -7)
    assert LIB.nncuda_format_row_bytes(format_, elements, None) == C.ERROR_NULL_POINTER


@pytest.mark.parametrize("format_", [-1, 3, 9, 24, 29, 40, 44, 50, 2**31 - 1, -(2**31)])
def test_unknown_formats(format_):
    assert row_bytes(format_, 256) == (C.ERROR_INVALID_VALUE, -7)
