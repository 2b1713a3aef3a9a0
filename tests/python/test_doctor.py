"""`nncuda doctor`: it tells what runs, and for what is broken what to do."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nncuda import doctor
from nncuda.binding import exchange, library


def test_a_whole_installation() -> None:
    findings = {finding.name: finding for finding in doctor.examine()}
    assert {
        "package",
        "packages",
        "extras",
        "library",
        "build",
        "ABI",
        "GPU",
        "CPU",
        "threads",
        "memory",
        "MPI",
        "NCCL",
        "arithmetic",
    } <= set(findings)
    assert findings["library"].value.startswith(library.load().path)
    assert "instruction set" in findings["CPU"].value
    assert findings["arithmetic"].value.startswith("right with baseline")
    assert not any(finding.fatal for finding in findings.values()), doctor.report(list(findings.values()))
    output = io.StringIO()
    assert doctor.main(output) == 0
    assert "library:" in output.getvalue()


def test_a_missing_library_is_explained(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "nncuda.doctor"],
        env={**os.environ, "NNCUDA_LIBRARY": str(tmp_path / "nowhere.so")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 1 and not result.stderr
    assert "nowhere.so does not exist" in result.stdout and "what to do:" in result.stdout


def test_problems_come_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(exchange, "_exchange", None)
    finding = doctor._exchange()
    assert "C++" in finding.problem and "g++" in finding.remedy and not finding.fatal
    monkeypatch.setattr(doctor, "_quota", lambda: 0.5)
    with doctor.Context(threads=4) as ctx:
        finding = doctor._threads(ctx)
    assert "0.5 cores" in finding.problem and "threads=1" in finding.remedy
    text = doctor.report([finding, doctor.Finding("x", "y")])
    assert text.endswith("1 problem.") and finding.remedy in text
    assert doctor.report([doctor.Finding("x", "y")]).endswith("Nothing is wrong.")


def test_the_extras_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    assert doctor._extras().value == "plot, tensorboard, serve; not installed: eval"
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert doctor._extras() == doctor.Finding("extras", "tensorboard, serve; not installed: plot, eval")


def test_mpi_is_named_or_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(name, raising=False)
    found = Path(sys.prefix) / "lib/libmpi_abi.so.1"
    with doctor.Context(threads=1) as ctx:
        if found.exists():
            monkeypatch.setenv("NNCUDA_MPI", str(found))
            path, _, version = doctor._mpi(ctx).value.partition(", ")
            assert path == str(found.resolve()) and re.fullmatch(r"MPICH \d+\.\d+.*", version)
        else:
            monkeypatch.setenv("NNCUDA_MPI", str(tmp_path / "nowhere.so"))
            assert "nowhere.so" in doctor._mpi(ctx).value


def test_nccl_is_named_or_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NNCUDA_NCCL", str(tmp_path / "nowhere.so"))
    assert "nowhere.so" in doctor._nccl().value and "pip install" in doctor._nccl().value
    source = tmp_path / "nccl.c"
    source.write_text("int ncclGetVersion(int *version) { return *version = 23004, 0; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "nccl.so", source], check=True)
    monkeypatch.setenv("NNCUDA_NCCL", str(tmp_path / "nccl.so"))
    assert doctor._nccl().value == f"{tmp_path / 'nccl.so'}, NCCL 2.30.4"


def test_quota(tmp_path: Path) -> None:
    limit = tmp_path / "cpu.max"
    limit.write_text("150000 100000\n")
    assert doctor._quota(limit) == 1.5
    limit.write_text("max 100000\n")
    assert doctor._quota(limit) is None
    assert doctor._quota(tmp_path / "none") is None
