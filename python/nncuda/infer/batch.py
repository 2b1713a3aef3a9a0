"""Sequences that are decoded together: their state on the device, and the graphs that move all of them on by one token.

A row of the batch is one sequence. Rows join and leave between steps; the last one moves to where one left. A graph is
captured for each number of rows, when there are so many for the first time, and replayed from then on: capturing costs
the host what calling costs, once, and a batch padded to some larger size would cost every step the products of rows
that nobody asked for. From step to step only the drawn ids come back; what the host sends is new pages.

A step that also gives log-probabilities, or changes logits before tokens are drawn, is another graph. So is one of
other adapters, or of other numbers of rows with each: rows with the same adapter are neighbours.

A batch may run ahead: as the ids that a step reads are on the device already, it can be started before the host has
read them. Then the device never waits for the host, and a row that ends has run one step for nothing. While a row has
a mask, which the host makes from the token before, or wants log-probabilities, it does not.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..binding import exchange
from ..device import Graph, Tensor
from .drawing import Drawing, Kind, RowSampler
from .engine import Engine
from .low_rank import Run, runs_of
from .paged_cache import CachedSequence
from .scores import Scores, TokenLogprobs
from .transfers import Beside, Waiting

#: Graphs that are kept. Without adapters there are as many as numbers of rows, kinds of draws apart; which adapters the
#: rows of a step may have together is without end.
_MOST_GRAPHS = 256


@dataclass(eq=False)
class Row:
    """A sequence, how its tokens are drawn, the last one, which has not been run yet, and whose it is.

    `alternatives` is how many of the likeliest tokens come with the log-probability of each that is drawn, which then
    is in `logprobs`; with None there is none.
    """

    sequence: CachedSequence
    drawing: Drawing
    token: int = -1
    owner: Any = None
    alternatives: int | None = None
    logprobs: TokenLogprobs | None = None

    def take(self, token: int, logprobs: TokenLogprobs | None) -> None:
        """A token was drawn."""
        self.token, self.logprobs = token, logprobs
        self.drawing.drawn(token)


class _Step(NamedTuple):
    """What a graph does: the number of rows, the calls of its draw, whether it gives log-probabilities, and which rows
    have which adapter."""

    rows: int
    kind: Kind
    scored: bool
    runs: tuple[Run, ...]


class _UnderWay(NamedTuple):
    rows: list[Row]
    scored: bool


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
        vocab = engine.config.vocab_size
        self._sampler = RowSampler(ctx, most, vocab)
        self._first_sampler = RowSampler(ctx, most, vocab)
        # Once a row wants log-probabilities; the logits that they are of, where drawing changes them.
        self._scores: Scores | None = None
        self._given: Tensor | None = None
        self._first_ids = ctx.zeros((most,), "i32")
        table = self._inputs.table
        self._transfers = Beside(ctx, ids, table) if self._ahead else Waiting(ids, table)
        self._under_way: deque[_UnderWay] = deque()  # steps whose ids were not read, at most two
        self._graphs: OrderedDict[_Step, Graph] = OrderedDict()  # the one not used for longest first
        self._generation = 0  # of the sampler, that of the graphs
        self._tables = engine.rope.length  # how far those of the graphs reach
        self._changed = False  # whether the rows on the device are not those of `rows`

    def first_tokens(self, logits: Tensor, rows: Sequence[Row]) -> list[int]:
        """Draws the token after each prompt, from the logits that prefill gave, into the rows and the result."""
        self._first_sampler.assign([row.drawing for row in rows])
        ids = self._first_ids.narrow(0, 0, len(rows))
        scored = self._scored(rows)
        self._draw(self._first_sampler, logits, ids, scored)
        tokens: list[int] = ids.numpy().tolist()
        for row, token, logprobs in zip(rows, tokens, self._read_scores(rows, scored), strict=True):
            row.take(token, logprobs)
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
        self._close_graphs()

    def _can_run_ahead(self) -> bool:
        """Whether the step after that under way needs nothing but pages: the same rows, none at the context's end or
        with a mask for its next token, and rotary tables that reach far enough."""
        if self._changed or len(self._under_way) > 1 or self._sampler.kind.masked or self._scored(self.rows):
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
        elif self._sampler.kind.masked:
            self._sampler.renew_masks([row.drawing for row in rows])
        engine.reach(max(row.sequence.position for row in rows) + before)
        if engine.rope.length != self._tables or self._sampler.generation != self._generation:
            self._tables, self._generation = engine.rope.length, self._sampler.generation
            self._close_graphs()
        runs = runs_of((row.sequence.adapter for row in rows), (1 for _ in rows))
        step = _Step(len(rows), self._sampler.kind, self._scored(rows), runs)
        graph = self._graphs.get(step)
        if graph is None:
            if len(self._graphs) == _MOST_GRAPHS:
                self._graphs.popitem(last=False)[1].close()
            graph = self._graphs[step] = self._capture(step)
        self._graphs.move_to_end(step)
        self._transfers.begin()
        graph.launch()
        self._transfers.end()
        self._under_way.append(_UnderWay(list(rows), step.scored))

    def _collect(self) -> list[tuple[Row, int]]:
        """Reads what the oldest step under way has drawn, for the rows that have not left since."""
        rows, scored = self._under_way.popleft()
        tokens = self._transfers.ids().tolist()[: len(rows)]
        drawn = []
        for row, token, logprobs in zip(rows, tokens, self._read_scores(rows, scored), strict=True):
            if row in self.rows:
                self._engine.cache.advance(row.sequence, (row.token,))
                row.take(token, logprobs)
                drawn.append((row, token))
        return drawn

    def _read_scores(self, rows: Sequence[Row], scored: bool) -> Sequence[TokenLogprobs | None]:
        """What the last step has given of log-probabilities."""
        if not scored or self._scores is None:
            return [None] * len(rows)
        found = self._scores.read([row.alternatives or 0 for row in rows])
        return [None if row.alternatives is None else one for row, one in zip(rows, found, strict=True)]

    def _scored(self, rows: Sequence[Row]) -> bool:
        """Whether a step of these rows gives log-probabilities; then there is a place for them."""
        scored = any(row.alternatives is not None for row in rows)
        if scored and self._scores is None:
            engine = self._engine
            self._scores = Scores(engine.ctx, engine.max_batch)
            self._given = engine.ctx.zeros((engine.max_batch, engine.config.vocab_size))
        return scored

    def _draw(self, sampler: RowSampler, logits: Tensor, ids: Tensor, scored: bool) -> None:
        if not scored or self._scores is None or self._given is None:
            sampler.draw(logits, ids)
            return
        given = logits
        if sampler.kind.adjusts:
            given = self._given.narrow(0, 0, logits.shape[0]).copy_(logits)
        sampler.draw(logits, ids)
        self._scores.take(given, ids)

    def _send(self) -> None:
        rows = self.rows
        rows.sort(key=lambda row: row.sequence.adapter)  # neighbours stay in their order
        state = [(row.token, row.sequence.position, row.sequence.length + 1) for row in rows]
        whole = np.zeros(self._state.shape, np.int32)
        whole[:, : len(rows)] = np.array(state, np.int32).T
        self._state.copy_(whole)
        table = np.stack([self._engine.cache.table_row(row.sequence) for row in rows])
        self._inputs.table.narrow(0, 0, len(rows)).copy_(table)
        self._sampler.assign([row.drawing for row in rows])
        self._changed = False

    def _close_graphs(self) -> None:
        for graph in self._graphs.values():
            graph.close()
        self._graphs.clear()

    def _capture(self, step: _Step) -> Graph:
        inputs = self._engine.first_inputs(self._inputs, step.rows, step.rows)
        with self._engine.ctx.capture() as graph:
            self._draw(self._sampler, self._engine.decode(inputs, step.runs), inputs.ids, step.scored)
            # All rows, used or not: those of rows that join are set then.
            kernels.increment(self._moving)
        return graph
