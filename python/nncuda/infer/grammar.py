"""Texts that obey a JSON schema or a grammar, by llguidance, which says after each token which may be next.
(https://github.com/guidance-ai/llguidance)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import llguidance
import numpy as np

from ..formats.json_values import check_marks
from ..tokenizer.token_bytes import AddedText
from ..tokenizer.tokenizer import TextTokenizer
from .schema_cost import check_cost

#: Between the parts of a JSON text, as a regular expression: without a bound, a model could go on with spaces for ever.
SPACES = r"[ \n\r\t]{0,32}"

#: The line that a grammar in Lark begins with: the model cuts a text into tokens, also where the grammar leaves it no
#: choice of characters. How the tokenizer would cut that, perhaps with a space of its own before it, is not asked.
NO_FORCING = '%llguidance {"no_forcing": true}\n'

#: What a schema says to llguidance alone: no part of JSON Schema, and a way around what it cannot enforce.
_OPTIONS = "x-guidance"

#: Brackets, commas and colons of schemas: llguidance needs time and stack for each.
MOST_MARKS = 4096

_PROBLEM_CHARACTERS = 300


class GrammarError(ValueError):
    """A grammar, or a part of a schema, that cannot be enforced."""


class GrammarFailed(RuntimeError):
    """A text that its grammar cannot go on with, since a limit of llguidance for one step is reached."""


class Grammars:
    """Makes grammars for texts of one vocabulary, which is handed over once. For one thread at a time.

    Of `vocab_size` ids, those without text, control tokens among them, are in no text. One of the tokenizer's end ids
    ends it; where it has none, the text ends when the grammar allows no more. This takes time in proportion to the
    vocabulary: seconds for 100 000 tokens.
    """

    def __init__(self, tokenizer: TextTokenizer, vocab_size: int):
        vocabulary = _Vocabulary(tokenizer, vocab_size)
        self._tokenizer = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(vocabulary), n_vocab=len(vocabulary.tokens), eos_token=vocabulary.ends
        )

    def json_schema(self, schema: Mapping[str, Any]) -> Grammar:
        """JSON of a schema, with at most 32 spaces and line ends between its parts. It takes up to a second, usually
        milliseconds. GrammarError says which part of the schema cannot be enforced."""
        return self.llguidance(schema_text(schema))

    def llguidance(self, text: str) -> Grammar:
        """A grammar in llguidance's own words: its variant of Lark, or a JSON list of such grammars and JSON schemas.
        It begins with `NO_FORCING`, or the first one of the list does. GrammarError says what cannot be enforced."""
        check_grammar(text)
        return self.checked(text)

    def checked(self, text: str) -> Grammar:
        """The same of a text that `check_grammar` has let through."""
        return Grammar(self._tokenizer, text)


def schema_text(schema: Mapping[str, Any]) -> str:
    """A schema as `Grammars.llguidance` takes it."""
    return compact(
        {
            "grammars": [
                {"lark_grammar": f"{NO_FORCING}start: @schema"},
                {"name": "schema", "json_schema": {**schema, _OPTIONS: {"whitespace_pattern": SPACES}}},
            ]
        }
    )


def check_grammar(text: str) -> None:
    """GrammarError when a list of grammars has schemas that together could keep llguidance busy. Without one, it is the
    size of the text that bounds the time."""
    if not text.startswith("{"):
        return
    try:
        check_marks(text.encode(), MOST_MARKS)
        grammars = json.loads(text)["grammars"]
        check_cost([grammar["json_schema"] for grammar in grammars if "json_schema" in grammar])
    except ValueError as error:
        raise GrammarError(str(error)) from None


class Grammar:
    """What texts must obey. Each takes a constraint of its own."""

    def __init__(self, tokenizer: llguidance.LLTokenizer, text: str):
        self._tokenizer = tokenizer
        self._text = text
        self._first: GrammarConstraint | None = self._made()  # so that a grammar that cannot be enforced is none

    def constraint(self) -> GrammarConstraint:
        """The constraint of one text, at its beginning."""
        # No copies: those of a matcher share what llguidance counts against its limits.
        first, self._first = self._first, None
        return first or self._made()

    def _made(self) -> GrammarConstraint:
        try:
            matcher = llguidance.LLMatcher(self._tokenizer, self._text, log_level=0)
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            raise GrammarError(_sentence(f"panic: {error}")) from None
        if not matcher.is_stopped():
            matcher.compute_bitmask()  # which fails when no text obeys
        if matcher.is_error():
            raise GrammarError(_sentence(matcher.get_error()))
        return GrammarConstraint(matcher)


class GrammarConstraint:
    """A `Constraint` by a grammar."""

    def __init__(self, matcher: llguidance.LLMatcher):
        self._matcher = matcher

    def mask(self) -> np.ndarray:
        """The tokens that are allowed next; none when the grammar allows no more text."""
        self._check()
        if self._matcher.is_stopped():
            return np.zeros(1, np.int32)
        mask = np.frombuffer(self._matcher.compute_bitmask(), np.int32)
        self._check()  # a limit of what a step may take
        return mask

    def accept(self, token: int) -> None:
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarFailed(f"the grammar failed: {_sentence(self._matcher.get_error())}")


class _Vocabulary:
    """A tokenizer as llguidance takes it. Tokens that add no text are special to it: no text may have them. Where none
    ends a text, one beyond the vocabulary does, which is never drawn."""

    def __init__(self, tokenizer: TextTokenizer, size: int):
        added = AddedText(tokenizer)
        self.tokens: list[bytes] = []
        for token in range(size):
            inside = token < tokenizer.vocab_size
            found = added.of(token)[1] if inside else b""
            # To llguidance a token of a byte FF, which no text has, is a special one.
            self.tokens.append(found or b"\xff" + (tokenizer.piece(token) if inside else f"token_id:{token}").encode())
        self.ends = sorted(token for token in tokenizer.end_ids if token < size)
        if not self.ends:
            self.ends = [size]
            self.tokens.append(b"\xff</s>")
        self.eos_token_id = self.ends[0]
        self.bos_token_id = None

    def __call__(self, text: str) -> list[int]:
        raise NotImplementedError("grammars begin with NO_FORCING, so no text is cut")


def compact(value: object) -> str:
    """JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _sentence(problem: str) -> str:
    """llguidance's words in one line, without what it adds for its own developers."""
    return " ".join(problem.split("\n<")[0].split())[:_PROBLEM_CHARACTERS]
