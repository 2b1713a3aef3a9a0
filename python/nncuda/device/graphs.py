"""Graphs: kernel calls that were recorded once and run again and again, and the memory that belongs to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import errors
from .streams import Handle

if TYPE_CHECKING:
    from .comm import Comm
    from .context import Context
    from .layout import Buffer
    from .tensor import Tensor


class Capture:
    """Memory that belongs to a graph: what the captured calls used stays, and what they allocated is reused only by
    later calls of the same capture, whose order every replay repeats."""

    def __init__(self) -> None:
        self.free: dict[int, list[Any]] = {}  # by size: allocated while capturing, not used by a tensor now
        self.kept: dict[int, Buffer] = {}  # buffers of the tensors that captured calls name
        self.comms: set[Comm] = set()  # that they use
        self.open = True

    def keep(self, *tensors: Tensor | None) -> None:
        for tensor in tensors:
            # Memory of this capture needs no keeping: its release gives it to `free`, not to the pool.
            if tensor is not None and tensor._buffer.captured is not self:
                self.kept[id(tensor._buffer)] = tensor._buffer


class Graph(Handle):
    """Recorded kernel calls. `launch` runs them again with the same memory and scalars; what changes from launch to
    launch (step, rate, lengths, seeds) lies in tensors. The tensors used stay allocated while the graph lives."""

    _destroy = "nncuda_graph_destroy"

    def __init__(self, ctx: Context, capture: Capture) -> None:
        super().__init__(ctx, ctx._null)
        self._capture = capture

    def launch(self) -> None:
        """Runs the graph: the same bits as the calls it was captured from."""
        if self.closed:
            raise errors.StateError(10, "the graph is closed, or its capture has not ended")
        self.ctx._check(self.ctx._lib.nncuda_graph_launch(self.ctx._handle, self._pointer))

    def __len__(self) -> int:
        nodes = self.ctx._ffi.new("int64_t *")
        self.ctx._check(self.ctx._lib.nncuda_graph_size(self.ctx._handle, self._pointer, nodes))
        return int(nodes[0])

    def __bool__(self) -> bool:
        return not self.closed

    def close(self) -> None:
        super().close()
        self._let_go()

    def _let_go(self) -> None:
        """Gives the captured memory back."""
        capture = self._capture
        capture.open = False
        capture.kept.clear()
        capture.comms.clear()
        pointers = [(nbytes, pointer) for nbytes, free in capture.free.items() for pointer in free]
        capture.free.clear()
        for nbytes, pointer in pointers:
            self.ctx._waiting.append((nbytes, self.ctx._free, pointer))

    def __del__(self) -> None:
        super().__del__()
        if hasattr(self, "_capture"):
            self._let_go()
