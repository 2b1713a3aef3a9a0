"""Gradients of attention in 16 bits where few terms make a sum, by the rule of the golden fixtures; packed documents.

Where few terms make a sum the roundings on the way to a gradient are as large as that of the gradient itself, and do
not average out: with P and dS rounded to 16 bits before their products, a third of these tests fail.
"""

from __future__ import annotations

import numpy as np
import pytest
from cases import attention
from cases.case import Arguments, Case, Draw, stored
from expected import fixture

import nncuda
from nncuda import kernels
from nncuda.golden import Runner
from nncuda.reference import attention as reference

#: batch, q_len, kv_len, heads, kv_heads, head_dim, causal, and by how much scores are larger than usual: a sharper
#: softmax has fewer keys that count.
CALLS = (
    (1, 1, 2, 1, 1, 8, 0, 1.0),
    (4, 2, 4, 7, 7, 8, 0, 1.0),
    (1, 1, 3, 1, 1, 64, 0, 1.0),
    (1, 3, 2, 2, 1, 128, 1, 1.0),
    (1, 80, 80, 1, 1, 64, 0, 8.0),
)
DRAWS = 8


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_backward_of_few_terms(runner: Runner, call: tuple[float, ...], dtype: str) -> None:
    *shape, sharp = call
    made = {case.name: case for case in attention.of_shape(dtype, *shape) if case.kernel == "flash_attention_backward"}
    (plain,) = (case for name, case in made.items() if name.endswith("-ld0"))

    def recipe(d: Draw) -> Arguments:
        args = plain.recipe(d)
        args["q"] = stored(args["q"] * sharp, dtype)
        saved = reference.flash_attention(*(args[name] for name in ("q", "k", "v", "batch", "scale", "causal")))
        return {**args, "out": stored(saved["out"], dtype), "lse": stored(saved["lse"])}

    problems = []
    for draw in range(DRAWS):
        outcomes = runner.run(fixture(Case(plain.kernel, f"{plain.name}-sharp{sharp:g}-{draw}", recipe, plain.dtypes)))
        assert {outcome.output for outcome in outcomes} == {"dq", "dk", "dv"}
        problems += [str(outcome) for outcome in outcomes if outcome.problem]
    assert not problems, "\n".join(problems)


#: Of packed documents: where they begin beside 0, at a multiple of every tile and elsewhere.
BEGINS, LENGTH, HEADS, KV_HEADS = (70, 71, 256), 300, 2, 1
FORMS = (("f32", 64), ("f32", 136), ("f16", 64), ("f16", 128), ("bf16", 64), ("bf16", 136))


class Packed:
    """Operands of one sequence of documents, and what the kernels make of them."""

    def __init__(self, dtype: str, dim: int, length: int = LENGTH, seed: int = 0) -> None:
        draw = np.random.default_rng(seed).standard_normal
        self.dtype, self.dim = dtype, dim
        shapes = {"q": HEADS, "k": KV_HEADS, "v": KV_HEADS, "dout": HEADS}
        self.arrays = {name: draw((length, heads, dim)).astype(np.float32) for name, heads in shapes.items()}

    def part(self, first: int, end: int) -> Packed:
        part = Packed(self.dtype, self.dim, 1)
        part.arrays = {name: x[first:end] for name, x in self.arrays.items()}
        return part

    def run(self, gpu: nncuda.Context, begins: tuple[int, ...] | None) -> dict[str, np.ndarray]:
        """Each result by token; without `begins` the kernels get no starts."""
        q, k, v, dout = (gpu.tensor(x, self.dtype) for x in self.arrays.values())
        length, starts = len(self.arrays["q"]), None
        if begins is not None:
            starts = gpu.tensor(np.maximum.accumulate([[t if t in begins else 0 for t in range(length)]], 1), "i32")
        out, lse = kernels.flash_attention(q, k, v, starts, lse=True, batch=1, q_len=length, kv_len=length, causal=True)
        dq, dk, dv = kernels.flash_attention_backward(dout, q, k, v, out, lse, starts, causal=True)
        found = {"out": out, "lse": lse, "dq": dq, "dk": dk, "dv": dv}
        arrays = {name: x.numpy().astype(np.float32) for name, x in found.items()}
        return {**arrays, "lse": arrays["lse"][0].T}


