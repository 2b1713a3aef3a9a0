"""Cases of the samplers.

Rounding may turn a draw that falls on the border between two tokens, so the recipes look for rows whose decisions stand
by at least MARGIN: numbers are drawn until they do.
"""

import numpy as np

from nncuda.reference import decode as reference
from nncuda.reference import random

from .case import FLOATS, case, stored

MARGIN = 1e-4
INF = np.inf


def cases():
    for dtype in FLOATS:
        for rows, vocab in ((1, 1), (3, 7), (2, 16), (3, 17), (2, 33), (4, 65), (2, 131)):
            label = f"rows{rows}-vocab{vocab}"
            yield case("argmax", label, lambda d, r=rows, v=vocab: {"logits": d.bell(r, v)}, dtype)
            for kernel in ("sample", "topk_sample", "topp_sample"):
                yield case(kernel, label, of_bell, dtype, kernel, dtype, rows, vocab, 2)
            yield case("topp_sample", f"{label}-no-top_k", of_bell, dtype, "topp_sample", dtype, rows, vocab, 2, None)
        for rows, vocab, top_k, top_p in ((1, 1, 0, None), (3, 17, 0, None), (2, 33, None, None), (3, 65, None, 0)):
            label = f"rows{rows}-vocab{vocab}"
            yield case("minp_sample", label, of_bell, dtype, "minp_sample", dtype, rows, vocab, 2, top_k, top_p)
        yield case("argmax", "special", lambda d: {"logits": np.array(SPECIAL)}, dtype)
        yield case("argmax", "ties", lambda d: {"logits": np.array(TIES)}, dtype)
        for kernel in ("sample", "topk_sample", "topp_sample"):
            for label, temperature in (("special", 0.8), ("greedy", 0.0)):
                yield case(kernel, label, drawn, dtype, kernel, dtype, np.array(SPECIAL), temperature)
        for label, temperature in (("special", 0.8), ("greedy", 0.0)):
            yield case("minp_sample", label, drawn, dtype, "minp_sample", dtype, np.array(SPECIAL), temperature)
        for label, min_p in (("off", 0.0), ("equals-only", 1.0)):
            yield case("minp_sample", label, of_bell, dtype, "minp_sample", dtype, 3, 40, 1, None, 0, min_p)
        yield case("minp_sample", "equals-of-many", minimum_of_all, dtype)
        yield from adjusted(dtype)
        yield from logarithms(dtype)
        yield case("topk_sample", "ties", drawn, dtype, "topk_sample", dtype, np.array(TIES), None, 2)
        for label, top_p in (("whole", 1.0), ("first-only", 1e-3)):
            yield case("topp_sample", label, of_bell, dtype, "topp_sample", dtype, 3, 40, 1, None, top_p)
        yield case("topp_sample", "reached-exactly", reached_exactly, dtype)
    yield case("argmax", "rows1-vocab33000", lambda d: {"logits": d.bell(1, 33000)}, "bf16")
    for kernel, dtype in (("sample", "f16"), ("topk_sample", "bf16"), ("topp_sample", "bf16")):
        yield case(kernel, "rows1-vocab33000", of_bell, dtype, kernel, dtype, 1, 33000, 3, 50)
    for rows, vocab, capacity in ((1, 1, 1), (3, 9, 4), (4, 40, 33)):
        yield case("count_tokens", f"rows{rows}-vocab{vocab}-capacity{capacity}", counted, "", rows, vocab, capacity)
    yield case("count_tokens", "ends", counted_ends)


def adjusted(dtype):
    for rows, vocab, capacity in ((1, 1, 1), (3, 9, 4), (4, 40, 33)):
        label = f"rows{rows}-vocab{vocab}"
        yield case("penalize_logits", f"{label}-capacity{capacity}", penalized, dtype, rows, vocab, capacity)
        yield case("bias_logits", f"{label}-biases{rows * capacity}", biased, dtype, rows, vocab, rows * capacity)
    for rows, vocab, n, words in (
        (1, 1, 1, 1),
        (3, 31, 2, 1),
        (4, 32, 3, 2),
        (3, 33, 1, 2),
        (2, 100, 5, 3),
    ):
        yield case("mask_logits", f"rows{rows}-vocab{vocab}-masks{n}x{words}", masked, dtype, rows, vocab, n, words)
    special = np.array(SPECIAL)
    yield case("penalize_logits", "special", lambda d: {**penalized(d, 6, 6, 5), "logits": special}, dtype)
    yield case("bias_logits", "special", lambda d: {**biased(d, 6, 6, 20), "logits": special}, dtype)
    yield case("mask_logits", "special", lambda d: {**masked(d, 6, 6, 2, 1), "logits": special}, dtype)


