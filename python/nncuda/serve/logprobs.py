"""Log-probabilities in the forms of OpenAI's two routes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..infer import TokenLogprobs
from ..tokenizer.token_bytes import AddedText
from ..tokenizer.tokenizer import TextTokenizer

#: What stands for a log-probability that is less, or that is none, as JSON has no infinity.
LEAST = -9999.0

#: A token and what came with it, None for the first one of a prompt.
Scored = tuple[int, TokenLogprobs | None]


@dataclass(frozen=True)
class Token:
    """What a token is called, what it adds to a text, and its bytes."""

    name: str
    text: str
    bytes: bytes


class TokenNames:
    """The tokens of a vocabulary, each looked up once. A token is called by its text; by its bytes, as `bytes:\\xe2`,
    where it is a part of a character; and as the vocabulary calls it where it adds no text."""

    def __init__(self, tokenizer: TextTokenizer | None):
        self._tokenizer = tokenizer
        self._known: dict[int, Token] = {}
        self._added = None if tokenizer is None else AddedText(tokenizer)

    def __getitem__(self, token: int) -> Token:
        found = self._known.get(token)
        if found is None:
            found = self._known[token] = self._look_up(token)
        return found

    def _look_up(self, token: int) -> Token:
        if self._tokenizer is None or self._added is None or token >= self._tokenizer.vocab_size:
            return Token(f"token_id:{token}", "", b"")
        text, found = self._added.of(token)
        if found != text.encode():
            return Token("bytes:" + "".join(f"\\x{byte:02x}" for byte in found), text, found)
        return Token(text or self._tokenizer.piece(token), text, found)


class CompletionLogprobs:
    """Those of one text of /v1/completions, piece by piece."""

    def __init__(self, names: TokenNames):
        self._names = names
        self._offset = 0

    def of(self, tokens: Sequence[Scored]) -> dict[str, Any]:
        """Of the next tokens. Of alternatives with the same name the likeliest stands; the token itself is among them.
        Offsets count characters of the tokens' texts."""
        names: list[str] = []
        logprobs: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        offsets: list[int] = []
        for token, scores in tokens:
            known = self._names[token]
            names.append(known.name)
            offsets.append(self._offset)
            self._offset += len(known.text)
            if scores is None:
                logprobs.append(None)
                tops.append(None)
                continue
            logprobs.append(finite(scores.logprob))
            top: dict[str, float] = {}
            for one, logprob in (*scores.top, (token, scores.logprob)):
                top.setdefault(self._names[one].name, finite(logprob))
            tops.append(top)
        return {"tokens": names, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets}


class ChatLogprobs:
    """Those of one answer of /v1/chat/completions."""

    def __init__(self, names: TokenNames):
        self._names = names

    def of(self, tokens: Sequence[Scored]) -> dict[str, Any]:
        """Of the next tokens."""
        content = []
        for token, scores in tokens:
            assert scores is not None  # an answer has no prompt
            top = [self._entry(one, logprob) for one, logprob in scores.top]
            content.append({**self._entry(token, scores.logprob), "top_logprobs": top})
        return {"content": content, "refusal": None}

    def _entry(self, token: int, logprob: float) -> dict[str, Any]:
        known = self._names[token]
        return {"token": known.name, "logprob": finite(logprob), "bytes": list(known.bytes)}


def finite(logprob: float) -> float:
    """A log-probability that JSON can have."""
    return logprob + 0.0 if logprob > LEAST else LEAST  # the sum makes -0 a 0
