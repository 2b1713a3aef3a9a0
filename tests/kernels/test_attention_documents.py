"""Packed documents in attention, on every instruction set: none sees another, and no bit depends on another.

Blocks of keys lie at fixed places of a sequence. A document that begins at a multiple of BLOCK has the blocks that it
would have alone, and so the same bits in its output; where another begins, its sums are made in another order.
"""

from __future__ import annotations

import engine
import numpy as np
import pytest
from engine import DTYPES, FLOATS, ROUNDING, Engine, KernelError

from nncuda.reference import attention as reference

#: A multiple of the keys of a block, on every engine.
BLOCK = 256
#: Where the documents of a sequence begin, beside 0: within blocks and at their ends, one of a single token.
BEGINS = (70, 71, 256, 391, 512)
LENGTH, HEADS, KV_HEADS, DIM = 560, 4, 2, 24
#: How many roundings of 1 two orders of the same sums may differ by. In f32 those of the sums count, of which the
#: longest have the queries of two heads over the longest document, 2 * 185 terms; in 16 bits those of the outputs, and
#: of `out` in the gradients, which are some units large.
ROUNDINGS = {"f32": 2 * 2 * 185, "f16": 16, "bf16": 16}


@pytest.fixture(scope="module", params=range(Engine().isa + 1), ids=lambda isa: f"isa{isa}")
def cpu(request: pytest.FixtureRequest) -> Engine:
    return Engine(threads=2, isa=request.param)


def starts_of(begins: tuple[int, ...], length: int) -> np.ndarray:
    starts = np.zeros((1, length), np.int32)
    for begin in begins:
        starts[0, begin:] = begin
    return starts


class Numbers:
    """Operands of one sequence, and what the kernels make of them."""

    def __init__(self, dtype: str, length: int = LENGTH, seed: int = 0) -> None:
        draw = np.random.default_rng(seed).standard_normal
        self.dtype = dtype
        shapes = ((length, HEADS, DIM), (length, KV_HEADS, DIM), (length, KV_HEADS, DIM), (length, HEADS, DIM))
        self.q, self.k, self.v, self.dout = ((1.5 * draw(shape)).astype(DTYPES[dtype]) for shape in shapes)

    def part(self, first: int, end: int) -> Numbers:
        part = Numbers(self.dtype, 1)
        for name in ("q", "k", "v", "dout"):
            setattr(part, name, getattr(self, name)[first:end].copy())
        return part

    def run(self, cpu: Engine, starts: np.ndarray | None) -> dict[str, np.ndarray]:
        length = len(self.q)
        sizes = (1, length, length, HEADS, KV_HEADS, DIM, HEADS * DIM, KV_HEADS * DIM, DIM**-0.5, 1, self.dtype)
        out, lse = engine.empty(self.q.shape, self.dtype), engine.empty((1, HEADS, length), "f32")
        cpu.flash_attention(self.q, self.k, self.v, starts, out, lse, *sizes)
        dq, dk, dv = (engine.empty(x.shape, self.dtype) for x in (self.q, self.k, self.v))
        cpu.flash_attention_backward(self.dout, self.q, self.k, self.v, out, lse, starts, dq, dk, dv, *sizes)
        return {"out": out, "lse": lse[0].T.copy(), "dq": dq, "dk": dk, "dv": dv}


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
def test_one_document_has_the_bits_of_none(cpu: Engine, dtype: str) -> None:
    numbers = Numbers(dtype)
    plain, one = (numbers.run(cpu, starts) for starts in (None, starts_of((), LENGTH)))
    assert all(same(plain[name], one[name]) for name in plain)


@pytest.mark.parametrize("dtype", FLOATS)
def test_results_are_those_of_each_document_alone(cpu: Engine, dtype: str) -> None:
    """Up to rounding wherever one begins; the output's bits where its blocks are the same."""
    numbers = Numbers(dtype)
    packed = numbers.run(cpu, starts_of(BEGINS, LENGTH))
    for first, end in zip((0, *BEGINS), (*BEGINS, LENGTH), strict=True):
        part = numbers.part(first, end)
        alone = part.run(cpu, None)
        for name, found in packed.items():
            wanted = alone[name]
            if first % BLOCK == 0 and name in ("out", "lse"):
                assert same(found[first:end], wanted), (name, first)
            difference = np.abs(found[first:end].astype(np.float64) - wanted.astype(np.float64)).max()
            assert difference <= ROUNDINGS[dtype] * ROUNDING[dtype], (name, first)


@pytest.mark.parametrize("dtype", FLOATS)
def test_no_bit_depends_on_another_document(cpu: Engine, dtype: str) -> None:
    numbers, others = Numbers(dtype), Numbers(dtype, seed=1)
    starts = starts_of(BEGINS, LENGTH)
    packed = numbers.run(cpu, starts)
    for first, end in zip((0, *BEGINS), (*BEGINS, LENGTH), strict=True):
        mixed = Numbers(dtype, seed=1)
        for name in ("q", "k", "v", "dout"):
            getattr(mixed, name)[first:end] = getattr(numbers, name)[first:end]
        found = mixed.run(cpu, starts)
        assert all(same(found[name][first:end], packed[name][first:end]) for name in packed), first
        assert not same(found["out"], packed["out"])
    assert not same(others.q, numbers.q)