def logarithms(dtype):
    for rows, vocab, n in ((1, 1, 1), (3, 7, 9), (2, 33, 5), (1, 130, 20), (1, 257, 128)):
        yield case("logprobs", f"rows{rows}-vocab{vocab}-n{n}", of_choice, dtype, rows, vocab, n)
    yield case("logprobs", "chosen-alone", of_choice, dtype, 4, 65, 0)
    for label, table in (("special", SPECIAL), ("ties", TIES)):
        for chosen in (0, 3):
            ids = np.full(len(table), chosen, np.int32)
            yield case(
                "logprobs",
                f"{label}-id{chosen}",
                lambda d, t=table, i=ids: {"logits": np.array(t), "ids": i, "n": 4},
                dtype,
            )


SPECIAL = [
    [1.0, np.nan, 3.0, -INF, 2.0, np.nan],
    [INF, 5.0, np.nan, INF, -INF, INF],
    [-INF] * 6,
    [np.nan] * 6,
    [np.nan, -INF, np.nan, -INF, -4.0, np.nan],
    [-INF, 60000.0, 1.0, 60000.0, 60000.0, -60000.0],
]
TIES = [[2.0, 1.0, 2.0, 2.0, 2.0], [0.5] * 5, [-1.0, -2.0, -1.0, -2.0, -1.0], [0.0, -0.0, 0.0, -0.0, 0.0]]


def of_bell(d, kernel, dtype, rows, vocab, scale, top_k=0, top_p=None, min_p=None):
    return drawn(d, kernel, dtype, d.bell(rows, vocab, scale=scale), None, top_k, top_p, min_p)


def reached_exactly(d):
    """Four tokens of a quarter each: two of them reach a half, with no rounding in any order of sums."""
    rows = 16
    steps = np.arange(rows, dtype=np.int32)
    seeds = np.full(rows, 77, np.int64)
    u = np.array([float(random.words(1, 77, 0, step)[0]) * 2.0**-32 for step in range(rows)])
    assert np.min(np.abs(u - 0.5)) > MARGIN and np.any((u > 0.34) & (u < 0.49))
    return {
        "logits": np.full((rows, 4), 1.5),
        "temperature": np.ones(rows),
        "top_k": None,
        "top_p": np.full(rows, 0.5),
        "seeds": seeds,
        "steps": steps,
    }


def minimum_of_all(d):
    """Only the first and its equals are likely, whichever way that is computed."""
    rows = 8
    return {
        "logits": np.tile([0.0, 3.0, 3.0, 0.0, 3.0], (rows, 1)),
        "temperature": np.full(rows, 0.5),
        "top_k": None,
        "top_p": None,
        "min_p": np.where(np.arange(rows) % 2, 1.0, 0.5),
        "seeds": np.full(rows, 3, np.int64),
        "steps": np.arange(rows, dtype=np.int32),
    }


def ascending(d, vocab, count):
    return np.sort(d.permutation(vocab)[:count])


def lists(d, rows, vocab, capacity, spare=0):
    """Lists of any length, of no tokens and of none at all among them; what lies behind a list is no token."""
    most = min(vocab, capacity - spare)
    ids, counts = np.full((rows, capacity), -7, np.int32), np.full((rows, capacity), -9, np.int32)
    lengths = d.integers(rows, low=-1, high=most + 1)
    lengths[0] = most
    for r, length in enumerate(lengths):
        if length > 0:
            ids[r, :length] = ascending(d, vocab, length)
            counts[r, :length] = d.integers(length, high=4)
    return {"seen_ids": ids, "seen_counts": counts, "seen_lengths": lengths}


def counted(d, rows, vocab, capacity):
    made = lists(d, rows, vocab, capacity, spare=int(capacity < vocab))
    ids = d.integers(rows, high=vocab)
    for r in range(0, rows, 2):  # half of them are known already
        if made["seen_lengths"][r] > 0:
            ids[r] = made["seen_ids"][r, int(d.integers(1, high=made["seen_lengths"][r])[0])]
    return {"ids": ids, **made, "vocab": vocab}


