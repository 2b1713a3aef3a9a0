"""Cases of the losses."""

import numpy as np

from nncuda.reference import loss as reference
from nncuda.reference import softmax

from .case import FLOATS, case, of, stored

IGNORED = -100


def targets(d, rows, vocab, ignored):
    t = d.integers(rows, high=vocab)
    t[0], t[-1] = vocab - 1, 0
    t[ignored] = IGNORED
    return t


def cases():
    for dtype in FLOATS:
        for rows, vocab, ignored in (
            (1, 1, []),
            (1, 2, []),
            (3, 7, [1]),
            (5, 16, []),
            (4, 17, [0, 3]),
            (2, 33, []),
            (3, 65, [0, 1, 2]),
            (17, 9, [4, 8, 9]),
            (2, 130, []),
        ):
            label = f"rows{rows}-vocab{vocab}-ignored{len(ignored)}"
            yield case("cross_entropy_forward", label, of(forward, rows, vocab, ignored), dtype)
            if vocab > 1:  # the gradient of a single class is zero: nothing but rounding to compare
                yield case(
                    "cross_entropy_backward",
                    label,
                    lambda d, r=rows, v=vocab, i=ignored, t=dtype: backward(forward(d, r, v, i), t),
                    dtype,
                )
        yield case("cross_entropy_forward", "no-losses", lambda d: {**forward(d, 3, 19, [2]), "losses": None}, dtype)
        yield case("cross_entropy_forward", "masked", masked, dtype)
        yield case("cross_entropy_backward", "masked", lambda d, t=dtype: backward(masked(d), t), dtype)
        yield case("cross_entropy_forward", "large", large, dtype)
        yield case("cross_entropy_backward", "large", lambda d, t=dtype: backward(large(d), t), dtype)
        yield case(
            "cross_entropy_forward",
            "ignore-index-in-range",
            lambda d: {**forward(d, 6, 5, []), "ignore_index": 0},
            dtype,
        )
    for dtype in ("f32", "bf16"):
        yield case("cross_entropy_forward", "rows1-vocab33000", of(forward, 1, 33000, []), dtype)
    yield case("cross_entropy_backward", "rows1-vocab8200", lambda d: backward(forward(d, 1, 8200, []), "f32"), "f32")
    for tokens, experts, k in ((1, 1, 1), (5, 4, 2), (33, 16, 4), (130, 7, 2)):
        label = f"tokens{tokens}-experts{experts}-k{k}"
        yield case("aux_loss_forward", label, of(balance, tokens, experts, k))
        yield case(
            "aux_loss_backward",
            label,
            lambda d, t=tokens, e=experts, k=k: {
                "counts": balance(d, t, e, k)["counts"],
                "grad_scale": np.array([0.37]),
                "tokens": t,
                "alpha": 0.01,
            },
        )
    for n, weighted, divisor in ((1, False, 7), (1, True, 3), (5, False, 640), (33, True, 100), (1030, False, 4096)):
        label = f"n{n}-{'weighted' if weighted else 'plain'}-divisor{divisor}"
        yield case("weighted_mean", label, of(mean, n, weighted, divisor))


def mean(d, n, weighted, divisor):
    weights = d.integers(n, high=40) if weighted else None
    return {"x": d.uniform(n, low=0.5, high=9), "weights": weights, "divisor": divisor}


def forward(d, rows, vocab, ignored):
    return {
        "logits": d.bell(rows, vocab, scale=3),
        "targets": targets(d, rows, vocab, ignored),
        "ignore_index": IGNORED,
    }


def masked(d):
    args = forward(d, 3, 18, [])
    args["logits"][:, 3:15:2] = -np.inf
    args["targets"][:] = (0, 17, 4)
    return args


def large(d):
    args = forward(d, 3, 9, [])
    args["logits"] = np.round(args["logits"]) * 1024.0
    return args


def backward(args, dtype):
    lse = reference.cross_entropy_forward(stored(args["logits"], dtype), args["targets"], args["ignore_index"])["lse"]
    return {**args, "lse": stored(lse), "grad_scale": np.array([0.125])}


def balance(d, tokens, experts, k):
    routed = softmax.softmax_topk(d.bell(tokens, experts), k, 0)
    counts = np.bincount(routed["indices"].ravel(), minlength=experts).astype(np.int32)
    return {"probs": stored(routed["probs"]), "counts": counts, "loss": np.array([2.5]), "alpha": 0.01}
