"""Every line of the GPU's benchmark runs, at sizes that say nothing about speed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import nncuda
from nncuda.bench import catalogue, step
from nncuda.bench.command import bench


def run(*options: str) -> tuple[int, str]:
    result = CliRunner().invoke(bench, ["--device", "cuda", "--quick", *options])
    return result.exit_code, result.output


def test_every_line_runs(gpu: nncuda.Context, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    code, output = run("--json", str(file))
    assert code == 0, output
    figures = json.loads(file.read_text())
    assert "gpu" in figures["machine"] and figures["ceilings"]["copy"] > 0
    works, rows = catalogue.gpu(quick=True), figures["rows"]
    assert [(row["group"], row["name"]) for row in rows] == [(work.group, work.name) for work in works]
    for work, row in zip(works, rows, strict=True):
        assert row["error"] is None and row["seconds"] > 0, row
        assert (row["share"] is not None) == (work.floor is not None)
    assert [found["name"] for found in figures["steps"]] == [case.name for case in step.gpu_cases(quick=True)]
    assert all(found["tokens_per_second"]["nncuda"] > 0 for found in figures["steps"])
    assert all(found["peak_bytes"]["nncuda"] > 0 for found in figures["steps"])


def test_the_quick_lines_are_those_of_the_full_sizes() -> None:
    quick, full = catalogue.gpu(quick=True), catalogue.gpu()
    assert len(quick) == len(full) > 50
    for small, large in zip(quick, full, strict=True):
        assert (small.peer, small.bar, small.floor, small.captured) == (
            large.peer,
            large.bar,
            large.floor,
            large.captured,
        )
    moved = [work for work in full if work.floor == "copy" and not work.captured]
    assert len(moved) > 20 and all(work.bytes >= 64e6 for work in moved)
    cold = [work for work in full if work.captured and work.bytes and not work.group.endswith("warm")]
    cold = [work for work in cold if not work.name.startswith("prefill")]  # which arithmetic holds up
    assert all(work.bytes * work.copies >= 256e6 for work in [*moved, *cold])
    assert any(work.copies > 1 for work in quick)


def test_a_work_that_fails_is_told_and_the_others_go_on(
    gpu: nncuda.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nncuda import kernels

    def broken(*_: object, **__: object) -> None:
        raise nncuda.DeviceError(30, "the launch failed")

    monkeypatch.setattr(kernels, "swiglu", broken)
    file = tmp_path / "figures.json"
    code, output = run("--only", "element-wise bf16", "--json", str(file))
    assert code == 1 and "the launch failed" in output
    rows = json.loads(file.read_text())["rows"]
    assert [row["error"] is not None for row in rows] == ["silu(gate)*up" in row["name"][:13] for row in rows]


def test_without_torch_for_this_device_it_says_so(gpu: nncuda.Context, tmp_path: Path) -> None:
    try:
        import torch

        if torch.cuda.is_available():
            pytest.skip("this torch has a GPU")
    except ImportError:
        pass
    file = tmp_path / "figures.json"
    code, output = run("--only", "decode top", "--against", "torch", "--json", str(file))
    assert code == 0 and "Without torch: " in output
    figures = json.loads(file.read_text())
    assert "PyTorch" in figures["peer_missing"] and len(figures["rows"]) == 2


def test_wrong_use_is_told(gpu: nncuda.Context) -> None:
    assert "no task matches" in run("--only", "no such task")[1]
    result = CliRunner().invoke(bench, ["--quick"])
    assert result.exit_code == 2 and "--quick is for a GPU" in result.output
    code, output = run("--model", str(Path(__file__).parent), "--against", "llama.cpp")
    assert code == 2 and "llama.cpp is measured on the CPU" in output
