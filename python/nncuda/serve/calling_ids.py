"""Ids of the calls of an answer, made of that of the answer."""

from __future__ import annotations

#: Some templates insist on ids of nine letters and digits.
_DIGITS = 9

#: Ids that each text of an answer has for its calls.
_CALLS = 1 << 16


def call_id(digits: str, index: int, call: int) -> str:
    """The id of a call of the `index`-th text, of an answer whose id has these 32 hexadecimal digits."""
    number = int(digits[:_DIGITS], 16) + index * _CALLS + call
    return f"{number % 16**_DIGITS:0{_DIGITS}x}"
