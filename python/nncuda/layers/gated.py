"""A feed-forward network whose weights stay as they are stored."""

from __future__ import annotations

from ..device import Tensor
from .dense import DenseKept, DenseLayer, gates
from .linear import FrozenLinear
from .ternary import NormedLinear


class GatedLayer(DenseLayer):
    """out = residual + W2 (silu(W1 x) * (W3 x)), or max(W1 x, 0)^2 in place of the SiLU, each product with a stored
    weight, which may have an adapter, the last perhaps with a norm before it. (Shazeer 2020, "GLU Variants", eq. 6; Ma
    et al. 2025, "BitNet b1.58 2B4T Technical Report", section 2)
    """

    def __init__(
        self, gate: FrozenLinear, up: FrozenLinear, down: FrozenLinear | NormedLinear, squared_relu: bool = False
    ):
        self.gate, self.up, self.down = gate, up, down
        self.recompute = False
        self._gate, self._gate_backward = gates(squared_relu)

    def _outputs(self, active: Tensor) -> Tensor:
        return self.down.forward(active)

    def _inside(self, x: Tensor) -> tuple[Tensor, ...]:
        gate, up = self.gate.forward(x), self.up.forward(x)
        return gate, up, self._gate(gate, up)

    def backward(self, dout: Tensor, x: Tensor, kept: DenseKept, aux_factor: Tensor, beta: float = 1.0) -> Tensor:
        """Gradient of x from dout, both [tokens, hidden]; the residual's gradient is dout itself."""
        (inside,) = kept.take()
        gate, up, active = inside or self._inside(x)
        del inside
        dactive = self.down.backward(dout, active, beta=beta)
        del active
        self._gate_backward(dactive, gate, up, dgate=gate, dup=up)
        del dactive
        dx = self.gate.backward(gate, x, beta=beta)
        return self.up.backward(up, x, dx, beta, add=True)
