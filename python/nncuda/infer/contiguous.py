"""Generation over a contiguous cache by the layers that train: prefill of each prompt, then decode of all sequences.

This is the path that Python, Go and Rust share: the same calls, so the same tokens. `LanguageModel` serves requests
that come and go, over a paged cache; it adds in another order, so its logits agree with these up to rounding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ..device import Graph, HostCopy
from ..models import MoETransformer
from ..token_ids import Ids, prompt_ids
from .drawing import Drawing, RowSampler
from .sampling import GREEDY, Sampling


class _Sequences:
    """A batch of sequences on the device: their cache, the logits of their last tokens, the ids drawn from them.

    A first step runs call by call. The second is captured, unless it is the last, and replayed from then on with the
    same bits: between its calls the host has nothing to do, and from step to step nothing but the ids comes back.
    """

    def __init__(
        self, model: MoETransformer, prompts: Sequence[np.ndarray], capacity: int, sampling: Sampling, capture: bool
    ):
        ctx, rows = model.ctx, len(prompts)
        self._model = model
        self._capture = capture
        self._cache = model.cache(rows, capacity)
        self._logits = ctx.empty((rows, model.config.vocab_size))
        self._ids = ctx.empty((rows,), "i32")
        self._read_ids = HostCopy(self._ids).read
        self._sampler = RowSampler(ctx, rows, model.config.vocab_size)
        drawings = []
        for row, prompt in enumerate(prompts):
            own = dataclasses.replace(sampling, seed=sampling.seed + row)
            drawings.append(Drawing.of(own, prompt, capacity - len(prompt) + 1))
        self._sampler.assign(drawings)
        self._steps = 0
        self._graph: Graph | None = None
        for row, prompt in enumerate(prompts):
            model.prefill(prompt, self._cache, row, self._logits.narrow(0, row, 1))
        self._sampler.draw(self._logits, self._ids)

    @property
    def ids(self) -> list[int]:
        """The last token of each sequence."""
        ids: list[int] = self._read_ids().tolist()
        return ids

    def step(self, last: bool) -> None:
        """Runs the last tokens through the model and draws the next."""
        self._steps += 1
        if self._graph is not None:
            self._cache.require_room(1)
            self._graph.launch()
            self._cache.count(1)
        elif self._steps == 1 or last or not self._capture:
            self._calls()
        else:
            with self._model.ctx.capture() as graph:
                self._calls()
            self._graph = graph
            graph.launch()

    def _calls(self) -> None:
        self._model.decode(self._ids, self._cache, self._logits)
        self._sampler.draw(self._logits, self._ids)


def room(model: MoETransformer, prompt: int) -> int:
    """How many tokens a model can write after a prompt of that many; 0 when the prompt alone is too long."""
    # The last token written is not read again, so it needs no room.
    return max(0, model.config.extended_context - prompt + 1)


def generate_batch(
    model: MoETransformer,
    prompts: Sequence[Ids] | np.ndarray,
    max_new_tokens: int,
    sampling: Sampling = GREEDY,
    end_id: int = -1,
    capture: bool = True,
) -> Iterator[list[int | None]]:
    """Continues several prompts of any lengths at once; yields the next token of each, None after its `end_id`.

    Prompts are token ids. The calls of a token are captured as a graph once and replayed, unless `capture` is off: the
    tokens are the same.

    Ends when all sequences have ended, or after `max_new_tokens`. What is wrong with the prompts is raised by the call
    itself: ValueError when one is empty or has more than one dimension, TypeError for texts and other things that are
    no ids, nncuda.OutOfRangeError for an id outside the vocabulary. The first token raises ValueError when the model
    does not reach that far. A sequence's tokens do not depend on the others of the batch, except through the last bits
    of products over other numbers of rows.
    """
    if isinstance(prompts, str | bytes) or not isinstance(prompts, Iterable):
        raise TypeError(f"prompts is {prompts!r:.60}; it must be a sequence of prompts, each a sequence of token ids")
    vocab = model.config.vocab_size
    checked = [prompt_ids(prompt, vocab, f"prompts[{number}]") for number, prompt in enumerate(prompts)]
    if not checked:
        raise ValueError("prompts is empty; there must be at least one")
    sampling.check_ids(vocab)
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens is {max_new_tokens}; it must be at least 0")
    return _tokens(model, checked, max_new_tokens, sampling, end_id, capture)


def _tokens(
    model: MoETransformer,
    prompts: list[np.ndarray],
    max_new_tokens: int,
    sampling: Sampling,
    end_id: int,
    capture: bool,
) -> Iterator[list[int | None]]:
    if max_new_tokens == 0:
        return
    # The last token drawn is never run through the model.
    capacity = max(map(len, prompts)) + max_new_tokens - 1
    with model.ctx._turns.alone("model"):
        sequences = _Sequences(model, prompts, capacity, sampling, capture)
        tokens = sequences.ids
    ended = [False] * len(prompts)
    for left in reversed(range(max_new_tokens)):
        yield [None if done else token for token, done in zip(tokens, ended, strict=True)]
        ended = [done or token == end_id for token, done in zip(tokens, ended, strict=True)]
        if all(ended) or left == 0:
            return
        with model.ctx._turns.alone("model"):
            sequences.step(last=left == 1)
            tokens = sequences.ids


def generate(
    model: MoETransformer,
    prompt: Ids,
    max_new_tokens: int,
    sampling: Sampling = GREEDY,
    end_id: int = -1,
) -> Iterator[int]:
    """Continues one prompt of token ids, token by token, up to and including `end_id`; see `generate_batch`.

    `TextGenerator` does the same with texts.
    """
    ids = prompt_ids(prompt, model.config.vocab_size)
    # A batch of one ends with its only sequence, so there is no None.
    return (token for (token,) in generate_batch(model, [ids], max_new_tokens, sampling, end_id) if token is not None)
