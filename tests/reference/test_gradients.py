"""Every gradient of the reference against central differences in float64.

The loss is a fixed random weighting of the outputs. Central differences with steps h and h/2 are combined by
Richardson's rule, which leaves an error of order h^4, so that both that and rounding stay well under the bar.
"""

from collections.abc import Callable

import numpy as np
import pytest

from nncuda.reference import activation, attention, elementwise, gemm, layers, loss, moe, rmsnorm, rope, softmax
from nncuda.reference import embedding as tables
from nncuda.reference import model as transformer

BAR = 1e-6
STEP = 1e-3


def differences(f: Callable[[], float], x: np.ndarray, step: float = STEP) -> np.ndarray:
    """The gradient of f with respect to ``x``, which f reads in place."""
    gradient = np.empty_like(x)
    for i in np.ndindex(x.shape):
        kept = x[i]

        def slope(h: float, i: tuple[int, ...] = i, kept: float = kept) -> float:
            x[i] = kept + h
            above = f()
            x[i] = kept - h
            below = f()
            x[i] = kept
            return (above - below) / (2 * h)

        gradient[i] = (4 * slope(step / 2) - slope(step)) / 3
    return gradient


def check(f: Callable[[], float], inputs: dict[str, np.ndarray], gradients: dict[str, np.ndarray]) -> None:
    """Each gradient within BAR of the differences, relative to its largest element."""
    for name, x in inputs.items():
        expected = differences(f, x)
        error = np.max(np.abs(gradients[name] - expected)) / np.max(np.abs(expected))
        assert error < BAR, f"{name}: relative error {error:.2e}"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260101)


def test_silu(rng):
    x, dy = rng.normal(size=(2, 9))
    check(lambda: np.sum(dy * elementwise.silu(x)["y"]), {"x": x}, {"x": elementwise.silu_backward(dy, x)["dx"]})


def test_swiglu(rng):
    gate, up, dy = rng.normal(size=(3, 3, 5))
    d = elementwise.swiglu_backward(dy, gate, up)
    check(
        lambda: np.sum(dy * elementwise.swiglu(gate, up)["y"]),
        {"gate": gate, "up": up},
        {"gate": d["dgate"], "up": d["dup"]},
    )


def test_relu2_gate(rng):
    gate, up, dy = rng.normal(size=(3, 3, 5))
    d = activation.relu2_gate_backward(dy, gate, up)
    check(
        lambda: np.sum(dy * elementwise.relu2_gate(gate, up)["y"]),
        {"gate": gate, "up": up},
        {"gate": d["dgate"], "up": d["dup"]},
    )


def test_softmax(rng):
    x, dy = rng.normal(size=(2, 4, 7))
    y = softmax.softmax(x)["y"]
    check(lambda: np.sum(dy * softmax.softmax(x)["y"]), {"x": x}, {"x": softmax.softmax_backward(dy, y)["dx"]})


@pytest.mark.parametrize("norm", [0, 1])
@pytest.mark.parametrize("k", [1, 2, 6])
@pytest.mark.parametrize("with_dprobs", [False, True])
def test_softmax_topk(rng, norm, k, with_dprobs):
    x, dprobs = rng.normal(size=(2, 5, 6))
    dweights = rng.normal(size=(5, k))
    out = softmax.softmax_topk(x, k, norm)
    falling = -np.sort(-x, axis=-1)
    assert k == 6 or np.min(falling[:, :k] - falling[:, 1 : k + 1]) > 2 * STEP, "the choice of experts must not change"

    def f():
        o = softmax.softmax_topk(x, k, norm)
        return np.sum(dweights * o["weights"]) + (np.sum(dprobs * o["probs"]) if with_dprobs else 0)

    dx = softmax.softmax_topk_backward(
        dweights, out["weights"], out["indices"], out["probs"], norm, dprobs if with_dprobs else None
    )["dx"]
    if norm and k == 1 and not with_dprobs:  # the one weight is 1 whatever the logits
        assert np.max(np.abs(dx)) < 1e-15
        return
    check(f, {"x": x}, {"x": dx})


@pytest.mark.parametrize("with_residual", [False, True])
def test_rmsnorm(rng, with_residual):
    x, dy, dsum = rng.normal(size=(3, 4, 6))
    weight, dweight = rng.normal(size=(2, 6))
    eps = 1e-3
    rstd = rmsnorm.rmsnorm(x, weight, eps)["rstd"]
    d = rmsnorm.rmsnorm_backward(dy, x, weight, rstd, dweight, dsum if with_residual else None)

    def f():
        out = rmsnorm.rmsnorm_residual(x, np.zeros_like(x), weight, eps)
        return np.sum(dy * out["y"]) + (np.sum(dsum * out["sum"]) if with_residual else 0)

    check(f, {"x": x, "weight": weight}, {"x": d["dx"], "weight": d["dweight"] - dweight})


