"""A feed-forward network whose weights stay as they are stored."""

from __future__ import annotations

from .. import kernels
from ..device import Tensor
from .kept import Kept
from .linear import FrozenLinear

#: Gate, up, and what the last product takes in; None when `backward` is to find them again.
GatedKept = Kept[tuple[tuple[Tensor, Tensor, Tensor] | None]]


class GatedLayer:
    """out = residual + W2 (silu(W1 x) * (W3 x)), each product with a stored weight, which may have an adapter.
    (Shazeer 2020, "GLU Variants", eq. 6)

    With `recompute`, `backward` finds again, by the same calls, what the products give between.
    """

    def __init__(self, gate: FrozenLinear, up: FrozenLinear, down: FrozenLinear):
        self.gate, self.up, self.down = gate, up, down
        self.recompute = False

    def forward(self, x: Tensor, residual: Tensor, capacity: int = 0, aux: Tensor | None = None) -> tuple[Tensor, None]:
        """x and residual [tokens, hidden] to the same shape. The rest is for layers of experts."""
        return self._run(x, residual)[0], None

    def forward_keeping(
        self, x: Tensor, residual: Tensor, capacity: int = 0, aux: Tensor | None = None
    ) -> tuple[Tensor, None, GatedKept]:
        """As `forward`, and what `backward` needs."""
        out, inside = self._run(x, residual)
        return out, None, Kept((None if self.recompute else inside,))

    def forward_again(self, x: Tensor, capacity: int) -> GatedKept:
        """All that `backward` needs of x, whose `forward` kept nothing."""
        return Kept((self._inside(x),))

    def _run(self, x: Tensor, residual: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        inside = self._inside(x)
        y = self.down.forward(inside[2])
        return kernels.add(y, residual, y=y), inside

    def _inside(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gate, up = self.gate.forward(x), self.up.forward(x)
        return gate, up, kernels.swiglu(gate, up)

    def backward(self, dout: Tensor, x: Tensor, kept: GatedKept, aux_factor: Tensor, beta: float = 1.0) -> Tensor:
        """Gradient of x from dout, both [tokens, hidden]; the residual's gradient is dout itself."""
        (inside,) = kept.take()
        gate, up, active = inside or self._inside(x)
        del inside
        dactive = self.down.backward(dout, active, beta=beta)
        del active
        kernels.swiglu_backward(dactive, gate, up, dgate=gate, dup=up)
        del dactive
        dx = self.gate.backward(gate, x, beta=beta)
        return self.up.backward(up, x, dx, beta, add=True)
