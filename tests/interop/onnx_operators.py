"""ONNX operators carried out by our kernels, so that ONNX's own node tests can judge them.

Each function takes the node's attributes and its input arrays and returns the output arrays. `NotMapped` says why a
test asks for something that no kernel of ours claims to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

import nncuda
from nncuda import kernels

Array = np.ndarray
Attributes = Mapping[str, Any]
Operator = Callable[[nncuda.Context, Attributes, list[Array | None]], list[Array]]

_FLOATS = {np.dtype(np.float32): "f32", np.dtype(np.float16): "f16", np.dtype(ml_dtypes.bfloat16): "bf16"}


class NotMapped(Exception):
    """No kernel of ours does what this test asks; the message says what that is."""


def _need(condition: bool, reason: str) -> None:
    if not condition:
        raise NotMapped(reason)


def _float(array: Array) -> str:
    _need(array.dtype in _FLOATS, f"{array.dtype} is not one of our floating-point dtypes")
    return _FLOATS[array.dtype]


def _rows(ctx: nncuda.Context, array: Array, axis: int) -> tuple[nncuda.Tensor, Callable[[Array], Array]]:
    """The array as rows along `axis`, and the way back."""
    moved = np.ascontiguousarray(np.moveaxis(array, axis, -1))

    def back(result: Array) -> Array:
        return np.moveaxis(result.reshape(*moved.shape[:-1], -1), -1, axis)

    return ctx.tensor(moved.reshape(-1, moved.shape[-1])), back


def softmax(ctx: nncuda.Context, attributes: Attributes, inputs: list[Array | None]) -> list[Array]:
    (x,) = inputs
    _float(x)
    rows, back = _rows(ctx, x, attributes.get("axis", -1))
    return [back(kernels.softmax(rows).numpy())]


def matmul(ctx: nncuda.Context, attributes: Attributes, inputs: list[Array | None]) -> list[Array]:
    a, b = inputs
    _float(a)
    _need(a.ndim >= 2 and b.ndim >= 2 and a.shape[:-2] == b.shape[:-2], "broadcast or vector product")
    batch = int(np.prod(a.shape[:-2], dtype=np.int64))
    c = ctx.zeros((batch, a.shape[-2], b.shape[-1]), _float(a))
    kernels.batched_gemm(
        ctx.tensor(a.reshape(batch, *a.shape[-2:])), ctx.tensor(b.reshape(batch, *b.shape[-2:])), c, alpha=1.0, beta=0.0
    )
    return [c.numpy().reshape(*a.shape[:-1], b.shape[-1])]


def gemm(ctx: nncuda.Context, attributes: Attributes, inputs: list[Array | None]) -> list[Array]:
    a, b, *rest = inputs
    _float(a)
    trans_a, trans_b = bool(attributes.get("transA", 0)), bool(attributes.get("transB", 0))
    m, n = a.shape[1 if trans_a else 0], b.shape[0 if trans_b else 1]
    bias = rest[0] if rest and rest[0] is not None else np.zeros((), np.float32)
    c = ctx.tensor(np.ascontiguousarray(np.broadcast_to(bias, (m, n)), dtype=np.float32))
    kernels.gemm_beta(
        ctx.tensor(a), ctx.tensor(b), c,
        alpha=attributes.get("alpha", 1.0), beta=attributes.get("beta", 1.0), trans_a=trans_a, trans_b=trans_b,
    )  # fmt: skip
    return [c.numpy()]


def rms_normalization(ctx: nncuda.Context, attributes: Attributes, inputs: list[Array | None]) -> list[Array]:
    x, weight = inputs
    axis = attributes.get("axis", -1) % x.ndim
    cols = int(np.prod(x.shape[axis:]))
    y = kernels.rmsnorm(
        ctx.tensor(x.reshape(-1, cols)), ctx.tensor(np.ascontiguousarray(weight).reshape(cols)),
        eps=attributes.get("epsilon", 1e-5),
    )  # fmt: skip
    return [y.numpy().reshape(x.shape)]


def rotary_embedding(ctx: nncuda.Context, attributes: Attributes, inputs: list[Array | None]) -> list[Array]:
    x, cosine, sine, *rest = inputs
    positions = rest[0] if rest else None
    flat = x.ndim == 3  # [batch, tokens, hidden] instead of [batch, heads, tokens, head_dim]
    if flat:
        heads = attributes["num_heads"]
        y = x.reshape(*x.shape[:2], heads, x.shape[2] // heads)
    else:
        y = x.transpose(0, 2, 1, 3)
    batch, tokens, heads, dim = y.shape
    rotary = attributes.get("rotary_embedding_dim", 0) or dim
    if positions is None:  # the tables hold a row for each token already
        cosine, sine = (table.reshape(batch * tokens, rotary // 2) for table in (cosine, sine))
        positions = np.arange(batch * tokens)
    rotated = kernels.rope_forward(
        ctx.tensor(np.ascontiguousarray(y[..., :rotary]).reshape(-1, heads, rotary)),
        ctx.tensor(np.ascontiguousarray(cosine)),
        ctx.tensor(np.ascontiguousarray(sine)),
        ctx.tensor(positions.reshape(-1).astype(np.int32)),
        layout=attributes.get("interleaved", 0),
    ).numpy()
    y = np.concatenate([rotated.reshape(batch, tokens, heads, rotary), y[..., rotary:]], axis=-1)
    return [y.reshape(x.shape) if flat else y.transpose(0, 2, 1, 3)]


def attention(ctx: nncuda.Context, attributes: Attributes, inputs: list[Array | None]) -> list[Array]:
    q, k, v, mask, past_k, past_v, *_ = [*inputs, None, None, None]
    _float(q)
    _need(mask is None, "an attention mask other than the causal one")
    _need(not attributes.get("softcap", 0.0), "capped scores")
    if q.ndim == 3:
        heads, kv_heads = attributes["q_num_heads"], attributes["kv_num_heads"]
        q = q.reshape(*q.shape[:2], heads, -1).transpose(0, 2, 1, 3)
        k, v = (t.reshape(*t.shape[:2], kv_heads, -1).transpose(0, 2, 1, 3) for t in (k, v))
    if past_k is not None:
        k, v = np.concatenate([past_k, k], axis=2), np.concatenate([past_v, v], axis=2)
    _need(q.shape[-1] == v.shape[-1] and q.shape[-1] % 8 == 0, "head sizes that differ or are no multiple of 8")
    batch, heads, q_len, dim = q.shape
    kv_len = k.shape[2]
    causal = bool(attributes.get("is_causal", 0))
    _need(not causal or q_len == kv_len or past_k is not None, "causal mask aligned to the first key")

    def dense(t: Array) -> nncuda.Tensor:
        return ctx.tensor(np.ascontiguousarray(t.transpose(0, 2, 1, 3)).reshape(-1, t.shape[1], dim))

    out = kernels.flash_attention(
        dense(q), dense(k), dense(v), batch=batch, q_len=q_len, kv_len=kv_len,
        scale=attributes.get("scale", dim**-0.5), causal=causal,
    ).numpy()  # fmt: skip
    out = out.reshape(batch, q_len, heads, dim)
    y = out.reshape(batch, q_len, -1) if inputs[0].ndim == 3 else out.transpose(0, 2, 1, 3)
    results = [y, k, v]
    mode = attributes.get("qk_matmul_output_mode", 0)
    if mode in (0, 3):  # the scaled scores, or their softmax
        scores = kernels.attention_scores(
            ctx.tensor(np.ascontiguousarray(q.transpose(0, 2, 1, 3))),
            ctx.tensor(np.ascontiguousarray(k.transpose(0, 2, 1, 3))),
            scale=attributes.get("scale", dim**-0.5),
            causal=False if mode == 0 else causal,
        )
        if mode == 3:
            scores = kernels.softmax(scores.view(-1, kv_len))
        results.append(scores.numpy().reshape(batch, heads, q_len, kv_len))
    return results


def top_k(ctx: nncuda.Context, attributes: Attributes, inputs: list[Array | None]) -> list[Array]:
    x, k = inputs
    _float(x)
    _need(attributes.get("largest", 1) == 1, "the smallest values")
    rows, back = _rows(ctx, x, attributes.get("axis", -1))
    _, indices, _ = kernels.softmax_topk(rows, k=int(k[0]), norm=False)
    chosen = indices.numpy().astype(np.int64)
    return [back(np.take_along_axis(rows.numpy(), chosen, axis=-1)), back(chosen)]


def softmax_cross_entropy_loss(ctx: nncuda.Context, attributes: Attributes, inputs: list[Array | None]) -> list[Array]:
    scores, labels, *weights = inputs
    _need(not weights, "weights of the classes")
    ignore = attributes.get("ignore_index", -(2**31))
    rows, back = _rows(ctx, scores, 1)
    losses, lse, total, count = kernels.cross_entropy_forward(
        rows, ctx.tensor(labels.reshape(-1).astype(np.int32)), losses=True, ignore_index=ignore
    )
    log_probs = back(rows.numpy() - lse.numpy()[:, None])
    reduction = attributes.get("reduction", "mean")
    if reduction == "none":
        return [losses.numpy().reshape(labels.shape), log_probs]
    return [np.float32(total.item() / (count.item() if reduction == "mean" else 1)).reshape(()), log_probs]


def swish(ctx: nncuda.Context, attributes: Attributes, inputs: list[Array | None]) -> list[Array]:
    (x,) = inputs
    _need(attributes.get("alpha", 1.0) == 1.0, "a factor inside the sigmoid")
    return [kernels.silu(ctx.tensor(x)).numpy().reshape(x.shape)]


def _binary(kernel: Callable[..., nncuda.Tensor]) -> Operator:
    def operator(ctx: nncuda.Context, attributes: Attributes, inputs: list[Array | None]) -> list[Array]:
        a, b = inputs
        _float(a)
        _need(a.shape == b.shape, "broadcast operands")
        return [kernel(ctx.tensor(a), ctx.tensor(b)).numpy().reshape(a.shape)]

    return operator


def arg_max(ctx: nncuda.Context, attributes: Attributes, inputs: list[Array | None]) -> list[Array]:
    (x,) = inputs
    _float(x)
    _need(not attributes.get("select_last_index", 0), "ties to the last index")
    axis = attributes.get("axis", 0)
    rows, back = _rows(ctx, x, axis)
    y = back(kernels.argmax(rows).numpy().astype(np.int64)[:, None])
    return [y if attributes.get("keepdims", 1) else y.squeeze(axis)]


def gather(ctx: nncuda.Context, attributes: Attributes, inputs: list[Array | None]) -> list[Array]:
    table, indices = inputs
    _float(table)
    _need(bool((indices >= 0).all()), "indices from the end")
    axis = attributes.get("axis", 0)
    first = np.ascontiguousarray(np.moveaxis(table, axis, 0))
    y = kernels.embedding(
        ctx.tensor(first.reshape(first.shape[0], -1)), ctx.tensor(indices.reshape(-1).astype(np.int32))
    ).numpy()
    y = y.reshape(*indices.shape, *first.shape[1:])
    return [np.moveaxis(y, range(indices.ndim), range(axis, axis + indices.ndim))]


def cast(ctx: nncuda.Context, attributes: Attributes, inputs: list[Array | None]) -> list[Array]:
    (x,) = inputs
    _float(x)
    target = {1: "f32", 10: "f16", 16: "bf16"}.get(attributes["to"])
    _need(target is not None, "a dtype that we do not have")
    return [kernels.cast(ctx.tensor(x), dtype_y=target).numpy().reshape(x.shape)]


def tensor_scatter(ctx: nncuda.Context, attributes: Attributes, inputs: list[Array | None]) -> list[Array]:
    cache, update, starts = inputs
    _float(cache)
    _need(attributes.get("mode", "linear") == "linear", "a circular cache")
    axis = attributes.get("axis", -2) % cache.ndim
    _need(axis == cache.ndim - 2, "a cache whose positions are not the last but one dimension")
    repeat = int(np.prod(cache.shape[1:axis], dtype=np.int64))
    capacity, dim = cache.shape[-2:]
    rows = cache.reshape(-1, capacity, 1, dim)
    new = update.reshape(-1, 1, dim)
    first = np.repeat(starts.astype(np.int32), repeat)
    k_cache, v_cache = ctx.tensor(rows), ctx.tensor(rows)
    kernels.kv_append(ctx.tensor(new), ctx.tensor(new), ctx.tensor(first), k_cache, v_cache, len=update.shape[-2])
    assert np.array_equal(k_cache.numpy(), v_cache.numpy())
    return [k_cache.numpy().reshape(cache.shape)]


OPERATORS: dict[str, Operator] = {
    "Softmax": softmax,
    "MatMul": matmul,
    "Gemm": gemm,
    "RMSNormalization": rms_normalization,
    "RotaryEmbedding": rotary_embedding,
    "Attention": attention,
    "TopK": top_k,
    "SoftmaxCrossEntropyLoss": softmax_cross_entropy_loss,
    "Swish": swish,
    "Add": _binary(lambda a, b: kernels.add(a, b)),
    "Mul": _binary(lambda a, b: kernels.mul(a, b)),
    "ArgMax": arg_max,
    "Gather": gather,
    "Cast": cast,
    "TensorScatter": tensor_scatter,
}
