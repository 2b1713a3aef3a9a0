"""Products with stored weights in each form that the engine chooses by the processor within one instruction set: with
the integer dot products of AVX2 and without. A processor that has them never runs the other form, which is compiled
here by itself."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from engine import Engine
from stored import BLOCKS, CODES, IN_BLOCKS, SIDES, gemm, numbers, weights

ROOT = Path(__file__).resolve().parents[2]
AVX2 = 1
FLAGS = {"avx2": ["-mavx2", "-mfma", "-mf16c"], "avx2vnni": ["-mavx2", "-mfma", "-mf16c", "-mavxvnni"]}
#: What /proc/cpuinfo calls them.
NEEDS = {"avx2": {"avx2", "fma", "f16c"}, "avx2vnni": {"avx2", "fma", "f16c", "avx_vnni"}}
#: Where the codes of a block begin, and end; before and after them there are scales of f16.
CODES_FROM = {"q4_0": 2, "q4_1": 4, "q5_0": 2, "q5_1": 4, "q8_0": 2, "q4_k": 4, "q5_k": 4}
CODES_FROM |= {"iq4_nl": 2, "mxfp4": 1, "iq4_xs": 2}
CODES_TO = {"q2_k": 80, "q3_k": 108, "q6_k": 208}
#: One row, a few, whole groups of rows with and without a rest, more than a tile.
ROWS = (1, 2, 3, 4, 7, 8, 33)


@pytest.fixture(scope="module", params=FLAGS)
def form(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    name = request.param
    if platform.machine() not in ("x86_64", "AMD64") or not NEEDS[name] <= set(
        Path("/proc/cpuinfo").read_text().split()
    ):
        pytest.skip(f"this processor has no {name}")
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    target = tmp_path_factory.mktemp("quant") / f"{name}.so"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{ROOT}", f"-I{ROOT / 'cuda'}"]
    semantics = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", f"-DNN_ISA={name}"]
    source = Path(__file__).with_name("quant_probe.c")
    subprocess.run([compiler, *flags, *semantics, *FLAGS[name], str(source), "-o", str(target), "-lm"], check=True)
    return ctypes.CDLL(str(target))


def product(form: ctypes.CDLL, x: np.ndarray, w: np.ndarray, name: str, n: int) -> np.ndarray:
    m, k = x.shape
    y = np.full((m, n), np.nan, np.float32)
    sizes = (ctypes.c_int64(value) for value in (m, n, k, w.shape[1]))
    pointers = (ctypes.c_void_p(array.ctypes.data) for array in (x, w, y))
    assert form.probe_gemm_quant(*pointers, *sizes, ctypes.c_int32(CODES[name])) == 0
    return y


@pytest.mark.parametrize("name", IN_BLOCKS)
def test_each_form_gives_the_bits_of_the_engine(form: ctypes.CDLL, name: str) -> None:
    cpu = Engine(threads=1, isa=AVX2)
    for n, k in ((48, 3 * BLOCKS[name]), (21, 1280)) if name not in SIDES else ((48, 9 * BLOCKS[name]), (112, 1280)):
        for kind in (name, *([SIDES[name]] if name in SIDES else [])):
            w = weights(n, k, kind)
            for m in ROWS:
                x = numbers(m, k)
                assert product(form, x, w, kind, n).tobytes() == gemm(cpu, x, w, kind, n).tobytes(), (kind, m, n, k)


@pytest.mark.parametrize("name", IN_BLOCKS)
def test_the_largest_integers_fit(form: ctypes.CDLL, name: str) -> None:
    """All activations at an end of their range, against codes whose bits are all ones, all zeros, or in turns."""
    cpu = Engine(threads=1, isa=0)
    k, n = 2 * BLOCKS[name], 16
    ordinary = weights(n, k, name)
    at = np.arange(ordinary.shape[1]) % (ordinary.shape[1] // 2)  # of a block
    for pattern in (0x00, 0xFF, 0x0F, 0xF0, 0x80, 0x7F):
        w = np.where((at >= CODES_FROM.get(name, 0)) & (at < CODES_TO.get(name, 1 << 10)), pattern, ordinary)
        w = np.ascontiguousarray(w.astype(np.uint8))
        for signs in (1, -1, np.resize([1, -1], k), np.resize([1, 1, -1, -1], k)):
            x = np.full((5, k), 3.0, np.float32) * np.asarray(signs, np.float32)
            expected = gemm(cpu, x, w, name, n)
            assert np.isfinite(expected).all()
            assert product(form, x, w, name, n).tobytes() == expected.tobytes(), pattern
