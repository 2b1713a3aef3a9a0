"""Sequences that are decoded together: their state on the device, and the graphs that move all of them on by one token.

A row of the batch is one sequence. Rows join and leave between steps; the last one moves to where one left. A graph is
captured for each number of rows, when there are so many for the first time, and replayed from then on: capturing costs
the host what calling costs, once, and a batch padded to some larger size would cost every step the products of rows
that nobody asked for. From step to step only the drawn ids come back; what the host sends is new pages.

A batch may run ahead: as the ids that a step reads are on the device already, it can be started before the host has
read them. Then the device never waits for the host, and a row that ends has run one step for nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import kernels
from ..binding import exchange
from ..device import Graph, Tensor
from .engine import Engine
from .paged_cache import CachedSequence
from .sampling import RowSampler, Sampling
from .transfers import Beside, Waiting


@dataclass(eq=False)
class Row:
    """A sequence, how its tokens are drawn, the last one, which has not been run yet, how many were drawn, and whose
    it is."""

    sequence: CachedSequence
    sampling: Sampling
    token: int = -1
    draws: int = 0
    owner: Any = None


class DecodeBatch:
    """Up to `engine.max_batch` sequences. `ahead` says whether it may run ahead, by default on a GPU: on a CPU there
    is no time to win, and steps for nothing cost some. The tokens are the same."""

    def __init__(self, engine: Engine, ahead: bool | None = None):
        ctx, most = engine.ctx, engine.max_batch
        self._ahead = ctx.device_type != exchange.CPU if ahead is None else ahead
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
        table = self._inputs.table
        self._transfers = Beside(ctx, ids, table) if self._ahead else Waiting(ids, table)
        self._under_way: deque[list[Row]] = deque()  # the rows of steps whose ids were not read, at most two
        self._graphs: dict[tuple[int, bool], Graph] = {}
        self._tables = engine.rope.length  # how far those of the graphs reach
        self._changed = False  # whether the rows on the device are not those of `rows`

    def first_tokens(self, logits: Tensor, rows: Sequence[Row]) -> list[int]:
        """Draws the token after each prompt, from the logits that prefill gave, into the rows and the result."""
        self._assign(self._first_sampler, rows)
        ids = self._first_ids.narrow(0, 0, len(rows))
        self._first_sampler.draw(logits, ids)
        tokens: list[int] = ids.numpy().tolist()
        for row, token in zip(rows, tokens, strict=True):
            row.token = token
            row.draws += 1
        return tokens

    def join(self, row: Row) -> None:
        """Adds a row after the others."""
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

    def step(self, go_on: bool = False) -> list[tuple[Row, int]]:
        """Runs the last token of each row and draws the next one: gives each row with it.

        With `go_on`, a batch that runs ahead starts the step after this one, too: every row has room for its token,
        but for what the next tokens say, each is wanted, and none joins before. ValueError without rows.
        """
        if not self.rows:
            raise ValueError("the batch has no sequences")
        drawn: list[tuple[Row, int]] = []
        while not drawn:  # a step of rows that all have left since gives nothing
            if not self._under_way:
                self._start()
            if go_on and self._ahead and self._can_run_ahead():
                self._start()
            drawn = self._collect()
        return drawn

    def close(self) -> None:
        """Waits for what is under way and frees the graphs."""
        while self._under_way:
            self._collect()
        for graph in self._graphs.values():
            graph.close()
        self._graphs.clear()

    def _can_run_ahead(self) -> bool:
        """Whether the step after that under way needs nothing but pages: the same rows, none at the context's end, and
        rotary tables that reach far enough."""
        if self._changed or len(self._under_way) > 1:
            return False
        context, positions = self._engine.cache.context, self._engine.rope.length
        return all(row.sequence.length + 2 <= context and row.sequence.position + 1 < positions for row in self.rows)

    def _start(self) -> None:
        """Gives the next step of all rows to the device."""
        engine, rows, before = self._engine, self.rows, len(self._under_way)
        cache = engine.cache
        for at, row in enumerate(rows):
            if not before:
                self._changed |= cache.make_room(row.sequence)
            if cache.extend(row.sequence, 1 + before) and not self._changed:
                self._transfers.page(at, len(row.sequence.pages) - 1, row.sequence.pages[-1])
        if self._changed:
            self._send()
        engine.reach(max(row.sequence.position for row in rows) + before)
        if engine.rope.length != self._tables:
            self._tables = engine.rope.length
            for graph in self._graphs.values():
                graph.close()
            self._graphs.clear()
        key = len(rows), self._sampler.greedy
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._capture()
        self._transfers.begin()
        graph.launch()
        self._transfers.end()
        self._under_way.append(list(rows))

    def _collect(self) -> list[tuple[Row, int]]:
        """Reads what the oldest step under way has drawn, for the rows that have not left since."""
        rows = self._under_way.popleft()
        drawn = []
        for row, token in zip(rows, self._transfers.ids().tolist(), strict=False):
            if row in self.rows:
                self._engine.cache.advance(row.sequence, (row.token,))
                row.token = token
                row.draws += 1
                drawn.append((row, token))
        return drawn

    def _send(self) -> None:
        rows = self.rows
        state = [(row.token, row.sequence.position, row.sequence.length + 1) for row in rows]
        whole = np.zeros(self._state.shape, np.int32)
        whole[:, : len(rows)] = np.array(state, np.int32).T
        self._state.copy_(whole)
        table = np.stack([self._engine.cache.table_row(row.sequence) for row in rows])
        self._inputs.table.narrow(0, 0, len(rows)).copy_(table)
        self._assign(self._sampler, rows)
        self._changed = False

    @staticmethod
    def _assign(sampler: RowSampler, rows: Sequence[Row]) -> None:
        sampler.assign([row.sampling for row in rows], [row.draws for row in rows])

    def _capture(self) -> Graph:
        rows = len(self.rows)
        inputs = self._engine.first_inputs(self._inputs, rows, rows)
        with self._engine.ctx.capture() as graph:
            self._sampler.draw(self._engine.decode(inputs), inputs.ids)
            # All rows, used or not: those of rows that join are set then.
            kernels.increment(self._moving)
        return graph
