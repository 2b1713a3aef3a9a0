"""What a change of a model does to its logits: the same prompts through both, position by position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .language_model import LanguageModel, Prompt


@dataclass(frozen=True)
class LogitsEffect:
    """positions            that were compared
    divergence           Kullback-Leibler divergence of the second distribution from the first, nats, mean
    largest_divergence   of one position
    same_first           share of the positions whose most likely token is the same
    difference           largest difference of two logits
    deviation            standard deviation of the first logits, against which a difference is to be seen
    """

    positions: int
    divergence: float
    largest_divergence: float
    same_first: float
    difference: float
    deviation: float


PROMPTS = (
    "The sea is never quite still: even on a calm day a long, slow swell comes in from storms a thousand miles away.",
    "def mean(values):\n    total = 0.0\n    for value in values:\n        total += value\n    return total / 2",
    "Question: A train leaves at 9:40 and arrives at 13:05. How long does it take?\nAnswer: 3 hours and 25 minutes.",
)


def logits_effect(first: Callable[[], LanguageModel], second: Callable[[], LanguageModel]) -> LogitsEffect:
    """Compares two models over `PROMPTS`, as far as their contexts go, or over ids without a tokenizer. The first is
    closed before the second is opened."""
    before = _all_logits(first)
    after = _all_logits(second)
    divergences = []
    same, difference = 0, 0.0
    for one, other in zip(before, after, strict=True):
        for row, changed in zip(one, other, strict=True):
            p, q = _log_softmax(row), _log_softmax(changed)
            divergences.append(float(np.sum(np.exp(p) * (p - q))))
            same += int(row.argmax() == changed.argmax())
            difference = max(difference, float(np.abs(row - changed).max()))
    deviation = float(np.sqrt(np.mean([np.var(row) for one in before for row in one])))
    count = len(divergences)
    return LogitsEffect(count, sum(divergences) / count, max(divergences), same / count, difference, deviation)


def _all_logits(load: Callable[[], LanguageModel]) -> list[np.ndarray]:
    with load() as model:
        return [model.logits(model.encode(prompt)[: model.context]) for prompt in _prompts(model)]


def _prompts(model: LanguageModel) -> Sequence[Prompt]:
    if model.tokenizer is not None:
        return PROMPTS
    return [np.arange(1, 33, dtype=np.int64) * (7919 + number) % model.config.vocab_size for number in range(3)]


def _log_softmax(row: np.ndarray) -> np.ndarray:
    wide = row.astype(np.float64) - row.max()
    return wide - np.log(np.sum(np.exp(wide)))
