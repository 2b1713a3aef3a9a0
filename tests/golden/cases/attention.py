"""Cases of attention."""

import numpy as np

from nncuda.reference import attention as reference

from .case import FLOATS, case, nan, stored
from .kvcache import PAGE_TOKENS, STORAGE, filled, page_bytes, page_table

#: batch, q_len, kv_len, heads, kv_heads, head_dim, causal
SHAPES = (
    (1, 1, 1, 1, 1, 8, 1),
    (2, 5, 5, 2, 2, 8, 1),
    (1, 7, 7, 4, 1, 16, 1),
    (2, 3, 9, 4, 2, 24, 1),
    (1, 9, 4, 2, 1, 8, 1),
    (1, 17, 17, 2, 1, 40, 1),
    (1, 4, 33, 3, 1, 32, 0),
    (1, 18, 18, 1, 1, 64, 1),
    (2, 2, 18, 6, 2, 16, 0),
    (1, 131, 131, 1, 1, 8, 1),
    (1, 2, 34, 1, 1, 128, 1),
    (1, 2, 5, 1, 1, 256, 1),
)


#: Where the documents of each packed sequence begin; heads, kv_heads, head_dim.
DOCUMENTS = (
    ([[1], [0]], 2, 2, 1, 8),
    ([[3, 4, 8], [7]], 9, 4, 2, 16),
    ([[2, 17, 66]], 70, 1, 1, 8),
)


def cases():
    for sequences, length in (([[5]], 1), ([[], [0, 3], [6]], 7), ([[40, 41, 99]], 130)):
        label = f"batch{len(sequences)}-length{length}-ends{sum(map(len, sequences))}"
        yield case("document_starts", label, separated, "", sequences, length)
    for dtype in FLOATS:
        for shape in SHAPES:
            yield from of_shape(dtype, *shape)
        for begins, length, heads, kv_heads, head_dim in DOCUMENTS:
            yield from of_documents(dtype, begins, length, heads, kv_heads, head_dim)
        for heads, kv_heads, head_dim, extra, lengths in (
            (1, 1, 8, 0, [0, 1, 9, 4]),
            (4, 2, 16, 3, [0, 1, 9, 4]),
            (6, 1, 64, 0, [7, 5]),
            (2, 2, 136, 1, [5, 3]),
            (3, 1, 256, 0, [4]),
        ):
            label = f"heads{heads}-{kv_heads}-dim{head_dim}-ld{extra}"
            sizes = lengths, max(lengths), heads, kv_heads, head_dim, extra
            yield case("attention_decode", label, decode, dtype, *sizes)
        yield case("attention_decode", "long", decode, dtype, [517], 520, 2, 1, 8, 0)
        for storage, heads, kv_heads, head_dim, extra, lengths, fresh, spare in (
            ("f32", 2, 1, 8, 0, [5], [5], 0),
            ("f16", 1, 1, 8, 0, [130], [3], 0),
            ("f16", 4, 2, 16, 3, [4, 7, 0, 129], [2, 0, 0, 2], 2),
            ("bf16", 3, 1, 24, 0, [17], [17], 0),
            ("q8_0", 2, 1, 32, 8, [40], [9], 1),
            ("e4m3", 2, 1, 24, 1, [5, 19], [2, 4], 1),
        ):
            label = f"{storage}-heads{heads}-{kv_heads}-dim{head_dim}-ld{extra}-batch{len(lengths)}-spare{spare}"
            label += f"-length{max(lengths)}"
            sizes = storage, lengths, fresh, heads, kv_heads, head_dim, extra, spare
            yield case("flash_attention_paged", label, paged, dtype, *sizes)
        for storage, heads, kv_heads, head_dim, extra, lengths in (
            ("f32", 1, 1, 8, 0, [0, 1, 9]),
            ("f16", 4, 2, 16, 3, [128, 3]),
            ("bf16", 6, 1, 24, 0, [7]),
            ("q8_0", 12, 1, 32, 0, [21]),
            ("e4m3", 3, 1, 24, 2, [18]),
            ("f16", 2, 1, 8, 0, [129, 0, 517]),
        ):
            label = f"{storage}-heads{heads}-{kv_heads}-dim{head_dim}-ld{extra}-batch{len(lengths)}"
            label += f"-length{max(lengths)}"
            sizes = storage, lengths, None, heads, kv_heads, head_dim, extra, 0
            yield case("attention_decode_paged", label, paged, dtype, *sizes)
        for storage, heads, kv_heads, head_dim, extra, layout, lengths in (
            ("bf16", 2, 1, 8, 3, 1, [3]),
            ("f16", 1, 1, 8, 0, 0, [129]),
            ("q8_0", 2, 1, 32, 0, 0, [9]),
        )[: 3 if dtype == "f32" else 1]:  # pages are large
            label = f"{storage}-heads{heads}-{kv_heads}-dim{head_dim}-ld{extra}-layout{layout}-length{lengths[0]}"
            sizes = storage, lengths, heads, kv_heads, head_dim, extra, layout
            yield case("attention_step_paged", label, step_paged, dtype, *sizes)
        yield from variants(dtype)


