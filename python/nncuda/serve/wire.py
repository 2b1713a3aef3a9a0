"""How answers are written, to the byte, so that all servers write the same: compact JSON in UTF-8, and events.

Keys stand in the order that docs/serving.md gives. Of the characters of a string only quotes, backslashes and control
characters are escaped: by a letter where JSON has one, otherwise as \\u00xx in small letters. A number with a fraction
is an f32, in the fewest decimal digits that give it back, never with an exponent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Given:
    """A value of JSON that a request had: its numbers are f64, written as Python does."""

    value: Any


def json_text(value: Any) -> str:
    """The JSON of a value, without spaces."""
    if isinstance(value, Given):
        return json.dumps(value.value, ensure_ascii=False, separators=(",", ":"))
    # Strings are written by the standard library, whose escapes are these.
    if isinstance(value, dict):
        return "{" + ",".join(f"{_string(key)}:{json_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    if isinstance(value, float):
        return np.format_float_positional(np.float32(value), unique=True, trim="-")
    return _string(value)


_string = json.JSONEncoder(ensure_ascii=False).encode


def event(value: Any) -> bytes:
    """A server-sent event that holds a value."""
    return b"data: " + json_text(value).encode() + b"\n\n"


def named_event(value: dict[str, Any]) -> bytes:
    """A server-sent event that is called by the type of its value."""
    return f"event: {value['type']}\n".encode() + event(value)


#: The event after the last one.
DONE = b"data: [DONE]\n\n"
