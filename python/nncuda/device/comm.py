"""`Comm`: the ranks of a job, and what they do together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..binding import library
from ..errors import PeerError, StateError
from .streams import Handle
from .tensor import Tensor

if TYPE_CHECKING:
    from .context import Context

#: How ranks reach each other, numbered as NNCUDA_TRANSPORT_*.
Transport = Literal["self", "threads", "mpi", "nccl", "auto"]


class Comm(Handle):
    """A communicator: one of the ranks that work on a job, each with a context of its own.

    All ranks make the same calls on it, in the same order and with the same sizes; making one waits until all ranks
    have. `transport` is "self" for a rank alone, "threads" for contexts of one process that meet at the name `address`,
    each in its own thread, "mpi" for processes that an MPI launcher started, "nccl" for GPUs, with HOST:PORT of rank 0
    as `address`, "auto" for what the launcher of this process asks for, "self" if there is none. Without `rank` and
    `ranks` the launcher says which they are. After `timeout` seconds without an answer a rank counts as lost; 0 waits
    for ever.

    Calls that take a tensor are queued and captured like kernels. PeerError when another rank failed, left, hung or
    does not match this one; the communicator is then lost. A with block that ends by another exception tells them.
    """

    _destroy = "nncuda_comm_destroy"

    def __init__(
        self,
        ctx: Context,
        transport: Transport = "self",
        address: str = "",
        rank: int | None = None,
        ranks: int | None = None,
        timeout: float = 600.0,
    ) -> None:
        if transport not in get_args(Transport):
            raise ValueError(f"transport is {transport!r}; it must be one of {', '.join(get_args(Transport))}")
        name = address.encode()
        seat = (-1 if rank is None else rank, -1 if ranks is None else ranks)
        milliseconds = math.ceil(timeout * 1000)  # 0 is for ever
        out = ctx._ffi.new("nncuda_comm *[1]")
        number = get_args(Transport).index(transport)
        ctx._check(ctx._lib.nncuda_comm_create(ctx._handle, number, name, len(name), *seat, milliseconds, out))
        self._join(ctx, out[0])

    def _join(self, ctx: Context, pointer: Any) -> None:
        super().__init__(ctx, pointer)
        numbers = ctx._ffi.new("int64_t[2]")
        ctx._check(ctx._lib.nncuda_comm_rank(ctx._handle, pointer, numbers, numbers + 1))
        self.rank, self.ranks = int(numbers[0]), int(numbers[1])

    def __repr__(self) -> str:
        return f"Comm(rank {self.rank} of {self.ranks}{', closed' if self.closed else ''})"

    def __exit__(self, *raised: object) -> None:
        error = raised[1]
        if error is not None and not isinstance(error, PeerError) and not self.closed:
            self.abort(f"{type(error).__name__}: {error}")
        self.close()

    def split(self, color: int, key: int = 0) -> Comm:
        """A new communicator of the ranks that give the same `color`, in the order of `key`, then of their ranks."""
        return self._part("nncuda_comm_split", color, key)

    def part(self, first: int, step: int, count: int) -> Comm:
        """A new communicator of `count` ranks, `step` apart, from `first` on, of which this rank is one. Only they call
        it."""
        return self._part("nncuda_comm_part", first, step, count)

    def _part(self, function: str, *options: int) -> Comm:
        out = self.ctx._ffi.new("nncuda_comm *[1]")
        self._call(function, *options, out)
        part = Comm.__new__(Comm)
        part._join(self.ctx, out[0])
        return part

    def _call(self, function: str, *arguments: Any) -> None:
        if self.closed:
            raise StateError(10, "the communicator is closed")
        self.ctx._check(getattr(self.ctx._lib, function)(self.ctx._handle, self._pointer, *arguments))

    # Of the host: these wait for the peers

    def abort(self, reason: str) -> None:
        """Tells the other ranks that this one cannot go on: what they do here, now or later, raises PeerError with the
        reason."""
        text = reason.encode(errors="replace")  # names of files may have what is no UTF-8
        self._call("nncuda_comm_abort", text, len(text))

    def agree(self, what: str, value: str | bytes) -> None:
        """Raises PeerError on all ranks unless all give the same value. The sentence says that it is `what` differs."""
        name, data = what.encode(), value.encode() if isinstance(value, str) else value
        self._call("nncuda_comm_agree", name, len(name), data, len(data))

    def sum(self, value: int) -> int:
        """The sum of the ranks' values."""
        total = self.ctx._ffi.new("int64_t *")
        self._call("nncuda_comm_sum", value, total)
        return int(total[0])

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self._call("nncuda_comm_barrier")

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank gave the transport for other ranks so far."""
        count = self.ctx._ffi.new("int64_t *")
        self._call("nncuda_comm_bytes_sent", count)
        return int(count[0])

    # Of the device: dense tensors, changed in place

    def broadcast(self, x: Tensor, root: int = 0) -> Tensor:
        """`x` of the rank `root` to all."""
        self._move("nncuda_comm_broadcast", x, x.nbytes, root)
        return x

    def all_gather(self, x: Tensor, grain: int = 1) -> Tensor:
        """Each rank's shard of the bytes of `x` to all: those of `nncuda.shard(x.nbytes, grain, ranks, rank)`."""
        self._move("nncuda_comm_all_gather", x, x.nbytes, grain)
        return x

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum over the ranks, in their order: for few numbers of which at most one rank's is not zero."""
        self._floats(x=x)
        self._move("nncuda_comm_all_reduce", x, x.size)
        return x

    def reduce_scatter(
        self,
        partials: Tensor | None,
        x: Tensor,
        grain: int = 1,
        replicas: int | None = None,
        begin: int = 0,
        end: int | None = None,
    ) -> Tensor:
        """Sums over all replicas, as many as ranks unless given: in `x` the own shard, `nncuda.shard(x.size, grain,
        ranks, rank)`, becomes the sum. `partials` are the sums that `nncuda.replica_merges` left aside on this rank,
        one after the other, and `x` the last. Only elements from `begin` on and before `end` take part."""
        self._floats(x=x, **({} if partials is None else {"partials": partials}))
        parts = 0 if partials is None or not x.size else partials.size // x.size
        if partials is not None and (parts * x.size != partials.size):
            raise ValueError(f"partials has {partials.size} elements; it must be a multiple of those of x, {x.size}")
        options = (x.size, parts, grain, self.ranks if replicas is None else replicas)
        self._move("nncuda_comm_reduce_scatter", partials, x, *options, begin, x.size if end is None else end)
        return x

    def move(self, x: Tensor, moves: Sequence[tuple[int, int, int, int]]) -> Tensor:
        """Moves pieces of `x` between ranks, each to the same place. All ranks give the same `moves`: first byte, the
        byte after the last, the rank that sends them and the one that receives them."""
        numbers = self.ctx._ffi.new("int64_t[]", [number for move in moves for number in move])
        self._move("nncuda_comm_move", x, x.nbytes, numbers, len(moves))
        return x

    def grad_norm(self, grad: Tensor, norm: Tensor | None = None, grain: int = 32768) -> Tensor:
        """The norm of gradients of which each rank holds its shard, `nncuda.shard(grad.size, grain, ranks, rank)`: the
        bits of `kernels.grad_norm` of all of them."""
        norm = self.ctx.empty(1) if norm is None else norm
        self._floats(grad=grad, norm=norm)
        if norm.size != 1:
            raise ValueError(f"norm has {norm.size} elements; it must have 1")
        self._move("nncuda_comm_grad_norm", grad, norm, grad.size, grain)
        return norm

    def _floats(self, **tensors: Tensor) -> None:
        for name, tensor in tensors.items():
            if tensor.dtype != "f32":
                raise TypeError(f"{name} is {tensor.dtype}; it must be f32")

    def _move(self, function: str, *arguments: Any) -> None:
        """A call with tensors (None for null) and numbers."""
        tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
        for tensor in tensors:
            if tensor.ctx is not self.ctx:
                raise ValueError(f"{tensor!r} is of another context than the communicator")
            if not tensor.is_dense or tensor.readonly:
                raise ValueError(f"{tensor!r} must be dense, and not read-only")
        pointers = [
            argument._pointer if isinstance(argument, Tensor) else self.ctx._null if argument is None else argument
            for argument in arguments
        ]
        self._call(function, *pointers)
        if self.ctx._capture is not None:
            self.ctx._capture.keep(*tensors)
            self.ctx._capture.comms.add(self)


def shard(count: int, grain: int, parts: int, part: int) -> tuple[int, int]:
    """Begin and end of a shard: `count` elements are cut into `parts` neighbouring shards of whole grains (the last may
    be shorter), as equal as that allows."""
    loaded = library.load()
    ends = loaded.ffi.new("int64_t[2]")
    loaded.check(loaded.lib.nncuda_shard(count, grain, parts, part, ends, ends + 1))
    return int(ends[0]), int(ends[1])


def replica_merges(replicas: int, first: int, replica: int) -> int:
    """How many of the sums that were put aside are added to the gradient of `replica`, the newest first, on a rank that
    computes replicas from `first` on; the result is put aside in turn. Summed over all replicas so, gradients have the
    same bits for any number of ranks."""
    loaded = library.load()
    merges = loaded.ffi.new("int64_t *")
    loaded.check(loaded.lib.nncuda_replica_merges(replicas, first, replica, merges))
    return int(merges[0])