def variants(dtype):
    """Windows, within a page and over several; soft caps; sinks."""
    for storage, heads, kv_heads, head_dim, lengths, fresh, window, softcap, sinks in (
        ("f16", 2, 1, 8, [300, 9], [20, 9], 40, 0.0, False),
        ("f32", 2, 2, 8, [17], [17], 5, 3.0, True),
        ("bf16", 3, 1, 24, [40], [20], 0, 1.0, False),
        ("q8_0", 2, 1, 32, [133], [9], 4, 0.0, True),
        ("f16", 1, 1, 8, [130], [3], 1, 0.0, False),
    )[: 5 if dtype == "f32" else 2]:
        label = f"{storage}-heads{heads}-{kv_heads}-dim{head_dim}-length{max(lengths)}"
        label += f"-window{window}-softcap{softcap:g}-sinks{sinks:d}"
        sizes = storage, lengths, fresh, heads, kv_heads, head_dim, 0, 0, window, softcap, sinks
        yield case("flash_attention_paged", label, paged, dtype, *sizes)
    for storage, heads, kv_heads, head_dim, lengths, window, softcap, sinks in (
        ("f16", 2, 1, 8, [300, 129, 0], 70, 2.0, True),
        ("f32", 1, 1, 8, [9], 0, 0.0, True),
        ("q8_0", 12, 1, 32, [140], 20, 0.0, False),
    )[: 3 if dtype == "f32" else 1]:
        label = f"{storage}-heads{heads}-{kv_heads}-dim{head_dim}-length{max(lengths)}"
        label += f"-window{window}-softcap{softcap:g}-sinks{sinks:d}"
        sizes = storage, lengths, None, heads, kv_heads, head_dim, 0, 0, window, softcap, sinks
        yield case("attention_decode_paged", label, paged, dtype, *sizes)
    if dtype != "f32":  # pages are large
        return
    options = {"window": 3, "softcap": 2.0, "sinks": True}
    label = "f16-heads2-1-dim8-length130-window3-softcap2-sinks1"
    yield case("attention_step_paged", label, lambda d: step_paged(d, "f16", [130], 2, 1, 8, 0, 0, **options), dtype)


def of_shape(dtype, batch, q_len, kv_len, heads, kv_heads, head_dim, causal, sharp=1, extras=None):
    """``sharp`` multiplies queries, ``extras`` are gaps between rows; without it, as many cases as are cheap."""
    label = f"batch{batch}-q{q_len}-kv{kv_len}-heads{heads}-{kv_heads}-dim{head_dim}-causal{causal}"
    label += f"-sharp{sharp}" * (sharp != 1)
    scale = float(np.float32(head_dim**-0.5))
    sizes = {"batch": batch, "q_len": q_len, "kv_len": kv_len}

    def q(d):
        return d.bell(batch, q_len, heads, head_dim, scale=1.5 * sharp)

    def kv(d):
        return d.bell(batch, kv_len, kv_heads, head_dim, scale=1.5)

    if extras or kv_len * max(q_len, head_dim) * heads < 1200:
        yield case(
            "attention_scores", label, lambda d: {"q": q(d), "k": kv(d), "scale": scale, "causal": causal}, dtype
        )
        yield case(
            "attention_output",
            label,
            lambda d: {"probs": d.uniform(batch, heads, q_len, kv_len, low=0, high=2 / kv_len), "v": kv(d)},
            dtype,
        )
    for extra in extras or ((0, 5) if head_dim * heads * kv_len <= 500 else (0,)):
        lds = {"ld_q": heads * head_dim + extra, "ld_kv": kv_heads * head_dim + 2 * extra}
        common = {**sizes, **lds, "scale": scale, "causal": causal}

        def flat(x):
            return x.reshape(-1, *x.shape[2:])

        def forward(d, common=common):
            return {"q": flat(q(d)), "k": flat(kv(d)), "v": flat(kv(d)), **common}

        def backward(d, forward=forward):
            args = forward(d)
            for name in ("q", "k", "v"):
                args[name] = stored(args[name], dtype)
            out = reference.flash_attention(args["q"], args["k"], args["v"], batch, scale, causal)
            saved = {"out": stored(out["out"], dtype), "lse": stored(out["lse"])}
            return {"dout": d.bell(batch * q_len, heads, head_dim), **args, **saved}

        yield case("flash_attention", f"{label}-ld{extra}", forward, dtype)
        if kv_len > 1:  # with a single key q and k have no gradient: nothing but rounding to compare
            yield case("flash_attention_backward", f"{label}-ld{extra}", backward, dtype)
    if q_len == kv_len == 5:
        yield case("flash_attention", f"{label}-no-lse", lambda d, f=forward: {**f(d), "lse": None}, dtype)


