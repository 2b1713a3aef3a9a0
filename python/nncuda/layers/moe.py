"""The mixture of experts: a router that picks k experts a token, and the experts' feed-forward networks."""

from __future__ import annotations

from dataclasses import dataclass

from .. import kernels
from ..tensor import Tensor
from .linear import Linear


@dataclass
class Routing:
    """Where each token goes: what router and experts hand to one another."""

    weights: Tensor  # f32 [tokens, k]
    indices: Tensor  # i32 [tokens, k]
    probs: Tensor  # f32 [tokens, experts]
    counts: Tensor  # i32 [experts], slots that chose each expert, dropped ones included
    offsets: Tensor  # i32 [experts + 1]
    slot_row: Tensor  # i32 [tokens, k]
    row_slot: Tensor  # i32 [tokens * k]


class Router:
    """Softmax over the experts, the k likeliest, and the plan of which row each slot takes.

    The load-balancing loss is alpha * sum over experts of f * P. (Fedus, Zoph, Shazeer 2021, eq. 4-6)
    """

    def __init__(self, gate: Linear, k: int, norm: bool, alpha: float):
        self.gate = gate
        self.k = k
        self.norm = norm
        self.alpha = alpha
        self._kept: Routing | None = None

    def forward(self, x: Tensor, capacity: int = 0, aux: Tensor | None = None, keep: bool = False) -> Routing:
        """Routes x [tokens, hidden]; adds the load-balancing loss to `aux` f32 [1] where given.

        The logits are f32 in every precision: rounded to 16 bits, experts would tie that are not alike.
        """
        logits = self.gate.forward(x, dtype="f32")
        weights, indices, probs = kernels.softmax_topk(logits, k=self.k, norm=self.norm)
        plan = kernels.moe_plan(indices, experts=self.gate.weight.shape[0], capacity=capacity)
        routing = Routing(weights, indices, probs, *plan)
        if aux is not None:
            kernels.aux_loss_forward(probs, routing.counts, aux, alpha=self.alpha)
        if keep:
            self._kept = routing
        return routing

    def backward(self, dweights: Tensor, x: Tensor, dx: Tensor, aux_factor: Tensor, beta: float = 1.0) -> None:
        """Adds to dx what reaches x through the weights and, times aux_factor f32 [1], through the balancing loss."""
        routing = self._kept
        self._kept = None
        tokens = routing.probs.shape[0]
        dprobs = kernels.aux_loss_backward(routing.counts, aux_factor, tokens=tokens, alpha=self.alpha)
        dlogits = kernels.softmax_topk_backward(
            dweights, routing.weights, routing.indices, routing.probs, dprobs, norm=self.norm, dtype=x.dtype
        )
        self.gate.backward(dlogits, x, dx, accumulate=True, beta=beta)


class MoELayer:
    """out = residual + sum over a token's experts of weight * W2 (silu(W1 x) * (W3 x)).

    Weights: w13 [experts, 2*ffn, hidden] with the rows of W1 before those of W3, w2 [experts, hidden, ffn].
    Tokens are sorted by expert, so that each product runs over all experts at once. (Gale et al. 2022)

    Kept for backward: the routing, the experts' outputs, and, unless `recompute` has `backward` find them again by the
    same calls, what the experts' products take in and give between.
    """

    def __init__(
        self,
        router: Router,
        w13: Tensor,
        w2: Tensor,
        w13_grad: Tensor | None = None,
        w2_grad: Tensor | None = None,
    ):
        self.router = router
        self.w13 = w13
        self.w2 = w2
        self.w13_grad = w13_grad
        self.w2_grad = w2_grad
        self.counts: Tensor | None = None  # of the last forward, for whoever watches the balance
        self.choices: Tensor | None = None  # likewise the experts of each token, i32 [tokens, k], likeliest first
        self.recompute = False
        self._kept: tuple[Routing, Tensor] | None = None
        self._kept_inside: tuple[Tensor, Tensor, Tensor] | None = None

    def forward(
        self, x: Tensor, residual: Tensor, capacity: int = 0, aux: Tensor | None = None, keep: bool = False
    ) -> Tensor:
        """x and residual [tokens, hidden] to the same shape."""
        routing = self.router.forward(x, capacity, aux, keep)
        self.counts, self.choices = routing.counts, routing.indices
        y = self._experts(x, routing, keep, keep and not self.recompute)
        return kernels.moe_combine(y, routing.weights, routing.slot_row, residual)

    def forward_again(self, x: Tensor, capacity: int) -> None:
        """Keeps what `forward` of x did not, right before `backward`; the balancing loss has been counted already."""
        self._experts(x, self.router.forward(x, capacity, keep=True), keep=True, keep_inside=True)

    def _experts(self, x: Tensor, routing: Routing, keep: bool, keep_inside: bool) -> Tensor:
        """The experts' outputs in row order."""
        rows, gate_up, active = self._inside(x, routing)
        y = kernels.grouped_gemm(active, self.w2, routing.offsets, trans_b=True)
        if keep:
            self._kept = routing, y
        if keep_inside:
            self._kept_inside = rows, gate_up, active
        return y

    def _inside(self, x: Tensor, routing: Routing) -> tuple[Tensor, Tensor, Tensor]:
        """The tokens in row order, and what their experts make of them before W2."""
        rows = kernels.moe_gather(x, routing.row_slot)
        gate_up = kernels.grouped_gemm(rows, self.w13, routing.offsets, trans_b=True)
        return rows, gate_up, kernels.swiglu(*_halves(gate_up))

    def backward(self, dout: Tensor, x: Tensor, aux_factor: Tensor, beta: float = 1.0) -> Tensor:
        """Gradient of x from dout, both [tokens, hidden]; the residual's gradient is dout itself."""
        routing, y = self._kept
        rows, gate_up, active = self._kept_inside or self._inside(x, routing)
        self._kept = self._kept_inside = None
        dy, dweights = kernels.moe_combine_backward(dout, y, routing.weights, routing.slot_row, routing.row_slot, dy=y)
        gate, up = _halves(gate_up)
        kernels.grouped_gemm_wgrad(dy, active, routing.offsets, self.w2_grad, beta=beta)
        del active, y
        dactive = kernels.grouped_gemm(dy, self.w2, routing.offsets)
        del dy
        kernels.swiglu_backward(dactive, gate, up, dgate=gate, dup=up)
        del dactive
        kernels.grouped_gemm_wgrad(gate_up, rows, routing.offsets, self.w13_grad, beta=beta)
        drows = kernels.grouped_gemm(gate_up, self.w13, routing.offsets, c=rows)
        dx = kernels.moe_gather_backward(drows, routing.slot_row)
        self.router.backward(dweights, x, dx, aux_factor, beta)
        return dx


def _halves(gate_up: Tensor) -> tuple[Tensor, Tensor]:
    """The gate and up halves of a fused product, as views."""
    ffn = gate_up.shape[1] // 2
    return gate_up.narrow(1, 0, ffn), gate_up.narrow(1, ffn, ffn)