@pytest.mark.parametrize(("dtype", "dim"), FORMS)
def test_one_document_has_the_bits_of_none(gpu: nncuda.Context, dtype: str, dim: int) -> None:
    some = Packed(dtype, dim, 150)
    plain, one = some.run(gpu, None), some.run(gpu, ())
    for name, values in plain.items():
        np.testing.assert_array_equal(values, one[name], err_msg=name)


@pytest.mark.parametrize(("dtype", "dim"), FORMS)
def test_no_bit_depends_on_another_document(gpu: nncuda.Context, dtype: str, dim: int) -> None:
    """And an output has the bits that it has alone where its tiles of keys are the same."""
    some = Packed(dtype, dim)
    packed = some.run(gpu, BEGINS)
    for first, end in ((71, 256), (256, LENGTH)):
        mixed = Packed(dtype, dim, seed=1)
        for name, x in mixed.arrays.items():
            x[first:end] = some.arrays[name][first:end]
        found = mixed.run(gpu, BEGINS)
        for name, values in packed.items():
            np.testing.assert_array_equal(found[name][first:end], values[first:end], err_msg=name)
        assert not np.array_equal(found["out"], packed["out"])
    alone = some.part(256, LENGTH).run(gpu, None)
    for name in ("out", "lse"):
        np.testing.assert_array_equal(packed[name][256:], alone[name], err_msg=name)


@pytest.mark.parametrize(("dtype", "dim"), FORMS)
def test_tiles_before_a_document_are_not_touched(gpu: nncuda.Context, dtype: str, dim: int) -> None:
    """Zero times NaN is NaN: a tile that were computed and hidden would show."""
    some = Packed(dtype, dim)
    some.arrays["k"][:256], some.arrays["v"][:256] = np.nan, np.nan
    for name, values in some.run(gpu, (256,)).items():
        assert np.isfinite(values[256:]).all(), name
        assert np.isnan(values[:256]).any(), name


@pytest.mark.parametrize(("at", "value"), [(3, 4), (3, -1), (0, 1), (2, 0)])
def test_starts_that_are_none_are_refused(gpu: nncuda.Context, at: int, value: int) -> None:
    """At the next synchronise, whatever was computed; nothing else is read than what there is."""
    starts = np.array([[0, 1, 1, 2]], np.int32)
    starts[0, at] = value
    x, lse = gpu.tensor(np.ones((4, 1, 64), np.float32)), gpu.tensor(np.ones((1, 1, 4), np.float32))
    for call in (
        lambda: kernels.flash_attention(x, x, x, gpu.tensor(starts), batch=1, q_len=4, kv_len=4, causal=True),
        lambda: kernels.flash_attention_backward(x, x, x, x, x, lse, gpu.tensor(starts), causal=True),
    ):
        call()
        with pytest.raises(nncuda.OutOfRangeError, match=r"starts\[\d\] is -?\d; it must be \d to \d"):
            gpu.synchronize()


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (3, 31), (2, 256), (2, 1000)])
def test_documents_end_with_their_separator(gpu: nncuda.Context, batch: int, length: int) -> None:
    """A block walks over 256 tokens at a time."""
    ids = np.random.default_rng(length).integers(0, 60, (batch, length)).astype(np.int32)
    starts, positions = kernels.document_starts(gpu.tensor(ids), separator=7)
    wanted = reference.document_starts(ids, 7)
    np.testing.assert_array_equal(starts.numpy(), wanted["starts"])
    np.testing.assert_array_equal(positions.numpy(), wanted["positions"])
