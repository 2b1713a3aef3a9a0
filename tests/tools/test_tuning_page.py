"""tools/tuning_page.py finds the constants of the GPU engine whose comments say what chose them."""

from __future__ import annotations

import pytest

from tools import tuning_page

SOURCE = """\
/*
 * Rows of a tile. They fit.
 *
 * What a warp reads, by
 * count, is half of it.
 */
#include "some.cuh"

template <int D> struct tile;
template <> struct tile<64> { /* not counted */
  static constexpr int M = 64, N = 2 * M;
};

constexpr int OTHER = 3;

constexpr int THREADS = 256, WARPS = THREADS / NN_WARP; /* measured on an H200 */
using large = tile_of<2, A || B ? 4 : 8>; /* says nothing */
enum { DIGITS = 1 << 4 }; /* by this count */
"""


def test_constants_and_reasons() -> None:
    found = list(tuning_page.choices(SOURCE, "a.cu"))
    assert [(row.constants, row.reason) for row in found] == [
        (("tile<64>: M = 64", "tile<64>: N = 2 * M"), "What a warp reads, by count, is half of it."),
        (("THREADS = 256",), "Measured on an H200"),
        (("DIGITS = 1 << 4",), "By this count"),
    ]


def test_alternatives_do_not_end_a_cell() -> None:
    (row,) = tuning_page.choices("/* By count. */\nusing large = tile_of<2, A || B ? 4 : 8>;\n", "a.cu")
    assert row.constants == ("large = tile_of<2, A || B ? 4 : 8>",)
    assert tuning_page.line_of(row) == r"| a.cu | `large = tile_of<2, A \|\| B ? 4 : 8>` | By count. |"


def test_a_reason_without_constants_is_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"a\.cu: no constants follow a comment that says what chose them: By count\."):
        list(tuning_page.choices("/* By count. */\nint f(void);\n", "a.cu"))
