"""cuda/cpu/simd.h and half.h, on every instruction set of this machine, against NumPy and ml_dtypes."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
F32, F16, BF16 = 0, 1, 2
NUMPY = {F32: np.float32, F16: np.float16, BF16: ml_dtypes.bfloat16}
WORDS = {F32: np.uint32, F16: np.uint16, BF16: np.uint16}

FLAGS = {"baseline": []}
if platform.machine() in ("x86_64", "AMD64"):
    FLAGS["avx2"] = ["-mavx2", "-mfma", "-mf16c"]
    FLAGS["avx512"] = [*FLAGS["avx2"], "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"]


def cpu_has(flags: list[str]) -> bool:
    words = Path("/proc/cpuinfo").read_text().split()
    return all(flag.removeprefix("-m") in words for flag in flags)


CLANG = next((name for name in ("clang", "clang-19", "clang-18", "clang-17") if shutil.which(name)), None)
COMPILERS = ["cc", *([CLANG] if CLANG else [])]


@pytest.fixture(scope="module", params=[(compiler, isa) for compiler in COMPILERS for isa in FLAGS], ids="-".join)
def probe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler, isa = request.param
    if not cpu_has(FLAGS[isa]):
        pytest.skip(f"this processor has no {isa}")
    target = tmp_path_factory.mktemp("simd") / f"{compiler}_{isa}.so"
    source = Path(__file__).with_name("simd_probe.c")
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{ROOT}", f"-I{ROOT / 'cuda'}"]
    semantics = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
    subprocess.run([compiler, *flags, *semantics, *FLAGS[isa], str(source), "-o", str(target), "-lm"], check=True)
    library = ctypes.CDLL(str(target))
    library.probe_width.restype = ctypes.c_int64
    library.probe_stream_head.restype = ctypes.c_int64
    return library


def address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def apply(probe: ctypes.CDLL, name: str, x: np.ndarray) -> np.ndarray:
    y = np.full_like(x, np.nan)
    getattr(probe, f"probe_{name}")(address(x), address(y), ctypes.c_int64(x.size))
    return y


def sampled_f32(count: int = 1 << 20) -> np.ndarray:
    """Bit patterns spread evenly over all of f32: NaN, infinities, subnormals and both zeros among them."""
    bits = np.arange(count, dtype=np.uint64) * (2**32 // count) + 3
    ends = [0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000]
    bits = np.concatenate([bits, ends, np.array(ends) + 2**31]).astype(np.uint32)
    return np.resize(bits, (bits.size + 63) // 64 * 64).view(np.float32)


def ulps(actual: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Errors in units of the last f32 place of the exact value."""
    _, exponent = np.frexp(exact)
    return np.abs(actual.astype(np.float64) - exact) / np.ldexp(1.0, np.maximum(exponent - 24, -149))


def test_exp(probe: ctypes.CDLL) -> None:
    dense = np.linspace(-105, 90, 1 << 20, dtype=np.float32)
    edges = np.float32([-104, -103.97208, -103.9, -87.33655, 88.72283, 88.72284, 89, 89.1, np.inf, -np.inf, np.nan])
    x = np.concatenate([dense, sampled_f32(), np.resize(edges, 64)])
    with np.errstate(all="ignore"):
        exact = np.exp(x.astype(np.float64))
        rounded = exact.astype(np.float32)
        y = apply(probe, "exp", x)
    assert np.array_equal(np.isnan(y), np.isnan(x))
    assert np.array_equal(np.isinf(y), np.isinf(rounded))
    assert np.all(y[x < -104] == 0)
    finite = np.isfinite(rounded)
    assert ulps(y[finite], exact[finite]).max() <= 1.0


def test_log(probe: ctypes.CDLL) -> None:
    near_one = np.linspace(0.25, 4, 1 << 20, dtype=np.float32)
    x = np.concatenate([near_one, sampled_f32()])
    with np.errstate(all="ignore"):
        exact = np.log(x.astype(np.float64))
        y = apply(probe, "log", x)
    assert np.array_equal(np.isnan(y), np.isnan(x) | (x < 0))
    assert np.all(y[x == 0] == -np.inf)
    assert np.all(y[x == np.inf] == np.inf)
    assert np.all(y[x == 1] == 0)
    finite = np.isfinite(exact)
    assert ulps(y[finite], exact[finite]).max() <= 1.0