def starts_of(begins, length):
    """`starts` of sequences whose documents begin at 0 and at these places."""
    starts = np.zeros((len(begins), length), np.int32)
    for row, places in zip(starts, begins, strict=True):
        for place in places:
            row[place:] = place
    return starts


def of_documents(dtype, begins, length, heads, kv_heads, head_dim):
    batch, scale = len(begins), float(np.float32(head_dim**-0.5))
    label = f"documents-batch{batch}-length{length}-heads{heads}-{kv_heads}-dim{head_dim}"
    common = {"batch": batch, "q_len": length, "kv_len": length, "scale": scale, "causal": 1}
    starts = starts_of(begins, length)

    def forward(d):
        q, kv = (d.bell(batch * length, heads, head_dim, scale=1.5), d.bell(2, batch * length, kv_heads, head_dim))
        return {"q": q, "k": kv[0], "v": kv[1], "starts": starts, **common}

    def backward(d):
        args = forward(d)
        for name in ("q", "k", "v"):
            args[name] = stored(args[name], dtype)
        out = reference.flash_attention(args["q"], args["k"], args["v"], batch, scale, 1, starts)
        saved = {"out": stored(out["out"], dtype), "lse": stored(out["lse"])}
        return {"dout": d.bell(batch * length, heads, head_dim), **args, **saved}

    yield case("flash_attention", label, forward, dtype)
    yield case("flash_attention_backward", label, backward, dtype)


def separated(d, sequences, length):
    """Tokens of which the named ones are separators."""
    ids = d.integers(len(sequences) * length, high=50).reshape(len(sequences), length)
    for row, ends in zip(ids, sequences, strict=True):
        row[[end for end in ends if end < length]] = 50
    return {"ids": ids, "separator": 50}


def decode(d, lengths, capacity, heads, kv_heads, head_dim, extra):
    caches = d.bell(2, len(lengths), capacity, kv_heads, head_dim)
    for b, length in enumerate(lengths):  # rows past the length must not be read
        caches[:, b, length:] = nan(capacity - length, kv_heads, head_dim)
    return {
        "q": d.bell(len(lengths), heads, head_dim, scale=1.5),
        "k_cache": caches[0],
        "v_cache": caches[1],
        "lengths": np.array(lengths, np.int32),
        "ld_q": heads * head_dim + extra,
        "scale": float(np.float32(head_dim**-0.5)),
    }


def paged(d, storage, lengths, fresh, heads, kv_heads, head_dim, extra, spare, window=0, softcap=0.0, sinks=False):
    """Sequences in pages that lie in any order, one page with nothing in it; ``fresh`` new tokens of each, or None for
    one a sequence without offsets; room for ``spare`` more tokens. Pages that are before all windows have no number."""
    table, pages = page_table(d, lengths)
    k_pages, v_pages = (filled(d, storage, lengths, table, pages, kv_heads, head_dim) for _ in "kv")
    tokens = len(lengths) if fresh is None else sum(fresh) + spare
    ragged = {} if fresh is None else {"offsets": np.array([0, *np.cumsum(fresh)], np.int32)}
    q = d.bell(tokens, heads, head_dim, scale=1.5)
    q[tokens - spare :] = np.nan
    for row, length, new in zip(table, lengths, fresh or [1] * len(lengths), strict=True):
        if window:
            row[: max(0, length - new + 1 - window) // PAGE_TOKENS] = -1
    return {
        "q": q,
        "k_pages": k_pages,
        "v_pages": v_pages,
        **ragged,
        "lengths": np.array(lengths, np.int32),
        "page_table": table,
        "kv_heads": kv_heads,
        "page_bytes": page_bytes(storage, kv_heads, head_dim),
        "ld_q": heads * head_dim + extra,
        "scale": float(np.float32(head_dim**-0.5)),
        "window": window,
        "softcap": softcap,
        "sinks": d.bell(heads, scale=2) if sinks else None,
        "format": STORAGE[storage],
    }


def step_paged(d, storage, lengths, heads, kv_heads, head_dim, extra, layout, **options):
    """As ``paged``, with the last row of each sequence still to come. Quarters of a turn make no rounding: what is
    stored, whole numbers in blocks, can be told to the bit."""
    batch = len(lengths)
    args = paged(d, storage, lengths, None, heads, kv_heads, head_dim, extra, 0, **options)
    turn = d.integers(batch + 2, head_dim // 2, high=4)
    k, v = (d.bell(batch, kv_heads, head_dim) for _ in "kv")
    return {
        **args,
        "k": k,
        "v": v,
        "cosine": np.array([1, 0, -1, 0])[turn],
        "sine": np.array([0, 1, 0, -1])[turn],
        "positions": d.integers(batch, high=batch + 2),
        "ld_kv": kv_heads * head_dim + 2 * extra,
        "layout": layout,
    }
