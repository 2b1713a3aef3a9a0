"""The tables of docs/benchmarks.md: each kind, from a file of its kind."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tools import benchmarks_page

MACHINE = {"processor": "A", "cores": 2, "isa": "avx512", "date": "2026-01-02"}


def row(name: str, isa: str, **values: Any) -> dict[str, Any]:
    return {"group": "products", "name": name, "isa": isa, "seconds": 2e-3, "flops": 5e9, "floor": "fma_f32", **values}


def ceilings(isa: str, fma: float) -> dict[str, Any]:
    return {"isa": isa, "threads": 2, "fma_f32": fma, "dot_bf16": 0.0, "dot_int8": 3e12, "read": 2e10, "copy": 3e10}


def table(kind: str, content: dict[str, Any]) -> list[str]:
    page = f"before\n<!-- {kind}: made from a.json -->\nold\n<!-- end of {kind} -->\nafter\n"
    filled = benchmarks_page.filled(page, {"a.json": content}.__getitem__)
    assert filled.startswith(f"before\n<!-- {kind}: made from a.json -->\n\n")
    assert filled.endswith(f"\n\n<!-- end of {kind} -->\nafter\n") and "old" not in filled
    return filled.splitlines()[3:-3]


def test_one_instruction_set_beside_a_peer() -> None:
    rows = [
        row("1x2", "amx", share=0.5, ratio=1.25, asked="1 x", reached=True),
        row("3", "amx", asked="2 x", reached=False),
    ]
    assert table("kernels", {"machine": MACHINE, "rows": rows}) == [
        "| work | time | rate | of ceiling | torch / ours | goal |",
        "|---|---:|---:|---:|---:|---:|",
        "| **products** |  |  |  |  |  |",
        "| 1x2 | 2 ms | 5 GFLOP/s | 50% of fma_f32 | 1.25 | 1 x |",
        "| 3 | 2 ms | 5 GFLOP/s |  |  | 2 x, short |",
    ]


def test_instruction_sets_beside_one_another() -> None:
    rows = [row("a", "avx2", share=0.9), row("a", "avx512", share=0.8, seconds=1e-3), row("b", "avx512", seconds=None)]
    assert table("kernels", {"machine": MACHINE, "rows": rows}) == [
        "| work | `avx2` | of ceiling | `avx512` | of ceiling |",
        "|---|---:|---:|---:|---:|",
        "| **products** |  |  |  |  |",
        "| a | 2 ms | 90% of fma_f32 | 1 ms | 80% of fma_f32 |",
        "| b |  |  | failed |  |",
    ]
    found = table("ceilings", {"ceilings": {"avx2": ceilings("avx2", 1e11), "avx512": ceilings("avx512", 2e11)}})
    assert found[:3] == [
        "| ceiling, 2 threads | `avx2` | `avx512` |",
        "|---|---:|---:|",
        "| f32 multiply-add | 100 GFLOP/s | 200 GFLOP/s |",
    ]
    assert "| bf16 dot products | no such instruction | no such instruction |" in found


def test_steps_run_against_the_peak_of_their_own_set() -> None:
    from nncuda.bench.step import SMALL

    step = {"name": SMALL.name, "isa": "avx2", "tokens_per_second": {"nncuda": 1000.0, "torch eager": 500.0},
            "peak_bytes": {"nncuda": 1 << 20, "torch eager": 1 << 21}}  # fmt: skip
    peak = SMALL.flops_a_token * 2000
    _, _, ours, torch = table("steps", {"steps": [step], "ceilings": {"avx2": ceilings("avx2", peak)}})
    assert ours == "| small, f32 | nncuda, `avx2` | 1,000 | 50% | 1.0 MiB |  |"
    assert torch == "| small, f32 | torch eager | 500 | 25% | 2.0 MiB | 2.00 |"


def test_models_beside_a_peer() -> None:
    side = {"name": "nncuda 1", "ours": True, "isa": "avx2", "prefill": 100.0, "decode": 10.0, "share": 0.5,
            "first_token": 0.5, "answer": 1.0, "batched": {"4": 40.0}, "memory": {"peak": 1 << 30},
            "seconds_to_load": 0.0}  # fmt: skip
    peer = side | {"name": "other (x)", "ours": False, "isa": None, "share": None, "seconds_to_load": 1.0}
    work = {"prefill": 512, "decode": 128, "prompt": 35, "answer": 50}
    times = [{"prefill": 1.0, "decode": 2.0, "first_token": 3.0, "answer": 4.0, "batched": {"4": 5.0}}]
    found = table(
        "model", {"model": "m.gguf", "threads": 2, "work": work, "sides": [side, peer], "times_as_fast": times}
    )
    assert found[0] == "| m.gguf, 2 threads | nncuda 1, `avx2` | other | times as fast |"
    assert "| decoding 128, tokens/s | 10 (50% of the probe) | 10 | 2.00 |" in found
    assert "| 4 together, tokens/s | 40 | 40 | 5.00 |" in found
    assert found[-1] == "| load, file in memory |  | 1.00 s |  |"


def test_growth() -> None:
    point = {"axis": "width", "parameters": 9_000_000, "layers": 8, "tokens_per_second": 2000.4, "bytes": 3 << 20}
    left_out = {**point, "side": "torch", "tokens_per_second": None, "bytes": None, "missing": "needs 9 GB"}
    assert table("growth", {"points": [{**point, "side": "nncuda"}, left_out]}) == [
        "| parameters | layers | nncuda, tokens/s | torch, tokens/s | nncuda, peak memory | torch, peak memory |",
        "|---:|---:|---:|---:|---:|---:|",
        "| 9 M | 8 | 2,000 | needs 9 GB | 3.0 MiB |  |",
    ]


def test_cuts() -> None:
    work, step = "products: 1", "training step of small, f32"

    def balance(name: str, threads: int, span: float) -> dict[str, Any]:
        return {"name": name, "threads": threads, "calls": 1, "tasks": 6, "busy": 6.0, "span": span, "serial": 1.0,
                "whole": name == step}  # fmt: skip

    content = {"isa": "avx2", "balances": [balance(work, 2, 3.0), balance(work, 4, 2.0), balance(step, 2, 3.0)]}
    assert table("cuts", content)[2:] == ["| products: 1 | 6 · 100% | 6 · 75% |"]
    content["balances"].append(balance(step, 4, 2.0))
    # One thread: 7 seconds, two: 3 and 1, four: 2 and 1.
    assert table("scaling", content)[2:] == ["| training step of small, f32 | 14.3% | 1.8 × | 2.3 × |"]


def test_unknown_kinds_and_files() -> None:
    with pytest.raises(ValueError, match="asks for a table of prices"):
        table("prices", {})
    with pytest.raises(KeyError):
        benchmarks_page.filled("<!-- cuts: made from b.json -->\n<!-- end of cuts -->", {}.__getitem__)


def test_every_file_is_shown_and_says_where_it_is_from() -> None:
    page = (benchmarks_page.ROOT / benchmarks_page.PAGE).read_text(encoding="utf-8")
    shown = set(re.findall(r"made from (\S+) -->", page))
    there = {
        path.relative_to(benchmarks_page.ROOT).as_posix()
        for path in (benchmarks_page.ROOT / "docs/benchmarks").iterdir()
    }
    assert shown == there
    for name in there:
        content = json.loads((benchmarks_page.ROOT / name).read_text(encoding="utf-8"))
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", content["machine"]["date"]) and content["machine"]["date"] in name
        assert content["machine"]["processor"] and content["machine"]["cores"] > 0
