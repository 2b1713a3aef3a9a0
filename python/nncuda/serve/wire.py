"""How answers are written, to the byte, so that all servers write the same: compact JSON in UTF-8, and events.

Keys stand in the order that docs/serving.md gives. Of the characters of a string only quotes, backslashes and control
characters are escaped: by a letter where JSON has one, otherwise as \\u00xx in small letters.
"""

from __future__ import annotations

import json
from typing import Any


def json_text(value: Any) -> str:
    """The JSON of a value, without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def event(value: Any) -> bytes:
    """A server-sent event that holds a value."""
    return b"data: " + json_text(value).encode() + b"\n\n"


#: The event after the last one.
DONE = b"data: [DONE]\n\n"
