"""Scaled dot-product attention with grouped heads. Vaswani et al. 2017; Ainslie et al. 2023 ("GQA") for the groups.

Query head h reads key head h / (heads / kv_heads). With ``causal``, query i of q_len sees keys j <= i + kv_len - q_len.
With ``starts``, it sees keys j >= starts[i] alone: those of its document.
"""

from collections.abc import Callable

import numpy as np

from nncuda.reference.arithmetic import Array, Outputs, exp, log, matmul, tanh, total, transposed
from nncuda.reference.kvcache import kv_append_paged, rows_of_pages
from nncuda.reference.rope import rope_qk
from nncuda.reference.softmax import softmax

__all__ = [
    "attention_decode",
    "attention_decode_paged",
    "attention_output",
    "attention_scores",
    "attention_step_paged",
    "document_starts",
    "flash_attention",
    "flash_attention_backward",
    "flash_attention_paged",
]

ROUNDINGS = {
    "attention_scores": 3,
    "attention_output": 2,
    "flash_attention": 8,
    "flash_attention_backward": 14,
    "document_starts": 0,
    "attention_decode": 8,
    "flash_attention_paged": 8,
    "attention_decode_paged": 8,
    "attention_step_paged": 11,
}


def _by_head(x: Array, heads: int) -> Array:
    """[batch, length, kv_heads, head_dim] -> [batch, heads, length, head_dim], each key head repeated for its group."""
    return np.repeat(x.transpose(0, 2, 1, 3), heads // x.shape[2], axis=1)


def _by_token(x: Array, kv_heads: int) -> Array:
    """The transpose of _by_head: sums each group of heads, and brings tokens first."""
    batch, heads, length, head_dim = x.shape
    grouped = x.reshape(batch, kv_heads, heads // kv_heads, length, head_dim)
    return total(grouped, axis=2)[:, :, 0].transpose(0, 2, 1, 3)


def attention_scores(q: Array, k: Array, scale: float, causal: int) -> Outputs:
    """s = scale q k^T, -inf where ``causal`` hides the key. Vaswani et al. 2017, eq. 1 and section 3.2.3."""
    q_len, heads, kv_len = q.shape[1], q.shape[2], k.shape[1]
    s = q.dtype.type(scale) * matmul(q.transpose(0, 2, 1, 3), transposed(_by_head(k, heads)))
    if causal:
        hidden = np.arange(kv_len) > np.arange(q_len)[:, None] + kv_len - q_len
        s = np.where(hidden, -np.inf, s).astype(q.dtype)
    return {"scores": s}


def _seen_scores(q: Array, k: Array, batch: int, scale: float, causal: int, starts: Array | None) -> Array:
    s = attention_scores(_split(q, batch), _split(k, batch), scale, causal)["scores"]
    if starts is None:
        return s
    before = np.arange(s.shape[-1]) < starts[:, None, :, None]
    return np.where(before, -np.inf, s).astype(q.dtype)


def attention_output(probs: Array, v: Array) -> Outputs:
    """out = probs v. Vaswani et al. 2017, eq. 1."""
    out = matmul(probs, _by_head(v, probs.shape[1]))
    return {"out": np.ascontiguousarray(out.transpose(0, 2, 1, 3))}


def _split(x: Array, batch: int) -> Array:
    return x.reshape(batch, -1, *x.shape[1:])


def flash_attention(
    q: Array, k: Array, v: Array, batch: int, scale: float, causal: int, starts: Array | None = None
) -> Outputs:
    """out = softmax(scale q k^T) v, and the log-sum-exp of the scores. Dao 2023, "FlashAttention-2", section 3.1."""
    s = _seen_scores(q, k, batch, scale, causal, starts)
    if s.shape[-1] == 0:
        return {"out": np.zeros_like(q), "lse": np.full(s.shape[:3], -np.inf, q.dtype)}
    out = attention_output(softmax(s)["y"], _split(v, batch))["out"]
    top = np.max(s, axis=-1, keepdims=True)
    finite_top = np.where(top == -np.inf, 0, top).astype(q.dtype)
    return {"out": out.reshape(q.shape), "lse": (finite_top + log(total(exp(s - finite_top))))[..., 0]}


def flash_attention_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    batch: int,
    scale: float,
    causal: int,
    starts: Array | None = None,
) -> Outputs:
    """P = exp(S - lse), dV = P^T dO, dP = dO V^T, dS = P (dP - rowsum(dO O)), dQ = scale dS K, dK = scale dS^T Q.

    Dao 2023, "FlashAttention-2", algorithm 2.
    """
    heads, kv_heads = q.shape[1], k.shape[1]
    s = _seen_scores(q, k, batch, scale, causal, starts)
    blind = lse == -np.inf
    p = exp(s - np.where(blind, 0, lse).astype(q.dtype)[..., None])
    do, o = (_split(x, batch).transpose(0, 2, 1, 3) for x in (dout, out))
    dv = matmul(transposed(p), do)
    dp = matmul(do, transposed(_by_head(_split(v, batch), heads)))
    ds = p * (dp - total(do * o))
    scale = q.dtype.type(scale)
    dq = scale * matmul(ds, _by_head(_split(k, batch), heads))
    dk = scale * matmul(transposed(ds), _split(q, batch).transpose(0, 2, 1, 3))
    return {
        "dq": dq.transpose(0, 2, 1, 3).reshape(q.shape),
        "dk": _by_token(dk, kv_heads).reshape(k.shape),
        "dv": _by_token(dv, kv_heads).reshape(v.shape),
    }


def document_starts(ids: Array, separator: int) -> Outputs:
    """The place behind the last separator before each token, or 0, and how far the token is from it."""
    batch, length = ids.shape
    places = np.arange(length, dtype=np.int32)
    behind = np.zeros((batch, length), np.int32)
    behind[:, 1:] = np.where(ids[:, :-1] == separator, places[1:], 0)
    starts = np.maximum.accumulate(behind, axis=1)
    return {"starts": starts, "positions": places - starts}


def attention_decode(q: Array, k_cache: Array, v_cache: Array, lengths: Array, scale: float) -> Outputs:
    """One query a sequence over the first lengths[b] rows of its cache. Dao et al. 2023, "Flash-Decoding"."""
    out = np.zeros_like(q)
    for b, length in enumerate(lengths):
        if length:
            seen = k_cache[b, :length], v_cache[b, :length]
            out[b] = flash_attention(q[b : b + 1], *seen, batch=1, scale=scale, causal=0)["out"][0]
    return {"out": out}


def _stored_rows(k_pages: Array, v_pages: Array, kv_heads: int, format: int) -> Callable[[Array, int], list[Array]]:
    """Keys and values of a sequence, from its row of the page table and its length."""
    return lambda table, length: [rows_of_pages(x, table, length, kv_heads, format) for x in (k_pages, v_pages)]


def last_of(q: Array, k: Array, v: Array, scale: float, sinks: Array | None, window: int, softcap: float) -> Array:
    """Attention of the queries, the last tokens of a sequence, to its keys and values. With ``window`` a query sees so
    many keys at most; with ``softcap`` scores are c tanh(s / c); ``sinks`` are a further column of scores, whose
    probability is dropped. Beltagy et al. 2020, "Longformer"; Gemma Team 2024, "Gemma 2"; Agarwal et al. 2025,
    "gpt-oss"."""
    unseen = max(0, len(k) - len(q) + 1 - window) if window else 0  # by all queries: what lies there is open
    k, v = (rows[unseen:].astype(q.dtype) for rows in (k, v))
    s = attention_scores(q[None], k[None], scale, causal=0)["scores"]
    if softcap:
        bound = q.dtype.type(softcap)
        s = bound * tanh(s / bound)
    key, own = np.arange(len(k)), np.arange(len(k) - len(q), len(k))[:, None]
    hidden = (key > own) | (key <= own - window) if window else key > own
    s = np.where(hidden, -np.inf, s).astype(q.dtype)
    if sinks is not None:
        column = np.broadcast_to(sinks.astype(q.dtype)[:, None, None], (*s.shape[:3], 1))
        s = np.concatenate([s, column], axis=-1)
    return attention_output(softmax(s)["y"][..., : len(k)], v[None])["out"][0]


def flash_attention_paged(
    q: Array,
    k_pages: Array,
    v_pages: Array,
    offsets: Array,
    lengths: Array,
    page_table: Array,
    kv_heads: int,
    scale: float,
    format: int,
    sinks: Array | None = None,
    window: int = 0,
    softcap: float = 0,
) -> Outputs:
    """Tokens offsets[b] .. offsets[b+1]-1 see the rows before them, and their own, of the lengths[b] of sequence b.

    Kwon et al. 2023, "PagedAttention"; Vaswani et al. 2017, eq. 1. Rows without a sequence are not written: NaN.
    """
    out = np.full_like(q, np.nan)
    stored = _stored_rows(k_pages, v_pages, kv_heads, format)
    for b, length in enumerate(lengths):
        new = slice(offsets[b], offsets[b + 1])
        if new.stop > new.start:
            out[new] = last_of(q[new], *stored(page_table[b], length), scale, sinks, window, softcap)
    return {"out": out}


def attention_decode_paged(
    q: Array,
    k_pages: Array,
    v_pages: Array,
    lengths: Array,
    page_table: Array,
    kv_heads: int,
    scale: float,
    format: int,
    sinks: Array | None = None,
    window: int = 0,
    softcap: float = 0,
) -> Outputs:
    """One query a sequence over the first lengths[b] rows in its pages; zeros without any. Dao et al. 2023."""
    out = np.zeros_like(q)
    stored = _stored_rows(k_pages, v_pages, kv_heads, format)
    for b, length in enumerate(lengths):
        if length:
            out[b] = last_of(q[b : b + 1], *stored(page_table[b], length), scale, sinks, window, softcap)[0]
    return {"out": out}


def attention_step_paged(
    q: Array,
    k: Array,
    v: Array,
    cosine: Array,
    sine: Array,
    positions: Array,
    lengths: Array,
    page_table: Array,
    k_pages: Array,
    v_pages: Array,
    scale: float,
    layout: int,
    format: int,
    sinks: Array | None = None,
    window: int = 0,
    softcap: float = 0,
) -> Outputs:
    """A decoding step: rope_qk, kv_append_paged of one token a sequence, then attention_decode_paged."""
    turned = rope_qk(q, k, cosine, sine, positions, layout)
    each = np.arange(len(q) + 1)
    pages = kv_append_paged(turned["k"], v, each, lengths, page_table, k_pages, v_pages, format)
    seen = pages["k_pages"], pages["v_pages"], lengths, page_table
    options = k.shape[1], scale, format, sinks, window, softcap
    return {**pages, **attention_decode_paged(turned["q"], *seen, *options)}
