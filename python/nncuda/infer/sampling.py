"""How the next token is chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..token_ids import token_ids


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    temperature     divides the logits; 0 always picks the most likely token
    top_k           samples only from this many of the most likely tokens; None from all
    top_p           samples only from the shortest run of most likely tokens that reaches this probability; None: from
                    all
    seed            the same seed gives the same tokens; sequence r of a batch uses seed + r
    min_p           samples only from tokens at least this many times as likely as the most likely one, of those that
                    top_k and top_p leave; None or 0: from all (Nguyen et al. 2024)

    What follows changes the logits first, in this order, and holds at a temperature of 0, too:

    repetition_penalty   logits of tokens in the prompt and the text so far are divided by it where they are above 0,
                         else multiplied; 1 for none (Keskar et al. 2019, as in transformers and vLLM)
    frequency_penalty    is subtracted from a token's logit for each time it was drawn so far (as OpenAI defines it)
    presence_penalty     is subtracted once if it was drawn at all
    logit_bias           what is added to the logits of some ids
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    min_p: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature is {self.temperature}; it must be a finite number, at least 0")
        if self.top_k is not None and not (_is_whole(self.top_k) and 1 <= self.top_k < 2**31):
            raise ValueError(f"top_k is {self.top_k}; it must be a whole number, at least 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0, at most 1")
        if not _is_whole(self.seed):
            raise ValueError(f"seed is {self.seed!r}; it must be a whole number")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p is {self.min_p}; it must be 0 to 1")
        for name in ("presence_penalty", "frequency_penalty"):
            if not _is_finite(getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)}; it must be a finite number")
        if not (_is_finite(self.repetition_penalty) and np.float32(self.repetition_penalty) > 0):
            raise ValueError(f"repetition_penalty is {self.repetition_penalty}; it must be a finite number above 0")
        for token, bias in self.logit_bias.items():
            if not (_is_whole(token) and 0 <= token < 2**31):
                raise ValueError(f"logit_bias has the key {token!r}; it must be a token id")
            if not _is_finite(bias):
                raise ValueError(f"logit_bias of token {token} is {bias}; it must be a finite number")

    def check_ids(self, vocab_size: int) -> None:
        """Raises OutOfRangeError (an IndexError) when logit_bias has an id outside the vocabulary."""
        token_ids(list(self.logit_bias), vocab_size, "logit_bias")

    @property
    def penalizes(self) -> bool:
        """Whether tokens are counted."""
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1)


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_finite(value: float) -> bool:
    """As f32, which kernels take."""
    return abs(value) <= float(np.finfo(np.float32).max)


GREEDY = Sampling(temperature=0.0)
