"""A continuation on its way: from the tokens that a scheduler draws to the events that callers are given."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..tokenizer import StreamDecoder
from .scheduler import END, STOP, Request, Scheduler
from .scores import TokenLogprobs
from .text import StopStrings

if TYPE_CHECKING:
    from ..tokenizer.tokenizer import TextTokenizer


@dataclass(frozen=True)
class Event:
    """One token of one prompt's continuation.

    prompt      which prompt it belongs to, from 0
    token       its id
    text        what it adds to the final text: a character that more tokens complete, or words that may be
                the beginning of a stop string, come with a later event
    finish      None, or why this is the prompt's last event: "end" (the model ended the text: the token is not part of
                it), "stop" (a stop string came up, and the text ends before it; or its constraint allows no token
                more), "length" (max_new_tokens), "cancelled" (token is -1)
    logprobs    the token's log-probability and those of alternatives, where they were asked for
    prompt_logprobs   in the first event of a prompt: those of the prompt's tokens, where they were asked for; None for
                      the first one
    """

    prompt: int
    token: int
    text: str
    finish: str | None = None
    logprobs: TokenLogprobs | None = None
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None


class Continuation:
    """A request and its text, which ends before the first of some strings. `prompt` is the number in its events."""

    def __init__(self, request: Request, tokenizer: TextTokenizer | None, stops: Sequence[str] = (), prompt: int = 0):
        self.request = request
        self.prompt = prompt
        self._text = _Text(tokenizer, stops)

    def events(self, scheduler: Scheduler) -> Iterator[Event]:
        """What has come of the request since this was last asked; a stop string that came up cancels it. Nothing comes
        of a request that its constraint ended: its `error` says why."""
        for event in self._of_tokens(scheduler):
            scores = self.request.take_prompt_scores()
            yield event if scores is None else dataclasses.replace(event, prompt_logprobs=scores)

    def _of_tokens(self, scheduler: Scheduler) -> Iterator[Event]:
        number, request, text = self.prompt, self.request, self._text
        while request.tokens:
            token, logprobs = request.tokens.popleft(), request.scores.popleft()
            finish = None if request.tokens or request.error else request.finish
            if finish == END:
                yield Event(number, token, text.rest(), finish, logprobs)
                return
            piece, stopped = text.push(token)
            if stopped:
                scheduler.cancel(request)
                request.tokens.clear()
                yield Event(number, token, piece, STOP, logprobs)
                return
            yield Event(number, token, piece + text.rest() if finish else piece, finish, logprobs)
            if finish:
                return
        if request.finish is not None and request.error is None:  # without a token: cancelled, or none was asked for
            yield Event(number, -1, text.rest(), request.finish)


class _Text:
    """A continuation on its way from ids to text."""

    def __init__(self, tokenizer: TextTokenizer | None, stops: Sequence[str]):
        self._decoder = None if tokenizer is None else StreamDecoder(tokenizer)
        self._size = 0 if tokenizer is None else tokenizer.vocab_size
        self._stops = StopStrings(stops)

    def push(self, token: int) -> tuple[str, bool]:
        """The text that is certain now, and whether a stop string ended it."""
        # A model may have more ids than its tokenizer: they have no text.
        if self._decoder is None or token >= self._size:
            return "", False
        return self._stops.push(self._decoder.push(token))

    def rest(self) -> str:
        """What was held back, when no more comes."""
        if self._decoder is None:
            return ""
        text, stopped = self._stops.push(self._decoder.flush())
        return text if stopped else text + self._stops.flush()
