"""Sequences that are decoded together: their state on the device, and the graphs that move all of them on by one token.

A row of the batch is one sequence. Rows join and leave between steps; the last one moves to where one left. A graph is
captured for each number of rows, when there are so many for the first time, and replayed from then on: capturing costs
the host what calling costs, once, and a batch padded to some larger size would cost every step the products of rows
that nobody asked for. From step to step only the drawn ids come back; what the host sends is new pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import kernels
from ..context import Context
from ..graphs import Graph
from ..tensor import HostCopy, Tensor
from .engine import Engine
from .generate import Sampling
from .pages import CachedSequence


@dataclass(eq=False)
class Row:
    """A sequence, how its tokens are drawn, the last one, which has not been run yet, how many were drawn, and whose
    it is."""

    sequence: CachedSequence
    sampling: Sampling
    token: int = -1
    draws: int = 0
    owner: Any = None


class RowSampler:
    """Draws a token a row on the device, each row by its own options.

    One kernel serves them all: with the largest top_k and a top_p of 1 it draws as those without do, and with a
    temperature of 0 it takes the likeliest token.
    """

    def __init__(self, ctx: Context, rows: int):
        self._counts = ctx.zeros((rows,), "i32")
        self._top_k = ctx.zeros((rows,), "i32")
        self._temperature = ctx.zeros((rows,))
        self._top_p = ctx.zeros((rows,))
        self._seeds = ctx.zeros((rows,), "i64")
        self.greedy = True  # all rows: then no numbers are drawn at all

    def assign(self, rows: Sequence[Row]) -> None:
        """Sets the options of the first rows."""
        options = [row.sampling for row in rows]
        self.greedy = all(option.temperature == 0 for option in options)
        seeds = np.array([option.seed % 2**64 for option in options], np.uint64).view(np.int64)
        for target, values in (
            (self._counts, np.array([row.draws for row in rows], np.int32)),
            (self._top_k, np.array([option.top_k or 2**31 - 1 for option in options], np.int32)),
            (self._temperature, np.array([option.temperature for option in options], np.float32)),
            (self._top_p, np.array([option.top_p or 1.0 for option in options], np.float32)),
            (self._seeds, seeds),
        ):
            target.narrow(0, 0, len(rows)).copy_(values)

    def draw(self, logits: Tensor, ids: Tensor) -> None:
        """The next token of each row of logits [rows, vocab], into ids i32 [rows]."""
        rows = logits.shape[0]
        if self.greedy:
            kernels.argmax(logits, ids=ids)
            return
        counts, top_k, temperature, top_p, seeds = (
            tensor.narrow(0, 0, rows)
            for tensor in (self._counts, self._top_k, self._temperature, self._top_p, self._seeds)
        )
        kernels.topp_sample(logits, temperature, top_k, top_p, seeds, counts, ids=ids)
        kernels.increment(counts)


class DecodeBatch:
    """Up to `engine.max_batch` sequences."""

    def __init__(self, engine: Engine):
        ctx, most = engine.ctx, engine.max_batch
        self._engine = engine
        self.rows: list[Row] = []
        # One after the other on the device, so that they travel in one copy: ids, positions, lengths.
        self._state = ctx.zeros((3, most), "i32")
        ids, positions, lengths = (self._state.narrow(0, at, 1).view(most) for at in range(3))
        self._inputs = engine.inputs(most, most)._replace(ids=ids, positions=positions, lengths=lengths)
        self._inputs.offsets.copy_(np.arange(most + 1))
        self._moving = self._state.narrow(0, 1, 2)
        self._sampler = RowSampler(ctx, most)
        self._first_sampler = RowSampler(ctx, most)
        self._first_ids = ctx.zeros((most,), "i32")
        self._read_ids = HostCopy(ids).read
        self._graphs: dict[tuple[int, bool], Graph] = {}
        self._tables = engine.rope.positions  # how far those of the graphs reach
        self._changed = False  # whether the rows on the device are not those of `rows`

    def first_tokens(self, logits: Tensor, rows: Sequence[Row]) -> list[int]:
        """Draws the token behind each prompt, from the logits that prefill gave, into the rows and the result."""
        self._first_sampler.assign(rows)
        ids = self._first_ids.narrow(0, 0, len(rows))
        self._first_sampler.draw(logits, ids)
        tokens: list[int] = ids.numpy().tolist()
        for row, token in zip(rows, tokens, strict=True):
            row.token = token
            row.draws += 1
        return tokens

    def join(self, row: Row) -> None:
        """Adds a row behind the others."""
        if len(self.rows) == self._engine.max_batch:
            raise ValueError(f"the batch has {len(self.rows)} sequences already; max_batch is {self._engine.max_batch}")
        self.rows.append(row)
        self._changed = True

    def leave(self, row: Row) -> None:
        """Takes a row out; the last one moves to its place."""
        at = next(at for at, one in enumerate(self.rows) if one is row)
        last = self.rows.pop()
        if last is not row:
            self.rows[at] = last
        self._changed = True

    def step(self) -> list[int]:
        """Runs the last token of each row and draws the next ones."""
        engine, rows = self._engine, self.rows
        cache = engine.cache
        for at, row in enumerate(rows):
            dropped = cache.make_room(row.sequence)
            if cache.extend(row.sequence, 1) or dropped:
                self._inputs.table.narrow(0, at, 1).copy_(cache.table_row(row.sequence)[None])
            self._changed |= dropped
        if self._changed:
            self._send()
        engine.rope.reach(max(row.sequence.position for row in rows))
        if engine.rope.positions != self._tables:
            self._tables = engine.rope.positions
            for graph in self._graphs.values():
                graph.close()
            self._graphs.clear()
        key = len(rows), self._sampler.greedy
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._capture()
        graph.launch()
        ids: list[int] = self._read_ids()[: len(rows)].tolist()
        for row, token in zip(rows, ids, strict=True):
            cache.advance(row.sequence, (row.token,))
            row.token = token
            row.draws += 1
        return ids

    def close(self) -> None:
        """Frees the graphs."""
        for graph in self._graphs.values():
            graph.close()
        self._graphs.clear()

    def _send(self) -> None:
        rows = self.rows
        state = [(row.token, row.sequence.position, row.sequence.length + 1) for row in rows]
        whole = np.zeros(self._state.shape, np.int32)
        whole[:, : len(rows)] = np.array(state, np.int32).T
        self._state.copy_(whole)
        table = np.stack([self._engine.cache.table_row(row.sequence) for row in rows])
        self._inputs.table.narrow(0, 0, len(rows)).copy_(table)
        self._sampler.assign(rows)
        self._changed = False

    def _capture(self) -> Graph:
        rows = len(self.rows)
        inputs = self._engine.first_inputs(self._inputs, rows, rows)
        with self._engine.ctx.capture() as graph:
            self._sampler.draw(self._engine.decode(inputs), inputs.ids)
            # All rows, used or not: those of rows that join are set then.
            kernels.increment(self._moving)
        return graph
