"""Scratch memory of the kernels of a training step: what a call takes from the arena, derived from its sizes.

Of the CPU engine's products and attention the cuts are followed as `cuda/cpu/gemm_plan.h` and `cuda/cpu/attention_*.c`
make them, since they take all but a few per cent of it; where a take depends on the data (how many tokens the busiest
expert gets) it is the most that it can be: all of them, or the capacity of an expert. What takes little is bounded, as
is what a GPU takes: there pieces of sums are limited by constants (64 MiB of a product), whatever the sizes. A call's
takes are a tuple, since the arena rounds each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

_SHARED_BYTES, _PARTIAL_BYTES, _BLOCK_BYTES, _STREAM_BYTES = 1 << 25, 1 << 20, 3 << 18, 16 << 20
_FEW_ROWS = 8


@dataclass(frozen=True)
class Machine:
    """What decides how work is cut: the engine ("cpu" or "cuda"), and of the CPU its threads and instruction set."""

    engine: str = "cpu"
    threads: int = 1
    isa: str = "avx512"

    @property
    def lanes(self) -> int:
        """f32 elements of a vector."""
        return {"baseline": 4, "avx2": 8}.get(self.isa, 16)

    def multiplies(self, dtype: str) -> bool:
        """Whether attention in this dtype has products of its own: those of bf16."""
        return dtype == "bf16" and self.isa == "amx"


@dataclass(frozen=True)
class _Tile:
    """Constants of `cuda/cpu/gemm_job.h` for one instruction set: see there."""

    unit: int
    rows: int
    columns: int
    depth: int
    a_lanes: int
    group: int
    ahead: int
    products: int
    task_work: int


def _tile(machine: Machine, bf16: bool) -> _Tile:
    lanes = machine.lanes
    if machine.isa == "amx" and bf16:
        return _Tile(2, 32, 2 * lanes, 256, 32, 8, 1, 512, 1 << 23)
    if lanes == 16:
        unit = 2 if machine.isa == "avx512bf16" and bf16 else 1
        return _Tile(unit, 8, 3 * lanes, 768, lanes, 4, 0, 32, 1 << 20)
    return _Tile(1, 6, 2 * lanes, 512, 6, 8, 0, 2 * lanes, 1 << 18)


@dataclass(frozen=True)
class Product:
    """c [m, n] of k products an element, for each of `count` matrices. `ragged` is "m" or "k" when the matrices share
    m rows or a depth of k among them, "" when each has them; `longest` is the most of k that one can have. `dtype` of
    the factors; `wide` when c is f32."""

    m: int
    n: int
    k: int
    dtype: str
    wide: bool
    trans_a: bool = False
    trans_b: bool = False
    count: int = 1
    ragged: str = ""
    longest: int | None = None
    beta: float | None = 0.0

    @cache  # noqa: B019 - a product is a handful of numbers, and a model has few different ones
    def scratch(self, machine: Machine) -> tuple[int, ...]:
        """Bytes that the product takes."""
        return self._on_gpu() if machine.engine != "cpu" else self._on_cpu(machine)

    def _on_gpu(self) -> tuple[int, ...]:
        # Pieces of k, of 256 or more, at most 32 of them and 64 MiB; none when m or k is ragged.
        size = self.count * self.m * self.n
        pieces = min(32, self.k // 256, (64 << 20) // 4 // max(size, 1))
        return () if self.ragged or pieces < 2 else (4 * pieces * size,)

    def _on_cpu(self, machine: Machine) -> tuple[int, ...]:
        tile = _tile(machine, self.dtype == "bf16")
        row = 4 * _up(_ceil(self.k, tile.unit), machine.lanes)
        if not self.ragged and self.m <= _FEW_ROWS:
            return (self.count * self.m * row,)
        taken: tuple[int, ...] = ()
        if self.ragged == "m":  # groups of few rows go apart: at most all of them have so many
            taken = (8 * self.count, min(self.m, _FEW_ROWS * self.count) * row)
            if self.m <= _FEW_ROWS:
                return taken
            taken += (8 * (self.count + 1),)
        m = _ceil(self.m, self.count) if self.ragged == "m" else self.m
        k = _ceil(self.k, self.count) if self.ragged == "k" else self.k
        units, blocks = _depth(self.k, tile)
        once = self.beta == 0 and self.m * self.n >= _STREAM_BYTES // 4 and blocks <= 2
        add = self.wide and not once
        n_block, m_block, share = self._cut(machine, tile, m, k, add)
        if share:
            taken += (4 * units * blocks * _up(self.n, tile.columns) * self.count,)
        longest_units, longest_blocks = _depth(self.k if self.longest is None else self.longest, tile)
        whole = longest_units * longest_blocks * n_block
        one = min(longest_units * longest_blocks, tile.depth) * n_block
        block = 0 if share else min(max(one, _BLOCK_BYTES // 4), whole)
        panels = (tile.group if self.trans_a else 1) + tile.ahead
        step = _up(4 * block, 64) + _up(4 * panels * (tile.a_lanes * tile.depth + machine.lanes), 64)
        if not add and longest_blocks > 1:
            passing = _kept(longest_units, longest_blocks, n_block) == longest_blocks
            group = tile.group * tile.a_lanes if self.trans_a else tile.rows
            step += _up(4 * (group if passing else m_block) * n_block, 64)
        return (*taken, machine.threads * (_up(step, 4096) + 320))

    def _cut(self, machine: Machine, tile: _Tile, m: int, k: int, add: bool) -> tuple[int, int, bool]:
        """Columns and rows of a block, and whether B is packed once for all: the cheapest, as `gemm_cut` finds it."""
        threads, count, n = machine.threads, self.count, self.n
        own_dtype = self.dtype == ("f32" if tile.unit == 1 else "bf16")
        in_place = not self.trans_a and own_dtype and (self.k % tile.unit == 0)
        a_cost, b_cost = (0.2 if in_place else 1.0), (1.0 if self.trans_b else 0.8)
        busy = max(tile.products / 5.0, float(n))
        wanted = min(float(m) * busy * k * count / tile.task_work, 4.0 * threads if threads > 1 else 1.0)
        pieces = _ceil(max(1, int(wanted)), count)
        n_panels, m_panels = _ceil(n, tile.columns), _ceil(m, tile.rows)
        each, blocks = _depth(k, tile)
        deep = tile.depth if tile.ahead or each == 0 else each
        area, units = float(m * n) * tile.unit / tile.products, each * blocks
        may_share = self.ragged != "k" and units * n_panels * tile.columns * count <= _SHARED_BYTES // 4
        best: tuple[float, int, int, bool] | None = None
        for wide in range(min(_BLOCK_BYTES // 4 // deep // tile.columns, n_panels), 0, -1):
            n_blocks = _ceil(n_panels, wide)
            passing = blocks == 0 or _kept(each, blocks, wide * tile.columns) == blocks
            tall = _ceil(m_panels, _ceil(pieces, n_blocks))
            if not add and not passing:
                tall = min(tall, _PARTIAL_BYTES // 4 // (wide * tile.columns * tile.rows))
            m_blocks = _ceil(m_panels, max(tall, 1))
            tasks, tall = n_blocks * m_blocks * count, _ceil(m_panels, m_blocks)
            idle = (_up(tasks, threads) - tasks) * area / tasks
            padding = (n_blocks * wide - n_panels) / (n_blocks * n_panels) * area
            again = 0.0 if passing or add else 0.5 * m * n / each
            own = m_blocks * n * b_cost
            shared = n * b_cost + m_blocks * n * 0.2 + 16e3 / (units + 1)
            share = may_share and shared < own
            cost = n_blocks * m * a_cost + idle + padding + again + (shared if share else own)
            if best is None or best[0] == 0 or cost < best[0]:
                best = cost, wide * tile.columns, tall * tile.rows, share
        assert best is not None
        return best[1:]


def attention(
    machine: Machine, dtype: str, batch: int, length: int, heads: int, kv_heads: int, dim: int
) -> tuple[int, ...]:
    """Of `flash_attention`: a worker's block of queries and scores, and packed keys and values of a round of heads."""
    if machine.engine != "cpu":
        return ()
    lanes = machine.lanes
    if machine.multiplies(dtype):
        columns, step = _up(dim, 32), 128
        size = _up(length, step) * columns // 2
        rounds = 4 * max(1, min(batch * kv_heads, (1 << 18) // (2 * size))) * size
        return 4 * 64 * (columns // 2 + step // 2 + step + columns) * machine.threads, rounds, rounds
    columns = 2 * lanes
    worker = _up(2 * _ceil(dim, columns) * columns * 96 + 96 * (256 + 16 + 2 + lanes), 16)
    keys, values = _up(length, columns) * dim, _ceil(dim, columns) * columns * length
    pairs = max(1, min(batch * kv_heads, (1 << 19) // (keys + values)))
    return 4 * worker * machine.threads, 4 * pairs * keys, 4 * pairs * values


def attention_backward(
    machine: Machine, dtype: str, batch: int, length: int, heads: int, kv_heads: int, dim: int
) -> tuple[int, ...]:
    """Of `flash_attention_backward`: a worker's panels, and partial dK and dV of what shares a key head."""
    group, pairs = heads // kv_heads, batch * kv_heads
    if machine.engine != "cpu":
        # Sums of each row; and partial dK, dV of at most 512 tiles of at most 128 keys.
        pieces = min(512, group * length // 512)
        most = min(pieces * pairs * length, 512 * 128) if pieces > 1 else 0
        return 16 * batch * heads * length, 8 * most * dim
    lanes = machine.lanes
    columns, tile_rows = 2 * lanes, 12 if lanes == 16 else 6
    wide, wanted = machine.multiplies(dtype), 8
    together = wide and pairs >= wanted and length * _up(dim, 32) <= 1 << 16  # the heads of a key head in one task
    parts = 1 if together else group
    piece = _up(_ceil(length, _ceil(wanted, pairs * parts)), 64 if wide else 96)
    tasks, rows = parts * _ceil(length, piece), min(piece, length) + tile_rows
    panels = _ceil(dim, columns) * columns
    sizes = [rows * panels] * 3 + [rows] * 3 + [256 * panels] * 5 + [96 * (256 + 16)] * 2
    worker = sum(_up(size, 16) for size in sizes)
    if wide:
        columns, blocks = _up(dim, 32), _ceil(length, 64) if together and group > 1 else 1
        queries, keys = columns * (4 * 32 + 64) + 2 * 64, columns * (3 * 32 + 2 * 64)
        worker = _up(_ceil(min(piece, length), 64) * queries + 64 * (2 * 64 + 6 * 32) + blocks * keys, 16)
    taken = (4 * worker * machine.threads,)
    if tasks > 1:
        pair = 2 * tasks * length * dim
        taken += (4 * pair * max(1, min(pairs, (1 << 24) // pair)),)
    return taken


def rows_apart(rows: int, columns: int) -> tuple[int, ...]:
    """Of the backward call of a norm, a bound: at most 64 pieces of rows (128 on a GPU) leave a sum a column."""
    return (4 * min(rows, 128) * columns,)


def routing(tokens: int, k: int, experts: int) -> tuple[int, ...]:
    """Of the plan of rows, the gathering and its check, and the balancing loss, a bound: a number a slot, and one an
    expert for each so many slots."""
    return (4 * tokens * k + 8 * experts * (1 + tokens // 64),)


def scattered(machine: Machine, tokens: int) -> tuple[int, ...]:
    """Of the embedding's gradient: a GPU sorts the tokens, with two copies of ids and places, and counts digits."""
    return () if machine.engine == "cpu" else (16 * tokens + (1 << 20),)


def squares(parameters: int) -> tuple[int, ...]:
    """Of the norm of the gradients, a bound: an f64 for each 16384 of them (32768 on a GPU)."""
    return (8 * _ceil(parameters, 1 << 14),)


class Arena:
    """The chunks of `cuda/abi/arena.c`: the scratch of one call lies in it, the next begins anew.

    The chunks of a context become one as large as all together; those of a graph (`lasting`) stay, for the device
    noted where they lie.
    """

    _GRAIN = 1 << 18

    def __init__(self, lasting: bool = False) -> None:
        self.capacity = 0
        self._lasting = lasting
        self._last = 0  # capacity of the newest chunk: the only one that is looked at
        self._chunks = 0
        self._wanted = 0

    def call(self, takes: tuple[int, ...]) -> int:
        """The most bytes of chunks during a call with these takes."""
        used = taken = 0
        for nbytes in takes:
            size = max(64, _up(nbytes, 64))
            if self._chunks == 0 or self._last - used < size:
                chunk = _up(size, self._GRAIN)
                self._last = self._wanted if self._chunks == 0 and self._wanted > chunk else chunk
                self._chunks, self.capacity, used = self._chunks + 1, self.capacity + self._last, 0
            used, taken = used + size, taken + size
        most = self.capacity
        if not self._lasting and self._chunks > 1:
            self._wanted = _up(taken, self._GRAIN)
            self.capacity = self._chunks = self._last = 0
        return most


def _depth(k: int, tile: _Tile) -> tuple[int, int]:
    """Units of a block of k, padded, and the blocks."""
    units = _ceil(k, tile.unit)
    blocks = _ceil(units, tile.depth)
    if blocks == 0:
        return 0, 0
    each = _up(_ceil(units, blocks), 16)
    return each, _ceil(units, each)


def _kept(units: int, blocks: int, columns: int) -> int:
    return max(1, min(_BLOCK_BYTES // 4 // (units * columns), blocks))


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _up(a: int, b: int) -> int:
    return _ceil(a, b) * b
