"""Requests that come and go while others are decoded.

A step admits requests that wait, as far as rows and pages allow, runs the next piece of their prompts, and moves every
sequence on by one token. A request is admitted only with a promise of all the pages that it may come to need, so that
none has to be thrown out half-way. (Yu et al. 2022, "Orca", section 3: iteration-level scheduling)
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .batch import DecodeBatch, Row
from .constraint import Constraint, checked_mask
from .drawing import Drawing
from .engine import Engine, Part
from .paged_cache import LEAST_COPIED, PAGE, CachedSequence, CacheFullError, common_prefix
from .pooling import Pool
from .sampling import GREEDY, Sampling
from .scores import TokenLogprobs

#: Tokens of a prompt that are run between two steps of sequences which wait for their next token. A short piece keeps
#: them from waiting long; a long one makes better use of the machine, and is taken when no other request waits.
PIECE_BESIDE_DECODING = 128

END, STOP, LENGTH, CANCELLED, FAILED = "end", "stop", "length", "cancelled", "failed"


class Request:
    """A prompt on its way: `tokens` are those drawn and not yet taken, `finish` says why it ended, None until then.

    `shared` is how many tokens of the prompt were found in the cache when it was admitted. With `logprobs`, a number of
    alternatives, each token comes with its log-probability, in `scores`; with `prompt_logprobs` those of the prompt's
    tokens are in `prompt_scores` once it has been run, None for the first one. With `embed`, and no new token, the
    prompt's vector is in `embedding` then (`Engine.embed`). For either, none of the prompt is taken from the cache.
    `constraint` says which tokens may be drawn; what it raises ends the request, and is its `error`. `adapter` is the
    name of one of the engine's.
    """

    def __init__(
        self,
        prompt: np.ndarray,
        max_new_tokens: int,
        sampling: Sampling = GREEDY,
        end_ids: Iterable[int] = (),
        *,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        embed: bool = False,
        constraint: Constraint | None = None,
        adapter: str | None = None,
    ):
        if embed and max_new_tokens:
            raise ValueError(f"max_new_tokens is {max_new_tokens}; where a prompt is embedded it must be 0")
        self.prompt = prompt
        self.max_new_tokens = max_new_tokens
        self.sampling = sampling
        self.end_ids = frozenset(end_ids)
        self.logprobs = logprobs
        self.prompt_logprobs = prompt_logprobs
        self.embed = embed
        self.constraint = constraint
        self.adapter = adapter
        self.tokens: deque[int] = deque()
        self.scores: deque[TokenLogprobs | None] = deque()  # as many as tokens
        self.prompt_scores: list[TokenLogprobs | None] = [None]
        self.embedding: np.ndarray | None = None
        self.error: Exception | None = None
        self.drawn = 0
        self.shared = 0
        self.finish: str | None = None
        self._drawing: Drawing | None = None  # once it waits
        self._number = 0  # of its adapter, from then on
        self._row: Row | None = None  # once it is admitted
        self._pool: Pool | None = None  # once some of it has been run

    def take_prompt_scores(self) -> tuple[TokenLogprobs | None, ...] | None:
        """Those of the prompt, if they were wanted and are there; the first time only."""
        if self.prompt_logprobs is None or len(self.prompt_scores) != len(self.prompt):
            return None
        scores, self.prompt_scores = tuple(self.prompt_scores), []
        return scores

    @property
    def whole(self) -> bool:
        """Whether all of the prompt is run, whatever the cache has: pages hold neither logits nor hidden states."""
        return self.embed or self.prompt_logprobs is not None

    @property
    def admitted(self) -> bool:
        """Whether it has a place now: it no longer waits, and has not ended."""
        return self._row is not None

    @property
    def rows(self) -> int:
        """Rows of the cache that it may come to need: the last token drawn is never run."""
        return len(self.prompt) + max(self.max_new_tokens, 1) - 1


@dataclass
class Statistics:
    """What a scheduler has done so far.

    prompt_tokens   of the prompts that were admitted, and shared_tokens those of them that were in the cache already
    prefill_tokens  run in pieces of prompts, in prefill_seconds
    decode_tokens   drawn in decode_steps steps of the batch, in decode_seconds, which read decode_bytes at least
    """

    prompt_tokens: int = 0
    shared_tokens: int = 0
    prefill_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_tokens: int = 0
    decode_steps: int = 0
    decode_seconds: float = 0.0
    decode_bytes: int = 0


class Scheduler:
    """Serves requests on an engine, first come, first served. `statistics` counts on from its beginning; `ahead` is
    that of `DecodeBatch`."""

    def __init__(self, engine: Engine, ahead: bool | None = None):
        self.engine = engine
        self.batch = DecodeBatch(engine, ahead)
        self.statistics = Statistics()
        self._waiting: deque[Request] = deque()
        self._prefilling: deque[Request] = deque()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self._waiting or self._prefilling or self.batch.rows)

    def check(self, prompt: np.ndarray, max_new_tokens: int) -> None:
        """Raises ValueError when a prompt is empty or longer than the context, CacheFullError when the cache has not as
        many pages as its continuation may come to need."""
        cache = self.engine.cache
        if len(prompt) == 0:
            raise ValueError("a prompt must have at least one token; the one that begins a text is enough")
        if len(prompt) > cache.context:
            raise ValueError(f"the prompt has {len(prompt)} tokens; the context has room for {cache.context}")
        if max_new_tokens < 0:
            raise ValueError(f"max_new_tokens is {max_new_tokens}; it must be at least 0")
        length = len(prompt) + max(max_new_tokens, 1) - 1
        if length > cache.context < PAGE:  # there is no whole page to drop
            raise ValueError(
                f"the prompt has {len(prompt)} tokens, {length} with the new ones; the context has room for "
                f"{cache.context}"
            )
        needed = -(-min(length, cache.context) // PAGE)
        if needed > cache.num_pages:
            raise CacheFullError(
                f"a prompt of {len(prompt)} tokens with {max_new_tokens} new ones needs {needed} pages of {PAGE} "
                f"tokens; the cache has {cache.num_pages}: write fewer tokens, or make it larger (cache_tokens is "
                f"{cache.num_pages * PAGE})"
            )

    def add(self, request: Request) -> None:
        """Puts a request into the queue; it must pass `check`. ValueError for an adapter that there is not."""
        request._number = self.engine.adapters.number(request.adapter)
        if request.max_new_tokens == 0 and not request.whole:
            request.finish = LENGTH
            return
        request._drawing = Drawing.of(request.sampling, request.prompt, request.max_new_tokens)
        self._waiting.append(request)
        if request.constraint is not None:
            self._constrain(request)

    def cancel(self, request: Request) -> None:
        """Ends a request now, wherever it is. One that has ended stays as it is."""
        if request.finish is None:
            self._end(request, CANCELLED)

    def step(self) -> None:
        """One piece of prompts, if there are any, and one token for every sequence after its prompt.

        Raises CacheFullError when requests wait for pages that none of the others holds.
        """
        parts = self._next_parts()
        if parts:
            self._prefill(parts)
        if self.batch.rows:
            self._decode()

    def close(self) -> None:
        """Cancels all requests and frees the graphs."""
        for request in (*self._waiting, *self._prefilling, *(row.owner for row in self.batch.rows)):
            self.cancel(request)
        self.batch.close()

    def _next_parts(self) -> list[tuple[Request, Part]]:
        """The next piece: of prompts that are under way first, then of those that can be admitted."""
        engine = self.engine
        room = min(PIECE_BESIDE_DECODING, engine.piece) if self.batch.rows else engine.piece
        parts: list[tuple[Request, Part]] = []
        while room > 0:
            if len(parts) == len(self._prefilling) and not self._admit():
                break
            request = self._prefilling[len(parts)]
            assert request._row is not None
            sequence = request._row.sequence
            ids = request.prompt[sequence.length : sequence.length + room]
            room -= len(ids)
            wanted = sequence.length + len(ids) == len(request.prompt) and request.max_new_tokens > 0
            parts.append((request, Part(sequence, ids, wanted)))
        return parts

    def _admit(self) -> bool:
        """Moves the request that has waited longest to the prompts under way, if there is room for it."""
        if not self._waiting or len(self._prefilling) + len(self.batch.rows) == self.engine.max_batch:
            return False
        request = self._waiting[0]
        known = request.prompt[:0] if request.whole else request.prompt
        if self._comes(known, request._number):
            return False
        try:
            sequence = self.engine.cache.open(known, request.rows, self._sequences(), request._number)
        except CacheFullError:
            if not self._prefilling and not self.batch.rows:
                raise  # no request ends and makes room: others that hold pages must
            return False
        self._waiting.popleft()
        request.shared = sequence.shared
        self.statistics.prompt_tokens += len(request.prompt)
        self.statistics.shared_tokens += sequence.shared
        assert request._drawing is not None
        request._row = Row(sequence, request._drawing, owner=request, alternatives=request.logprobs)
        self._prefilling.append(request)
        return True

    def _sequences(self) -> list[CachedSequence]:
        """Those that are open."""
        under_way = (request._row for request in self._prefilling)
        return [row.sequence for row in (*self.batch.rows, *under_way) if row is not None]

    def _comes(self, known: np.ndarray, adapter: int) -> bool:
        """Whether a prompt under way has yet to run what `known` begins with, too, and by the same adapter, so that it
        is better to wait for it: texts of one prompt run it once."""
        for request in self._prefilling:
            assert request._row is not None
            # Others keep their pages to themselves.
            if request._number == adapter and request.rows <= self.engine.cache.context:
                together = common_prefix(request.prompt, known[:-1])
                if together - request._row.sequence.length >= LEAST_COPIED:
                    return True
        return False

    def _prefill(self, parts: list[tuple[Request, Part]]) -> None:
        start = time.perf_counter()
        logits = self.engine.prefill([part for _, part in parts])
        done = [request for request, part in parts if part.wanted]
        rows = [request._row for request in done if request._row is not None]
        tokens = [] if logits is None else self.batch.first_tokens(logits, rows)
        self._score_prompts(parts)
        self._embed_prompts(parts)
        self.statistics.prefill_tokens += sum(len(part.ids) for _, part in parts)
        self.statistics.prefill_seconds += time.perf_counter() - start
        for request, row, token in zip(done, rows, tokens, strict=True):
            self._prefilling.remove(request)
            self.batch.join(row)
            self._drawn(row, token)
        for request, part in parts:
            if request.max_new_tokens == 0 and part.sequence.length == len(request.prompt):
                self._end(request, LENGTH)

    def _score_prompts(self, parts: list[tuple[Request, Part]]) -> None:
        """The log-probabilities of the tokens that follow those which were just run, of the requests that want them."""
        first = 0
        for request, part in parts:
            if request.prompt_logprobs is not None:
                start = part.sequence.length - len(part.ids)
                following = request.prompt[start + 1 : start + 1 + len(part.ids)]
                request.prompt_scores += self.engine.scores(first, following, request.prompt_logprobs)
            first += len(part.ids)

    def _embed_prompts(self, parts: list[tuple[Request, Part]]) -> None:
        """Adds what was just run to the vectors of the requests that want one."""
        first = 0
        for request, part in parts:
            if request.embed:
                request._pool = request._pool or self.engine.pool()
                self.engine.add_to(request._pool, first, len(part.ids))
                if part.sequence.length == len(request.prompt):
                    request.embedding, request._pool = request._pool.vector(), None
            first += len(part.ids)

    def _decode(self) -> None:
        rows, done, start = list(self.batch.rows), self.statistics, time.perf_counter()
        done.decode_bytes += self.engine.bytes_per_step(
            (row.sequence.length + 1 for row in rows), (row.sequence.adapter for row in rows)
        )
        # Whether all of them want the token after the next one, too, and keep one another's company until then.
        go_on = not self._prefilling and all(row.owner.drawn + 1 < row.owner.max_new_tokens for row in rows)
        tokens = self.batch.step(go_on)
        done.decode_seconds += time.perf_counter() - start
        done.decode_steps += 1
        done.decode_tokens += len(tokens)
        for row, token in tokens:
            self._drawn(row, token)

    def _drawn(self, row: Row, token: int) -> None:
        request = row.owner
        request.tokens.append(token)
        request.scores.append(row.logprobs)
        request.drawn += 1
        if token in request.end_ids:
            self._end(request, END)
        elif request.drawn == request.max_new_tokens:
            self._end(request, LENGTH)
        elif request.constraint is not None:
            self._constrain(request, token)

    def _constrain(self, request: Request, token: int | None = None) -> None:
        """Has the constraint say which tokens may be next, after one that was drawn."""
        assert request.constraint is not None and request._drawing is not None
        try:
            if token is not None:
                request.constraint.accept(token)
            mask = checked_mask(request.constraint.mask(), self.engine.config.vocab_size)
        except Exception as error:  # of this request alone
            request.error = error
            self._end(request, FAILED)
            return
        request._drawing.mask = mask
        if not mask.any():
            self._end(request, STOP)

    def _end(self, request: Request, finish: str) -> None:
        request.finish = finish
        for queue in (self._waiting, self._prefilling):
            if request in queue:
                queue.remove(request)
        row, request._row = request._row, None
        if row is not None:
            if row in self.batch.rows:
                self.batch.leave(row)
            self.engine.cache.close(row.sequence)
