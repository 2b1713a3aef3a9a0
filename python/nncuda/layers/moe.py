"""The mixture of experts: a router that picks k experts a token, and the experts' feed-forward networks."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import kernels
from ..device import Tensor
from .expert_products import ExpertProducts
from .kept import Kept
from .linear import Linear


class Routing(NamedTuple):
    """Where each token goes: what router and experts hand to one another."""

    weights: Tensor  # f32 [tokens, k]
    indices: Tensor  # i32 [tokens, k]
    probs: Tensor  # f32 [tokens, experts]
    counts: Tensor  # i32 [experts], slots that chose each expert, dropped ones included
    offsets: Tensor  # i32 [experts + 1]
    slot_row: Tensor  # i32 [tokens, k]
    row_slot: Tensor  # i32 [tokens * k]


class Router:
    """Softmax over the experts, the k most likely, and the plan of which row each slot takes.

    The load-balancing loss is alpha * sum over experts of f * P. (Fedus, Zoph, Shazeer 2021, eq. 4-6)
    """

    def __init__(self, gate: Linear, k: int, norm: bool, alpha: float):
        self.gate = gate
        self.k = k
        self.norm = norm
        self.alpha = alpha

    def forward(self, x: Tensor, capacity: int = 0, aux: Tensor | None = None) -> tuple[Routing, Tensor]:
        """Routes x [tokens, hidden], and gives x in the order of rows, too; adds the load-balancing loss to `aux` f32
        [1] where given. An expert takes at most `capacity` slots; 0 for no limit.

        The logits are f32 in every precision: rounded to 16 bits, experts would tie that are not alike.
        """
        logits = self.gate.forward(x, dtype="f32")
        *routing, rows = kernels.moe_route(
            logits, x, aux, k=self.k, norm=self.norm, capacity=capacity, alpha=self.alpha
        )
        return Routing(*routing), rows

    def backward(self, dout: Tensor, y: Tensor, routing: Routing, aux_factor: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of the experts' outputs y, in their place, and of the logits, from that of the layer's output. The
        latter is through the weights and, times aux_factor f32 [1], through the balancing loss.
        """
        weights, indices, probs, counts, _, slot_row, row_slot = routing
        dy, _, dlogits = kernels.moe_output_backward(
            dout, y, weights, indices, probs, counts, slot_row, row_slot, aux_factor, norm=self.norm, alpha=self.alpha,
            dy=y,
        )  # fmt: skip
        return dy, dlogits

    def backward_input(self, dlogits: Tensor, x: Tensor, drows: Tensor, routing: Routing, beta: float) -> Tensor:
        """Gradient of x from those of the logits and of the rows that x was brought to."""
        gate, grad = self.gate.weight, self.gate.grad
        return kernels.moe_input_backward(dlogits, x, gate, drows, routing.slot_row, grad, beta=beta)[0]


class ExpertUse(NamedTuple):
    """How a layer used its experts, for whoever watches the balance."""

    counts: Tensor  # i32 [experts], slots that chose each expert, dropped ones included
    choices: Tensor  # i32 [tokens, k], the experts of each token, most likely first


class Inside(NamedTuple):
    """What the experts' products take in and give between."""

    rows: Tensor  # the tokens in row order
    gate_up: Tensor
    active: Tensor  # what W2 takes in


#: The routing, the experts' outputs, and what stands between, of a kind of the layer's own, unless `backward` is to
#: find that again.
MoEKept = Kept[tuple[Routing, Tensor, Any]]


class MoELayer:
    """out = residual + sum over a token's experts of weight * W2 (silu(W1 x) * (W3 x)).

    Weights: w13 [experts, 2*ffn, hidden] with the rows of W1 before those of W3, w2 [experts, hidden, ffn].
    Tokens are sorted by expert, so that each product runs over all experts at once. (Gale et al. 2022)

    With `recompute`, `backward` finds again, by the same calls, what the experts' products take in and give between.
    """

    def __init__(
        self,
        router: Router,
        w13: Tensor,
        w2: Tensor,
        w13_grad: Tensor | None = None,
        w2_grad: Tensor | None = None,
        products: ExpertProducts | None = None,
    ):
        self.router = router
        self.w13 = w13
        self.w2 = w2
        self.w13_grad = w13_grad
        self.w2_grad = w2_grad
        self.products = ExpertProducts() if products is None else products
        self.recompute = False

    def forward(
        self, x: Tensor, residual: Tensor, capacity: int = 0, aux: Tensor | None = None
    ) -> tuple[Tensor, ExpertUse]:
        """x and residual [tokens, hidden] to the same shape, and how the experts were used.

        An expert takes at most `capacity` slots, 0 for no limit; the balancing loss is added to `aux` where given.
        """
        routing, y, _ = self._run(x, capacity, aux, False)
        return _combine(routing, y, residual)

    def forward_keeping(
        self, x: Tensor, residual: Tensor, capacity: int = 0, aux: Tensor | None = None
    ) -> tuple[Tensor, ExpertUse, MoEKept]:
        """As `forward`, and what `backward` needs."""
        routing, y, inside = self._run(x, capacity, aux, not self.recompute)
        return *_combine(routing, y, residual), Kept((routing, y, inside))

    def forward_again(self, x: Tensor, capacity: int) -> MoEKept:
        """All that `backward` needs of x, whose `forward` kept nothing but counted the balancing loss."""
        return Kept(self._run(x, capacity, None, True))

    def _run(self, x: Tensor, capacity: int, aux: Tensor | None, keep_inside: bool) -> tuple[Routing, Tensor, Any]:
        routing, rows = self.router.forward(x, capacity, aux)
        inside = self._inside(rows, routing)
        y = self.products.outputs(inside.active, self.w2, routing.offsets)
        return routing, y, inside if keep_inside else None

    def _inside(self, rows: Tensor, routing: Routing) -> Inside:
        return Inside(rows, *self.products.gated(rows, self.w13, routing.offsets))

    def backward(self, dout: Tensor, x: Tensor, kept: MoEKept, aux_factor: Tensor, beta: float = 1.0) -> Tensor:
        """Gradient of x from dout, both [tokens, hidden]; the residual's gradient is dout itself."""
        routing, y, inside = kept.take()
        rows, gate_up, active = inside or self._inside(kernels.moe_gather(x, routing.row_slot), routing)
        del inside
        dy, dlogits = self.router.backward(dout, y, routing, aux_factor)
        self.products.weight_gradient(dy, active, routing.offsets, self.w2_grad, beta)
        del active, y
        self.products.inner_gradient(dy, self.w2, routing.offsets, gate_up)
        del dy
        self.products.weight_gradient(gate_up, rows, routing.offsets, self.w13_grad, beta)
        drows = self.products.rows_gradient(gate_up, self.w13, routing.offsets, rows)
        return self.router.backward_input(dlogits, x, drows, routing, beta)


def _combine(routing: Routing, y: Tensor, residual: Tensor) -> tuple[Tensor, ExpertUse]:
    out = kernels.moe_combine(y, routing.weights, routing.slot_row, residual)
    return out, ExpertUse(routing.counts, routing.indices)
