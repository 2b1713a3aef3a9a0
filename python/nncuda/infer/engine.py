"""The forward pass over a stored model: weights multiplied as their file has them, keys and values in pages.

Activations are f32. A token's result depends on the tokens before it in its own sequence alone, to the bit: not on who
else is in the call, on the pieces that a prompt is cut into, nor on whether pages were shared, since every kernel that
is called here gives a row the same bits in any company (`bindings.h`, sections quant and attention).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import kernels
from ..device import Comm, Context, Tensor
from ..layers import RopeTables
from ..token_ids import Ids, sequence_ids
from .divided_experts import DividedExperts
from .low_rank import Run, runs_of
from .paged_cache import PAGE, CachedSequence, PagedCache
from .pooling import Pool
from .scores import Scores, TokenLogprobs
from .stored_layers import Heads, StoredLayers
from .ternary_layers import TernaryLayers
from .watch import Watch, within
from .weights import Layer, Weights

if TYPE_CHECKING:
    from ..models.adapter import Adapter
    from ..models.stored import StoredModel

#: Rows of the rotary embedding's tables at first; they double when a sequence goes beyond, with or without a window.
_FIRST_POSITIONS = 4096

#: Tokens of a sequence unless more are asked for: what many models were trained for, and what a cache is cheap for.
USUAL_CONTEXT = 8192

#: Sequences of full length that the cache has room for by default; shorter ones may be more.
_USUAL_SEQUENCES = 4

#: Rows normed at a time, and rows of logits made, when those of all tokens are wanted.
_LOGITS_ROWS = 64


class Part(NamedTuple):
    """What a prefill call runs of one sequence: its next ids, and whether the logits after the last are wanted."""

    sequence: CachedSequence
    ids: Sequence[int] | np.ndarray
    wanted: bool


class Inputs(NamedTuple):
    """A call's tokens on the device: of sequence b those from offsets[b] to offsets[b+1]-1, the last of its lengths[b]
    rows. All are i32."""

    ids: Tensor  # [tokens]
    positions: Tensor  # [tokens]
    offsets: Tensor  # [batch + 1]
    lengths: Tensor  # [batch]
    table: Tensor  # [batch, max_pages]


class Engine:
    """Runs a stored model on a context.

    context         most tokens of a sequence that see one another; by default the model's, at most 8192. A sequence
                    that continues beyond it drops its oldest tokens, a page of 128 at a time
    cache_format    f16, f32, bf16, q8_0 or e4m3, in which keys and values are kept
    cache_tokens    room of the cache for all sequences together; by default four sequences of full length
    max_batch       most sequences that are decoded together
    piece           most tokens of a prefill call; any number gives the same bits
    weights         where the weights lie on a CPU, "auto", "memory" or "file" (`WeightReader`); the bits are the same
    adapter         what is added to the weights, which stay as they are stored, for sequences that name no adapter
    adapters        those that a sequence may name; each has the bits that it has alone, whoever else is in a call
    comm            rank 0 of ranks that divide the experts among them, of which the others call `serve_experts`; the
                    bits are those of a rank alone
    """

    def __init__(
        self,
        model: StoredModel,
        ctx: Context,
        *,
        context: int | None = None,
        cache_format: str = "f16",
        cache_tokens: int | None = None,
        max_batch: int = 32,
        piece: int = 512,
        weights: str = "auto",
        adapter: Adapter | None = None,
        adapters: Mapping[str, Adapter] | None = None,
        comm: Comm | None = None,
    ):
        config = model.config
        for name, value in (("max_batch", max_batch), ("piece", piece)):
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        self.context = min(config.context, USUAL_CONTEXT) if context is None else context
        if not 1 <= self.context <= config.extended_context:
            raise ValueError(f"context is {context}; this model takes 1 to {config.extended_context} tokens")
        if cache_tokens is None:
            cache_tokens = min(max_batch, _USUAL_SEQUENCES) * -(-self.context // PAGE) * PAGE
        if cache_tokens < 1:
            raise ValueError(f"cache_tokens is {cache_tokens}; it must be at least 1")
        self.model = model
        self.config = config
        self.ctx = ctx
        self.max_batch = max_batch
        self.piece = piece
        rows = max(piece, max_batch)
        self.divided = None
        if comm is not None and comm.ranks > 1:
            if comm.rank or comm.ctx is not ctx:
                raise ValueError(f"comm is {comm!r}; it must be rank 0, on the context of the model")
            self.divided = DividedExperts(comm, model, rows)
            model = model.of_experts(self.divided.own)
        self.weights = Weights(ctx, model, weights, adapter, adapters)
        self.adapters = self.weights.adapters
        self.rope = RopeTables(
            ctx,
            config.head_dim,
            divisors=config.rope_divisors(self.context),
            magnitude=config.rope.magnitude,
            rotated=config.rope.rotated,
            **config.rope_options(self.context),
        )
        #: Of layers with a window, where these have tables of their own.
        self.local_rope = None
        if config.local_rope_base:
            self.local_rope = RopeTables(ctx, config.head_dim, config.local_rope_base)
        self.reach(_FIRST_POSITIONS - 1)
        self.cache = PagedCache(
            ctx,
            layers=config.num_layers,
            kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            pages=-(-cache_tokens // PAGE),
            context=self.context,
            format=cache_format,
        )
        # Where the steps of a call put their results: made once for the most rows of a call, so that no call allocates.
        self._layers: Any
        if config.ternary:
            self._layers = TernaryLayers(ctx, config, rows, self.adapters.rank)
        else:
            self._layers = StoredLayers(ctx, config, rows, self.divided, self.adapters.rank)
        self._x = ctx.empty((rows, config.hidden_size))
        self._heads = ctx.empty((rows, config.num_heads, config.head_dim))
        self._logits = ctx.empty((max_batch, config.vocab_size))
        self._normed = ctx.empty((max(max_batch, _LOGITS_ROWS), config.hidden_size))
        self._last = ctx.empty((max_batch, config.hidden_size))
        self._rows = ctx.empty((max_batch,), "i32")
        self._inputs = self.inputs(piece, max_batch)
        self._row_bytes = 2 * config.num_layers * self.cache.page_bytes // PAGE

    def reach(self, position: int) -> None:
        """Has rotary tables with a row for this position: those in use, or others twice as long."""
        if position >= self.rope.length:
            length = max(position + 1, 2 * self.rope.length)
            self.rope.tables(length)
            if self.local_rope is not None:
                self.local_rope.tables(length)

    # Prefill

    def prefill(self, parts: Sequence[Part]) -> Tensor | None:
        """Runs the next ids of one or several sequences, at most `piece` ids and `max_batch` sequences.

        Gives the logits f32 [wanted parts, vocab] after the last id of each part that wants them, which the next call
        overwrites; None when none does. Raises CacheFullError or ValueError when a sequence has no room, and IndexError
        for an id outside the vocabulary, all before anything is run.
        """
        ids = [self.check_ids(part.ids) for part in parts]
        self._forward_parts([part.sequence for part in parts], ids)
        ends = np.cumsum([len(part) for part in ids])
        last = [int(end) - 1 for end, part in zip(ends, parts, strict=True) if part.wanted]
        if not last:
            return None
        rows = self._rows.narrow(0, 0, len(last)).copy_(np.array(last, np.int32))
        x = self._x.narrow(0, 0, int(ends[-1]))
        kernels.embedding(x, rows, y=self._last.narrow(0, 0, len(last)))
        return self._head(self._last.narrow(0, 0, len(last)), self._logits)

    def logits(
        self, ids: Sequence[int] | np.ndarray, watch: Watch | None = None, adapter: str | None = None
    ) -> np.ndarray:
        """The logits after each of the ids, f32 [ids, vocab]. `watch` is shown what every step of the way makes;
        `adapter` is the name of one of the engine's."""
        array = self._whole(ids, least=1)
        found = np.empty((len(array), self.config.vocab_size), np.float32)
        # Of its own: with a large vocabulary these are tens of megabytes, which drawing tokens has no use for.
        block = self.ctx.empty((min(len(array), _LOGITS_ROWS), self.config.vocab_size))
        sequence = self.cache.open(rows=len(array), adapter=self.adapters.number(adapter))
        try:
            for start in range(0, len(array), self.piece):
                piece = array[start : start + self.piece]
                self._forward_parts([sequence], [piece], watch)
                for first in range(0, len(piece), block.shape[0]):
                    rows = min(block.shape[0], len(piece) - first)
                    logits = self._head(self._x.narrow(0, first, rows), block, watch)
                    found[start + first : start + first + rows] = logits.numpy()
        finally:
            self.cache.close(sequence)
        return found

    def logprobs(
        self, ids: Sequence[int] | np.ndarray, alternatives: int = 0, adapter: str | None = None
    ) -> list[TokenLogprobs | None]:
        """The log-probability of each of the ids after those before it, with so many alternatives; None for the first.

        The bits are those that a request has for its prompt.
        """
        array = self._whole(ids, least=0)
        found: list[TokenLogprobs | None] = [None] * min(len(array), 1)
        sequence = self.cache.open(rows=len(array), adapter=self.adapters.number(adapter))
        try:
            for start in range(0, len(array), self.piece):
                piece = array[start : start + self.piece]
                self._forward_parts([sequence], [piece])
                found += self.scores(0, array[start + 1 : start + 1 + len(piece)], alternatives)
        finally:
            self.cache.close(sequence)
        return found

    def scores(self, first: int, following: np.ndarray, alternatives: int) -> list[TokenLogprobs]:
        """The log-probabilities of the ids that follow the tokens of the last prefill call from number `first` on."""
        found = []
        rows = min(len(following), _LOGITS_ROWS)
        if rows == 0:
            return []
        block, scores = self.ctx.empty((rows, self.config.vocab_size)), Scores(self.ctx, rows)
        ids = self.ctx.empty((rows,), "i32")
        for start in range(0, len(following), rows):
            part = following[start : start + rows]
            logits = self._head(self._x.narrow(0, first + start, len(part)), block)
            scores.take(logits, ids.narrow(0, 0, len(part)).copy_(part))
            found += scores.read([alternatives] * len(part))
        return found

    def embed(self, ids: Sequence[int] | np.ndarray, adapter: str | None = None) -> np.ndarray:
        """The vector of a text, f32 [hidden_size]: the mean of the hidden states after the final norm, of all of its
        tokens, brought to length 1. The bits are those that a request has for its prompt.

        ValueError when there is no id or more than the context has room for, IndexError for one outside the vocabulary,
        CacheFullError while other sequences have the pages.
        """
        array = self._whole(ids, least=1)
        pool = self.pool()
        sequence = self.cache.open(rows=len(array), adapter=self.adapters.number(adapter))
        try:
            for start in range(0, len(array), self.piece):
                piece = array[start : start + self.piece]
                self._forward_parts([sequence], [piece])
                self.add_to(pool, 0, len(piece))
        finally:
            self.cache.close(sequence)
        return pool.vector()

    def pool(self) -> Pool:
        """Where the hidden states of a text are gathered."""
        return Pool(self.ctx, self.config.hidden_size)

    def add_to(self, pool: Pool, first: int, tokens: int) -> None:
        """Adds the hidden states of so many tokens of the last prefill call, from number `first` on."""
        for start in range(first, first + tokens, _LOGITS_ROWS):
            rows = min(_LOGITS_ROWS, first + tokens - start)
            pool.add(self._final_norm(self._x.narrow(0, start, rows)))

    def check_ids(self, ids: Ids) -> np.ndarray:
        """The ids of one sequence as an array i32: see `sequence_ids`."""
        return sequence_ids(ids, self.config.vocab_size)

    def _whole(self, ids: Ids, least: int) -> np.ndarray:
        """The same of ids that are run as a whole, of which there must be none or one at least."""
        array = self.check_ids(ids)
        if len(array) < least:
            raise ValueError("ids is empty; there must be at least one")
        if len(array) > self.context:
            raise ValueError(f"there are {len(array)} ids; the context has room for {self.context}")
        return array

    def _forward_parts(
        self, sequences: Sequence[CachedSequence], ids: Sequence[np.ndarray], watch: Watch | None = None
    ) -> None:
        lengths = [len(part) for part in ids]
        tokens = sum(lengths)
        if tokens > self.piece or len(ids) > self.max_batch or 0 in lengths:
            raise ValueError(
                f"a call of {len(ids)} parts with {lengths} tokens; there may be {self.max_batch} parts of at least "
                f"one token each and {self.piece} tokens in all"
            )
        for sequence, length in zip(sequences, lengths, strict=True):
            self.cache.extend(sequence, length)
        self.reach(max(s.position + n for s, n in zip(sequences, lengths, strict=True)) - 1)
        inputs = self.first_inputs(self._inputs, tokens, len(ids))
        inputs.ids.copy_(np.concatenate(ids))
        spans = [np.arange(s.position, s.position + n) for s, n in zip(sequences, lengths, strict=True)]
        inputs.positions.copy_(np.concatenate(spans))
        inputs.offsets.copy_(np.cumsum([0, *lengths]))
        inputs.lengths.copy_(np.array([s.length + n for s, n in zip(sequences, lengths, strict=True)]))
        inputs.table.copy_(np.stack([self.cache.table_row(sequence) for sequence in sequences]))
        self._forward(inputs, False, runs_of((one.adapter for one in sequences), lengths), watch)
        for sequence, part in zip(sequences, ids, strict=True):
            self.cache.advance(sequence, part.tolist())

    # Decode

    def inputs(self, tokens: int, batch: int) -> Inputs:
        """Places on the device for a call's tokens."""
        ctx = self.ctx
        return Inputs(
            ctx.zeros((tokens,), "i32"),
            ctx.zeros((tokens,), "i32"),
            ctx.zeros((batch + 1,), "i32"),
            ctx.zeros((batch,), "i32"),
            ctx.zeros((batch, self.cache.max_pages), "i32"),
        )

    @staticmethod
    def first_inputs(inputs: Inputs, tokens: int, batch: int) -> Inputs:
        """The same places, of the first tokens and sequences only."""
        return Inputs(
            *(t.narrow(0, 0, n) for t, n in zip(inputs, (tokens, tokens, batch + 1, batch, batch), strict=True))
        )

    def decode(self, inputs: Inputs, runs: Sequence[Run] = ()) -> Tensor:
        """Logits f32 [batch, vocab] after one new token of each sequence, whose adapters `runs` says. The calls read
        nothing on the host, so they can be captured; pages and rotary tables must reach as far as the rows and
        positions do."""
        self._forward(inputs, True, runs)
        return self._head(self._x.narrow(0, 0, inputs.ids.shape[0]), self._logits)

    # The model

    def _forward(self, inputs: Inputs, decode: bool, runs: Sequence[Run], watch: Watch | None = None) -> None:
        """Runs all layers; the residual stream is in `_x` then."""
        tokens = inputs.ids.shape[0]
        if self.adapters.rank:
            self._layers.runs = runs
        with contextlib.nullcontext() if self.divided is None else self.divided.call(tokens):
            self._run_layers(inputs, decode, watch)

    def _run_layers(self, inputs: Inputs, decode: bool, watch: Watch | None) -> None:
        x = self._x.narrow(0, 0, inputs.ids.shape[0])
        table = self.weights.embedding
        kernels.embedding_quant(table.data, inputs.ids, format=table.format, y=x)
        if self.config.embedding_scale != 1:
            kernels.scale(x, alpha=self.config.embedding_scale, y=x)
        if watch is not None:
            watch("embedding", x)
        for number, layer in enumerate(self.weights.layers):
            told = within(watch, f"layers.{number}.")
            sinks = layer.sinks if isinstance(layer, Layer) else None
            heads = self._attention(number, self._layers.qkv(layer, x, told), sinks, inputs, decode, told)
            self._layers.attended(layer, heads, x, told)
            if told is not None:
                told("attn_residual", x)
            self._layers.feed_forward(layer, x, told)
            if told is not None:
                told("output", x)

    def _attention(
        self, number: int, qkv: Heads, sinks: Tensor | None, inputs: Inputs, decode: bool, watch: Watch | None
    ) -> Tensor:
        """Puts a layer's keys and values into the cache; what attention gives, f32 [tokens, heads * head_dim]."""
        q, k, v = qkv
        config, tokens = self.config, q.shape[0]
        heads = self._heads.narrow(0, 0, tokens)
        window = config.window_of(number)
        options = {"scale": config.attention_scale or None, "window": window, "softcap": config.scores_cap}
        local = self.local_rope if window else None
        cosine, sine = (local or self.rope).tables(1)
        keys, values, code = self.cache.keys[number], self.cache.values[number], self.cache.format.code
        if decode:
            kernels.attention_step_paged(
                q, k, v, cosine, sine, inputs.positions, inputs.lengths, inputs.table, sinks, keys, values,
                **options, layout=config.rope.layout, format=code, out=heads,
            )  # fmt: skip
            return heads.view(tokens, -1)
        if watch is not None:
            for name, tensor in (("q", q), ("k", k), ("v", v)):
                watch(name, tensor)
        kernels.rope_qk(q, k, cosine, sine, inputs.positions, layout=config.rope.layout)
        if watch is not None:
            watch("q_rope", q)
            watch("k_rope", k)
        seen = inputs.offsets, inputs.lengths, inputs.table
        kernels.kv_append_paged(k, v, *seen, keys, values, format=code)
        kernels.flash_attention_paged(
            q, keys, values, *seen, sinks, **options, format=code, kv_heads=config.num_kv_heads, out=heads
        )
        if watch is not None:
            watch("attention", heads)
        return heads.view(tokens, -1)

    def _head(self, x: Tensor, target: Tensor, watch: Watch | None = None) -> Tensor:
        """Logits of rows of the residual stream, in the first rows of `target`."""
        normed = self._final_norm(x)
        head, logits = self.weights.head, target.narrow(0, 0, x.shape[0])
        kernels.gemm_quant(normed, head.data, format=head.format, y=logits)
        if self.config.logits_scaling != 1:
            kernels.scale(logits, alpha=1 / self.config.logits_scaling, y=logits)
        if self.config.logits_cap:
            kernels.softcap(logits, cap=self.config.logits_cap, y=logits)
        if watch is not None:
            watch("norm", normed)
            watch("logits", logits)
        return logits

    def _final_norm(self, x: Tensor) -> Tensor:
        """Normed rows of the residual stream, which the next call overwrites."""
        normed = self._normed.narrow(0, 0, x.shape[0])
        kernels.rmsnorm(x, self.weights.norm, eps=self.config.norm_eps, y=normed)
        return normed

    def bytes_per_step(self, lengths: Iterable[int], adapters: Iterable[int] = (0,)) -> int:
        """Bytes that one decode step must read at least: each weight once, those of the adapters with these numbers,
        and the rows of each sequence's cache."""
        lengths = list(lengths)
        return self.weights.bytes_per_step(len(lengths), adapters) + self._row_bytes * sum(lengths)

    def close(self) -> None:
        """Lets the ranks go that serve this one. Twice is fine."""
        if self.divided is not None:
            self.divided.end()

    def abort(self, error: BaseException) -> None:
        """Tells the ranks that serve this one why it does not go on."""
        if self.divided is not None:
            self.divided.abort(error)
