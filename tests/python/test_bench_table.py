"""The table of `nncuda bench`: its columns, and the legend that says what they mean."""

from __future__ import annotations

from typing import get_args

from nncuda.bench import tables
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