def test_gemm(rng):
    """The gradients of a product are products: dA = dC B^T and dB = A^T dC, in any transposition."""
    a, b, dc = rng.normal(size=(3, 4)), rng.normal(size=(5, 4)), rng.normal(size=(3, 5))
    check(
        lambda: np.sum(dc * gemm.gemm(a, b, 0, 1)["c"]),
        {"a": a, "b": b},
        {"a": gemm.gemm(dc, b, 0, 0)["c"], "b": gemm.gemm(dc, a, 1, 0)["c"]},
    )


def test_grouped_gemm(rng):
    offsets = np.array([0, 2, 2, 6, 7], np.int32)
    a, b, dc = rng.normal(size=(8, 3)), rng.normal(size=(4, 5, 3)), rng.normal(size=(8, 5))
    dc[7] = 0  # a row of no group
    da = gemm.grouped_gemm(dc, b, offsets, np.zeros((8, 3)), 0, 0)["c"]
    db = gemm.grouped_gemm_wgrad(dc, a, offsets, np.zeros((4, 5, 3)), 0)["c"]
    check(
        lambda: np.sum(dc * gemm.grouped_gemm(a, b, offsets, np.zeros((8, 5)), 0, 1)["c"]),
        {"a": a, "b": b},
        {"a": da, "b": db},
    )


def test_embedding(rng):
    table, ids, dy = rng.normal(size=(6, 3)), np.array([0, 5, 5, 2, 5]), rng.normal(size=(5, 3))
    gradient = tables.scatter_add(dy, ids, np.zeros((6, 3)))["table"]
    check(lambda: np.sum(dy * tables.embedding(table, ids)["y"]), {"table": table}, {"table": gradient})


@pytest.mark.parametrize("layout", [rope.HALF, rope.INTERLEAVED])
def test_rope(rng, layout):
    x, dy = rng.normal(size=(2, 4, 2, 6))
    t = rope.rope_freqs(9, 6, 0, 10000.0, 2.0)
    positions = np.array([0, 8, 3, 1])
    dx = rope.rope_backward(dy, t["cosine"], t["sine"], positions, layout)["dx"]
    check(
        lambda: np.sum(dy * rope.rope_forward(x, t["cosine"], t["sine"], positions, layout)["y"]), {"x": x}, {"x": dx}
    )


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize(("q_len", "kv_len"), [(3, 3), (2, 5), (5, 3)])
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (4, 2), (3, 1)])
def test_flash_attention(rng, causal, q_len, kv_len, heads, kv_heads):
    batch, head_dim, scale = 2, 4, 0.4
    q, dout = rng.normal(size=(2, batch * q_len, heads, head_dim))
    k, v = rng.normal(size=(2, batch * kv_len, kv_heads, head_dim))
    out = attention.flash_attention(q, k, v, batch, scale, causal)
    d = attention.flash_attention_backward(dout, q, k, v, out["out"], out["lse"], batch, scale, causal)
    check(
        lambda: np.sum(dout * attention.flash_attention(q, k, v, batch, scale, causal)["out"]),
        {"q": q, "k": k, "v": v},
        {"q": d["dq"], "k": d["dk"], "v": d["dv"]},
    )


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_flash_attention_of_documents(rng, kv_heads):
    batch, heads, head_dim, scale = 2, 2, 4, 0.4
    starts = np.array([[0, 0, 2, 3, 3], [0, 1, 1, 1, 1]], np.int32)
    q, dout = rng.normal(size=(2, starts.size, heads, head_dim))
    k, v = rng.normal(size=(2, starts.size, kv_heads, head_dim))
    out = attention.flash_attention(q, k, v, batch, scale, 1, starts)
    d = attention.flash_attention_backward(dout, q, k, v, out["out"], out["lse"], batch, scale, 1, starts)
    check(
        lambda: np.sum(dout * attention.flash_attention(q, k, v, batch, scale, 1, starts)["out"]),
        {"q": q, "k": k, "v": v},
        {"q": d["dq"], "k": d["dk"], "v": d["dv"]},
    )


