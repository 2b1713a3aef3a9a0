"""The load-balancing loss on cases worked out by hand: loss = alpha * sum over experts of f * P."""

from __future__ import annotations

import numpy as np
import pytest

import nncuda
from nncuda import kernels

# probabilities of each token over the experts, slots routed to each expert, sum over experts of f * P
CASES = {
    # Two tokens, top-1, each to its own expert: f = (1/2, 1/2), P = ((.9+.2)/2, (.1+.8)/2) = (.55, .45): sum .5.
    "balanced": ([[0.9, 0.1], [0.2, 0.8]], [1, 1], 0.5),
    # Both to expert 0: f = (1, 0), P = ((.9+.7)/2, ...) = (.8, .2): sum .8.
    "all to one": ([[0.9, 0.1], [0.7, 0.3]], [2, 0], 0.8),
    # One token, top-2 of four: f = (1, 0, 1, 0), P = (.4, .1, .3, .2): sum .7. Shares sum to k = 2, not to 1.
    "two of four": ([[0.4, 0.1, 0.3, 0.2]], [1, 0, 1, 0], 0.7),
    # Uniform probabilities: sum of f / experts = k / experts, whatever the routing: 2/4.
    "uniform": ([[0.25] * 4] * 3, [3, 1, 2, 0], 0.5),
}


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient(name: str) -> None:
    probs, counts, expected = CASES[name]
    ctx, alpha = nncuda.Context("cpu"), 0.5
    p, c = np.array(probs, np.float32), np.array(counts, np.int32)
    loss = ctx.tensor(np.array([1.0], np.float32))  # it is added to what is there
    kernels.aux_loss_forward(ctx.tensor(p), ctx.tensor(c), loss, alpha=alpha)
    assert loss.item() == pytest.approx(1.0 + alpha * expected, rel=1e-6)
    scale = ctx.tensor(np.array([3.0], np.float32))
    gradient = kernels.aux_loss_backward(ctx.tensor(c), scale, tokens=len(p), alpha=alpha).numpy()
    np.testing.assert_allclose(gradient, np.tile(3.0 * alpha * c / len(p) ** 2, (len(p), 1)), rtol=1e-6)
