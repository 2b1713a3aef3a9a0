"""Log-probabilities of tokens, by the logits that the model gave: before penalties, biases, masks and temperature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .. import kernels
from ..device import Context, Tensor

#: Alternatives that a request may ask for, as in OpenAI's protocol.
MOST_ALTERNATIVES = 20


@dataclass(frozen=True)
class TokenLogprobs:
    """The log-probability of a token, and the most likely tokens in its place: (id, log-probability) each, the most
    likely first and of equal ones that with the lower id."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def check_alternatives(name: str, count: int | None) -> None:
    """Raises ValueError for a number of alternatives that cannot be had."""
    if count is not None and not 0 <= count <= MOST_ALTERNATIVES:
        raise ValueError(f"{name} is {count}; it must be 0 to {MOST_ALTERNATIVES}, or None")


class Scores:
    """Places on the device for the log-probabilities of up to `rows` rows."""

    def __init__(self, ctx: Context, rows: int):
        self._logprobs = ctx.zeros((rows,))
        self._top_ids = ctx.zeros((rows, MOST_ALTERNATIVES), "i32")
        self._top_logprobs = ctx.zeros((rows, MOST_ALTERNATIVES))

    def take(self, logits: Tensor, ids: Tensor) -> None:
        """Those of a token of each row of logits."""
        logprobs, top_ids, top_logprobs = (
            tensor.narrow(0, 0, logits.shape[0]) for tensor in (self._logprobs, self._top_ids, self._top_logprobs)
        )
        kernels.logprobs(logits, ids, logprobs=logprobs, top_ids=top_ids, top_logprobs=top_logprobs)

    def read(self, alternatives: Sequence[int]) -> list[TokenLogprobs]:
        """Those of the first rows, each with so many alternatives."""
        rows = len(alternatives)
        logprobs, top_ids, top_logprobs = (
            tensor.narrow(0, 0, rows).numpy() for tensor in (self._logprobs, self._top_ids, self._top_logprobs)
        )
        found = []
        for count, logprob, ids, numbers in zip(alternatives, logprobs, top_ids, top_logprobs, strict=True):
            pairs = zip(ids[:count].tolist(), numbers[:count].tolist(), strict=True)
            found.append(TokenLogprobs(float(logprob), tuple(pair for pair in pairs if pair[0] >= 0)))
        return found
