"""Philox and what is made from its words, on every instruction set."""

from __future__ import annotations

import goodness
import numpy as np
import pytest
from engine import DTYPES, FLOATS, THREADS, Engine, KernelError, empty, isas

ISAS = isas()


def signed(low: int, high: int) -> int:
    """Two words as the signed 64-bit number that holds them."""
    value = low | high << 32
    return value - (1 << 64) if value >> 63 else value


def words(cpu: Engine, n: int, seed: int = 0, stream: int = 0, offset: int = 0) -> np.ndarray:
    y = empty(n, "i32")
    cpu.random_bits(y, n, seed, stream, offset)
    return y.view(np.uint32)


def number(cpu: Engine, kernel: str, n: int, a: float, b: float, seed: int, stream: int, offset: int, dtype: str):
    y = empty(n, dtype)
    getattr(cpu, kernel)(y, n, a, b, seed, stream, offset, dtype)
    return y


@pytest.mark.parametrize(
    "counter,key,expected",
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers(cpu: Engine, counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """The published answers of philox4x32-10 (Random123, kat_vectors)."""
    y = words(cpu, 4, signed(*key), signed(*counter[2:]), signed(*counter[:2]))
    assert y.tolist() == list(expected)


def philox(block: int, stream: int, seed: int) -> list[int]:
    """One block, from the paper's definition."""
    mask = 0xFFFFFFFF
    c = [block & mask, block >> 32 & mask, stream & mask, stream >> 32 & mask]
    k = [seed & mask, seed >> 32 & mask]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & mask, a >> 32 ^ c[3] ^ k[1], a & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


def test_every_block_and_carries(cpu: Engine) -> None:
    """Offsets whose low word overflows within a vector, and the end of the counter, where it wraps."""
    for offset in (0, 1, (1 << 32) - 5, (1 << 40) - 3, -4):
        y = words(cpu, 100, seed=-12345678901234567, stream=-3, offset=offset)
        for i in range(25):
            expected = philox(offset + i, -3, -12345678901234567)
            assert y[4 * i : 4 * i + 4].tolist() == expected


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 16384, 16385, 40001])
def test_parts_of_a_sequence(cpu: Engine, n: int) -> None:
    """Any length and any offset give the same numbers, and nothing is written behind the end."""
    whole = words(cpu, 40004, 7, 8, 9)
    guarded = np.full(n + 16, 12345, np.int32)
    cpu.random_bits(guarded, n, 7, 8, 9)
    assert (guarded[:n].view(np.uint32) == whole[:n]).all() and (guarded[n:] == 12345).all()
    for dtype in FLOATS:
        full = number(cpu, "normal", 40004, 1.0, 2.0, 7, 8, 9, dtype)
        y = np.full(n + 16, 77, DTYPES[dtype])
        cpu.normal(y, n, 1.0, 2.0, 7, 8, 9, dtype)
        assert y[:n].tobytes() == full[:n].tobytes() and (y[n:] == DTYPES[dtype](77)).all()
    assert (words(cpu, 40, 7, 8, 9 + 1000) == whole[4000:4040]).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_is_the_formula(cpu: Engine, dtype: str) -> None:
    n = 10007
    for low, high in ((0.0, 1.0), (-3.0, 5.0), (2.0, 2.0), (-3.0e38, 0.0)):
        y = number(cpu, "uniform", n, low, high, 3, 4, 5, dtype)
        unit = (words(cpu, n, 3, 4, 5) >> 8).astype(np.float32) * np.float32(2**-24)
        width = np.float32(high) - np.float32(low)
        with np.errstate(over="ignore"):
            assert (y == (np.float32(low) + width * unit).astype(DTYPES[dtype])).all()


def test_normal_is_as_exact_as_its_formula(cpu: Engine) -> None:
    """Against float64 over one million numbers: no worse than the formula carried out in f32 by NumPy."""
    n = 1 << 20
    a, b = (words(cpu, n, 1, 2, 3)[i::2] >> 8 for i in (0, 1))
    y = number(cpu, "normal", n, 0.0, 1.0, 1, 2, 3, "f32")

    def formula(real: type) -> np.ndarray:
        u, w = (a.astype(real) + real(1)) * real(2**-24), b.astype(real) * real(2**-24)
        r, angle = np.sqrt(real(-2) * np.log(u)), real(2 * np.pi) * w
        return np.stack([r * np.cos(angle), r * np.sin(angle)], axis=1).ravel()

    exact = formula(np.float64)
    error, plain = np.abs(y - exact), np.abs(formula(np.float32) - exact)
    assert error.max() <= plain.max() and error.mean() <= plain.mean()


@pytest.mark.parametrize("block,pair,word", [(32406516, 0, 0), (17591041, 1, 0), (21610262, 0, -1), (11582842, 1, -1)])
def test_ends_of_the_tail(cpu: Engine, block: int, pair: int, word: int) -> None:
    """Blocks of seed 5 that hold the least word, where the radius is largest, and the greatest, where it is 0."""
    w = words(cpu, 4, 5, 0, block)[2 * pair : 2 * pair + 2] >> 8
    assert w[0] == word % (1 << 24)
    y = number(cpu, "normal", 4, 0.0, 1.0, 5, 0, block, "f32")[2 * pair : 2 * pair + 2].astype(np.float64)
    r, angle = np.sqrt(-2 * np.log((w[0] + 1.0) * 2**-24)), 2 * np.pi * w[1] * 2**-24
    assert np.allclose(y, [r * np.cos(angle), r * np.sin(angle)], rtol=2**-22, atol=2**-22)


