"""Constrained output: JSON, or JSON of a schema.

Building a grammar takes up to a second, and the vocabulary is handed over once, with the first grammar.
"""

from __future__ import annotations

import functools
from typing import Any

from ..infer import LanguageModel
from ..infer.grammar import Grammar, GrammarError, Grammars
from .api import WORDS, ApiError, quoted

_FIELD = "response_format"
_SCHEMA_KEYS = ("name", "description", "schema", "strict")


class Formats:
    """Makes grammars of what requests ask for, for texts of one model. For one thread at a time."""

    def __init__(self, model: LanguageModel):
        self._model = model

    def of(self, response_format: dict[str, Any] | None) -> Grammar | None:
        """The grammar of a request's response_format; None where that leaves texts free. ApiError where it is wrong, or
        cannot be enforced."""
        if response_format is None:
            return None
        kind = response_format.get("type")
        if kind not in ("text", "json_object", "json_schema"):
            raise _wrong(f"{_FIELD}.type", kind, WORDS["format_type"])
        _check_keys(response_format, _FIELD, ("type", "json_schema") if kind == "json_schema" else ("type",))
        if kind == "text":
            return None
        schema = {"type": "object"} if kind == "json_object" else _schema(response_format.get("json_schema"))
        return self._built(schema)

    def _built(self, schema: dict[str, Any]) -> Grammar:
        if self._model.tokenizer is None:
            raise ApiError("no_tokenizer", _FIELD, name=_FIELD)
        name = f"{_FIELD}.json_schema.schema"
        try:
            return self._grammars.json_schema(schema)
        except GrammarError as error:
            raise ApiError("bad_schema", name, name=name, why=error) from None

    @functools.cached_property
    def _grammars(self) -> Grammars:
        assert self._model.tokenizer is not None
        return Grammars(self._model.tokenizer, self._model.config.vocab_size)


def _schema(described: Any) -> dict[str, Any]:
    """The schema of a json_schema."""
    name = f"{_FIELD}.json_schema"
    if not isinstance(described, dict):
        raise _wrong(name, described, WORDS["json_schema"])
    _check_keys(described, name, _SCHEMA_KEYS)
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
