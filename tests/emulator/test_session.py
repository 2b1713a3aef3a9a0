"""tests/gpu/session.sh and sanitize.sh, which run where a GPU is, tried out on an emulated one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = sorted((ROOT / "build/emulated").glob("libnncuda_emu*.so"))


def run(script: str, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    # Nothing of an installed toolkit may be found, nor one that a make fetched.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA", "NNCUDA"))}
    return subprocess.run(
        ["bash", str(ROOT / "tests/gpu" / script), *map(str, arguments)],
        env={**environment, "PYTHON": sys.executable, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.skipif(not LIBRARIES, reason="nothing is emulated here: `make emulated`, which needs a C++ compiler")
def test_a_session_measures_keeps_and_goes_on(tmp_path: Path) -> None:
    done = run(
        "session.sh", tmp_path / "out", "verify", "kernels", "steps", QUICK="1", NNCUDA_LIBRARY=str(LIBRARIES[-1])
    )
    summary = (tmp_path / "out/summary.txt").read_text()
    assert "verify: FAILED with 2" in summary, summary  # only real GPUs are recorded
    assert "this one is emulated" in (tmp_path / "out/verify.log").read_text()
    assert done.returncode == 1 and done.stdout.endswith(f"----\n{summary}")
    figures = json.loads((tmp_path / "out/bench.json").read_text())
    assert list(figures) == ["products", "grouped", "attention", "stored", "ternary", "memory", "little", "steps"]
    for name, part in figures.items():
        assert f"bench {name}: passed" in summary
        assert part["steps"] if name == "steps" else part["rows"]
    from nncuda.bench import catalogue

    measured = [(row["group"], row["name"]) for part in figures.values() for row in part.get("rows", [])]
    assert sorted(measured) == sorted((work.group, work.name) for work in catalogue.gpu(quick=True))
    assert len(list((tmp_path / "out").iterdir())) <= 8


@pytest.mark.skipif(not LIBRARIES, reason="nothing is emulated here: `make emulated`, which needs a C++ compiler")
def test_a_session_with_two_ranks(tmp_path: Path) -> None:
    """The emulated library stands in for NCCL."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = str(door.getsockname()[1])
    library = str(LIBRARIES[-1])
    done = run("session.sh", tmp_path / "out", "ranks", NNCUDA_LIBRARY=library, NNCUDA_NCCL=library, MASTER_PORT=port)
    assert done.returncode == 0 and "ranks: passed" in done.stdout, done.stdout
    assert "rank 1 ended without a word" in done.stdout


def test_a_session_says_what_is_missing(tmp_path: Path) -> None:
    assert run("session.sh").returncode == 2
    done = run("session.sh", tmp_path, "tests", NNCUDA_LIBRARY=str(tmp_path / "none.so"))
    assert done.returncode == 1 and f"There is no {tmp_path}/none.so" in done.stdout
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    done = run("session.sh", tmp_path, PYTHON=str(bare))
    assert done.returncode == 2 and "Missing here: numpy cffi" in done.stdout


def test_the_sanitizer_is_run_on_the_golden_tests(tmp_path: Path) -> None:
    assert run("sanitize.sh", "racetrack").returncode == 2
    tool = tmp_path / "compute-sanitizer"
    tool.write_text('#!/bin/sh\necho "ran $*"\ncase $* in *racecheck*) exit 9 ;; esac\n')
    tool.chmod(0o755)
    done = run("sanitize.sh", "memcheck", "racecheck", PATH=f"{tmp_path}:{os.environ['PATH']}", KERNELS="rope_qk gemm")
    assert done.returncode == 1
    assert "memcheck: nothing found" in done.stdout and "racecheck: findings" in done.stdout
    assert done.stdout.count("verify --device cuda --kernel rope_qk --kernel gemm") == 2
    assert run("sanitize.sh", "memcheck", PATH=f"{tmp_path}:{os.environ['PATH']}").returncode == 0
