"""What JSON schemas may ask of llguidance.

It has limits of its own, but not for everything: how long it takes to find the remainders of `multipleOf`, and how
often it asks whether expressions can hold at once, can be counted in the schema only. The three languages count alike.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

#: Of the least common multiple of all `multipleOf`, in units of their last decimal place: llguidance has a state for
#: each remainder, and goes through all of them. Its own arithmetic has 32 bits, which this cannot exceed.
MOST_MULTIPLE = 10_000

#: Of all expressions, and of the names of properties that expressions of `patternProperties` are tried on.
MOST_CHARACTERS = 8192

#: How often expressions are held against others; each time takes half a millisecond at most, if they are not long.
MOST_CHECKS = 2000

#: Of schemas within each other, counted along `$ref`.
MOST_LEVELS = 128

_FORMAT_CHARACTERS = 150  # what the expression of a `format` counts
_SHORT = 100  # shorter expressions count as so many characters
_MANY = 10**9  # counts end here

#: Keywords that hold for no text. A `$ref` beside these alone is shared, not held against anything.
_ANNOTATIONS = frozenset(
    "$anchor $defs definitions $schema $id id $comment title description default readOnly writeOnly examples"
    " contentMediaType contentEncoding".split()
)
_SCHEMAS = ("items", "prefixItems", "additionalItems", "additionalProperties")


class SchemaTooCostly(ValueError):
    """What of a schema is beyond a limit."""


def check_cost(schemas: list[Any]) -> None:
    """SchemaTooCostly unless the schemas together stay within the limits. Time in proportion to their size."""
    _check_multiples(schemas)
    checks = characters = 0
    for schema in schemas:
        counter = _Counter(schema)
        for value in _objects(schema):
            characters += _expressions(value)[0]
            if counter.has_patterns and isinstance(names := value.get("properties"), dict):
                characters += sum(map(len, names))
        if characters > MOST_CHARACTERS:
            raise SchemaTooCostly(
                f"its patterns, and the names of properties beside patternProperties, have more than {MOST_CHARACTERS}"
                " characters"
            )
        checks += sum(counter.checks(value) for value in _objects(schema))
    if checks > MOST_CHECKS:
        raise SchemaTooCostly(
            "its patterns, formats and patternProperties would be held against each other more than"
            f" {MOST_CHECKS} times"
        )


def _check_multiples(schemas: list[Any]) -> None:
    found = {_digits(value["multipleOf"]) for schema in schemas for value in _objects(schema) if "multipleOf" in value}
    multiples = {digits for digits in found if digits is not None}
    places = max((-exponent for _, exponent in multiples), default=0)
    least = 1
    for number, exponent in multiples:
        # A power of ten that is beyond the limit itself is not computed.
        scaled = number * 10 ** min(max(places, 0) + exponent, 5)
        least = math.lcm(least, scaled) if scaled <= MOST_MULTIPLE else scaled
        if least > MOST_MULTIPLE:
            raise SchemaTooCostly(
                f"the least common multiple of its multipleOf, in units of their last decimal place, is more than"
                f" {MOST_MULTIPLE}"
            )


def _digits(value: object) -> tuple[int, int] | None:
    """A positive number as a whole number without zeros at its end, and a power of ten; None for others, which
    llguidance refuses."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        return None
    _, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits))
    kept = text.rstrip("0")
    zeros = len(text) - len(kept)
    # More digits than the limit has are beyond it, whatever they are.
    return min(int(kept), MOST_MULTIPLE + 1), int(exponent) + zeros


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in a JSON value."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _expressions(schema: dict[str, Any]) -> tuple[int, int]:
    """How many characters the expressions of one schema have, and how many of them are names in patternProperties."""
    pattern, named = schema.get("pattern"), schema.get("patternProperties")
    names = list(named) if isinstance(named, dict) else []
    return (len(pattern) if isinstance(pattern, str) else 0) + sum(map(len, names)), len(names)


@dataclasses.dataclass(frozen=True)
class _Size:
    """What a schema is when references in it are followed: it holds if one of `ways` holds. In each way, properties
    have so many places as `named` says, and what has no name, items too, has `rest`. At no place hold more than
    `expressions` characters of expressions at once, and `patterns` of patternProperties."""

    ways: int = 1
    named: Mapping[str, int] = dataclasses.field(default_factory=dict)
    rest: int = 0
    expressions: int = 0
    patterns: int = 0

    @property
    def places(self) -> int:
        return min(self.ways * (1 + sum(self.named.values()) + self.rest), _MANY)

    def either(self, other: _Size) -> _Size:
        names = {**self.named, **other.named}
        return _Size(
            ways=min(self.ways + other.ways, _MANY),
            named={name: max(self.named.get(name, 1), other.named.get(name, 1)) for name in names},
            rest=max(self.rest, other.rest),
            expressions=max(self.expressions, other.expressions),
            patterns=max(self.patterns, other.patterns),
        )

    def both(self, other: _Size) -> _Size:
        """Ways of one meet those of the other, and properties meet those of the same name, or what has none."""
        mine, others = max(self.rest, 1), max(other.rest, 1)
        names = {**self.named, **other.named}
        return _Size(
            ways=min(self.ways * other.ways, _MANY),
            named={name: min(self.named.get(name, mine) * other.named.get(name, others), _MANY) for name in names},
            rest=min(mine * others, _MANY) if self.rest or other.rest else 0,
            expressions=min(self.expressions + other.expressions, _MANY),
            patterns=min(self.patterns + other.patterns, _MANY),
        )

    def around(self, name: str | None, child: _Size) -> _Size:
        """With a schema of a property, or of what has no name."""
        return _Size(
            ways=self.ways,
            named=self.named if name is None else {**self.named, name: child.places},
            rest=min(self.rest + child.places, _MANY) if name is None else self.rest,
            expressions=max(self.expressions, child.expressions),
            patterns=max(self.patterns, child.patterns),
        )