@pytest.mark.parametrize("capacity", [0, 2])
def test_moe_gather(rng, capacity):
    tokens, k, experts = 5, 2, 3
    plan = moe.moe_plan(rng.integers(0, experts, (tokens, k)), experts, capacity)
    x, dy = rng.normal(size=(tokens, 4)), rng.normal(size=(tokens * k, 4))
    dx = moe.moe_gather_backward(dy, plan["slot_row"])["dx"]
    check(lambda: np.sum(dy * moe.moe_gather(x, plan["row_slot"], k)["y"]), {"x": x}, {"x": dx})


@pytest.mark.parametrize("norm", [0, 1])
def test_moe_route(rng, norm):
    """Through the weights and, for counts that are held fixed, through the loss."""
    logits, dweights, x = rng.normal(size=(6, 4)), rng.normal(size=(6, 2)), rng.normal(size=(6, 1))
    scale, alpha = np.array([0.7]), 0.3
    out = moe.moe_route(logits, x, 2, norm, 0, alpha, np.array([0.0]))
    kept = [out[name] for name in ("weights", "indices", "probs", "counts")]

    def value():
        again = moe.moe_route(logits, x, 2, norm, 0, alpha, np.array([0.0]))
        return np.sum(dweights * again["weights"]) + scale[0] * again["loss"][0]

    d = moe.moe_route_backward(dweights, *kept, scale, norm, alpha)
    check(value, {"logits": logits}, {"logits": d["dlogits"]})


@pytest.mark.parametrize("capacity", [0, 2])
def test_moe_combine(rng, capacity):
    tokens, k, experts = 5, 2, 3
    plan = moe.moe_plan(rng.integers(0, experts, (tokens, k)), experts, capacity)
    y, weights, dout = rng.normal(size=(tokens * k, 4)), rng.normal(size=(tokens, k)), rng.normal(size=(tokens, 4))
    d = moe.moe_combine_backward(dout, y, weights, plan["slot_row"], plan["row_slot"])
    check(
        lambda: np.sum(dout * moe.moe_combine(y, weights, plan["slot_row"])["out"]),
        {"y": y, "weights": weights},
        {"y": d["dy"], "weights": d["dweights"]},
    )


@pytest.mark.parametrize("norm", [0, 1])
def test_moe_output(rng, norm):
    """Through the experts' outputs, the weights and, for counts that are held fixed, the loss."""
    logits, y, dout = rng.normal(size=(5, 4)), rng.normal(size=(10, 3)), rng.normal(size=(5, 3))
    scale, alpha = np.array([0.7]), 0.3

    def routed():
        return moe.moe_route(logits, np.zeros((5, 1)), 2, norm, 0, alpha, np.array([0.0]))

    def value():
        out = routed()
        combined = moe.moe_combine(y, out["weights"], out["slot_row"])["out"]
        return np.sum(dout * combined) + scale[0] * out["loss"][0]

    names = ("weights", "indices", "probs", "counts", "slot_row", "row_slot")
    d = moe.moe_output_backward(dout, y, *(routed()[name] for name in names), scale, norm, alpha)
    check(value, {"y": y, "logits": logits}, {"y": d["dy"], "logits": d["dlogits"]})


@pytest.mark.parametrize("capacity", [0, 2])
def test_moe_input(rng, capacity):
    tokens, k, experts = 5, 2, 3
    plan = moe.moe_plan(rng.integers(0, experts, (tokens, k)), experts, capacity)
    x, gate = rng.normal(size=(tokens, 4)), rng.normal(size=(experts, 4))
    dlogits, drows = rng.normal(size=(tokens, experts)), rng.normal(size=(tokens * k, 4))
    old = rng.normal(size=gate.shape)
    d = moe.moe_input_backward(dlogits, x, gate, drows, plan["slot_row"], old, 0.5)

    def value():
        return np.sum(drows * moe.moe_gather(x, plan["row_slot"], k)["y"]) + np.sum(dlogits * (x @ gate.T))

    check(value, {"x": x, "gate": gate}, {"x": d["dx"], "gate": d["dgate"] - 0.5 * old})


def test_grouped_gemm_swiglu(rng):
    """Of what leads to y, and through the matrix that y is multiplied by: their gradients stand for gate and up."""
    offsets = np.array([0, 2, 2, 5])
    a, b, w2 = rng.normal(size=(5, 4)), rng.normal(size=(3, 6, 4)), rng.normal(size=(3, 2, 3))
    dout = rng.normal(size=(5, 2))
    gate_up = gemm.grouped_gemm_swiglu(a, b, offsets)["gate_up"]

    def value():
        y = elementwise.swiglu(*np.split(gate_up, 2, axis=1))["y"]
        return np.sum(dout * gemm.grouped_gemm(y, w2, offsets, np.zeros((5, 2)), 0.0, 1)["c"])

    d = gemm.grouped_gemm_swiglu_backward(dout, w2, offsets, gate_up)["gate_up"]
    check(value, {"gate_up": gate_up}, {"gate_up": d})


