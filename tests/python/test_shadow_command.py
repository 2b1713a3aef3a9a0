"""`nncuda shadow`: what runs, what it says, and its exit codes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from small_models import TINY, save_tiny

import nncuda
from nncuda import kernels, reference
from nncuda.cli import main
from nncuda.device import ShadowRun

STEP = ["--num-layers", "1", "--hidden-size", "32", "--ffn-size", "32", "--batch-size", "2", "--sequence-length", "16"]


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["shadow", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def checkpoint(ctx: nncuda.Context, tmp_path: Path) -> Path:
    return save_tiny(ctx, tmp_path / "checkpoint")


def test_a_step_of_a_new_model(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    result = run(*STEP, "--precision", "bf16", "--json", found)
    values = json.loads(found.read_text())
    kernels = {kernel["kernel"]: kernel for kernel in values["kernels"]}
    assert {"cuda_embedding", "cuda_flash_attention_backward", "cuda_adamw_step"} <= set(kernels)
    assert (values["device"], values["reference"], values["over"], values["first"]) == ("cpu", "baseline", 0, None)
    assert values["compared"] == values["calls"] - values["moves"] == sum(k["calls"] for k in kernels.values())
    assert f"{values['calls']} calls, {values['compared']} compared with baseline" in result.output
    shares = [k["largest"]["share"] for k in kernels.values() if k["largest"]]
    assert all(0 < share <= 1 for share in shares)
    for name in kernels:
        assert name in result.output


def test_the_plainest_against_itself_has_equal_bits(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    run(*STEP, "--isa", "baseline", "--json", found)
    assert json.loads(found.read_text())["largest"] is None


def test_a_step_and_generation_of_a_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    run(checkpoint, "--json", found)
    assert "cuda_adamw_step" in found.read_text()
    run(checkpoint, "--prompt", "1 2 3", "--ids", "--max-tokens", 3, "--json", found, "--reference", "cpu")
    values = json.loads(found.read_text())
    assert values["reference"] == "cpu" and values["largest"] is None  # the same engine
    decoding = [k["calls"] for k in values["kernels"] if k["kernel"] == "cuda_attention_decode"]
    assert decoding == [2 * TINY.num_layers]  # the first token comes from the prompt


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_the_oracle_in_float64(tmp_path: Path, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tmp_path / "found.json"
    tiny = [*STEP, "--vocab-size", "64", "--precision", precision, "--reference", "f64", "--json", found]
    run(*tiny)
    values = json.loads(found.read_text())
    assert (values["reference"], values["over"]) == ("f64", 0) and values["compared"] == values["calls"] > 40
    assert all(kernel["why"] is None for kernel in values["kernels"])
    exact = reference.gemm.swiglu
    monkeypatch.setattr(reference.gemm, "swiglu", lambda gate, up: {"y": exact(gate, up)["y"] + 1})
    assert "First beyond its bound: call" in run(*tiny, code=1).output
    first = json.loads(found.read_text())["first"]
    assert (first["kernel"], first["argument"]) == ("cuda_grouped_gemm_swiglu", "y")
    assert first["label"] == "model.layers.0.block_sparse_moe" and first["share"] > 1
    distance = abs(float(first["value"]) - float(first["reference"]))
    assert first["share"] == pytest.approx(distance / first["bound"], rel=1e-6)
    monkeypatch.setattr(reference.gemm, "swiglu", exact)
    assert kernels.silu(nncuda.Context().tensor([0.0])).item() == 0  # the functions are as before


def finds(monkeypatch: pytest.MonkeyPatch, told: dict[str, Any]) -> None:
    """Has every shadow run from here on tell this."""

    @contextlib.contextmanager
    def shadow(self: nncuda.Context, reference: nncuda.Context) -> Iterator[ShadowRun]:
        found = ShadowRun()
        yield found
        found._read(json.dumps(told))

    monkeypatch.setattr(nncuda.Context, "shadow", shadow)


def test_a_call_beyond_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    difference = {
        "call": 7, "label": "model.norm", "kernel": "cuda_rmsnorm", "argument": "y", "dtype": "f32", "shape": [2, 3],
        "index": [1, 2], "value": "1.5", "reference": "nan", "bound": 1e-6, "share": None,
    }  # fmt: skip
    kernel = {"kernel": "cuda_rmsnorm", "calls": 3, "compared": 2, "over": 1, "why": "no memory", "largest": difference}
    text = {"calls": 9, "compared": 8, "moves": 0, "over": 1, "first": difference, "largest": difference}
    finds(monkeypatch, {**text, "kernels": [kernel]})
    said = run(*STEP, code=1).output
    assert "beyond" in said and "cuda_rmsnorm was not compared: no memory" in said
    assert (
        "First beyond its bound: call 7, cuda_rmsnorm in model.norm: y [2, 3] at [1, 2] is 1.5, the reference has nan; "
        "bound 1e-06." in said
    )
    assert "Error: 1 of 8 calls are beyond their bound" in said


def test_a_run_of_which_nothing_could_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = {"kernel": "cuda_gemm", "calls": 3, "compared": 0, "over": 0, "why": "no memory", "largest": None}
    counts = {"calls": 3, "compared": 0, "moves": 0, "over": 0, "first": None, "largest": None}
    finds(monkeypatch, {**counts, "kernels": [kernel]})
    said = run(*STEP, code=1).output
    assert "cuda_gemm was not compared: no memory" in said and "Error: no call could be compared" in said


def test_what_it_refuses(checkpoint: Path, tmp_path: Path) -> None:
    for arguments, words in (
        (["--prompt", "x"], "need MODEL"),
        (["--best"], "need MODEL"),
        ([checkpoint, "--seed", "3"], "leave out --seed"),
        ([checkpoint, "--ids", "--prompt", "x"], "must be token ids"),
        (["--json", tmp_path / "none" / "found.json"], "no folder"),
        ([tmp_path / "nothing"], "does not exist"),
    ):
        assert words in run(*arguments, code=2).output
    assert "holds no tokenizer" in run(checkpoint, "--prompt", "x", code=3).output