def test_sigmoid(probe: ctypes.CDLL) -> None:
    x = np.concatenate([np.linspace(-120, 120, 1 << 18, dtype=np.float32), sampled_f32(1 << 16)])
    with np.errstate(all="ignore"):
        exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    y = apply(probe, "sigmoid", x)
    assert np.array_equal(np.isnan(y), np.isnan(x))
    # exp within 1 ulp, a sum and a quotient that round: 2.5 ulp at most, and an underflow once exp(-x) is infinite.
    inside = x > -88
    assert ulps(y[inside], exact[inside]).max() <= 2.5
    assert np.abs(y[x <= -88]).max() < 1e-38


def test_rounding_and_order(probe: ctypes.CDLL) -> None:
    small = np.float32([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, -0.50000006, 150.5, -150.49, 0, 1e6, -1e6, 3, 4, 5, 6])
    x = np.concatenate([small, np.linspace(-200, 200, 4096, dtype=np.float32)])
    assert np.array_equal(apply(probe, "round", x), np.rint(x))
    positive = np.abs(np.nan_to_num(sampled_f32(1 << 16)))
    assert np.array_equal(apply(probe, "sqrt", positive), np.sqrt(positive))
    values = np.float32([0, -1, 1, np.inf, -np.inf, np.nan, 1e-45, 3])
    a, b = (grid.ravel().copy() for grid in np.meshgrid(values, values))
    larger, smaller, less, nan = (np.empty_like(a) for _ in range(4))
    probe.probe_two(*map(address, (a, b, larger, smaller, less, nan)), ctypes.c_int64(a.size))
    assert np.array_equal(larger, np.where(a > b, a, b), equal_nan=True)
    assert np.array_equal(smaller, np.where(a < b, a, b), equal_nan=True)
    assert np.array_equal(less, (a < b).astype(np.float32))
    assert np.array_equal(nan, np.where(np.isnan(a), b, 0), equal_nan=True)


