"""Checks the fields of a request against the table: what is not right is an error that names it, nothing is ignored."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .api import WORDS, ApiError, Field, fields_of, quoted


class Checker:
    """The fields of one route. `path` is how errors call it."""

    def __init__(self, route: str, path: str):
        self._path = path
        self._fields = fields_of(route)

    def check(self, body: dict[str, Any]) -> dict[str, Any]:
        """The value of every supported field, with the defaults of those that are missing or null. ApiError else."""
        for name in body:
            if name not in self._fields:
                raise ApiError("unknown_field", name[:256], name=name[:256], route=self._path)
        values: dict[str, Any] = {}
        for name, field in self._fields.items():
            value = body.get(name)
            if field.kind == "unsupported":
                _check_unsupported(field, value)
            elif value is not None:
                values[name] = _CHECKS[field.kind](field, value)
            elif field.required:
                raise ApiError("missing_field", name, name=name, must=field.must)
            else:
                values[name] = field.default
        return values


def _wrong(field: Field, value: object, name: str | None = None) -> ApiError:
    name = name or field.name
    return ApiError("invalid_value", name, name=name, value=quoted(value), must=field.must)


def _check_unsupported(field: Field, value: object) -> None:
    """Only what asks for nothing may stand there."""
    if value is not None and not any(_same(value, one) for one in field.allowed):
        raise ApiError("unsupported_field", field.name, name=field.name, value=quoted(value), why=field.why)


def _same(value: object, other: object) -> bool:
    """Whether two values of JSON are equal. 1 is 1.0, but not true, nor is 0 false."""
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(_same(one, other[key]) for key, one in value.items())
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_same, value, other))
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _boolean(field: Field, value: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong(field, value)
    return value


def _number(field: Field, value: Any) -> float:
    # A NaN is within no bounds, and every number has some.
    if not (_is_integer(value) or isinstance(value, float)) or not _within(field, value):
        raise _wrong(field, value)
    return float(value)


def _integer(field: Field, value: Any) -> int:
    if not _is_integer(value) or not _within(field, value):
        raise _wrong(field, value)
    whole: int = value
    return whole


def _within(field: Field, value: float) -> bool:
    return (
        (field.least is None or value >= field.least)
        and (field.above is None or value > field.above)
        and (field.most is None or value <= field.most)
    )


def _string(field: Field, value: object) -> str:
    if not isinstance(value, str) or len(value) > field.longest:
        raise _wrong(field, value)
    return value


def _strings(field: Field, value: object) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    assert field.most is not None
    if not isinstance(texts, list) or len(texts) > field.most:
        raise _wrong(field, value)
    if not all(isinstance(text, str) and 1 <= len(text) <= field.longest for text in texts):
        raise _wrong(field, value)
    return texts


def _ids(field: Field, value: object) -> list[int]:
    """Whether they are ids of the model, who knows it says."""
    if not isinstance(value, list) or not all(_is_integer(token) for token in value):
        raise _wrong(field, value)
    return value


def _choices(field: Field, value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one in field.allowed for one in value):
        raise _wrong(field, value)
    return value


def _choice(field: Field, value: object) -> str:
    if not isinstance(value, str) or value not in field.allowed:
        raise _wrong(field, value)
    return value


def _input(field: Field, value: object) -> str | list[Any]:
    """A text, or a list that is not empty; `items` looks into each of them."""
    if isinstance(value, str):
        return _string(field, value)
    return _messages(field, value)


def _prompt(field: Field, value: object) -> list[str | list[int]]:
    """All prompts, each a text or a list of ids."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise _wrong(field, value)
    if all(_is_integer(one) for one in value):
        return [value]
    for number, one in enumerate(value):
        if not isinstance(one, str) and not (isinstance(one, list) and all(map(_is_integer, one))):
            raise _wrong(field, one, f"{field.name}[{number}]")
    return value


def _object(field: Field, value: object) -> dict[str, Any]:
    """What stands in it, who uses it checks."""
    if not isinstance(value, dict):
        raise _wrong(field, value)
    return value


def _bias(field: Field, value: object) -> dict[int, float]:
    """Biases by token id. Whether it is in the vocabulary, who knows it says."""
    if not isinstance(value, dict) or len(value) > field.longest:
        raise _wrong(field, value)
    found = {}
    for key, one in value.items():
        name = f"{field.name}.{key}"[:256]
        if not _ID.fullmatch(key):
            raise ApiError("unknown_field", name, name=name, route=WORDS["bias_keys"])
        if not (_is_integer(one) or isinstance(one, float)) or not _within(field, one):
            raise ApiError("invalid_value", name, name=name, value=quoted(one), must=WORDS["bias"])
        found[int(key)] = float(one)
    return found


def _tools(field: Field, value: object) -> list[Any]:
    """A list; `tools` looks into each of them."""
    if not isinstance(value, list) or (field.most is not None and len(value) > field.most):
        raise _wrong(field, value)
    return value


def _tool_choice(field: Field, value: object) -> str | dict[str, Any]:
    """A word or an object, which `tools` looks into."""
    if not isinstance(value, (str, dict)):
        raise _wrong(field, value)
    return value


def _stream_options(field: Field, value: object) -> dict[str, bool]:
    if not isinstance(value, dict):
        raise _wrong(field, value)
    found = {"include_usage": False, "continuous_usage_stats": False}
    for key, one in value.items():
        name = f"{field.name}.{key}"[:256]
        if key == "include_obfuscation":  # which OpenAI's servers do unless told not to
            _check_unsupported(Field(name, "unsupported", allowed=(False,), why=WORDS["not_padded"]), one)
        elif key not in found:
            raise ApiError("unknown_field", name, name=name, route=field.name)
        elif one is not None and not isinstance(one, bool):
            raise ApiError("invalid_value", name, name=name, value=quoted(one), must=WORDS["flag"])
        else:
            found[key] = bool(one)
    return found


def _messages(field: Field, value: object) -> list[Any]:
    """A list that is not empty; `messages` looks into each of them."""
    if not isinstance(value, list) or not value:
        raise _wrong(field, value)
    return value


#: A token id as a key: no sign, no zeros before it.
_ID = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)

_CHECKS: dict[str, Callable[[Field, Any], Any]] = {
    "boolean": _boolean,
    "number": _number,
    "integer": _integer,
    "string": _string,
    "strings": _strings,
    "ids": _ids,
    "choice": _choice,
    "choices": _choices,
    "input": _input,
    "bias": _bias,
    "object": _object,
    "prompt": _prompt,
    "stream_options": _stream_options,
    "messages": _messages,
    "tools": _tools,
    "tool_choice": _tool_choice,
}
