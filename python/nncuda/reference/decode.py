"""Choosing the next token of each row.

The order of tokens is total: higher logit first, then lower index. NaN and -inf are never drawn; a row with +inf draws
among those alone, all alike; a row with nothing to draw gives 0. A temperature of 0 is argmax.
"""

import numpy as np

from nncuda.reference import random
from nncuda.reference.arithmetic import Array, Outputs

__all__ = ["argmax", "sample", "topk_sample", "topp_sample"]

ROUNDINGS = {
    **dict.fromkeys(["argmax", "sample", "topk_sample", "topp_sample"], 0),
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


def decisions(
    logits: Array,
    temperature: Array,
    seeds: Array,
    steps: Array,
    top_k: Array | None = None,
    top_p: Array | None = None,
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