def _own_characters(schema: dict[str, Any]) -> int:
    """How many characters the expressions of one schema count, with that of its format."""
    return _expressions(schema)[0] + (_FORMAT_CHARACTERS if isinstance(schema.get("format"), str) else 0)


#: A reference that only llguidance follows: it may lead to anything.
_UNKNOWN = _Size(ways=_MANY, expressions=1)


class _Counter:
    """Counts how often the expressions of one document are held against others."""

    def __init__(self, root: Any):
        self._root = root
        self._sizes: dict[int, _Size] = {}
        objects = list(_objects(root))
        self.has_patterns = any(isinstance(value.get("patternProperties"), dict) for value in objects)
        # Below another id, references would begin there.
        self._nested = any(isinstance(value.get(key), str) for value in objects[1:] for key in ("$id", "id"))
        self._is_free = not any(_own_characters(value) for value in objects)

    def checks(self, schema: dict[str, Any]) -> int:
        """Those for the schema at one place, were it the only one."""
        if self._is_free:
            return 0
        parts = self._parts(schema, 0)
        met = _Size()
        if len(parts) == 1:  # only its own patternProperties are held against each other
            characters, names = _expressions(schema)
            met = _Size(expressions=characters if names > 1 else 0, patterns=names)
        else:
            for part in parts:
                met = met.both(part)
        if not met.expressions:
            return 0
        pairs = 1 + met.patterns * (met.patterns - 1) // 2
        long = max(met.expressions, _SHORT)
        return min(met.places * pairs * long * long // _SHORT**2, _MANY)

    def _parts(self, schema: dict[str, Any], level: int) -> list[_Size]:
        """What all holds at the place of a schema, each by itself."""
        parts = []
        if any(key not in _ANNOTATIONS and key not in ("anyOf", "oneOf", "allOf", "enum", "$ref") for key in schema):
            parts.append(self._own(schema, level))
        for key in ("anyOf", "oneOf"):
            if isinstance(several := schema.get(key), list) and several:
                sizes = [self._size(one, level) for one in several]
                either = sizes[0]
                for size in sizes[1:]:
                    either = either.either(size)
                parts.append(either)
        if isinstance(values := schema.get("enum"), list):
            parts.append(_Size(ways=max(len(values), 1)))
        if isinstance(several := schema.get("allOf"), list):
            parts += [self._size(one, level) for one in several]
        if isinstance(reference := schema.get("$ref"), str):
            parts.append(self._referred(reference, level))
        return parts

    def _own(self, schema: dict[str, Any], level: int) -> _Size:
        size = _Size(expressions=_own_characters(schema), patterns=_expressions(schema)[1])
        children: list[tuple[str | None, Any]] = []
        if isinstance(named := schema.get("properties"), dict):
            children += named.items()
        if isinstance(named := schema.get("patternProperties"), dict):
            children += ((None, child) for child in named.values())
        for key in _SCHEMAS:
            value = schema.get(key)
            children += ((None, child) for child in (value if isinstance(value, list) else [value]))
        for name, child in children:
            if isinstance(child, dict):
                size = size.around(name, self._size(child, level))
        return size

    def _size(self, schema: Any, level: int) -> _Size:
        if not isinstance(schema, dict):
            return _Size()
        known = self._sizes.get(id(schema))
        if known is not None:
            return known
        if level == MOST_LEVELS:
            raise SchemaTooCostly(f"it has more than {MOST_LEVELS} schemas within each other, counted along $ref")
        self._sizes[id(schema)] = _Size()  # to a schema within itself
        met = _Size()
        for part in self._parts(schema, level + 1):
            met = met.both(part)
        self._sizes[id(schema)] = met
        return met

    def _referred(self, reference: str, level: int) -> _Size:
        if self._nested or "%" in reference or (reference != "#" and not reference.startswith("#/")):
            return _UNKNOWN
        place = self._root
        for name in reference.split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            if isinstance(place, dict):
                place = place.get(name)
            elif isinstance(place, list) and name.isascii() and name.isdigit() and int(name) < len(place):
                place = place[int(name)]
            else:
                return _Size()
        return self._size(place, level)
