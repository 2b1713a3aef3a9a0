"""Choosing the next token of each row.

The order of tokens is total: higher logit first, then lower index. NaN and -inf are never drawn; a row with +inf draws
among those alone, all alike; a row with nothing to draw gives 0. A temperature of 0 is argmax.
"""

from itertools import pairwise

import numpy as np

from nncuda.reference import random
from nncuda.reference.arithmetic import Array, Outputs

__all__ = [
    "argmax",
    "bias_logits",
    "count_tokens",
    "logprobs",
    "mask_logits",
    "minp_sample",
    "penalize_logits",
    "sample",
    "topk_sample",
    "topp_sample",
]

ROUNDINGS = {
    **dict.fromkeys(
        ["argmax", "sample", "topk_sample", "topp_sample", "minp_sample", "count_tokens", "mask_logits"], 0
    ),
    "penalize_logits": 5,  # the repetition, the count as a float, its product, two sums
    "bias_logits": 1,
    "logprobs": 6,  # the difference in the exponent, exp, log, two differences: the sum is measured
}


def ranked(logits: Array) -> Array:
    """The indices of a row that may be drawn, in the order of tokens."""
    allowed = np.flatnonzero(logits > -np.inf)
    if np.any(logits[allowed] == np.inf):
        allowed = np.flatnonzero(logits == np.inf)
    return allowed[np.argsort(-logits[allowed], kind="stable")]


def weights(logits: Array, temperature: float) -> Array:
    """exp((logit - largest) / temperature) of allowed logits; all 1 for +inf."""
    if np.any(logits == np.inf):
        return np.ones(len(logits))
    return np.exp((logits - np.max(logits)) / temperature)


def draw(order: Array, logits: Array, temperature: float, seed: int, step: int) -> tuple[int, float]:
    """The token of ``order`` where the running sum of weights, in order of index, first exceeds u times the total,
    u = 2^-32 word 0 of Philox for the counter (step, 0, 0, 0).

    Also the distance from u to the nearest place where another token would be drawn: what rounding may not exceed.
    Devroye 1986, "Non-uniform random variate generation", III.2.1 (inversion by sequential search).
    """
    order = np.sort(order)
    running = np.cumsum(weights(logits[order], temperature))
    u = float(random.words(1, seed, 0, step)[0]) * 2.0**-32
    borders = running / running[-1]
    at = min(int(np.searchsorted(borders, u, side="right")), len(order) - 1)
    margin = np.min(np.abs(borders[:-1] - u)) if len(order) > 1 else np.inf
    return int(order[at]), float(margin)


def nucleus(order: Array, row: Array, temperature: float, top_p: float) -> tuple[Array, float]:
    """The shortest run of first tokens whose probability reaches top_p, and how far off another length is.

    Holtzman et al. 2020, "The curious case of neural text degeneration", eq. 3.
    """
    if top_p >= 1:
        return order, np.inf
    w = weights(row[order], temperature)
    reached = np.cumsum(w) / np.sum(w)
    length = int(np.argmax(reached >= top_p)) + 1
    return order[:length], float(np.min(np.abs(reached[:-1] - top_p))) if len(order) > 1 else np.inf


def likely(order: Array, row: Array, temperature: float, min_p: float) -> tuple[Array, float]:
    """The tokens at least min_p times as likely as the first, and how far off another length is, as a share of that.

    Nguyen et al. 2024, "Turning up the heat: min-p sampling for creative and coherent LLM outputs", section 3.
    """
    if min_p == 0:
        return order, np.inf
    w = weights(row[order], temperature)  # that of the first is 1
    others = w[w < 1]
    return order[w >= min(min_p, 1.0)], float(np.min(np.abs(others / min_p - 1), initial=np.inf))


def decisions(
    logits: Array,
    temperature: Array,
    seeds: Array,
    steps: Array,
    top_k: Array | None = None,
    top_p: Array | None = None,
    min_p: Array | None = None,
) -> tuple[Array, float]:
    """The tokens, and the smallest change of a probability that would alter one of them."""
    ids, margin = np.zeros(len(logits), np.int32), np.inf
    for r, row in enumerate(logits):
        order = ranked(row)
        if not len(order):
            continue
        if temperature[r] == 0:
            ids[r] = order[0]
            continue
        border = np.inf
        if top_k is not None:
            order = order[: top_k[r]]
        if top_p is not None:
            order, border = nucleus(order, row, float(temperature[r]), float(top_p[r]))
        if min_p is not None:
            order, other = likely(order, row, float(temperature[r]), float(min_p[r]))
            border = min(border, other)
        ids[r], distance = draw(order, row, float(temperature[r]), int(seeds[r]), int(steps[r]))
        margin = min(margin, border, distance)
    return ids, margin


def argmax(logits: Array) -> Outputs:
    """The first token in the order: the largest logit, the lowest index among equals."""
    return {"ids": np.array([next(iter(ranked(row)), 0) for row in logits], np.int32)}


