"""A mutator of JSON that works on keys and values, and on the text where JSON itself is ambiguous or too much."""

from __future__ import annotations

import json
import random
from typing import Any

from fuzz_values import FLOATS, TEXTS, WRAPS, byte_level

_MARK = "@@mark@@"
# Texts of values that json.dumps does not write: bombs of depth and digits, numbers that JSON lacks.
_RAW = (
    *("[" * 100 + "]" * 100, "[" * 100_000, '{"a":' * 2000 + "1" + "}" * 2000, "9" * 5000, "-" + "9" * 400, "1e999"),
    *("-1e999", "1e-999", "NaN", "Infinity", "1" + "0" * 18, "0.1e1", '"\\ud800"', '"\\u0000"', "01", "tru", "'a'"),
    *("1,", "//"),
)


def mutate(data: bytes, rng: random.Random, keys: tuple[str, ...] = (), texts: tuple[str, ...] = ()) -> bytes:
    """A document like `data`. `keys` and `texts` are words of its format, to put in place of others."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if rng.randrange(12) == 0:
            data = byte_level(rng, data)
            continue
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            data = byte_level(rng, data)
            continue
        try:
            data = change(value, rng, keys, texts)
        except (ValueError, RecursionError):  # too deep or too long to be written again
            data = byte_level(rng, data)
    return data


def change(value: Any, rng: random.Random, keys: tuple[str, ...], texts: tuple[str, ...]) -> bytes:
    """The document of `value` after one change."""
    places = list(_places(value))
    raw = None
    if not places:
        value, raw = _new(rng, texts)
    else:
        holder, key = rng.choice(places)
        choice = rng.randrange(10)
        if choice == 0:
            del holder[key]
        elif choice == 1 and isinstance(holder, dict):
            holder[rng.choice(keys or TEXTS)] = holder.pop(key)
        elif choice == 2:
            other, its = rng.choice(places)
            if its in other if isinstance(other, dict) else its < len(other):
                holder[key] = json.loads(json.dumps(other[its]))
        elif choice == 3 and isinstance(holder, dict):
            holder[rng.choice(keys or TEXTS)], raw = _new(rng, texts)
        elif choice == 4 and isinstance(holder, list):
            holder.insert(key, json.loads(json.dumps(holder[key])))
        elif choice == 5 and isinstance(holder, dict):  # the same key twice
            now = holder[key]
            holder[_MARK], raw = now, json.dumps(rng.choice((now, None, 0, -1, "x")))
            return json.dumps(value).replace(json.dumps(_MARK) + ":", json.dumps(key) + ":").encode()
        elif choice == 6 and type(holder[key]) is int:
            holder[key] += rng.choice((-1, 1, 2, 8, -8, 64))
        else:
            holder[key], raw = _new(rng, texts)
    out = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    if raw is not None:
        out = out.replace(json.dumps(_MARK), raw, 1)
    return out.encode("utf-8", "surrogatepass")


def _places(value: Any) -> Any:
    stack = [value]
    while stack:
        at = stack.pop()
        for key, inner in list(at.items()) if isinstance(at, dict) else enumerate(at if isinstance(at, list) else ()):
            yield at, key
            if isinstance(inner, (dict, list)):
                stack.append(inner)


def _new(rng: random.Random, texts: tuple[str, ...]) -> tuple[Any, str | None]:
    choice = rng.randrange(8)
    if choice == 0:
        return _MARK, rng.choice(_RAW)
    if choice == 1:
        return rng.choice((None, True, False, [], {}, [0], {"a": 1}, "")), None
    if choice == 2:
        return rng.choice(FLOATS), None
    if choice == 3:
        return rng.choice(WRAPS) * rng.choice((1, -1)), None
    if choice in (4, 5):
        return rng.choice((0, 1, -1, 2, 3, 4, 8, 16, 32, 64, 256, 1024)), None
    return rng.choice(texts or TEXTS), None
