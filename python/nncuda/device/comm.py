"""`Comm`: the ranks of a job, and what they do together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from ..binding import library
from ..dtypes import DTYPES, FloatLike, name_of
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
        shards: Sequence[Shard],
        replicas: int | None = None,
        wire: FloatLike = "f32",
    ) -> Tensor:
        """Sums over all replicas, as many as ranks unless given: in `x` this rank's `shards`, f32 [elements], become
        the sums; only elements of shards take part. `partials` are the sums that `nncuda.replica_merges` left aside on
        this rank, one after the other, and `x` the last. With a `wire` of 16 bits all that is given is rounded to it,
        and each sum but that over all replicas."""
        self._move("nncuda_comm_reduce_scatter", *self._sums(partials, x, shards, replicas, wire))
        return x

    def reduce_scatter_room(
        self,
        partials: Tensor | None,
        x: Tensor,
        shards: Sequence[Shard],
        replicas: int | None = None,
        wire: FloatLike = "f32",
    ) -> int:
        """Elements of f32 that `reduce_scatter_begin` needs for what arrives."""
        _, _, *sums = self._sums(partials, x, shards, replicas, wire)
        found = self.ctx._ffi.new("int64_t *")
        self._call("nncuda_comm_reduce_scatter_room", *sums, found)
        return int(found[0])

    def reduce_scatter_begin(
        self,
        partials: Tensor | None,
        x: Tensor,
        shards: Sequence[Shard],
        replicas: int | None = None,
        wire: FloatLike = "f32",
        *,
        room: Tensor,
    ) -> None:
        """The first half of `reduce_scatter`: what travels is sent beside what the context does from now on. With the
        same arguments `reduce_scatter_end` waits for it and adds it up; until then the elements of shards and `room`,
        f32 of `reduce_scatter_room` elements, belong to it. Several may be under way, each with a room of its own; they
        end in the order in which they began, and nothing else is done on this communicator meanwhile."""
        self._half("begin", partials, x, shards, replicas, wire, room)

    def reduce_scatter_end(
        self,
        partials: Tensor | None,
        x: Tensor,
        shards: Sequence[Shard],
        replicas: int | None = None,
        wire: FloatLike = "f32",
        *,
        room: Tensor,
    ) -> Tensor:
        """The second half: `x` is as after `reduce_scatter`."""
        self._half("end", partials, x, shards, replicas, wire, room)
        return x

    def _half(
        self,
        name: str,
        partials: Tensor | None,
        x: Tensor,
        shards: Sequence[Shard],
        replicas: int | None,
        wire: FloatLike,
        room: Tensor,
    ) -> None:
        sums = self._sums(partials, x, shards, replicas, wire)
        self._floats(room=room)
        self._move(f"nncuda_comm_reduce_scatter_{name}", *sums, room, room.size)

    def _sums(
        self, partials: Tensor | None, x: Tensor, shards: Sequence[Shard], replicas: int | None, wire: FloatLike
    ) -> tuple[Any, ...]:
        """What the functions of reduce_scatter take."""
        self._floats(x=x, **({} if partials is None else {"partials": partials}))
        parts = 0 if partials is None or not x.size else partials.size // x.size
        if partials is not None and (parts * x.size != partials.size):
            raise ValueError(f"partials has {partials.size} elements; it must be a multiple of those of x, {x.size}")
        sizes = x.size, parts, self.ranks if replicas is None else replicas
        return partials, x, *sizes, *self._numbers(shards), DTYPES[name_of(wire)].code

    def move(self, x: Tensor, moves: Sequence[tuple[int, int, int, int]]) -> Tensor:
        """Moves pieces of `x` between ranks, each to the same place. All ranks give the same `moves`, where each may
        leave out those of which it is neither end: first byte, the byte after the last, the rank that sends them and
        the one that receives them."""
        self._move("nncuda_comm_move", x, x.nbytes, *self._numbers(moves))
        return x

    def grad_norm(self, grad: Tensor, norm: Tensor | None, shards: Sequence[Shard]) -> Tensor:
        """The norm of gradients of which each rank has its `shards`, which have no gaps: the bits of
        `kernels.grad_norm` of all of them."""
        norm = self.ctx.empty(1) if norm is None else norm
        self._floats(grad=grad, norm=norm)
        if norm.size != 1:
            raise ValueError(f"norm has {norm.size} elements; it must have 1")
        self._move("nncuda_comm_grad_norm", grad, norm, grad.size, *self._numbers(shards))
        return norm

    def dispatch(self, x: Tensor | None, offsets: Tensor | None, y: Tensor, y_offsets: Tensor) -> Tensor:
        """Rows to the ranks that have their experts: each rank as many, the first rank the first ones.

        `x` [rows, dim] are rows in the order of experts, `offsets` i32 [experts + 1] the first of each, as
        `kernels.moe_plan` has them; a rank that has no rows gives None for both. Of each rank this one gets the rows
        for its own experts, into a slot of `y` [ranks, slot rows, dim], from the start of it, and `y_offsets` i32
        [ranks, own experts + 1] become the first of each expert there. The rest of a slot stays.
        """
        sizes = self._slots(x, offsets, y, y_offsets)
        self._move("nncuda_comm_dispatch", x, offsets, y, y_offsets, *sizes)
        return y

    def collect(self, y: Tensor, y_offsets: Tensor, x: Tensor | None, offsets: Tensor | None) -> Tensor | None:
        """The way back of `dispatch`: the rows of each slot go to their rank, to the places that they came from."""
        sizes = self._slots(x, offsets, y, y_offsets)
        self._move("nncuda_comm_collect", y, y_offsets, x, offsets, *sizes)
        return x

    def dispatch_begin(
        self, x: Tensor | None, offsets: Tensor | None, y: Tensor, y_offsets: Tensor, known: bool = False
    ) -> None:
        """`dispatch` beside what the context does from now on: the slot of this rank is there, for any other
        `dispatch_end` waits. Of those, the rank one before this one comes first, then the one before that. With `known`
        `y_offsets` are those of an earlier dispatch with the same offsets on all ranks. Until `collect_end`, x and y
        belong to what travels, and nothing else is done on this communicator."""
        sizes = self._slots(x, offsets, y, y_offsets)
        self._move("nncuda_comm_dispatch_begin", x, offsets, y, y_offsets, *sizes, int(known))

    def dispatch_end(self, y: Tensor, source: int) -> None:
        """Waits for the rows of a rank, and for all that come before them."""
        _, *sizes = self._travelling(y, None)
        self._move("nncuda_comm_dispatch_end", y, *sizes, source)

    def collect_begin(self, y: Tensor, x: Tensor | None, source: int) -> None:
        """`collect` of the last `dispatch_begin`, rank by rank: what became of the rows of `source` may go back, beside
        what the context does from now on. `x` may be what was sent, whose places it takes."""
        self._move("nncuda_comm_collect_begin", y, x, *self._travelling(y, x), source)

    def collect_end(self, y: Tensor, x: Tensor | None) -> Tensor | None:
        """Sends back the rows of all ranks that have not gone yet, and waits for those of `x`."""
        self._move("nncuda_comm_collect_end", y, x, *self._travelling(y, x))
        return x

    def _travelling(self, y: Tensor, x: Tensor | None) -> tuple[int, ...]:
        """The sizes of a half of an exchange."""
        if y.ndim != 3 or y.shape[0] != self.ranks:
            raise ValueError(f"y is {y.shape}; it must be [{self.ranks}, slot rows, dim]")
        ranks, slot_rows, dim = y.shape
        if x is not None and (x.ndim != 2 or x.shape[1] != dim or x.dtype != y.dtype):
            raise ValueError(f"x is {x.dtype} {x.shape}; it must be {y.dtype} [rows, {dim}], as y")
        row = y.nbytes // (ranks * slot_rows) if y.size else 0
        return 0 if x is None else x.shape[0], slot_rows, row, ranks

    def _slots(self, x: Tensor | None, offsets: Tensor | None, y: Tensor, y_offsets: Tensor) -> tuple[int, ...]:
        """The sizes of an exchange of rows, which must agree."""
        if y.ndim != 3 or y_offsets.ndim != 2 or y_offsets.dtype != "i32" or y_offsets.shape[1] < 1:
            raise ValueError(
                f"y is {y.shape} and y_offsets {y_offsets.dtype} {y_offsets.shape}; they must be "
                "[ranks, slot rows, dim] and i32 [ranks, own experts + 1]"
            )
        ranks, own = y.shape[0], y_offsets.shape[1] - 1
        if (ranks, y_offsets.shape[0]) != (self.ranks, self.ranks):
            raise ValueError(f"y and y_offsets are of {ranks} and {y_offsets.shape[0]} ranks; there are {self.ranks}")
        if (x is None) != (offsets is None):
            raise ValueError("x and offsets must both be None, or neither")
        if offsets is not None and (offsets.dtype != "i32" or offsets.size != ranks * own + 1):
            raise ValueError(f"offsets is {offsets.dtype} {offsets.shape}; it must be i32 [{ranks * own + 1}]")
        return *self._travelling(y, x), own

    def _numbers(self, rows: Sequence[tuple[int, ...]]) -> tuple[Any, int]:
        """A list as the library takes it, and how many entries it has."""
        return self.ctx._ffi.new("int64_t[]", [number for row in rows for number in row]), len(rows)

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


class Shard(NamedTuple):
    """First element, the one after the last, and the rank that these belong to."""

    begin: int
    end: int
    rank: int


def expert_shards(
    n: int, grain: int, ranks: int, group: int = 1, experts: Sequence[tuple[int, int]] = ()
) -> list[Shard]:
    """Which rank updates which of `n` parameters, in ascending order without gaps, cut at multiples of `grain`. Of each
    matrix in `experts`, first element and the one after the last, neighbouring ranks of a `group` hold a part each:
    whole grains of it go to the ranks that hold it, all others to all. With one rank in a group all ranks share out
    each matrix, and what lies between two."""
    loaded = library.load()
    flat = loaded.ffi.new("int64_t[]", [end for matrix in experts for end in matrix])
    count = loaded.ffi.new("int64_t *")

    def ask(shards: Any, capacity: int) -> None:
        job = n, grain, ranks, group, flat, len(experts)
        loaded.check(loaded.lib.nncuda_expert_shards(*job, shards, capacity, count))

    ask(loaded.ffi.NULL, 0)
    rows = loaded.ffi.new("int64_t[]", 3 * int(count[0]))
    ask(rows, int(count[0]))
    numbers = loaded.ffi.unpack(rows, len(rows))
    return [Shard(*numbers[at : at + 3]) for at in range(0, len(numbers), 3)]


def replica_merges(replicas: int, first: int, replica: int) -> int:
    """How many of the sums that were put aside are added to the gradient of `replica`, the newest first, on a rank that
    computes replicas from `first` on; the result is put aside in turn. Summed over all replicas so, gradients have the
    same bits for any number of ranks."""
    loaded = library.load()
    merges = loaded.ffi.new("int64_t *")
    loaded.check(loaded.lib.nncuda_replica_merges(replicas, first, replica, merges))
    return int(merges[0])


#: Numbered as NNCUDA_EXPERTS_*.
ExpertEventKind = Literal["run", "add", "copy", "round"]


class ExpertEvent(NamedTuple):
    """What becomes of the gradients of a rank's experts, in a round of its group.

    "run": those of the micro-batch `b` of the group's rank `a` go to the slot `c`, where `accumulate` they are added to
    what is there. "add": slot `b` is added to slot `a`, and is free. "round": slot `a` has the sum over a node of the
    tree below its root, which is rounded where the job rounds what it sends. "copy", behind the last round: slot `a` is
    copied to slot `b`.
    """

    round: int
    kind: ExpertEventKind
    a: int
    b: int
    c: int
    accumulate: bool


def expert_schedule(
    replicas: int, ranks: int, first: int, group: int, micro_batches: int, position: int = -1
) -> tuple[list[ExpertEvent], int]:
    """The order in which the experts' owners in the group of ranks first .. first+group-1 add their gradients, and how
    many slots that takes. In round j each rank of the group runs the j-th of its micro-batches, replica by replica;
    each layer carries out all events of a round in order, in its part of the slots. At the end the sums that are left,
    which `Comm.reduce_scatter` takes, lie in the first slots. With the `position` of a rank in its group the events of
    a round are in the order in which rows come to it (`Comm.dispatch_begin`), its own last, as far as each slot allows;
    sums are the same."""
    loaded = library.load()
    numbers = loaded.ffi.new("int64_t[2]")

    def ask(events: Any, capacity: int) -> None:
        job = (replicas, ranks, first, group, micro_batches, position)
        loaded.check(loaded.lib.nncuda_expert_schedule(*job, events, capacity, numbers, numbers + 1))

    ask(loaded.ffi.NULL, 0)
    count, kinds = int(numbers[0]), get_args(ExpertEventKind)
    rows = loaded.ffi.new("int64_t[]", 6 * count)
    ask(rows, count)
    flat = loaded.ffi.unpack(rows, 6 * count)
    events = [
        ExpertEvent(round, kinds[kind], a, b, c, accumulate == 1)
        for round, kind, a, b, c, accumulate in (flat[at : at + 6] for at in range(0, len(flat), 6))
    ]
    return events, int(numbers[1])
