"""The kernel functions: one for every kernel of the header, sizes solved from shapes, errors that say what is wrong."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nncuda
from nncuda import kernels
from nncuda.binding import header

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = header.parse()


@pytest.mark.parametrize("name", CONTRACT.kernels)
def test_every_kernel_is_a_documented_function(name: str) -> None:
    kernel = CONTRACT.kernels[name]
    function = getattr(kernels, name)
    assert inspect.isfunction(function)
    assert function.__name__ == name and function.__module__ == "nncuda.kernels"
    doc = inspect.getdoc(function)
    assert doc and kernel.doc.split("\n")[0] in doc
    assert all(source in " ".join(doc.split()) for source in kernel.source.split("; "))  # a line may end within one
    signature = inspect.signature(function)
    arguments = doc.split("Arguments:")[1].split("Raises:")[0]
    for parameter in signature.parameters:
        assert f"    {parameter}: " in arguments
        assert parameter in function.__annotations__
    for param in kernel.params:
        derived = param.kind in ("context", "size", "dtype")
        assert derived or param.name in signature.parameters, param.name
        if param.kind == "pointer":
            assert param.shape_text in doc
    positional = [p.name for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    inputs = [p.name for p in kernel.pointers if p.direction != "out"]
    assert positional == (inputs or [p.name for p in kernel.pointers])


def test_all_names_kernels() -> None:
    assert kernels.__all__ == list(CONTRACT.kernels)
    assert (kernels.ROPE_HALF, kernels.ROPE_INTERLEAVED, kernels.ACTIVATION_SILU) == (0, 1, 1)


def test_outputs_are_returned_in_header_order(ctx: nncuda.Context) -> None:
    x, weight = ctx.tensor(np.ones((2, 3, 4), np.float32)), ctx.tensor(np.ones(4, np.float32))
    y = kernels.rmsnorm(x, weight, eps=0.0)
    assert isinstance(y, nncuda.Tensor) and y.shape == (2, 3, 4)
    for absent in (None, False):
        assert isinstance(kernels.rmsnorm(x, weight, eps=0.0, rstd=absent), nncuda.Tensor)
    y, rstd = kernels.rmsnorm(x, weight, eps=0.0, rstd=True)
    assert rstd.shape == (6,)
    np.testing.assert_allclose(rstd.numpy(), 1.0)
    own = ctx.empty(6)
    assert kernels.rmsnorm(x, weight, eps=0.0, rstd=own)[1] is own
    assert kernels.rmsnorm(x, weight, eps=0.0, y=x) is x
    logits, targets = ctx.zeros((2, 5)), ctx.tensor([1, 2])
    results = kernels.cross_entropy_forward(logits, targets)
    assert [t.shape for t in results] == [(2,), (1,), (1,)]
    losses, lse, loss_sum, count = kernels.cross_entropy_forward(logits, targets, losses=True)
    assert (losses.shape, lse.shape, loss_sum.dtype, count.dtype) == ((2,), (2,), "f32", "i32")
    assert loss_sum.item() == pytest.approx(2 * math.log(5))


def test_what_is_written_in_place_is_not_returned(ctx: nncuda.Context) -> None:
    table = ctx.zeros((4, 2))
    assert kernels.scatter_add(ctx.tensor(np.ones((3, 2), np.float32)), ctx.tensor([1, 1, 3]), table) is None
    np.testing.assert_array_equal(table.numpy()[:, 0], [0, 2, 0, 1])
    state = [ctx.zeros(4) for _ in range(4)]  # gradient, parameters, moments
    step, rate = ctx.tensor([1]), ctx.tensor([0.1])
    options = {"n_decay": 0, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.0}
    assert kernels.adamw_step(state[0], rate, step, None, None, *state[1:], **options) is None
    copy = kernels.adamw_step(state[0], rate, step, None, None, *state[1:], **options, param_copy=True, dtype="bf16")
    assert copy.dtype == "bf16"


def test_gemm_sizes_and_flags(ctx: nncuda.Context) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 4), np.float32), rng.standard_normal((4, 5), np.float32)
    for trans_a in (False, True):
        for trans_b in (False, True):
            c = kernels.gemm(
                ctx.tensor(a.T if trans_a else a), ctx.tensor(b.T if trans_b else b), trans_a=trans_a, trans_b=trans_b
            )
            np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-5)
    assert kernels.gemm(ctx.tensor(a, "bf16"), ctx.tensor(b, "bf16")).dtype == "bf16"
    assert kernels.gemm(ctx.tensor(a, "bf16"), ctx.tensor(b, "bf16"), dtype_c="f32").dtype == "f32"
    with pytest.raises(TypeError, match="dtype_c is f16; it must be bf16 or f32"):
        kernels.gemm(ctx.tensor(a, "bf16"), ctx.tensor(b, "bf16"), dtype_c="f16")
    # Leading dimensions are folded, unless the flag says that the first one is the length of the sums.
    assert kernels.gemm(ctx.zeros((2, 3, 4)), ctx.tensor(b)).shape == (6, 5)
    with pytest.raises(ValueError, match=r"gemm: a has shape \(2, 3, 4\); \[k, m\] was expected"):
        kernels.gemm(ctx.zeros((2, 3, 4)), ctx.tensor(b), trans_a=True)


def test_gemm_beta_with_strides(ctx: nncuda.Context) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((3, 8), np.float32), rng.standard_normal((4, 5), np.float32)
    whole = ctx.tensor(np.ones((3, 7), np.float32))
    part = whole.narrow(1, 1, 5)
    result = kernels.gemm_beta(ctx.tensor(a).narrow(1, 2, 4), ctx.tensor(b), part, beta=1.0)
    assert result is part
    expected = np.ones((3, 7), np.float32)
    expected[:, 1:6] += a[:, 2:6] @ b
    np.testing.assert_allclose(whole.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert kernels.gemm_beta(ctx.tensor(a[:, :4]), ctx.tensor(b)).shape == (3, 5)
    with pytest.raises(TypeError, match=r"beta is 1.0, so c must be given"):
        kernels.gemm_beta(ctx.tensor(a[:, :4]), ctx.tensor(b), beta=1.0)
    with pytest.raises(ValueError, match=r"gemm: a must be dense, but its rows of 4 elements lie 8 apart"):
        kernels.gemm(ctx.tensor(a).narrow(1, 2, 4), ctx.tensor(b))


def test_sizes_in_products(ctx: nncuda.Context) -> None:
    q, kv = ctx.zeros((10, 4, 8)), ctx.zeros((10, 2, 8))
    with pytest.raises(TypeError, match=r"do not tell batch, q_len, kv_len: give batch= or q_len= or kv_len="):
        kernels.flash_attention(q, kv, kv)
    for keyword in ({"batch": 2}, {"q_len": 5}, {"kv_len": 5}):
        out, lse = kernels.flash_attention(q, kv, kv, lse=True, **keyword)
        assert (out.shape, lse.shape) == ((10, 4, 8), (2, 4, 5))
    out, lse = kernels.flash_attention(q.view(2, 5, 4, 8), kv.view(2, 5, 2, 8), kv.view(2, 5, 2, 8), lse=True)
    assert (out.shape, lse.shape) == ((2, 5, 4, 8), (2, 4, 5))
    with pytest.raises(ValueError, match=r"q has 10 entries along batch\*q_len, which no q_len gives with batch = 3"):
        kernels.flash_attention(q, kv, kv, batch=3)
    with pytest.raises(ValueError, match=r"v has shape \(8, 2, 8\), but k has shape \(10, 2, 8\); both must"):
        kernels.flash_attention(q, kv, ctx.zeros((8, 2, 8)), batch=2)
    with pytest.raises(ValueError, match=r"k has shape \(8, 2, 8\); .* batch = 3 \(given\)"):
        kernels.flash_attention(ctx.zeros((9, 4, 8)), ctx.zeros((8, 2, 8)), ctx.zeros((8, 2, 8)), batch=3, kv_len=2)
    with pytest.raises(ValueError, match="batch is -1"):
        kernels.flash_attention(q, kv, kv, batch=-1)
    with pytest.raises(TypeError, match="a size is an int"):
        kernels.flash_attention(q, kv, kv, batch=2.0)


def test_sizes_in_sums_and_quotients(ctx: nncuda.Context) -> None:
    indices = ctx.tensor([[0, 2], [1, 2], [2, 0]])
    counts, offsets, slot_row, row_slot = kernels.moe_plan(indices, experts=3)
    assert [t.shape for t in (counts, offsets, slot_row, row_slot)] == [(3,), (4,), (3, 2), (6,)]
    assert counts.tolist() == [2, 1, 3] and offsets.tolist() == [0, 2, 3, 6]
    rows = kernels.moe_gather(ctx.zeros((3, 4)), row_slot)
    assert rows.shape == (6, 4)
    cosine, sine = kernels.rope_freqs(ctx=ctx, positions=6, head_dim=8)
    assert cosine.shape == sine.shape == (6, 4)
    assert kernels.rope_freqs(ctx.empty((6, 4)), positions=6)[1].shape == (6, 4)
    x, positions = ctx.zeros((5, 2, 8)), ctx.tensor([0, 1, 2, 3, 4])
    assert kernels.rope_forward(x, cosine, sine, positions).shape == (5, 2, 8)
    with pytest.raises(
        ValueError, match=r"cosine has shape \(6, 4\); \[max_position, head_dim/2\] with .* head_dim = 6"
    ):
        kernels.rope_forward(ctx.zeros((5, 2, 6)), cosine, sine, positions)


def test_fused_products_are_read_in_place(ctx: nncuda.Context) -> None:
    values = np.random.default_rng(2).standard_normal((6, 12), np.float32)
    fused = ctx.tensor(values)
    gate, up = fused.narrow(1, 0, 6), fused.narrow(1, 6, 6)
    expected = values[:, :6] / (1 + np.exp(-values[:, :6])) * values[:, 6:]
    np.testing.assert_allclose(kernels.swiglu(gate, up).numpy(), expected, rtol=1e-5, atol=1e-6)
    dgate, dup = kernels.swiglu_backward(ctx.zeros((6, 6)), gate, up)
    assert dgate.ld == dup.ld == 12, "their stride is that of gate and up"
    with pytest.raises(ValueError, match="the rows of up lie 6 elements apart, but those of gate 12"):
        kernels.swiglu(gate, ctx.zeros((6, 6)))
    # One row has no stride of its own, so it fits any.
    one = fused.narrow(0, 0, 1)
    assert kernels.swiglu(one.narrow(1, 0, 6), ctx.zeros((1, 6))).shape == (1, 6)
    qkv = ctx.zeros((10, 32))
    q, k, v = (
        qkv.narrow(1, 0, 16).view(10, 2, 8),
        qkv.narrow(1, 16, 8).view(10, 1, 8),
        qkv.narrow(1, 24, 8).view(10, 1, 8),
    )
    out, lse = kernels.flash_attention(q, k, v, batch=2, causal=True, lse=True)
    dqkv = ctx.zeros((10, 32))
    parts = [
        dqkv.narrow(1, 0, 16).view(10, 2, 8),
        dqkv.narrow(1, 16, 8).view(10, 1, 8),
        dqkv.narrow(1, 24, 8).view(10, 1, 8),
    ]
    dq, dk, dv = kernels.flash_attention_backward(
        out, q, k, v, out, lse, causal=True, batch=2, dq=parts[0], dk=parts[1], dv=parts[2]
    )
    assert [dq, dk, dv] == parts and dk.ld == 32
    assert kernels.flash_attention_backward(out, q, k, v, out, lse)[0].ld == 32


def test_generators(ctx: nncuda.Context) -> None:
    first = kernels.normal(ctx=ctx, n=(3, 4), seed=5)
    assert (first.shape, first.dtype) == ((3, 4), "f32")
    np.testing.assert_array_equal(kernels.normal(ctx.empty(12), seed=5).numpy(), first.numpy().reshape(-1))
    assert kernels.uniform(ctx=ctx, n=4, seed=5, dtype="bf16").dtype == "bf16"
    assert kernels.fill(ctx.empty((2, 2), "i32"), value=3).tolist() == [[3, 3], [3, 3]]
    with pytest.raises(TypeError, match="give ctx= or a tensor"):
        kernels.normal(n=3, seed=5)
    with pytest.raises(TypeError, match="normal: no tensor tells n: give n="):
        kernels.normal(ctx=ctx, seed=5)
    with pytest.raises(ValueError, match=r"y has shape \(3,\)"):
        kernels.normal(ctx.empty(3), n=4, seed=5)


def test_optional_inputs(ctx: nncuda.Context) -> None:
    norm = ctx.tensor([4.0])
    assert kernels.grad_clip(norm, max_norm=2.0).item() == pytest.approx(0.5, rel=1e-5)
    gradient = ctx.tensor([2.0, 4.0])
    kernels.grad_clip(norm, None, gradient, max_norm=2.0)
    np.testing.assert_allclose(gradient.numpy(), [1, 2], rtol=1e-5)
    a, w, bias = ctx.tensor([[1.0, -1.0]]), ctx.tensor([[1.0, 2.0]]), ctx.tensor([1.5])
    assert kernels.gemm_epilogue(a, w).item() == -1
    assert kernels.gemm_epilogue(a, w, bias).item() == 0.5
    assert kernels.gemm_epilogue(a, w, bias, activation="silu").item() == pytest.approx(0.5 / (1 + math.exp(-0.5)))
    assert kernels.gemm_epilogue(a, w, residual=ctx.tensor([[2.0]]), activation=kernels.ACTIVATION_NONE).item() == 1
    with pytest.raises(ValueError, match="activation is 'relu'; it must be one of 'none', 'silu'"):
        kernels.gemm_epilogue(a, w, activation="relu")
    with pytest.raises(nncuda.ArgumentError, match="activation"):
        kernels.gemm_epilogue(a, w, activation=9)


def test_scale_defaults_to_the_root(ctx: nncuda.Context) -> None:
    rng = np.random.default_rng(3)
    q, k = (ctx.tensor(rng.standard_normal((1, 4, 2, 16), np.float32)) for _ in range(2))
    np.testing.assert_array_equal(
        kernels.attention_scores(q, k).numpy(), kernels.attention_scores(q, k, scale=0.25).numpy()
    )


def test_wrong_arguments_say_what_was_expected(ctx: nncuda.Context) -> None:
    x = ctx.zeros((3, 4))
    with pytest.raises(ValueError, match=r"rmsnorm: weight has shape \(5,\); \[cols\] with cols = 4 \(from x\)"):
        kernels.rmsnorm(x, ctx.zeros(5), eps=0.0)
    with pytest.raises(ValueError, match=r"rmsnorm: x has shape \(4,\); \[rows, cols\] was expected"):
        kernels.rmsnorm(ctx.zeros(4), ctx.zeros(4), eps=0.0)
    with pytest.raises(ValueError, match=r"silu: y has shape \(5,\), but x has shape \(3, 4\); both must"):
        kernels.silu(x, y=ctx.zeros(5))
    with pytest.raises(TypeError, match="add: b is f16, but a is f32"):
        kernels.add(x, ctx.zeros((3, 4), "f16"))
    with pytest.raises(TypeError, match="embedding: ids is i64; it must be i32"):
        kernels.embedding(x, ctx.zeros(2, "i64"))
    with pytest.raises(TypeError, match="silu: dtype is i32; it must be f32 or f16 or bf16"):
        kernels.silu(ctx.zeros(3, "i32"))
    with pytest.raises(TypeError, match="cast: no input tells the dtype of y: give dtype_y= or y="):
        kernels.cast(x)
    with pytest.raises(TypeError, match=r"silu: x is ndarray; it must be a nncuda.Tensor; ctx.tensor\(array\) copies"):
        kernels.silu(np.zeros(3))
    with pytest.raises(TypeError, match="add: b is NoneType"):
        kernels.add(x, None)
    with pytest.raises(TypeError, match="rmsnorm: rstd is int"):
        kernels.rmsnorm(x, ctx.zeros(4), eps=0.0, rstd=7)
    with pytest.raises(TypeError, match="eps"):
        kernels.rmsnorm(x, ctx.zeros(4))
    with nncuda.Context(threads=1) as other, pytest.raises(ValueError, match="add: b belongs to another context"):
        kernels.add(x, other.zeros((3, 4)))
    with nncuda.Context(threads=1) as other, pytest.raises(ValueError, match="silu: y belongs to another context"):
        kernels.silu(x, y=other.zeros((3, 4)))
    # What the shapes cannot show, the library says.
    with pytest.raises(nncuda.ArgumentError, match="eps"):
        kernels.rmsnorm(x, ctx.zeros(4), eps=-1.0)
    line = ctx.zeros(12)
    with pytest.raises(nncuda.ArgumentError, match="overlaps"):
        kernels.silu(line.narrow(0, 0, 8), y=line.narrow(0, 4, 8))


def test_equal_counts_are_no_equal_shapes(ctx: nncuda.Context) -> None:
    """(2, 3) and (3, 2) have as many elements, but adding them is a mistake."""
    x = ctx.zeros((2, 3))
    for shape in ((3, 2), (6,), (1, 2, 3), (2, 4)):
        with pytest.raises(ValueError, match=re.escape(f"add: b has shape {shape}, but a has shape (2, 3)")):
            kernels.add(x, ctx.zeros(shape))
        with pytest.raises(ValueError, match=re.escape(f"cast: y has shape {shape}, but x has shape (2, 3)")):
            kernels.cast(x, y=ctx.empty(shape, "bf16"))
    logits = ctx.zeros((2, 3, 5))
    for shape in ((2, 3), (6,)):
        assert kernels.cross_entropy_forward(logits, ctx.zeros(shape, "i32"))[0].shape == shape
    for shape in ((3, 2), (1, 6)):
        with pytest.raises(ValueError, match=re.escape(f"targets folds {shape} into rows, but logits folds (2, 3)")):
            kernels.cross_entropy_forward(logits, ctx.zeros(shape, "i32"))
    # A weight has two dimensions; three are a mistake, even where their product fits.
    with pytest.raises(ValueError, match=r"b has shape \(2, 4, 5\); \[k, n\] was expected, where k cannot .* a has it"):
        kernels.gemm(ctx.zeros((2, 3, 8)), ctx.zeros((2, 4, 5)))
    assert kernels.gemm(ctx.zeros((2, 3, 8)), ctx.zeros((8, 5))).shape == (6, 5)
    with pytest.raises(ValueError, match=r"weight has shape \(1, 4\); \[cols\] was expected"):
        kernels.rmsnorm(ctx.zeros((3, 4)), ctx.zeros((1, 4)), eps=0.0)
    with pytest.raises(ValueError, match=r"y has shape \(12,\)"):
        kernels.normal(ctx.empty(12), n=(4, 4), seed=5)
    with pytest.raises(ValueError, match=r"y folds \(4, 3\) into n, but n= says \(3, 4\)"):
        kernels.normal(ctx.empty((4, 3)), n=(3, 4), seed=5)
    # Slots of tokens, taken apart: the choices of token and expert must not be swapped.
    row_slot = kernels.moe_plan(ctx.tensor([[0, 2], [1, 2], [2, 0]]), experts=3)[3]
    assert kernels.moe_gather(ctx.zeros((3, 4)), row_slot.view(3, 2)).shape == (6, 4)
    with pytest.raises(ValueError, match=r"row_slot has shape \(2, 3\); \[tokens\*k\] with tokens = 3 \(from x\)"):
        kernels.moe_gather(ctx.zeros((3, 4)), row_slot.view(2, 3))


def pairs_of_one_shape() -> Iterator[tuple[str, header.Param, header.Param]]:
    """Of every kernel, the first two tensors of each shape that the header gives to several."""
    for kernel in CONTRACT.kernels.values():
        groups: dict[tuple[object, ...], list[header.Param]] = {}
        for param in kernel.pointers:
            if any(dim.names for dim in param.dims):
                groups.setdefault((param.dims, param.swap_flag), []).append(param)
        yield from ((kernel.kernel, *group[:2]) for group in groups.values() if len(group) > 1)


@pytest.mark.parametrize(
    ("name", "one", "other"), [pytest.param(*pair, id=f"{pair[0]}-{pair[2].name}") for pair in pairs_of_one_shape()]
)
def test_every_kernel_compares_shapes(name: str, one: header.Param, other: header.Param, ctx: nncuda.Context) -> None:
    """Two tensors that the header gives one shape: (2, 3, ...) and (3, 2, ...) are refused."""
    kernel = CONTRACT.kernels[name]
    dtypes = {
        param.name: next(dtype for dtype in param.dtypes if dtype in header.VALUE_DTYPES)
        for param in kernel.of_kind("dtype")
    }
    arguments: dict[str, object] = {}
    for param in kernel.params:
        if param in (one, other) or (param.kind == "pointer" and param.reads and not param.nullable):
            sizes = [dim.value(dict.fromkeys(dim.names, 6)) for dim in param.dims]
            first = {one.name: (2, 3), other.name: (3, 2)}.get(param.name, sizes[:1])
            arguments[param.name] = ctx.zeros((*first, *sizes[1:]), dtypes.get(param.dtype, param.dtype))
        elif param.kind == "pointer" and param.reads:
            arguments[param.name] = None
        elif param.kind in ("option", "flag") and not param.default:
            arguments[param.name] = 0
    with pytest.raises(ValueError, match=f"{name}: {other.name} has shape .*, but {one.name} .* the same shape"):
        getattr(kernels, name)(**arguments)


CALLS = json.loads((ROOT / "tests" / "shapes.json").read_text())["calls"]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call['kernel']}-{call['refused']}")
def test_shapes_are_taken_as_in_every_language(call: dict[str, Any], ctx: nncuda.Context) -> None:
    kernel = CONTRACT.kernels[call["kernel"]]
    numbers = call.get("numbers", {})
    arguments: dict[str, object] = {}
    for param in kernel.params:
        if param.name in call["shapes"]:
            dtype = "f32" if kernel.by_name.get(param.dtype) else param.dtype
            arguments[param.name] = ctx.zeros(tuple(call["shapes"][param.name]), dtype)
        elif param.kind == "pointer" and param.nullable and param.reads:
            arguments[param.name] = None
        elif param.name in numbers or (param.kind in ("option", "flag") and not param.default):
            arguments[param.name] = numbers.get(param.name, 0)
    if call["refused"] is None:
        getattr(kernels, call["kernel"])(**arguments)
    else:
        with pytest.raises(ValueError, match=f"{call['kernel']}: {call['refused']} "):
            getattr(kernels, call["kernel"])(**arguments)


def test_sizes_of_zero(ctx: nncuda.Context) -> None:
    assert kernels.gemm(ctx.zeros((0, 4)), ctx.zeros((4, 5))).shape == (0, 5)
    assert kernels.moe_gather(ctx.zeros((0, 4)), ctx.zeros(0, "i32")).shape == (0, 4)
    empty = ctx.zeros((0, 2, 8))
    assert kernels.flash_attention(empty, empty, empty, batch=0).shape == (0, 2, 8)


def test_a_plan_is_made_once_for_the_same_layouts(ctx: nncuda.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    from nncuda.binding import call_sizes

    made = []
    original = call_sizes.CallSizes.solve
    monkeypatch.setattr(
        call_sizes.CallSizes, "solve", lambda self, *args: made.append(self.name) or original(self, *args)
    )
    shape = (3, 41)
    for _ in range(5):
        kernels.silu(ctx.zeros(shape))
    assert made == ["silu"]
    kernels.silu(ctx.zeros((3, 43)))
    kernels.silu(ctx.zeros(shape, "f16"))
    assert made == ["silu"] * 3


def test_a_failed_call_is_not_remembered(ctx: nncuda.Context) -> None:
    x = ctx.zeros((3, 4))
    for _ in range(2):
        with pytest.raises(ValueError, match="same shape"):
            kernels.add(x, ctx.zeros(5))
    assert kernels.add(x, ctx.zeros((3, 4))).shape == (3, 4)