def test_distributions() -> None:
    cpu, n = Engine(), 1_000_000
    bits = words(cpu, n, 11)
    for shift in (0, 8, 16, 24):
        counts = np.bincount(bits >> np.uint32(shift) & np.uint32(255), minlength=256)
        assert goodness.chi_square(counts, np.full(256, 1 / 256)) > goodness.LEAST_P
    u = number(cpu, "uniform", n, 0.0, 1.0, 12, 0, 0, "f32").astype(np.float64)
    assert 0 <= u.min() and u.max() < 1
    assert goodness.kolmogorov_smirnov(np.sort(u), np.sort(u)) > goodness.LEAST_P
    z = number(cpu, "normal", n, 0.0, 1.0, 13, 0, 0, "f32").astype(np.float64)
    some = np.sort(z[:200_000])
    assert goodness.kolmogorov_smirnov(some, goodness.normal_distribution(some)) > goodness.LEAST_P
    # Five standard errors of each moment of a standard normal.
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(z**power) - moment) < 5 * np.sqrt(variance / n)
    pairs = np.corrcoef(z[0::2], z[1::2])[0, 1]
    assert abs(pairs) < 5 / np.sqrt(n / 2)
    shifted = number(cpu, "normal", n, -3.0, 0.02, 13, 0, 0, "f32")
    assert (shifted == np.float32(-3.0) + np.float32(0.02) * z.astype(np.float32)).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_same_bits_everywhere(dtype: str) -> None:
    """Numbers are the same on every instruction set, not only for every number of threads."""
    n = 100_003
    results = set()
    for isa in ISAS:
        for threads in THREADS:
            cpu = Engine(threads, isa)
            made = [number(cpu, kernel, n, -0.5, 0.75, 21, 22, 23, dtype) for kernel in ("uniform", "normal")]
            results.add(b"".join([words(cpu, n, 21, 22, 23).tobytes(), *(y.tobytes() for y in made)]))
    assert len(results) == 1


# ---- nncuda_data_order ----


def order(cpu: Engine, seed: int, first: int, count: int, windows: int) -> np.ndarray:
    indices = np.full(count, -1, np.int64)
    cpu.data_order(seed, first, count, windows, indices)
    return indices


def data_order_by_definition(seed: int, position: int, windows: int) -> int:
    """The header's words, step by step."""
    epoch, x = divmod(position, windows)
    bits = (windows - 1).bit_length()
    right = bits - bits // 2
    while True:
        high, low = x >> right, x & ((1 << right) - 1)
        for r in range(4):
            word = philox((low if r % 2 == 0 else high) | ((1 << 31) + r) << 32, epoch, seed)[0]
            if r % 2 == 0:
                high ^= word & ((1 << bits // 2) - 1)
            else:
                low ^= word & ((1 << right) - 1)
        x = high << right | low
        if x < windows:
            return x


@pytest.mark.parametrize("windows", [1, 2, 3, 5, 16, 17, 1000, 65537])
def test_data_order_is_a_permutation_of_every_epoch(cpu: Engine, windows: int) -> None:
    three = order(cpu, 42, 0, 3 * windows, windows).reshape(3, windows)
    for epoch in three:
        assert (np.sort(epoch) == np.arange(windows)).all()
    for position in {0, 1, windows - 1, windows, 2 * windows + windows // 3}:
        assert three.ravel()[position] == data_order_by_definition(42, position, windows)
        assert order(cpu, 42, position, 2, windows)[0] == three.ravel()[position]
    if windows >= 1000:  # epochs and seeds differ, neighbours are not neighbours
        assert (three[0] != three[1]).mean() > 0.99
        assert (three[0] != order(cpu, 43, 0, windows, windows)).mean() > 0.99
        assert abs(np.corrcoef(three[0], np.arange(windows))[0, 1]) < 5 / np.sqrt(windows)


def test_data_order_of_huge_sizes(cpu: Engine) -> None:
    for windows in (2**31 - 1, 2**32 + 1, 2**62, 2**63 - 1):
        first = 2**63 - 1 - 4
        got = order(cpu, -1, first, 4, windows).tolist()
        assert got == [data_order_by_definition(-1, first + i, windows) for i in range(4)]


def test_data_order_refuses(cpu: Engine) -> None:
    y = np.full(4, -1, np.int64)
    for args, name, status in (
        ((0, -1, 4, 9, y), "first", "INVALID_VALUE"),
        ((0, 0, -4, 9, y), "count", "INVALID_SIZE"),
        ((0, 2**63 - 1, 4, 9, y), "count", "INVALID_SIZE"),
        ((0, 0, 4, 0, y), "windows", "INVALID_VALUE"),
        ((0, 0, 4, 9, None), "indices", "NULL_POINTER"),
    ):
        with pytest.raises(KernelError, match=name) as raised:
            cpu.data_order(*args)
        assert raised.value.status == f"NNCUDA_ERROR_{status}"
    assert (y == -1).all()
    cpu.data_order(0, 0, 0, 9, None)