def counted_ends(d):
    """Before all others, after them, between; into an empty list and a full one; the largest count; no list."""
    seen = np.array(
        [[2, 4, 6, 0], [2, 4, 6, 0], [2, 4, 6, 0], [0] * 4, [1, 2, 3, 4], [5, 0, 0, 0], [5, 0, 0, 0]], np.int32
    )
    counts = np.ones_like(seen)
    counts[5, 0] = 2**31 - 1
    lengths = np.array([3, 3, 3, 0, 4, 1, -1], np.int32)
    ids = np.array([0, 9, 5, 7, 3, 5, 5], np.int32)
    return {"ids": ids, "seen_ids": seen, "seen_counts": counts, "seen_lengths": lengths, "vocab": 10}


def penalized(d, rows, vocab, capacity):
    """Rows that only repetition is held against, only the others, and all three."""
    kind = np.arange(rows) % 3
    presence, frequency = d.uniform(rows, low=-2, high=2), d.uniform(rows, low=-2, high=2)
    return {
        "logits": d.bell(rows, vocab, scale=4),
        "presence": np.where(kind == 0, 0.0, presence),
        "frequency": np.where(kind == 0, 0.0, frequency),
        "repetition": np.where(kind == 1, 1.0, d.uniform(rows, low=0.5, high=2)),
        **lists(d, rows, vocab, capacity),
    }


def biased(d, rows, vocab, biases):
    counts = [int(d.integers(1, high=min(vocab, biases // rows) + 1)[0]) for _ in range(rows)]
    counts[0] = min(vocab, biases // rows)
    offsets = np.array([0, *np.cumsum(counts)], np.int32)
    ids, bias = np.full(biases, -1, np.int32), np.full(biases, np.nan)
    for r in range(rows):
        ids[offsets[r] : offsets[r + 1]] = ascending(d, vocab, counts[r])
    bias[: offsets[-1]] = d.uniform(int(offsets[-1]), low=-100, high=100)
    return {"logits": d.bell(rows, vocab, scale=4), "offsets": offsets, "ids": ids, "bias": bias}


def masked(d, rows, vocab, n, words):
    masks = d.integers(n, words, low=-(2**31), high=2**31)
    masks[0, 0], masks[-1, -1] = -1, 0
    mask_of = d.integers(rows, low=-1, high=n)
    mask_of[0] = n - 1
    return {"logits": d.bell(rows, vocab), "masks": masks, "mask_of": mask_of}


def of_choice(d, rows, vocab, n):
    top = {} if n else {"top_ids": None, "top_logprobs": None}
    return {"logits": d.bell(rows, vocab, scale=3), "ids": d.integers(rows, high=vocab), "n": n, **top}


def drawn(d, kernel, dtype, logits, temperature=None, top_k=0, top_p=None, min_p=None):
    """Arguments of a sampler whose every decision stands by MARGIN. A top_p of 0 is none."""
    rows, vocab = logits.shape
    logits = stored(logits, dtype)
    while True:
        args = {
            "temperature": stored(d.uniform(rows, low=0.5, high=1.5))
            if temperature is None
            else np.full(rows, temperature),
            "seeds": d.integers(rows, low=-(2**31), high=2**31).astype(np.int64) * 2**31 + 12345,
            "steps": d.integers(rows, high=2**31),
        }
        if kernel != "sample" and top_k is not None:
            args["top_k"] = np.full(rows, top_k, np.int32) if top_k else d.integers(rows, low=1, high=vocab + 2)
        if kernel in ("topp_sample", "minp_sample") and top_p != 0:
            args["top_p"] = uniform_or(d, rows, 0.2, top_p)
        if kernel == "minp_sample":
            args["min_p"] = uniform_or(d, rows, 0.0, min_p)
        args["temperature"] = stored(args["temperature"])
        if reference.decisions(logits, **args)[1] > (MARGIN if vocab < 1000 else MARGIN / 20):
            absent = {"topp_sample": ("top_k",), "minp_sample": ("top_k", "top_p")}.get(kernel, ())
            return {"logits": logits, **dict.fromkeys(absent), **args}


def uniform_or(d, rows, low, value):
    return stored(d.uniform(rows, low=low, high=1.0) if value is None else np.full(rows, value))
