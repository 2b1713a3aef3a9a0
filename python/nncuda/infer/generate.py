"""Generation of tokens: prefill of each prompt, then decode of all sequences together over a cache."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .. import kernels
from ..context import Context
from ..graphs import Graph
from ..models import MoETransformer
from ..tensor import HostCopy, Tensor
from ..token_ids import Ids, prompt_ids


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    temperature     divides the logits; 0 always picks the most likely token
    top_k           samples only from this many of the most likely tokens; None from all
    top_p           samples only from the shortest run of most likely tokens that reaches this probability; None: from
                    all
    seed            the same seed gives the same tokens; sequence r of a batch uses seed + r
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature is {self.temperature}; it must be a finite number, at least 0")
        if self.top_k is not None and not (_is_whole(self.top_k) and 1 <= self.top_k < 2**31):
            raise ValueError(f"top_k is {self.top_k}; it must be a whole number, at least 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0, at most 1")
        if not _is_whole(self.seed):
            raise ValueError(f"seed is {self.seed!r}; it must be a whole number")


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


GREEDY = Sampling(temperature=0.0)


class _Sampler:
    """Draws on the device, one number after the other, which are counted there too."""

    def __init__(self, ctx: Context, sampling: Sampling, rows: int):
        self._sampling = sampling
        self._temperature = ctx.tensor(np.full(rows, sampling.temperature, np.float32))
        # Seeds count modulo 2^64, as keys of the generator do.
        seeds = (np.arange(rows, dtype=np.uint64) + np.uint64(sampling.seed % 2**64)).view(np.int64)
        self._seeds = ctx.tensor(seeds)
        self._steps = ctx.zeros((rows,), "i32")
        self._top_k = None if sampling.top_k is None else ctx.tensor(np.full(rows, sampling.top_k, np.int32))
        self._top_p = None if sampling.top_p is None else ctx.tensor(np.full(rows, sampling.top_p, np.float32))

    def draw(self, logits: Tensor, ids: Tensor) -> None:
        """The next draw of each row of logits [rows, vocab], into ids i32 [rows]."""
        if self._sampling.temperature == 0:
            kernels.argmax(logits, ids=ids)
            return
        common = self._seeds, self._steps
        if self._top_p is not None:
            kernels.topp_sample(logits, self._temperature, self._top_k, self._top_p, *common, ids=ids)
        elif self._top_k is not None:
            kernels.topk_sample(logits, self._temperature, self._top_k, *common, ids=ids)
        else:
            kernels.sample(logits, self._temperature, *common, ids=ids)
        kernels.increment(self._steps)


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
        self._sampler = _Sampler(ctx, sampling, rows)
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
    """How many tokens a model can write after a prompt of so many; 0 when the prompt alone is too long."""
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
    """Continues several prompts of any lengths at once; yields the next token of each, None behind its `end_id`.

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
