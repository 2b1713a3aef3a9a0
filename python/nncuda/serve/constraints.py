"""Constrained output: JSON, or JSON of a schema.

Building a grammar takes up to a second, and the vocabulary is handed over once, with the first grammar.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..infer import LanguageModel
from ..infer.grammar import Grammar, GrammarError, Grammars, check_grammar, schema_text
from .api import WORDS, ApiError, quoted
from .call_grammars import arguments_schema, call_grammar
from .tool_calls import CallForm
from .tools import Tools

_FIELD, _TEXT = "response_format", "text.format"
_SCHEMA_KEYS = ("name", "description", "schema", "strict")
_JSON = {"type": "object"}
_Made = TypeVar("_Made")


class Formats:
    """Makes grammars of what requests ask for, for texts of one model. For one thread at a time."""

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
        schemas = {
            f"{tool.place}.parameters": schema_text(arguments_schema(tool, True))
            for tool in tools.callable
            if tools.enforces(tool)
        }
        whole = call_grammar(tools, form, marks)
        # All that can be refused at once is, before anything takes time; the schemas by their names.
        for name, text in {**schemas, "tools": whole}.items():
            self._made(functools.partial(check_grammar, text), name)
        for name, text in schemas.items():
            self._made(functools.partial(self._grammars.checked, text), name)
        return self._made(lambda: self._grammars.checked(whole), "tools")

    def _built(self, schema: dict[str, Any], field: str, place: str) -> Grammar:
        """The grammar of the schema that stands at a place within a field."""
        if self._model.tokenizer is None:
            raise ApiError("no_tokenizer", field, name=field)
        return self._made(lambda: self._grammars.json_schema(schema), f"{place}.schema")

    def _made(self, make: Callable[[], _Made], name: str) -> _Made:
        """ApiError for a grammar that cannot be enforced; `name` is what it is made of."""
        try:
            return make()
        except GrammarError as error:
            raise ApiError("bad_schema", name, name=name, why=error) from None

    @functools.cached_property
    def _grammars(self) -> Grammars:
        assert self._model.tokenizer is not None
        return Grammars(self._model.tokenizer, self._model.config.vocab_size)


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
