"""Constrained output: JSON, or JSON of a schema, by llguidance, which says after each token which may be next.

Building a grammar takes up to a second, and the vocabulary is handed over once, with the first grammar.
(https://github.com/guidance-ai/llguidance)
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import llguidance
import numpy as np

from ..infer import LanguageModel
from ..tokenizer.tokenizer import TextTokenizer
from .api import WORDS, ApiError, quoted
from .call_grammars import SPACES_PATTERN, arguments_schema, call_grammar, schema_grammar
from .logprobs import TokenNames
from .tool_calls import CallForm
from .tools import Tools

_FIELD, _TEXT = "response_format", "text.format"
_SCHEMA_KEYS = ("name", "description", "schema", "strict")
_JSON = {"type": "object"}


class Grammar:
    """What texts of a request must obey. Each text takes a constraint of its own."""

    def __init__(self, matcher: llguidance.LLMatcher):
        self._matcher = matcher

    def constraint(self) -> GrammarConstraint:
        return GrammarConstraint(self._matcher.deep_copy())


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
            raise RuntimeError(f"the grammar failed: {self._matcher.get_error()}")


class Grammars:
    """Makes grammars for texts of one model. For one thread at a time."""

    def __init__(self, model: LanguageModel):
        self._model = model

    def of(self, response_format: dict[str, Any] | None) -> Grammar | None:
        """The grammar of a request's response_format; None where that leaves texts free. ApiError where it is wrong, or
        cannot be enforced."""
        if response_format is None:
            return None
        kind = _kind(response_format, _FIELD)
        _check_keys(response_format, _FIELD, ("type", "json_schema") if kind == "json_schema" else ("type",))
        if kind == "text":
            return None
        name = f"{_FIELD}.json_schema"
        described = response_format.get("json_schema")
        if kind == "json_schema" and not isinstance(described, dict):
            raise _wrong(name, described, WORDS["json_schema"])
        return self._built(_JSON if described is None else _schema(described, name, _SCHEMA_KEYS), _FIELD, name)

    def of_text(self, described: dict[str, Any] | None) -> Grammar | None:
        """That of a `text.format`, whose schema stands beside its type."""
        if described is None:
            return None
        kind = _kind(described, _TEXT)
        if kind == "json_schema":
            return self._built(_schema(described, _TEXT, ("type", *_SCHEMA_KEYS)), _TEXT, _TEXT)
        _check_keys(described, _TEXT, ("type",))
        return None if kind == "text" else self._built(_JSON, _TEXT, _TEXT)

    def of_calls(self, tools: Tools, form: CallForm, marks: Mapping[str, int]) -> Grammar | None:
        """The grammar of texts that call tools; None where texts are free. `marks` are those texts of the form that are
        control tokens. ApiError where parameters cannot be enforced."""
        if not tools.enforced:
            return None
        for number, tool in enumerate(tools.offered):
            if tool in tools.callable and tools.enforces(tool):
                name = f"tools[{number}].function.parameters"
                self._check(schema_grammar([{"json_schema": arguments_schema(tool, True)}]), name)
        return self._made(call_grammar(tools, form, marks), "tools")

    def _built(self, schema: dict[str, Any], field: str, place: str) -> Grammar:
        """The grammar of the schema that stands at a place within a field."""
        if self._model.tokenizer is None:
            raise ApiError("no_tokenizer", field, name=field)
        name = f"{place}.schema"
        try:
            text = llguidance.LLMatcher.grammar_from_json_schema(
                json.dumps(schema), overrides={"whitespace_pattern": SPACES_PATTERN}
            )
        except ValueError as error:
            raise ApiError("bad_schema", name, name=name, why=error) from None
        return self._made(text, name)

    def _check(self, text: str, name: str) -> None:
        """ApiError for a grammar that cannot be enforced; `name` is what it was made of."""
        problem = llguidance.LLMatcher.validate_grammar(text, self._vocabulary)
        if problem:  # also a warning: a keyword that would not be enforced
            raise ApiError("bad_schema", name, name=name, why=" ".join(problem.split())[:300])

    def _made(self, text: str, name: str) -> Grammar:
        self._check(text, name)
        matcher = llguidance.LLMatcher(self._vocabulary, text, log_level=0)
        if matcher.is_error():
            raise ApiError("bad_schema", name, name=name, why=" ".join(matcher.get_error().split())[:300])
        return Grammar(matcher)

    @functools.cached_property
    def _vocabulary(self) -> llguidance.LLTokenizer:
        assert self._model.tokenizer is not None
        vocabulary = _Vocabulary(self._model.tokenizer, self._model.config.vocab_size)
        return llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(vocabulary), n_vocab=len(vocabulary.tokens), eos_token=vocabulary.ends
        )


class _Vocabulary:
    """A tokenizer as llguidance takes it. Tokens that add no text are special to it: no text may have them. Where none
    ends a text, one beyond the vocabulary does, which is never drawn: then a text ends when no token is left."""

    def __init__(self, tokenizer: TextTokenizer, size: int):
        self._tokenizer = tokenizer
        names = TokenNames(tokenizer)
        found = [names[token] for token in range(size)]
        # To llguidance a token of a byte FF, which no text has, is a special one.
        self.tokens = [one.bytes or b"\xff" + one.name.encode() for one in found]
        self.special_token_ids = [token for token, one in enumerate(found) if not one.bytes]
        self.ends = sorted(tokenizer.end_ids) or [size]
        if self.ends == [size]:
            self.tokens.append(b"\xff</s>")
            self.special_token_ids.append(size)
        self.eos_token_id = self.ends[0]
        self.bos_token_id = None

    def __call__(self, text: str) -> list[int]:
        return self._tokenizer.encode(text)


def _kind(described: dict[str, Any], name: str) -> str:
    """The type of a format."""
    kind = described.get("type")
    if kind not in ("text", "json_object", "json_schema"):
        raise _wrong(f"{name}.type", kind, WORDS["format_type"])
    found: str = kind
    return found


def _schema(described: dict[str, Any], name: str, known: tuple[str, ...]) -> dict[str, Any]:
    """The schema that an object of these keys describes."""
    _check_keys(described, name, known)
    for key, kind, words in (("name", str, "text"), ("description", str, "text"), ("strict", bool, "flag")):
        value = described.get(key)
        if value is not None and not isinstance(value, kind):
            raise _wrong(f"{name}.{key}", value, WORDS[words])
    schema = described.get("schema")
    if not isinstance(schema, dict):
        raise _wrong(f"{name}.schema", schema, WORDS["schema"])
    return schema


def _check_keys(found: dict[str, Any], name: str, known: tuple[str, ...]) -> None:
    for key in found:
        if key not in known:
            place = f"{name}.{key}"[:256]
            raise ApiError("unknown_field", place, name=place, route=name)


def _wrong(name: str, value: object, must: str) -> ApiError:
    return ApiError("invalid_value", name, name=name, value=quoted(value), must=must)
