"""Generation of tokens: prefill of each prompt, then decode of all sequences together over a cache."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .. import kernels
from ..models import MoETransformer
from ..tensor import Tensor


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    temperature     divides the logits; 0 takes the likeliest token
    top_k           draws among the so many likeliest; None draws among all
    top_p           draws among the shortest run of likeliest tokens that reaches this probability; None: no such limit
    seed            the same seed gives the same tokens; sequence r of a batch uses seed + r
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature is {self.temperature}; it must be a finite number, at least 0")
        if self.top_k is not None and not 1 <= self.top_k < 2**31:
            raise ValueError(f"top_k is {self.top_k}; it must be at least 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0, at most 1")


GREEDY = Sampling(temperature=0.0)


class _Sampler:
    """Draws on the device; what does not change from draw to draw is made once."""

    def __init__(self, model: MoETransformer, sampling: Sampling, rows: int):
        ctx = model.ctx
        self._sampling = sampling
        self._temperature = ctx.tensor(np.full(rows, sampling.temperature, np.float32))
        # Seeds count modulo 2^64, as keys of the generator do.
        seeds = (np.arange(rows, dtype=np.uint64) + np.uint64(sampling.seed % 2**64)).view(np.int64)
        self._seeds = ctx.tensor(seeds)
        self._steps = ctx.zeros((rows,), "i32")
        self._top_k = None if sampling.top_k is None else ctx.tensor(np.full(rows, sampling.top_k, np.int32))
        self._top_p = None if sampling.top_p is None else ctx.tensor(np.full(rows, sampling.top_p, np.float32))

    def draw(self, logits: Tensor, number: int) -> Tensor:
        """Draw `number` of each row of logits [rows, vocab]; ids i32 [rows]."""
        if self._sampling.temperature == 0:
            return kernels.argmax(logits)
        kernels.fill(self._steps, value=number)
        common = self._seeds, self._steps
        if self._top_p is not None:
            return kernels.topp_sample(logits, self._temperature, self._top_k, self._top_p, *common)
        if self._top_k is not None:
            return kernels.topk_sample(logits, self._temperature, self._top_k, *common)
        return kernels.sample(logits, self._temperature, *common)


def generate_batch(
    model: MoETransformer,
    prompts: Sequence[Sequence[int] | np.ndarray],
    max_new_tokens: int,
    sampling: Sampling = GREEDY,
    end_id: int = -1,
) -> Iterator[list[int | None]]:
    """Continues several prompts of any lengths at once; yields the next token of each, None behind its `end_id`.

    Ends when all sequences have ended, or after `max_new_tokens`. Raises ValueError when a prompt is empty or the model
    does not reach that far, and nncuda.OutOfRangeError when it holds an id outside the vocabulary. A sequence's tokens
    do not depend on the others of the batch, except through the last bits of products over other numbers of rows.
    """
    lengths = [len(prompt) for prompt in prompts]
    if not lengths or min(lengths) == 0:
        raise ValueError("a prompt must have at least one token: that which begins a text will do")
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens is {max_new_tokens}; it must be at least 0")
    if max_new_tokens == 0:
        return
    rows, ctx = len(prompts), model.ctx
    # The last token drawn is never run through the model.
    capacity = max(lengths) + max_new_tokens - 1
    model.stretch_rope(capacity)
    cache = model.cache(rows, capacity)
    logits = ctx.empty((rows, model.config.vocab_size))
    for row, prompt in enumerate(prompts):
        model.prefill(np.asarray(prompt), cache, row, logits.narrow(0, row, 1))
    sampler = _Sampler(model, sampling, rows)
    ended = [False] * rows
    for number in range(max_new_tokens):
        ids = sampler.draw(logits, number)
        tokens = ids.tolist()
        yield [None if done else token for token, done in zip(tokens, ended, strict=True)]
        ended = [done or token == end_id for token, done in zip(tokens, ended, strict=True)]
        if all(ended) or number + 1 == max_new_tokens:
            return
        logits = model.decode(ids, cache)


def generate(
    model: MoETransformer,
    prompt: Sequence[int] | np.ndarray,
    max_new_tokens: int,
    sampling: Sampling = GREEDY,
    end_id: int = -1,
) -> Iterator[int]:
    """Continues one prompt, token by token, up to and including `end_id`; see `generate_batch`."""
    for (token,) in generate_batch(model, [prompt], max_new_tokens, sampling, end_id):
        assert token is not None  # a batch of one ends with its only sequence
        yield token
