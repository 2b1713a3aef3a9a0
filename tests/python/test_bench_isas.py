"""`nncuda bench --isa`: each instruction set in turn, against its own ceilings."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import nncuda
from nncuda import kernels
from nncuda.bench import catalogue, ceilings, products, stored, timing
from nncuda.bench.command import bench
from nncuda.bench.work import Bar
from nncuda.formats.block_formats import FORMATS, INTERLEAVED
from nncuda.golden.runner import available_isas

ISAS = available_isas()


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three small works, measured for no longer than it takes."""
    works = [
        products.gemm(8, 32, 8, "f32", "fma_f32", Bar()),
        products.gemm(8, 32, 8, "bf16", "dot_bf16", Bar()),
        stored.product(1, 256, 32, "q4_0", "read", Bar(), 1e4),
    ]
    monkeypatch.setattr(catalogue, "cpu", lambda: works)
    monkeypatch.setattr(ceilings, "Bandwidth", partial(ceilings.Bandwidth, buffer_bytes=1 << 16))
    monkeypatch.setattr(ceilings, "measure", partial(ceilings.measure, seconds=1e-3))
    monkeypatch.setattr("nncuda.bench.command.Effort", lambda: timing.Effort(rounds=3, inner_seconds=0.0))


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(bench, ["--threads", "1", *map(str, arguments)], terminal_width=200)
    return done.exit_code, done.output


@pytest.mark.skipif(len(ISAS) < 2, reason="this processor has one instruction set")
def test_every_set_has_its_rows_and_its_peak(little: None, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    code, output = run("--isa", "all", "--only", "products", "--json", path)
    assert code == 0, output
    content = json.loads(path.read_text())
    assert list(content["ceilings"]) == ISAS == list(dict.fromkeys(row["isa"] for row in content["rows"]))
    assert all(row["error"] is None and len(row["rounds"]) == 3 for row in content["rows"])
    assert all(len(row["probes"]) == (3 if row["floor"] == "read" else 0) for row in content["rows"])
    for row in content["rows"]:
        own = content["ceilings"][row["isa"]]
        if row["group"] == "products bf16":  # widened where there are no instructions for them
            assert row["floor"] == ("dot_bf16" if own["dot_bf16"] else "fma_f32")
        if row["floor"] in ("fma_f32", "dot_bf16"):
            assert row["share"] == pytest.approx(row["flops"] / own[row["floor"]])
    # Twice the width: twice the peak, but for what disturbs a millisecond.
    peaks = [content["ceilings"][isa]["fma_f32"] for isa in ISAS[:2]]
    assert peaks[0] > 0 and peaks[1] > 1.2 * peaks[0]
    # The run compared with itself: every figure is found again.
    code, output = run("compare", path, path)
    assert code == 0 and f"{3 * len(ISAS)} within the spread" in output, output


def test_some_sets_in_their_order(little: None, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    code, output = run("--isa", ISAS[-1], "--isa", f"{ISAS[0]},{ISAS[-1]}", "--only", "f32", "--json", path)
    assert code == 0, output
    assert [row["isa"] for row in json.loads(path.read_text())["rows"]] == list(dict.fromkeys([ISAS[0], ISAS[-1]]))


def test_a_run_is_compared_with_a_file(little: None, tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    assert run("--only", "products", "--json", old)[0] == 0
    content = json.loads(old.read_text())
    for row in content["rows"]:  # an old run so fast that this one must be slower
        row["rounds"] = [seconds / 1e6 for seconds in row["rounds"]]
    old.write_text(json.dumps(content))
    code, output = run("--only", "products", "--compare", old)
    assert code == 1 and "3 slower" in output, output
    for row in content["rows"]:
        row["rounds"] = [seconds * 1e12 for seconds in row["rounds"]]
    old.write_text(json.dumps(content))
    code, output = run("--only", "products", "--compare", old)
    assert code == 0 and "0 slower, 3 faster" in output, output
    code, output = run("--only", "products", "--compare", __file__)
    assert code == 1 and "cannot be read" in output


def test_sets_that_there_are_not() -> None:
    code, output = run("--isa", "sse9")
    assert code == 2 and "'sse9' is none of baseline, avx2" in output
    if missing := [isa for isa in nncuda.device.INSTRUCTION_SETS if isa not in ISAS]:
        code, output = run("--isa", missing[0])
        assert code == 2 and f"this processor has no {missing[0]}" in output


@pytest.mark.parametrize("isa", ISAS)
def test_stored_weights_are_timed_in_the_form_that_the_engine_keeps(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    formats: list[Any] = []
    product = kernels.gemm_quant

    def watched(*arguments: Any, **options: Any) -> Any:
        formats.append(options["format"])
        return product(*arguments, **options)

    monkeypatch.setattr(kernels, "gemm_quant", watched)
    with nncuda.Context("cpu", threads=1, isa=isa) as ctx:
        work = stored.product(2, 256, 32, "q4_0", None, Bar())
        inputs = work.inputs(ctx, 0)
        own = work.ours(ctx, inputs)
        own.run()
        code = FORMATS["q4_0"].code
        assert formats == [code if isa == "baseline" else INTERLEAVED[code]]
        # The same product with rows as a file has them.
        plain = kernels.quantize(nncuda.bench.work.normal(ctx, 0, "f32", 64, 256, std=0.02, stream=1), format="q4_0",
                                 row_bytes=FORMATS["q4_0"].row_bytes(256))  # fmt: skip
        expected = product(inputs["x"], plain, format="q4_0", y=ctx.empty((2, 64), "f32")).numpy()[:, :32]
        assert np.array_equal(own.results()[0].numpy(), expected)  # type: ignore[attr-defined]
