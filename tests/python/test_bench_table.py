"""The table of `nncuda bench`: its columns, and the legend that says what they mean."""

from __future__ import annotations

from typing import get_args

from nncuda.bench import tables
from nncuda.bench.ceilings import Ceilings
from nncuda.bench.measure import Row
from nncuda.bench.work import Floor

SHARED = Row("rows", "softmax", seconds=1e-3, bytes=2e10, floor="copy", share=0.74, asked="1.5 x", ratio=3.1)
ALONE = Row("sampling", "top-k", seconds=1e-3)


def test_the_legend_explains_the_columns_that_are_filled() -> None:
    table = tables.kernels([SHARED, ALONE], "torch")
    headers = [str(column.header) for column in table.columns]
    assert headers == ["work", "time", "rate", "of ceiling", "torch / ours", "goal", ""]
    legend = tables.legend([SHARED, ALONE], "torch")
    for header in ("of ceiling", "torch / ours", "goal"):
        assert f"\n{header}: " in f"\n{legend}"
    assert "copy: memory" in legend and "fma_f32" not in legend
    assert tables.legend([ALONE], None) == ""


def test_every_ceiling_has_an_explanation() -> None:
    assert set(get_args(Floor)) == set(tables.CEILINGS)


def test_instruction_sets_stand_beside_one_another() -> None:
    rows = [Row("products", "a", isa, seconds=1e-3, flops=1e9, floor="fma_f32", share=0.5) for isa in ("avx2", "amx")]
    table = tables.kernels([*rows, Row("products", "b", "amx", error="none")], None)
    headers = [str(column.header) for column in table.columns]
    assert headers == ["work", "avx2: time", "rate", "of ceiling", "", "amx: time", "rate", "of ceiling", ""]
    cells = [list(column.cells) for column in table.columns]
    assert cells[0] == ["[bold]products[/]", "  a", "  b"]
    assert cells[1] == ["", "1 ms", ""] and cells[8] == ["", "", "[red]failed[/]"]
    assert "with that instruction set" in tables.legend(rows, None)


def test_bf16_products_without_instructions_run_against_the_f32_peak() -> None:
    def peaks(bf16: float) -> Ceilings:
        return Ceilings("avx2", 2, fma_f32=1.0, dot_bf16=bf16, dot_int8=3.0, read=4.0, copy=5.0)

    assert peaks(0.0).of("dot_bf16") == ("fma_f32", 1.0)
    assert peaks(2.0).of("dot_bf16") == ("dot_bf16", 2.0)
    assert peaks(0.0).of("read") == ("read", 4.0)