def test_cross_entropy(rng):
    logits, targets, scale = rng.normal(size=(5, 7)), np.array([3, -100, 0, 6, 3]), np.array([0.7])
    lse = loss.cross_entropy_forward(logits, targets, -100)["lse"]
    check(
        lambda: scale[0] * loss.cross_entropy_forward(logits, targets, -100)["loss_sum"][0],
        {"logits": logits},
        {"logits": loss.cross_entropy_backward(logits, targets, lse, scale, -100)["dlogits"]},
    )


def test_aux_loss(rng):
    probs, counts, scale, alpha = rng.random(size=(6, 4)), np.array([5, 0, 4, 3]), np.array([0.7]), 0.3
    check(
        lambda: scale[0] * loss.aux_loss_forward(probs, counts, np.zeros(1), alpha)["loss"][0],
        {"probs": probs},
        {"probs": loss.aux_loss_backward(counts, scale, 6, alpha)["dprobs"]},
    )


TINY = transformer.Config(
    vocab_size=11,
    hidden_size=6,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=1,
    head_dim=4,
    num_local_experts=3,
    num_experts_per_tok=2,
    intermediate_size=3,
    router_aux_loss_coef=0.3,
)


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm_topk_prob": False, "num_key_value_heads": 3}, {"capacity_factor": 0.75, "rope_ntk_alpha": 2.0}],
    ids=["mqa", "mha-raw-weights", "capacity-ntk"],
)
def test_model(changes):
    """The whole loss, auxiliary part included, with respect to every parameter; two micro-batches, ignored targets."""
    config = transformer.Config(**{**TINY.__dict__, **changes})
    params = transformer.initial(config, seed=7, std=0.5)
    rng = np.random.default_rng(9)
    for name, value in params.items():
        if value.ndim == 1:
            params[name] = rng.uniform(0.5, 1.5, value.shape)
    batches = []
    for batch in (2, 1):
        ids, targets = rng.integers(0, config.vocab_size, (2, batch, 4))
        targets[0, 1] = -100
        batches.append((ids, targets))

    _, gradients = transformer.loss_and_gradients(params, config, batches)

    def f():
        total = 0.0
        count = sum(np.sum(t != -100) for _, t in batches)
        for ids, targets in batches:
            logits, saved = transformer.forward(params, config, ids)
            total += loss.cross_entropy_forward(logits, targets.ravel(), -100)["loss_sum"][0] / count
            total += transformer.auxiliary_loss(saved, config) * ids.size / sum(ids.size for ids, _ in batches)
        return total

    check(f, params, gradients)


class Shifted(layers.Roundings):
    """What roundings add stays as it was at first, so that they are the identity and a constant, which is how gradients
    take them."""

    def __init__(self):
        self.kept, self.at = [], 0

    def again(self):
        self.at = 0
        return self

    def rows(self, x):
        return self.shifted(x, super().rows)

    def weight(self, name, weight):
        return self.shifted(weight, lambda value: super(Shifted, self).weight(name, value))

    def shifted(self, x, rounded):
        if self.at == len(self.kept):
            self.kept.append(rounded(x) - x)
        self.at += 1
        return x + self.kept[self.at - 1]


@pytest.mark.parametrize("squared_relu", [False, True])
def test_ternary_model(squared_relu):
    """Each rounding the identity and a constant, whose differences are the gradients of straight-through estimation."""
    changes = {"num_local_experts": 0, "ternary": True, "squared_relu": squared_relu, "tie_word_embeddings": True}
    config = transformer.Config(**{**TINY.__dict__, **changes})
    rng, params = np.random.default_rng(3), transformer.initial(config, seed=7, std=0.5)
    for name, value in params.items():
        if value.ndim == 1:
            params[name] = rng.uniform(0.5, 1.5, value.shape)
    ids, targets = rng.integers(0, config.vocab_size, (2, 2, 4))
    shifted = Shifted()

    def f():
        logits, _ = transformer.forward(params, config, ids, shifted.again())
        return loss.cross_entropy_forward(logits, targets.ravel(), -100)["loss_sum"][0] / targets.size

    f()
    _, gradients = transformer.loss_and_gradients(params, config, [(ids, targets)], shifted.again())
    check(f, params, gradients)