def sample(logits: Array, temperature: Array, seeds: Array, steps: Array) -> Outputs:
    """A token drawn from softmax(logits / temperature). Ackley, Hinton, Sejnowski 1985, for the temperature."""
    return {"ids": decisions(logits, temperature, seeds, steps)[0]}


def topk_sample(logits: Array, temperature: Array, top_k: Array, seeds: Array, steps: Array) -> Outputs:
    """A token drawn among the first top_k. Fan, Lewis, Dauphin 2018, "Hierarchical neural story generation", 5.4."""
    return {"ids": decisions(logits, temperature, seeds, steps, top_k)[0]}


def topp_sample(
    logits: Array, temperature: Array, top_p: Array, seeds: Array, steps: Array, top_k: Array | None = None
) -> Outputs:
    """A token drawn from the nucleus of the first top_k tokens. Holtzman et al. 2020, eq. 3."""
    return {"ids": decisions(logits, temperature, seeds, steps, top_k, top_p)[0]}


def minp_sample(
    logits: Array,
    temperature: Array,
    min_p: Array,
    seeds: Array,
    steps: Array,
    top_k: Array | None = None,
    top_p: Array | None = None,
) -> Outputs:
    """A token drawn among those at least min_p times as likely as the first. Nguyen et al. 2024, section 3."""
    return {"ids": decisions(logits, temperature, seeds, steps, top_k, top_p, min_p)[0]}


def count_tokens(ids: Array, seen_ids: Array, seen_counts: Array, seen_lengths: Array) -> Outputs:
    """Every list with the row's token counted once more."""
    lists, counts, lengths = seen_ids.copy(), seen_counts.copy(), seen_lengths.copy()
    for r, (token, length) in enumerate(zip(ids, seen_lengths, strict=True)):
        if length < 0:
            continue
        found = dict(zip(seen_ids[r, :length].tolist(), seen_counts[r, :length].tolist(), strict=True))
        found[int(token)] = min(found.get(int(token), 0) + 1, 2**31 - 1)
        lengths[r] = len(found)
        lists[r, : len(found)] = sorted(found)
        counts[r, : len(found)] = [found[token] for token in sorted(found)]
    return {"seen_ids": lists, "seen_counts": counts, "seen_lengths": lengths}


def penalize_logits(
    logits: Array,
    presence: Array,
    frequency: Array,
    repetition: Array,
    seen_ids: Array,
    seen_counts: Array,
    seen_lengths: Array,
) -> Outputs:
    """Logits of the lists' tokens, made less likely. Keskar et al. 2019, "CTRL", section 4.1, for the repetition
    penalty, with the sign of the logit heeded; OpenAI's API reference for the other two."""
    y = logits.copy()
    for r, length in enumerate(seen_lengths):
        at, counts = seen_ids[r, : max(length, 0)], seen_counts[r, : max(length, 0)].astype(logits.dtype)
        x = np.where(y[r, at] > 0, y[r, at] / repetition[r], y[r, at] * repetition[r])
        y[r, at] = np.where(counts > 0, x - (frequency[r] * counts + presence[r]), x)
    return {"logits": y}


def bias_logits(logits: Array, offsets: Array, ids: Array, bias: Array) -> Outputs:
    """Logits with the biases of some added."""
    y = logits.copy()
    for r, (first, end) in enumerate(pairwise(offsets)):
        y[r, ids[first:end]] += bias[first:end]
    return {"logits": y}


def mask_logits(logits: Array, masks: Array, mask_of: Array) -> Outputs:
    """-inf where the bit of a token, the lowest of a word first, is 0 or missing."""
    tokens = logits.shape[1]
    bits = (masks.view(np.uint32)[:, :, None] >> np.arange(32, dtype=np.uint32)) & 1
    bits = bits.reshape(len(masks), -1)[:, :tokens]
    allowed = np.pad(bits.astype(bool), ((0, 0), (0, tokens - bits.shape[1])))
    keep = (mask_of < 0)[:, None] | allowed[np.maximum(mask_of, 0)]
    return {"logits": np.where(keep, logits, -np.inf)}


def logprobs(logits: Array, ids: Array, n: int) -> Outputs:
    """log softmax of each row, over the tokens that may be drawn: of one, and of the first n in the order of tokens."""
    found = np.full(logits.shape, -np.inf, logits.dtype)
    top_ids = np.full((len(logits), n), -1, np.int32)
    top = np.full((len(logits), n), -np.inf, logits.dtype)
    for r, row in enumerate(logits):
        order = ranked(row)
        if len(order):
            x = row[order]
            shifted = np.zeros(len(x), x.dtype) if x[0] == np.inf else x - x[0]
            found[r, order] = shifted - np.log(np.sum(np.exp(shifted)))
            top_ids[r, : len(order[:n])] = order[:n]
            top[r, : len(order[:n])] = found[r, order[:n]]
    chosen = found[np.arange(len(logits)), ids]
    return {"logprobs": chosen, "top_ids": top_ids, "top_logprobs": top}