def test_ldexp(probe: ctypes.CDLL) -> None:
    n = np.repeat(np.arange(-160, 128, dtype=np.float32), 16)
    x = np.tile(np.linspace(0.7, 1.42, 16, dtype=np.float32), n.size // 16)
    y = np.empty_like(x)
    probe.probe_ldexp(address(x), address(n), address(y), ctypes.c_int64(x.size))
    with np.errstate(all="ignore"):
        assert np.array_equal(y, np.ldexp(x.astype(np.float64), n.astype(np.int64)).astype(np.float32))


def test_lanes(probe: ctypes.CDLL) -> None:
    width = probe.probe_width()
    x = np.arange(64, dtype=np.float32)
    assert np.array_equal(apply(probe, "swap_pairs", x), x.reshape(-1, 2)[:, ::-1].ravel())
    y = np.full(64, np.nan, np.float32)
    probe.probe_load_pairs(address(x), address(y), ctypes.c_int64(64))
    assert np.array_equal(y, np.repeat(x[:32], 2))
    for n in range(width):
        y = np.full(width, np.nan, np.float32)
        probe.probe_keep_part(address(x), address(y), ctypes.c_int64(n), ctypes.c_float(-7))
        assert np.array_equal(y, np.where(np.arange(width) < n, x[:width], -7))


def test_reductions(probe: ctypes.CDLL) -> None:
    width = probe.probe_width()
    x = np.random.default_rng(1).standard_normal(4096).astype(np.float32)
    x[::7] = np.nan
    x[:width] = np.nan
    clean = np.nan_to_num(x, nan=0.5)
    groups = x.size // width
    total, largest = (np.empty(groups, np.float32) for _ in range(2))
    low, high = (np.empty(groups) for _ in range(2))
    run = probe.probe_reduce
    run(*map(address, (x, total, largest, low, high)), ctypes.c_int64(x.size))
    lanes = x.reshape(groups, width)
    expected = np.where(np.isnan(lanes).all(1), np.nan, np.nanmax(np.where(np.isnan(lanes), -np.inf, lanes), 1))
    assert np.array_equal(largest, expected.astype(np.float32), equal_nan=True)
    run(*map(address, (clean, total, largest, low, high)), ctypes.c_int64(x.size))
    lanes = clean.reshape(groups, width)
    folded = lanes.copy()
    while folded.shape[1] > 1:
        folded = folded[:, : folded.shape[1] // 2] + folded[:, folded.shape[1] // 2 :]
    assert np.array_equal(total, folded[:, 0])
    squares = lanes.astype(np.float64) ** 2
    np.testing.assert_allclose(low, squares[:, : width // 2].sum(1), rtol=1e-14)
    np.testing.assert_allclose(high, squares[:, width // 2 :].sum(1), rtol=1e-14)


def boundary_f32() -> np.ndarray:
    """Every 16-bit value of either type, the middle between neighbours, and what lies next to both."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    parts = [sampled_f32(1 << 18)]
    for dtype in (np.float16, ml_dtypes.bfloat16):
        values = patterns.view(dtype).astype(np.float32)
        following = np.roll(values, -1)
        with np.errstate(all="ignore"):
            middle = ((values.astype(np.float64) + following) / 2).astype(np.float32)
        for exact in (values, middle):
            bits = exact.view(np.uint32)
            parts += [exact, (bits + 1).view(np.float32), (bits - 1).view(np.float32)]
    return np.concatenate(parts)


@pytest.mark.parametrize("form", ["convert", "convert_scalar", "convert_stream"])
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_conversions(probe: ctypes.CDLL, dtype: int, form: str) -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16)
    wide = cast(probe, form, patterns, F16 if dtype == F16 else BF16, F32)
    expected = patterns.view(NUMPY[dtype]).astype(np.float32)
    assert_same(wide, expected.view(np.uint32), F32)
    assert_same(cast(probe, form, wide, F32, dtype), patterns, dtype)
    x = boundary_f32()
    with np.errstate(all="ignore"):
        expected16 = x.astype(NUMPY[dtype]).view(np.uint16)
    assert_same(cast(probe, form, x.view(np.uint32), F32, dtype), expected16, dtype)


def cast(probe: ctypes.CDLL, form: str, x: np.ndarray, dtype_x: int, dtype_y: int) -> np.ndarray:
    memory = np.full(x.size * 4 + 64, 0xA5, np.uint8)
    head = -memory.ctypes.data % 64  # streaming stores need whole cache lines
    y = memory[head : head + x.size * np.dtype(WORDS[dtype_y]).itemsize].view(WORDS[dtype_y])
    getattr(probe, f"probe_{form}")(address(x), address(y), ctypes.c_int64(x.size), dtype_x, dtype_y)
    return y


def assert_same(actual: np.ndarray, expected: np.ndarray, dtype: int) -> None:
    """Equal to the bit, but that a NaN may be any NaN of the same sign."""
    a, b = actual.view(NUMPY[dtype]), expected.view(NUMPY[dtype])
    nan = np.isnan(b.astype(np.float32))
    assert np.array_equal(np.isnan(a.astype(np.float32)), nan)
    assert np.array_equal(actual[~nan], expected[~nan])
    sign = WORDS[dtype](1) << WORDS[dtype](8 * actual.itemsize - 1)
    assert np.array_equal(actual[nan] & sign, expected[nan] & sign)


@pytest.mark.parametrize("dtype", [F32, F16, BF16])
def test_parts_touch_nothing_else(probe: ctypes.CDLL, dtype: int) -> None:
    width = probe.probe_width()
    for n in range(1, 2 * width):
        x = np.arange(1, n + 1).astype(NUMPY[dtype])
        y = np.full(n + 64, 99).astype(NUMPY[dtype])
        probe.probe_convert(address(x), address(y), ctypes.c_int64(n), dtype, dtype)
        assert np.array_equal(y[:n], x)
        assert np.all(y[n:] == NUMPY[dtype](99))


@pytest.mark.parametrize("dtype", [F32, F16, BF16])
def test_stream_head(probe: ctypes.CDLL, dtype: int) -> None:
    size = np.dtype(WORDS[dtype]).itemsize
    for base in range(0, 256, size):
        for i in (0, 1, 17):
            head = probe.probe_stream_head(ctypes.c_void_p(base), ctypes.c_int64(i), dtype)
            assert 0 <= head < 64 // size
            assert (base + (i + head) * size) % 64 == 0