@pytest.mark.parametrize("dtype", FLOATS)
def test_blocks_before_a_document_are_not_touched(cpu: Engine, dtype: str) -> None:
    """Zero times NaN is NaN: a block that were computed and hidden would show. From 768 on no block of queries, whose
    sizes divide 768, has any of the first document."""
    numbers = Numbers(dtype, 4 * BLOCK)
    numbers.k[: 3 * BLOCK], numbers.v[: 3 * BLOCK] = np.nan, np.nan
    found = numbers.run(cpu, starts_of((3 * BLOCK,), 4 * BLOCK))
    for name, values in found.items():
        assert np.isfinite(values[3 * BLOCK :].astype(np.float32)).all(), name
        assert np.isnan(values[: 3 * BLOCK].astype(np.float32)).any(), name


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_any_number_of_threads(dtype: str) -> None:
    numbers, starts = Numbers(dtype), starts_of(BEGINS, LENGTH)
    first, *others = (numbers.run(Engine(threads=threads), starts) for threads in engine.THREADS)
    assert all(same(first[name], other[name]) for other in others for name in first)


def test_a_window_slides() -> None:
    """Any starts that never fall will do, such as those of a window of 100 keys."""
    numbers = Numbers("f32")
    starts = np.maximum(np.arange(LENGTH, dtype=np.int32) - 99, 0)[None]
    found = numbers.run(Engine(), starts)
    q, k, v, dout = (x.astype(np.float64) for x in (numbers.q, numbers.k, numbers.v, numbers.dout))
    scale = float(np.float32(DIM**-0.5))
    wanted = reference.flash_attention(q, k, v, 1, scale, 1, starts)
    gradients = reference.flash_attention_backward(dout, q, k, v, wanted["out"], wanted["lse"], 1, scale, 1, starts)
    for name, values in {"out": wanted["out"], **gradients}.items():
        assert np.abs(found[name] - values).max() <= ROUNDINGS["f32"] * ROUNDING["f32"], name


@pytest.mark.parametrize("kernel", ["flash_attention", "flash_attention_backward"])
@pytest.mark.parametrize(
    ("at", "value", "wanted"),
    [(3, 4, "2 to 3"), (3, -1, "2 to 3"), (0, 1, "0 to 0"), (7, 1, "2 to 3"), (5, 2**31 - 1, "0 to 1")],
)
def test_starts_that_are_none_are_refused(cpu: Engine, kernel: str, at: int, value: int, wanted: str) -> None:
    """Before anything is written. Two sequences of four tokens."""
    starts = np.array([[0, 0, 2, 2], [0, 0, 2, 2]], np.int32)
    starts.flat[at] = value
    x, written = np.ones((8, 1, 8), np.float32), np.full((8, 1, 8), 7, np.float32)
    lse = np.full((2, 1, 4), 7, np.float32)
    sizes = (2, 4, 4, 1, 1, 8, 8, 8, 1.0, 1, "f32")
    with pytest.raises(KernelError) as error:
        if kernel == "flash_attention":
            cpu.flash_attention(x, x, x, starts, written, lse, *sizes)
        else:
            cpu.flash_attention_backward(x, x, x, x, x, lse, starts, written, written.copy(), written.copy(), *sizes)
    assert error.value.status == "NNCUDA_ERROR_OUT_OF_RANGE"
    assert f"starts[{at}] is {value}; it must be {wanted}" in error.value.message
    assert (written == 7).all() and (lse == 7).all()


@pytest.mark.parametrize(("q_len", "causal", "sentence"), [(4, 0, "causal is 0"), (3, 1, "q_len is 3 and kv_len 4")])
def test_starts_need_causal_attention_of_a_sequence_to_itself(q_len: int, causal: int, sentence: str) -> None:
    x, out, starts = np.ones((4, 1, 8), np.float32), np.ones((4, 1, 8), np.float32), np.zeros((1, 4), np.int32)
    with pytest.raises(KernelError, match=sentence):
        Engine().flash_attention(x, x, x, starts, out, None, 1, q_len, 4, 1, 1, 8, 8, 8, 1.0, causal, "f32")


def test_documents_end_with_their_separator() -> None:
    ids = np.array([[5, 9, 9, 1, 2], [1, 2, 3, 4, 9], [0, 9, 9, 9, 9]], np.int32)
    starts, positions = engine.empty(ids.shape, "i32"), engine.empty(ids.shape, "i32")
    Engine().document_starts(ids, starts, positions, 3, 5, 9)
    assert starts.tolist() == [[0, 0, 2, 3, 3], [0, 0, 0, 0, 0], [0, 0, 2, 3, 4]]
    assert positions.tolist() == [[0, 1, 0, 0, 1], [0, 1, 2, 3, 4], [0, 1, 0, 0, 0]]
