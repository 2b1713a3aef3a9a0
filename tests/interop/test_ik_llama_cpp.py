"""ik_llama.cpp as a peer of `nncuda bench --model`: its build script, and with NNCUDA_IK_LLAMA, the path of the program
that it makes, the tokens that both programs choose."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from nncuda.bench import random_model
from nncuda.bench.model import OURS, Program, SideFailed, Worker
from nncuda.cli import main

FOLDER = Path(__file__).with_name("ik_llama_cpp")
BINARY = os.environ.get("NNCUDA_IK_LLAMA")
needs_binary = pytest.mark.skipif(
    BINARY is None, reason="NNCUDA_IK_LLAMA names no program; tests/interop/ik_llama_cpp/build.sh makes it of sources"
)


def test_the_script_says_what_it_takes() -> None:
    done = subprocess.run([FOLDER / "build.sh"], capture_output=True, text=True)
    assert done.returncode == 2 and "SOURCE avx2|avx512 [JOBS]" in done.stderr


@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")
@pytest.mark.parametrize(
    ("isa", "source", "text"),
    [("avx2", "", "must be a folder of ik_llama.cpp's sources"), ("sse", "ggml/src/iqk", "it must be avx2 or avx512")],
)
def test_what_cannot_be_built(isa: str, source: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "sources" / source).mkdir(parents=True)
    command = [
        "cmake",
        "-S",
        FOLDER,
        "-B",
        tmp_path / "built",
        f"-DIK_SOURCE={tmp_path / 'sources'}",
        f"-DIK_ISA={isa}",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and text in " ".join(done.stderr.split())


@needs_binary
def test_both_choose_the_same_tokens(tmp_path: Path) -> None:
    shape = random_model.Shape(layers=2, hidden=256, ffn=512, heads=4, kv_heads=2, vocabulary=520, context=128)
    random_model.write_folder(tmp_path / "model", shape)
    path = tmp_path / "q4_0.gguf"
    done = CliRunner().invoke(main, ["quantize", str(tmp_path / "model"), str(path), "--format", "q4_0"])
    assert done.exit_code == 0, done.output
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, 500, 20).tolist() for _ in range(32)]
    with (
        Worker(Program.in_python(sys.executable, OURS), path, 1, 128, 32) as ours,
        Worker(Program((str(BINARY),), ours=False), path, 1, 128, 32) as theirs,
    ):
        mine, others = (side.ask("start", prompts) for side in (ours, theirs))
        # 8-bit activations are rounded in other blocks: near ties may fall either way.
        assert sum(a == b for a, b in zip(mine, others, strict=True)) >= 29
        seconds, outside = theirs.ask("step", 3)
        assert 0 <= outside < seconds
        assert theirs.ask("prefill", prompts[0]) > 0 and theirs.memory()["peak"] > 0
        with pytest.raises(SideFailed, match="no method dance"):
            theirs.ask("dance")


@needs_binary
def test_a_file_that_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF no more")
    with pytest.raises(SideFailed, match="cannot open"):
        Worker(Program((str(BINARY),), ours=False), tmp_path / "a.gguf", 1, 128, 1)
