"""What hands expect of a tensor: operators, indices, conversions, a repr; and what is refused instead of misread."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nncuda
from nncuda import kernels

FLOATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def numbers(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(FLOATS[dtype])


def same(tensor: nncuda.Tensor, expected: np.ndarray) -> None:
    """The same bits, shape and dtype."""
    found = tensor.numpy()
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


# Arithmetic


@pytest.mark.parametrize("dtype", FLOATS)
def test_operators_are_the_kernels(ctx: nncuda.Context, dtype: str) -> None:
    a, b = numbers(dtype, 3, 5), numbers(dtype, 3, 5, seed=1)
    x, y = ctx.tensor(a), ctx.tensor(b)
    wide, other = a.astype(np.float32), b.astype(np.float32)
    third = np.float32(1 / 3)
    for result, expected in (
        (x + y, wide + other),
        (x - y, wide - other),
        (x * y, wide * other),
        (-x, -wide),
        (x + 2, wide + 2),
        (2.5 + x, wide + np.float32(2.5)),
        (x - 2, wide - 2),
        (2 - x, 2 - wide),
        (x * 1.5, wide * np.float32(1.5)),
        (np.float32(1.5) * x, wide * np.float32(1.5)),
        (x / 4, wide / 4),
        (x / 3, wide * third),
        (x / 0, np.copysign(np.float32(np.inf), wide)),
    ):
        assert result.dtype == dtype
        same(result, expected.astype(FLOATS[dtype]))
    same(x, a)  # nothing was written
    same(x * 0.1, kernels.scale(x, alpha=0.1).numpy())


def test_operators_in_place_write_into_the_memory(ctx: nncuda.Context) -> None:
    a, b = numbers("f32", 4, 3), numbers("f32", 4, 3, seed=1)
    x, y = ctx.tensor(a), ctx.tensor(b)
    view, address = x[1:], x.ptr
    x += y
    x -= 1
    x *= y
    x /= 2
    assert x.ptr == address
    same(x, ((a + b) - 1) * b / 2)
    same(view, x.numpy()[1:])
    x += x
    x -= x
    same(x, np.zeros((4, 3), np.float32))
    x[1:3] += y[:2]
    same(x, np.concatenate([np.zeros((1, 3)), b[:2], np.zeros((1, 3))]).astype(np.float32))
    fixed = ctx.from_numpy(np.frombuffer(bytes(8), np.float32))
    with pytest.raises(ValueError, match="read-only"):
        fixed += 1


def test_operators_on_parts_of_rows(ctx: nncuda.Context) -> None:
    values = numbers("f32", 4, 6)
    left, right = ctx.tensor(values).narrow(1, 0, 3), ctx.tensor(values).narrow(1, 3, 3)
    same(left + right, values[:, :3] + values[:, 3:])
    same(-left * 2, -values[:, :3] * 2)
    with pytest.raises(ValueError, match="must be dense"):
        left += right  # the result would have to lie in its memory
    same(ctx.tensor(1.5) + 2, np.array(3.5, np.float32))
    assert (ctx.zeros((0, 3)) + 1).shape == (0, 3)


def test_operators_refuse_what_no_kernel_does(ctx: nncuda.Context) -> None:
    x, ints = ctx.zeros((2, 3)), ctx.tensor([[1, 2, 3], [4, 5, 6]])
    cases: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: x + ctx.zeros((3, 2)), ValueError, r"\(3, 2\).*\(2, 3\); both must have the same shape"),
        (lambda: x * ctx.zeros(3), ValueError, "same shape"),
        (lambda: x + ctx.zeros((2, 3), "f16"), TypeError, r'f32 and f16; both must have the same dtype: to\("f32"\)'),
        (lambda: ints + ints, TypeError, r"\+ of a tensor of i32; it must be f32, f16 or bf16"),
        (lambda: ints * 2, TypeError, r"\* of a tensor of i32"),
        (lambda: x / x, TypeError, "no kernel divides by a tensor"),
        (lambda: 1 / x, TypeError, "no kernel divides by a tensor"),
        (lambda: x + np.ones((2, 3)), TypeError, r"a ndarray: Context.tensor\(values\)"),
        (lambda: np.ones((2, 3), np.float32) * x, TypeError, r"\* of a tensor and a ndarray"),
        (lambda: x - [1, 2], TypeError, "- of a tensor and a list"),
        (lambda: x + "1", TypeError, "unsupported operand"),
        (lambda: x * None, TypeError, "unsupported operand"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message):
            call()
    with nncuda.Context(threads=1) as other, pytest.raises(ValueError, match="another context"):
        x + other.zeros((2, 3))


def test_operators_in_a_graph(ctx: nncuda.Context) -> None:
    x = ctx.tensor([1.0, 2.0])
    with ctx.capture() as graph:
        y = (x + 1) * 2 - x / 2
    x.copy_([3.0, 5.0])
    graph.launch()
    assert y.tolist() == [6.5, 9.5]


# Shapes, indices, dtypes


def test_indices_are_views(ctx: nncuda.Context) -> None:
    values = np.arange(60, dtype=np.float32).reshape(5, 4, 3)
    tensor = ctx.tensor(values)
    for key in (
        0,
        3,
        -1,
        np.int64(2),
        slice(1, 3),
        slice(None),
        slice(-2, None),
        slice(3, 3),
        slice(0, 9),
        slice(1, 5, 2),
    ):
        part = tensor[key]
        np.testing.assert_array_equal(part.numpy(), values[key])
        assert part.size == 0 or part._buffer is tensor._buffer
    np.testing.assert_array_equal(tensor[::3].numpy(), values[::3])
    np.testing.assert_array_equal(tensor[::2][1:].numpy(), values[::2][1:])
    np.testing.assert_array_equal(tensor[2][1].numpy(), values[2, 1])
    assert tensor[2][1][0].item() == values[2, 1, 0]
    columns = ctx.tensor(values[:, :, 0].copy()).narrow(1, 1, 2)
    np.testing.assert_array_equal(columns[1].numpy(), values[1, 1:3, 0])
    np.testing.assert_array_equal(columns[1:4:2].numpy(), values[1:4:2, 1:3, 0])
    tensor[1] = np.zeros((4, 3))
    tensor[2:4] = tensor[0:2]
    values[1] = 0
    values[2:4] = values[0:2].copy()
    np.testing.assert_array_equal(tensor.numpy(), values)
    np.testing.assert_array_equal(tensor.reshape(20, 3).numpy(), values.reshape(20, 3))
    assert tensor.reshape((-1,)).ptr == tensor.ptr


def test_iteration_gives_the_entries(ctx: nncuda.Context) -> None:
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    rows = list(ctx.tensor(values))
    assert [row.tolist() for row in rows] == values.tolist()
    assert [entry.item() for entry in rows[1]] == [2, 3]
    first, *_ = ctx.tensor([7, 8])
    assert first.item() == 7
    with pytest.raises(TypeError, match="no length"):
        iter(ctx.tensor(1.0))


def test_indices_that_are_refused(ctx: nncuda.Context) -> None:
    tensor = ctx.zeros((3, 4))
    for key in (3, -4, 1 << 70):
        with pytest.raises(IndexError, match="not inside the first dimension of shape"):
            tensor[key]
    for key in ((0, 1), ..., None, 1.5, "0", [0], True, np.zeros(3, bool)):
        with pytest.raises(TypeError, match=r"one index or slice, of its first dimension.*narrow\(1, start, length\)"):
            tensor[key]  # type: ignore[index]
    with pytest.raises(ValueError, match="step of a slice is -1"):
        tensor[::-1]
    with pytest.raises(IndexError, match=r"item\(\) is its value"):
        ctx.tensor(1.0)[0]
    with pytest.raises(ValueError, match="shape"):
        tensor[0] = np.zeros(3)
    assert not tensor.numpy().any()


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32", "i8", "i64", "u8"])
def test_transpose(ctx: nncuda.Context, dtype: str) -> None:
    tensor = ctx.tensor(np.arange(6).reshape(2, 3), dtype)
    transposed = tensor.T
    assert (transposed.shape, transposed.dtype, transposed.is_dense) == ((3, 2), dtype, True)
    np.testing.assert_array_equal(transposed.numpy(), tensor.numpy().T)
    np.testing.assert_array_equal(tensor.narrow(1, 1, 2).T.numpy(), tensor.numpy()[:, 1:].T)
    with pytest.raises(ValueError, match="two dimensions"):
        tensor.view(6).T  # noqa: B018


def test_dtypes_are_converted_by_cast(ctx: nncuda.Context) -> None:
    values = numbers("f32", 3, 4)
    tensor = ctx.tensor(values)
    assert tensor.to("f32") is tensor and tensor.to(np.float32) is tensor
    for dtype, numpy in FLOATS.items():
        same(tensor.to(dtype), values.astype(numpy))
        same(tensor.to(numpy), values.astype(numpy))
        same(tensor.to(dtype).to("f32"), values.astype(numpy).astype(np.float32))
    same(tensor.narrow(1, 1, 2).to("bf16"), values[:, 1:3].astype(ml_dtypes.bfloat16))
    for source, target in ((tensor, "i32"), (ctx.tensor([1]), "f32"), (ctx.tensor([1]), "i8")):
        with pytest.raises(TypeError, match=f"no kernel converts {source.dtype} to {target}, .* ctx.tensor"):
            source.to(target)
    with pytest.raises(TypeError, match="dtype is 'cuda'"):
        tensor.to("cuda")


def test_no_value_is_changed_on_the_way_in(ctx: nncuda.Context) -> None:
    ints = ctx.zeros(2, "i32")
    cases: list[tuple[object, type[Exception], str]] = [
        ([1.7, 2.0], TypeError, r"float64 cannot become i32; round them first"),
        (np.array([1, 2], np.float32), TypeError, "float32 cannot become i32"),
        ([2**32 + 1, 1], OverflowError, r"1 \.\. 4294967297 do not fit into i32"),
        ([2**70, 1], OverflowError, "do not fit into i32"),
        (["1", "2"], TypeError, "cannot become i32"),
        ([None, 1], TypeError, "object cannot become i32"),
        ([1j, 1], TypeError, "complex128 cannot become i32"),
    ]
    for values, kind, message in cases:
        with pytest.raises(kind, match=message):
            ints.copy_(values)
        with pytest.raises(kind, match=message):
            ctx.tensor(values, "i32")
        with pytest.raises(kind, match=message):
            ints[:] = values
    assert ints.tolist() == [0, 0]
    assert ints.copy_([True, False]).tolist() == [1, 0]
    assert ints.copy_(np.array([7, 2**31 - 1], np.uint64)).tolist() == [7, 2**31 - 1]
    for values in (["1.5"], [1j], [None]):
        with warnings.catch_warnings(), pytest.raises(TypeError, match="cannot become f32"):
            warnings.simplefilter("error")
            ctx.tensor(values, "f32")
    assert ctx.tensor([1, 2], "bf16").tolist() == [1, 2]


# Comparison, repr, copies


def test_comparison_is_an_error_with_a_hint(ctx: nncuda.Context) -> None:
    a, b = ctx.zeros(3), ctx.zeros(3)
    for call in (lambda: a == b, lambda: a != b, lambda: a == 1, lambda: a != None, lambda: 1 == a, lambda: a in [b]):  # noqa: E711
        with pytest.raises(TypeError, match=r"not compared with == or !=: .* a.numpy\(\) == b.numpy\(\)"):
            call()
    with pytest.raises(TypeError):
        np.zeros(3) == a  # noqa: B015
    assert a in [a] and len({a, b, a}) == 2 and {a: 1}[a] == 1  # as keys, tensors count by identity


def test_truth(ctx: nncuda.Context) -> None:
    assert ctx.tensor([2.0]) and not ctx.tensor(0)
    for shape in ((3,), (0,)):
        with pytest.raises(ValueError, match="`is not None`"):
            bool(ctx.zeros(shape))


def test_repr_shows_the_first_values() -> None:
    with nncuda.Context(threads=1) as ctx:
        assert repr(ctx.tensor([[1.0, 2.5]])) == "Tensor(shape=(1, 2), dtype=f32, device=cpu, values=[1, 2.5])"
        assert repr(ctx.tensor(np.arange(10))).endswith("dtype=i64, device=cpu, values=[0, 1, 2, 3, 4, 5, ...])")
        assert repr(ctx.zeros((0, 3))) == "Tensor(shape=(0, 3), dtype=f32, device=cpu, values=[])"
        large = ctx.tensor(np.arange(12.0).reshape(3, 4)).to("bf16").narrow(1, 1, 2)
        assert repr(large) == "Tensor(shape=(3, 2), dtype=bf16, ld=4, device=cpu, values=[1, 2, ...])"
        assert "values=[nan, inf]" in repr(ctx.tensor([np.nan, np.inf]))
        with ctx.capture() as graph:
            assert repr(large) == "Tensor(shape=(3, 2), dtype=bf16, ld=4, device=cpu)"
            kernels.silu(ctx.empty(4))
        graph.launch()
    assert repr(large) == "Tensor(shape=(3, 2), dtype=bf16, ld=4, device=cpu, closed)"


def test_copies_are_copies(ctx: nncuda.Context) -> None:
    values = numbers("f16", 4, 6)
    tensor = ctx.tensor(values)
    for made in (copy.copy(tensor), copy.deepcopy(tensor), copy.deepcopy({"a": [tensor]})["a"][0]):
        assert made.ctx is ctx and made.ptr != tensor.ptr
        same(made, values)
    part = copy.deepcopy(tensor.narrow(1, 1, 2))
    assert part.is_dense
    same(part, values[:, 1:3].copy())


def test_pickling_says_what_to_do_instead(ctx: nncuda.Context) -> None:
    with pytest.raises(TypeError, match=r"a Tensor cannot be pickled, .* pickle tensor.numpy\(\)"):
        pickle.dumps(ctx.zeros(3))


def test_nothing_is_printed_when_what_cannot_be_copied_is(ctx: nncuda.Context, capfd: Any, monkeypatch: Any) -> None:
    """Objects that an error left half-made must go without a word."""
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    with ctx.capture() as graph:
        kernels.silu(ctx.empty(4))
    for one in (ctx, ctx.stream(), ctx.event(), graph):
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps, lambda one: copy.deepcopy([ctx.zeros(2), {"a": one}])):
            with pytest.raises(TypeError, match=f"a {type(one).__name__} cannot be copied or pickled"):
                attempt(one)
    gc.collect()
    assert not unraisable and capfd.readouterr().err == ""
    assert ctx.zeros(3).tolist() == [0, 0, 0]  # and the context was not closed by a copy of it
