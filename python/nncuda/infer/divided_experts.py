"""Experts that ranks divide among them: rank 0 runs the engine, and every rank multiplies with the experts it holds.

Each call of the engine begins with a message of rank 0: how many tokens it has, 0 when there are no more calls. Then,
in one layer after the other, rows go to the ranks of their experts and come back. On rank 0 all of this is queued as
kernels are, so that a captured step has it, too; the others go call by call.
(Lepikhin et al. 2020, "GShard")
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from .. import kernels
from ..binding import exchange
from ..device import Comm, Tensor
from ..errors import Error, PeerError
from ..layers.expert_parallel import check_expert_parallel
from .weight_reader import Experts, WeightReader

if TYPE_CHECKING:
    from ..models.stored import StoredModel


class DividedExperts:
    """This rank's part: it holds as many neighbouring experts of each layer, `own`, as each of the others.

    Made by all ranks at once. `rows` is the most tokens of a call, which rank 0 tells the others. ValueError where the
    experts cannot be divided so, PeerError where the ranks have different models.
    """

    def __init__(self, comm: Comm, model: StoredModel, rows: int = 0):
        config, ctx = model.config, comm.ctx
        if not config.num_experts:
            raise ValueError(f"{model.path} has no experts, which ranks could divide among them")
        if config.biased_experts:
            raise ValueError(f"{model.path} has experts with biases; the engine does not divide these among ranks")
        if ctx.device_type != exchange.CPU:
            raise ValueError("the engine divides experts among ranks on CPUs alone")
        check_expert_parallel(comm.ranks, comm.ranks, config.num_experts)
        comm.agree("model", _sizes(model))
        rows = comm.sum(rows if comm.rank == 0 else 0)
        count = config.num_experts // comm.ranks
        self.own = range(comm.rank * count, (comm.rank + 1) * count)
        self._comm = comm
        self._hidden, self._ffn, self._k = config.hidden_size, config.ffn_size, config.experts_per_token
        self._layers = config.num_layers
        # Rows come from rank 0 alone, so nothing but its slot, the first, is ever touched, unless by a trace.
        self._slots = ctx.empty((comm.ranks * rows * self._k * self._hidden,))
        self._offsets = ctx.zeros((comm.ranks, count + 1), "i32")
        self._tokens = ctx.tensor(np.arange(rows + 1, dtype=np.int32))  # the message of every call
        self._ended = False

    # On rank 0

    @contextlib.contextmanager
    def call(self, tokens: int) -> Iterator[None]:
        """In here are the `products` of a call with so many tokens, of all layers. An exception ends the job, since the
        others are amid the call."""
        try:
            self._comm.broadcast(self._tokens.narrow(0, tokens, 1))
            yield
        except BaseException as error:
            self.abort(error)
            raise

    def products(self, experts: Experts, rows: Tensor, offsets: Tensor, inner: Tensor, y: Tensor) -> None:
        """What all experts make of their rows [rows, hidden], in the order of experts, into `y`."""
        slots = self._first_slots(rows.shape[0])
        self._comm.dispatch(rows, offsets, slots, self._offsets)
        expert_products(experts, slots[0], self._offsets[0], inner, slots[0])
        self._comm.collect(slots, self._offsets, y, offsets)

    def end(self) -> None:
        """Lets the others go. Twice is fine."""
        if not self._ended:
            self._ended = True
            self._comm.broadcast(self._tokens.narrow(0, 0, 1))

    def abort(self, error: BaseException) -> None:
        """Tells the others why this rank cannot go on; where it was told itself, they know."""
        if not isinstance(error, PeerError) and not self._comm.closed:
            with contextlib.suppress(Error):
                self._comm.abort(str(error) or type(error).__name__)
        self._ended = True

    # On the others

    def serve(self, layers: list[Experts]) -> None:
        """Multiplies with the own experts for rank 0, in all its calls."""
        ctx = self._comm.ctx
        tokens = ctx.zeros(1, "i32")
        inner = ctx.empty(((self._tokens.size - 1) * self._k, self._ffn))
        while rows := int(self._comm.broadcast(tokens).item()) * self._k:
            slots = self._first_slots(rows)
            for experts in layers:
                self._comm.dispatch(None, None, slots, self._offsets)
                expert_products(experts, slots[0], self._offsets[0], inner.narrow(0, 0, rows), slots[0])
                self._comm.collect(slots, self._offsets, None, None)

    def _first_slots(self, rows: int) -> Tensor:
        """The slots of a call with so many rows: [ranks, rows, hidden]."""
        ranks = self._comm.ranks
        return self._slots.narrow(0, 0, ranks * rows * self._hidden).view(ranks, rows, self._hidden)


def expert_products(experts: Experts, rows: Tensor, offsets: Tensor, inner: Tensor, y: Tensor) -> None:
    """y = W2 (silu(W1 x) * (W3 x)) of each expert's rows x: those from its offset on and before the next one's. `inner`
    [rows, ffn] is for what is between; `y` may be `rows`."""
    w1, w3, w2 = experts
    kernels.gemm_quant_swiglu(rows, w1.data, w3.data, offsets, format_gate=w1.format, format_up=w3.format, y=inner)
    kernels.gemm_quant(inner, w2.data, offsets, format=w2.format, y=y)


def serve_experts(path: str | os.PathLike[str] | StoredModel, comm: Comm, *, weights: str = "auto") -> None:
    """Holds this rank's experts of a model, and nothing else of it, and computes with them for rank 0, which runs the
    same model as `LanguageModel` with its `comm`; returns when that is closed.

    Every other rank of `comm` calls this. `weights` is that of `Engine`. Of the file only these experts are read.
    Raises what `LanguageModel.load` does, and PeerError when another rank fails, or rank 0 has nothing to do for longer
    than the communicator's timeout.
    """
    from ..models.stored import StoredModel

    if comm.rank == 0:
        raise ValueError("rank 0 runs the model (LanguageModel.load with this comm); the others serve its experts")
    model = path if isinstance(path, StoredModel) else StoredModel.open(path)
    divided = DividedExperts(comm, model)
    read = WeightReader(comm.ctx, model.of_experts(divided.own, others=False), weights)
    divided.serve([read.experts(layer) for layer in range(model.config.num_layers)])


def _sizes(model: StoredModel) -> str:
    """What the ranks' models have in common where rows of one meet the experts of another."""
    config, first = model.config, "model.layers.0.block_sparse_moe"
    formats = [model.tensors.parts(f"{first}.{name}.weight")[0].format for name in ("w1", "w3", "w2")]
    return (
        f"{config.num_layers} layers of {config.num_experts} experts, {config.ffn_size} x {config.hidden_size}, in "
        f"{', '.join(formats)}"
    )
