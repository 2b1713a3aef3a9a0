"""Storing rows in a format and reading them back: bits that hang on nothing but the numbers, and bytes of any kind."""

from __future__ import annotations

import numpy as np
import pytest
from engine import DTYPES, FLOATS, THREADS, Engine, empty, isas

from nncuda.formats.block_formats import FORMATS
from nncuda.reference.quant import decoded, encoded

SEARCHED = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k")
STORES = [name for name, entry in FORMATS.items() if entry.stores]
#: Elements that a task takes: sizes around it and beyond.
TASK = 1 << 14
#: What the error of a nearest code is made of: the largest step between codes, as a share of the block's range.
STEPS = {"q4_0": 8, "q4_1": 15, "q5_0": 16, "q5_1": 31, "q8_0": 127}


@pytest.fixture(scope="module")
def cpu() -> Engine:
    return Engine(threads=2)


def bell(rows: int, k: int, dtype: str = "f32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, k)).astype(DTYPES[dtype])


def stored(engine: Engine, name: str, x: np.ndarray, dtype: str = "f32") -> np.ndarray:
    entry = FORMATS[name]
    rows, k = x.shape
    y = np.full((rows, entry.row_bytes(k)), 0x5A, np.uint8)
    engine.quantize(np.ascontiguousarray(x), y, rows, k, y.shape[1], entry.code, dtype)
    return y


def read(engine: Engine, name: str, rows: np.ndarray, k: int, dtype: str = "f32") -> np.ndarray:
    y = empty((len(rows), k), dtype)
    engine.dequantize(np.ascontiguousarray(rows), y, len(rows), k, rows.shape[1], FORMATS[name].code, dtype)
    return y


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """The same bits, or NaN in both."""
    a, b = (np.where(np.isnan(x.astype(np.float32)), DTYPES["f32"](7), x.astype(np.float32)) for x in (a, b))
    return a.tobytes() == b.tobytes()


def mixed(rows: int, k: int) -> np.ndarray:
    """Rows of every size, some with few numbers that are not zero, some of one sign, one of zeros."""
    x = bell(rows, k, seed=k)
    x *= np.exp2(np.arange(rows) % 60 - 30.0).astype(np.float32)[:, None]
    x[1::5] = np.where(bell(rows, k, seed=k + 1)[1::5] > 1, x[1::5], 0)
    x[2::7] = np.abs(x[2::7])
    x[3::11] = -np.abs(x[3::11])
    x[4::13] = 0
    return x


@pytest.mark.parametrize("rows,blocks", [(1, 1), (1, 3), (7, 1), (3, 5), (2, TASK // 256 + 1), (67, 2)])
@pytest.mark.parametrize("name", STORES)
def test_bits_on_every_instruction_set_and_number_of_threads(name: str, rows: int, blocks: int) -> None:
    k = 256 * blocks
    x = mixed(rows, k)
    first = stored(Engine(threads=1, isa=0), name, x)
    for isa in isas():
        for threads in THREADS:
            assert np.array_equal(stored(Engine(threads, isa), name, x), first), (isa, threads)


@pytest.mark.parametrize("name", SEARCHED)
def test_a_block_does_not_hang_on_its_neighbours(cpu: Engine, name: str) -> None:
    """Two blocks are searched side by side; each alone gives the same bytes."""
    x = mixed(9, 3 * 256)
    whole = stored(cpu, name, x)
    alone = stored(cpu, name, x.reshape(27, 256))
    assert np.array_equal(whole.reshape(27, -1), alone)
    for row in range(27):
        assert np.array_equal(stored(cpu, name, x.reshape(27, 256)[row : row + 1])[0], alone[row])


@pytest.mark.parametrize("name", STORES)
def test_sixteen_bit_numbers_are_widened_first(cpu: Engine, name: str) -> None:
    for dtype in ("f16", "bf16"):
        x = bell(5, 512, dtype, seed=3)
        assert np.array_equal(stored(cpu, name, x, dtype), stored(cpu, name, x.astype(np.float32)))


@pytest.mark.parametrize("name", STEPS)
def test_error_of_storing(cpu: Engine, name: str) -> None:
    """Half a step, and what rounding scale and minimum to f16 moves the codes by; a whole step at the clipped end."""
    x = bell(64, 256, seed=4)
    blocks = x.reshape(-1, 32).astype(np.float64)
    back = read(cpu, name, stored(cpu, name, x), 256).reshape(-1, 32)
    size = np.max(np.abs(blocks), axis=1)
    span = np.ptp(blocks, axis=1) if name.endswith("_1") else size
    clipped = 1.0 if name in ("q4_0", "q5_0") else 0.5
    bound = clipped * span / STEPS[name] + 2.0**-10 * (size + span)
    assert np.all(np.max(np.abs(back - blocks), axis=1) <= bound)


@pytest.mark.parametrize("name", ["q4_k", "q5_k", "q6_k"])
def test_error_of_the_search(cpu: Engine, name: str) -> None:
    """More codes leave less error: beside the formats of 32 with as many bits, whose scales cost more bytes."""
    x = bell(64, 1024, seed=5)
    peer = {"q4_k": "q4_1", "q5_k": "q5_1", "q6_k": "q5_1"}[name]
    error, other = (np.mean((read(cpu, n, stored(cpu, n, x), 1024) - x.astype(np.float64)) ** 2) for n in (name, peer))
    assert error < other


@pytest.mark.parametrize("name", ["q2_k", "q3_k"])
def test_error_of_the_search_in_few_bits(cpu: Engine, name: str) -> None:
    """Less than what the rounding of q4_1 (of q4_0) to as many bits leaves in parts of 16, whose scales are exact."""
    x = bell(64, 1024, seed=5).astype(np.float64)
    parts = x.reshape(-1, 16)
    if name == "q2_k":
        least, step = parts.min(axis=1, keepdims=True), np.ptp(parts, axis=1, keepdims=True) / 3
        rounded = np.rint((parts - least) / step) * step + least
    else:  # the element of largest magnitude takes the code -4
        step = np.take_along_axis(parts, np.argmax(np.abs(parts), axis=1)[:, None], axis=1) / -4
        rounded = np.clip(np.rint(parts / step), -4, 3) * step
    plain = np.mean((rounded - parts) ** 2)
    found = np.mean((read(cpu, name, stored(cpu, name, x.astype(np.float32)), 1024) - x) ** 2)
    assert found < plain


@pytest.mark.parametrize("name", SEARCHED)
def test_numbers_that_the_search_must_give_exactly(cpu: Engine, name: str) -> None:
    zeros = read(cpu, name, stored(cpu, name, np.zeros((1, 256), np.float32)), 256)
    assert not zeros.any()
    x = np.zeros((1, 256), np.float32)
    x[0, 77] = 2.5
    assert np.allclose(read(cpu, name, stored(cpu, name, x), 256), x, rtol=2.0**-11, atol=0)
    for size in (1e-38, 1e30, 3e38):  # no scale of f16 reaches them: nothing is infinite, nothing is NaN
        assert np.isfinite(read(cpu, name, stored(cpu, name, np.full((2, 256), size, np.float32)), 256)).all()


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("name", FORMATS)
def test_any_bytes_at_any_address(name: str, isa: int) -> None:
    """Random bytes, scales of NaN and infinity among them, from odd addresses: read as the reference reads them."""
    entry, engine, rng = FORMATS[name], Engine(threads=2, isa=isa), np.random.default_rng(6)
    for seed in range(6):
        rows, k = 3 + seed, entry.elements * (1 + seed % 3) if entry.elements > 1 else 1 + 37 * seed
        length = entry.row_bytes(k)
        memory = rng.integers(0, 256, rows * length + 1, dtype=np.uint8)
        bytes_ = memory[1:].reshape(rows, length)
        with np.errstate(all="ignore"):
            wanted = decoded(bytes_, entry.code)
            y = empty((rows, k), "f32")
            engine.dequantize(memory[1:], y, rows, k, length, entry.code, "f32")
            assert same(y, wanted)
            for dtype in FLOATS[1:]:
                assert same(read(engine, name, bytes_, k, dtype), wanted.astype(DTYPES[dtype]))
            ids = rng.integers(0, rows, 5).astype(np.int32)
            gathered = empty((5, k), "f32")
            engine.embedding_quant(memory[1:], ids, gathered, 5, rows, k, length, entry.code, "f32")
            assert same(gathered, wanted[ids])


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
def test_formats_that_are_dtypes_are_casts(name: str, isa: int) -> None:
    """Odd lengths, numbers that are not finite, and rows at odd addresses."""
    engine, entry = Engine(threads=2, isa=isa), FORMATS[name]
    x = bell(3, 301, seed=7)
    x[0, :4] = np.inf, -np.inf, 1e38, -0.0
    memory = np.zeros(3 * entry.row_bytes(301) + 1, np.uint8)
    engine.quantize(x, memory[1:], 3, 301, entry.row_bytes(301), entry.code, "f32")
    with np.errstate(over="ignore"):
        assert memory[1:].tobytes() == x.astype(DTYPES[name]).tobytes() == encoded(x, entry.code).tobytes()
