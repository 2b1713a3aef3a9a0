"""attention_step_paged has the bits of rope_qk, kv_append_paged and attention_decode_paged on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from engine import DTYPES, THREADS, Engine, KernelError, empty
from pages import STORAGE, Pages, filled, offsets

from nncuda.reference import rope

POSITIONS = 300
#: Sequences of one row, of a whole page, of one row more, of several pages.
LENGTHS = (1, 128, 129, 260)
SHAPES = [(4, 2, 64), (5, 1, 80), (3, 3, 24), (1, 1, 256), (20, 1, 32)]


class Step:
    """The operands of a step: queries, keys and values side by side, and pages where the last rows are to come."""

    def __init__(self, shape: tuple[int, int, int], storage: str, dtype: str, layout: int) -> None:
        self.heads, self.kv_heads, self.dim = shape
        self.storage, self.dtype, self.layout = storage, dtype, layout
        rng = np.random.default_rng(7)
        width = (self.heads + 2 * self.kv_heads) * self.dim
        self.qkv = rng.standard_normal((len(LENGTHS), width)).astype(DTYPES[dtype])
        exact = rope.rope_freqs(POSITIONS, self.dim, 0, 10000.0, 1.0)
        self.tables = [exact[name].astype(np.float32) for name in ("cosine", "sine")]
        self.positions = np.array([0, 299, 128, 7], np.int32)
        self.scale = 1 / np.sqrt(self.dim)
        self.sinks: np.ndarray | None = None
        self.bounds: tuple[int, float] = (0, 0.0)
        """Window and soft cap."""

    def pages(self) -> Pages:
        return filled(self.storage, self.kv_heads, self.dim, LENGTHS)

    def parts(self, cpu: Engine, pages: Pages) -> np.ndarray:
        """By the three calls, in place."""
        heads, kv_heads, dim, dtype = self.heads, self.kv_heads, self.dim, self.dtype
        batch, ld = self.qkv.shape
        flat = self.qkv.copy().reshape(-1)
        k, v, out = flat[heads * dim :], flat[(heads + kv_heads) * dim :], empty((batch, heads, dim), dtype)
        cpu.rope_qk(flat, k, *self.tables, self.positions, batch, heads, kv_heads, dim, POSITIONS, ld, ld, self.layout,
                    dtype)  # fmt: skip
        cpu.kv_append_paged(k, v, offsets([1] * batch), pages.lengths, pages.table, pages.k, pages.v, batch, batch,
                            *pages.sizes, kv_heads, dim, ld, pages.page_bytes, pages.number, dtype)  # fmt: skip
        cpu.attention_decode_paged(flat, pages.k, pages.v, pages.lengths, pages.table, self.sinks, out, batch,
                                   *pages.sizes, heads, kv_heads, dim, ld, pages.page_bytes, self.scale, *self.bounds,
                                   pages.number, dtype)  # fmt: skip
        return out

    def whole(self, cpu: Engine, pages: Pages, out: np.ndarray) -> np.ndarray:
        heads, kv_heads, dim = self.heads, self.kv_heads, self.dim
        batch, ld = self.qkv.shape
        flat = self.qkv.reshape(-1)
        cpu.attention_step_paged(flat, flat[heads * dim :], flat[(heads + kv_heads) * dim :], *self.tables,
                                 self.positions, pages.lengths, pages.table, self.sinks, pages.k, pages.v, out, batch,
                                 *pages.sizes, heads, kv_heads, dim, POSITIONS, ld, ld, pages.page_bytes, self.scale,
                                 *self.bounds, self.layout, pages.number, self.dtype)  # fmt: skip
        return out

    def empty(self) -> np.ndarray:
        return empty((len(LENGTHS), self.heads, self.dim), self.dtype)


@pytest.mark.parametrize("layout", [rope.HALF, rope.INTERLEAVED])
@pytest.mark.parametrize(("storage", "dtype"), [*((form, "f32") for form in STORAGE), ("f16", "bf16"), ("f32", "f16")])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_it_is_its_parts(cpu: Engine, shape: tuple[int, int, int], storage: str, dtype: str, layout: int) -> None:
    if storage == "q8_0" and shape[2] % 32:
        pytest.skip("head_dim is no whole number of blocks")
    step = Step(shape, storage, dtype, layout)
    before, mine, theirs = step.qkv.tobytes(), step.pages(), step.pages()
    out = step.whole(cpu, mine, step.empty())
    assert step.qkv.tobytes() == before
    assert np.isfinite(out.astype(np.float32)).all()
    assert out.tobytes() == step.parts(cpu, theirs).tobytes()
    assert np.array_equal(mine.k, theirs.k) and np.array_equal(mine.v, theirs.v)


@pytest.mark.parametrize("window", [0, 1, 130])
def test_it_is_its_parts_in_variants(cpu: Engine, window: int) -> None:
    step = Step(SHAPES[0], "f16", "f32", rope.HALF)
    step.sinks, step.bounds = np.linspace(-2, 2, step.heads, dtype=np.float32), (window, 3.0)
    mine, theirs = step.pages(), step.pages()
    out = step.whole(cpu, mine, step.empty())
    assert out.tobytes() == step.parts(cpu, theirs).tobytes()
    step.sinks = None
    assert out.tobytes() != step.whole(cpu, mine, step.empty()).tobytes()


def test_any_number_of_threads() -> None:
    step = Step((4, 2, 64), "f16", "f32", rope.HALF)
    found = {step.whole(Engine(threads), step.pages(), step.empty()).tobytes() for threads in THREADS}
    assert len(found) == 1


@pytest.mark.parametrize(("what", "place", "bad"), [
    ("positions", 2, POSITIONS), ("lengths", 0, 0), ("lengths", 1, 10**6), ("table", (3, 1), -5),
])  # fmt: skip
def test_nothing_is_written_when_an_index_is_bad(cpu: Engine, what: str, place: object, bad: int) -> None:
    step = Step((4, 2, 64), "f16", "f32", rope.HALF)
    pages, out = step.pages(), step.empty()
    {"positions": step.positions, "lengths": pages.lengths, "table": pages.table}[what][place] = bad
    kept = pages.k.copy(), pages.v.copy(), out.copy()
    with pytest.raises(KernelError) as error:
        step.whole(cpu, pages, out)
    assert error.value.status == "NNCUDA_ERROR_OUT_OF_RANGE"
    for now, then in zip((pages.k, pages.v, out), kept, strict=True):
        assert now.tobytes() == then.tobytes()
