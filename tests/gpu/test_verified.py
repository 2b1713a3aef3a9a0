"""The record of what was verified on real GPUs. Needs no GPU."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from devices import gpus

from nncuda.binding import library
from nncuda.cli import main
from nncuda.cli.verify import _verifications, verify
from nncuda.golden import verified
from nncuda.golden.report import Report

ROOT = Path(__file__).resolve().parents[2]


def verification(source: str, failed: int = 0) -> verified.Verification:
    return verified.Verification(source, "NVIDIA H200, 132 multiprocessors", "nncuda", "2026-01-01", 10, failed, 0.5)


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    hashes = tmp_path / "kernel_sources.json"
    hashes.write_text(json.dumps({"gemm": "a", "rope": "b"}))
    monkeypatch.setattr(verified, "INSTALLED_HASHES", hashes)
    monkeypatch.setattr(verified, "INSTALLED_RECORD", tmp_path / "verified.json")
    return tmp_path / "verified.json"


def test_without_a_record_nothing_is_verified(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "RECORD", record)
    assert verified.describe() == "compiled, not verified on a GPU"


def test_what_changed_or_failed_since_is_not_verified(record: Path) -> None:
    verified.write(record, {"gemm": verification("a"), "rope": verification("b")})
    assert verified.describe() == "2 of 2 families verified on NVIDIA H200"
    verified.write(record, {"rope": verification("older")})
    assert verified.read(record)["gemm"] == verification("a")  # it stays when another is written
    expected = "1 of 2 families verified on NVIDIA H200; compiled, not verified as they are now: rope"
    assert verified.describe() == expected
    verified.write(record, {"rope": verification("b", failed=1)})
    assert verified.describe() == expected


def test_a_familys_hash_follows_its_own_and_the_shared_sources(tmp_path: Path) -> None:
    for name in ("cuda/abi/generated/gemm.h", "cuda/cpu/gemm.c", "cuda/abi/generated/rope.h", "cuda/cpu/rope.c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    kernels = tmp_path / "cuda/kernels"
    kernels.mkdir()
    for name in ("gemm.cu", "gemm_tile.cuh", "gemm_workspace.h", "rope.cu", "kernel.cuh"):
        (kernels / name).write_text(name)
    before = verified.source_hashes(tmp_path)
    assert set(before) == {"gemm", "rope"}
    (kernels / "gemm_tile.cuh").write_text("another tile")
    after = verified.source_hashes(tmp_path)
    assert after["gemm"] != before["gemm"] and after["rope"] == before["rope"]
    (kernels / "gemm_workspace.h").write_text("another cut")
    assert verified.source_hashes(tmp_path)["gemm"] != after["gemm"]
    (kernels / "kernel.cuh").write_text("another way to launch")
    assert verified.source_hashes(tmp_path)["rope"] != before["rope"]


def test_only_whole_runs_on_a_gpu_are_recorded(tmp_path: Path) -> None:
    for options in (
        ["--device", "cpu", "--family", "rope"],
        ["--device", "cuda", "--kernel", "silu"],
        ["--device", "cuda", "--kernel", "silu", "--family", "elementwise"],
    ):
        result = CliRunner().invoke(verify, [*options, "--record", str(tmp_path / "record.json")])
        assert result.exit_code == 2 and "--record is for" in result.output
    assert not (tmp_path / "record.json").exists()


def test_a_family_by_itself() -> None:
    result = CliRunner().invoke(verify, ["--family", "random", "--family", "rope"])
    assert result.exit_code == 0 and "rope_qk" in result.output and "gemm" not in result.output
    result = CliRunner().invoke(verify, ["--family", "ropes"])
    assert result.exit_code == 2 and "no cases of ropes; there are those of " in result.output


def test_a_family_is_recorded_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "source_hashes", lambda: {"gemm": "a", "rope": "b"})
    monkeypatch.setattr(library.Library, "device_text", lambda self, kind, index: "NVIDIA H200")
    loaded = library.load()
    assert list(_verifications(Report(), loaded, 0, ("rope",))) == ["rope"]
    assert list(_verifications(Report(), loaded, 0, ())) == ["gemm", "rope"]


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:0", "auto"])
def test_verify_takes_devices_as_all_commands_do(device: str) -> None:
    result = CliRunner().invoke(main, ["verify", "--device", device, "--kernel", "increment"])
    if device.startswith("cuda") and not gpus():
        assert result.exit_code == 4 and "device 'cuda': " in result.output
    else:
        ran_on = "cpu 0" if device == "cpu" or not gpus() else "cuda 0"
        assert result.exit_code == 0 and f"Golden tests on {ran_on}" in result.output


def test_verify_refuses_other_devices() -> None:
    result = CliRunner().invoke(main, ["verify", "--device", "tpu"])
    assert result.exit_code == 3 and "it must be 'auto', 'cpu', 'cuda' or 'cuda:INDEX'" in result.output
    result = CliRunner().invoke(main, ["verify", "--device", "cuda:99"])
    assert result.exit_code == 4 and "device 'cuda:99': " in result.output


def test_the_build_makes_the_same_hashes() -> None:
    spec = importlib.util.find_spec("nncuda")
    assert spec is not None and spec.origin is not None
    made = Path(spec.origin).parent / "golden" / verified.INSTALLED_HASHES.name
    if not made.exists():
        pytest.skip("runs from the source tree, not from an installation")
    assert json.loads(made.read_text()) == verified.source_hashes(ROOT)
