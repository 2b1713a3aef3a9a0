"""No schema keeps a server: what llguidance has no limit for is refused before it begins."""

from __future__ import annotations

import json
import random
import string
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nncuda.infer.grammar import GrammarError, Grammars, check_grammar, schema_text

CASES = json.loads((Path(__file__).parent / "schema_costs.json").read_text(encoding="utf-8"))

#: Seconds for all schemas of a test, on a busy machine; one that llguidance has no limit for takes minutes to hours.
PATIENCE = 240


@pytest.mark.parametrize("number", range(len(CASES)))
def test_what_schemas_may_ask_for(number: int) -> None:
    """The cases that Go and Rust have, too."""
    found = None
    try:
        check_grammar(schema_text(CASES[number]["schema"]))
    except GrammarError as error:
        found = str(error)
    assert found == CASES[number]["problem"]


def test_schemas_of_a_list_count_together() -> None:
    def grammars(*schemas: Any) -> str:
        return json.dumps({"grammars": [{"name": f"g{at}", "json_schema": one} for at, one in enumerate(schemas)]})

    check_grammar(grammars({"multipleOf": 97}, {"multipleOf": 97}, {"pattern": "x" * 4000}))
    dates = {"format": "date", "enum": ["a"] * 500}
    check_grammar(grammars(dates))
    for schemas in (({"multipleOf": 997}, {"multipleOf": 991}), ({"pattern": "x" * 5000},) * 2, (dates,) * 2):
        with pytest.raises(GrammarError):
            check_grammar(grammars(*schemas))


class Letters:
    """A tokenizer of bytes and of some words of two and three letters, without a space before a text."""

    words = ("</s>", *map(chr, range(32, 127)), "\n", *(a + b for a in "abx01" for b in string.ascii_lowercase + "09"))
    vocab_size, ordinary_id, end_ids = len(words), 1, frozenset({0})

    def decode(self, ids: list[int]) -> str:
        return "".join(self.words[token] for token in ids if token)

    def piece(self, token: int) -> str:
        return self.words[token]

    def encode(self, text: str) -> list[int]:
        raise AssertionError("no text of a grammar is cut")


def run(schemas: Iterator[Any]) -> None:
    """Each schema is refused, or writes a text of some tokens; or llguidance gives up."""
    choice = random.Random(1)
    grammars = Grammars(Letters(), Letters.vocab_size)  # type: ignore[arg-type]
    for schema in schemas:
        print(json.dumps(schema)[:400], flush=True)  # the last one is the one that took long
        try:
            constraint = grammars.json_schema(schema).constraint()
            for _ in range(30):
                mask = np.unpackbits(constraint.mask().view(np.uint8), bitorder="little")
                allowed = np.flatnonzero(mask[1 : Letters.vocab_size]) + 1
                if not len(allowed):
                    break
                constraint.accept(int(choice.choice(allowed)))
        except (GrammarError, RuntimeError):
            continue


def attacks() -> Iterator[Any]:
    """Schemas with much of one kind, of all kinds that were found to take long, or might."""
    pick = random.Random(2)

    def word(size: int) -> str:
        return "".join(pick.choice("ab") for _ in range(size))

    hard: list[Callable[[], str]] = [
        lambda: f"({word(5)}|[a-c]*{word(4)})*{word(4)}",
        lambda: f"a.{{0,{pick.randrange(90)}}}b",
        lambda: f"^({word(3)}|[a-c])*{word(3)}$",
    ]
    for number in (9973, 9_999_991, 1e-9, 0.1, 65521, 4294967291):
        yield {"multipleOf": number}
        yield {"type": "integer", "multipleOf": number, "minimum": 12_345, "maximum": 10**12}
    for several in ("allOf", "anyOf", "oneOf"):
        yield {several: [{"multipleOf": 997}, {"multipleOf": 991}]}
        yield {several: [{"multipleOf": 97 - at} for at in range(3)]}
        yield {several: [{"pattern": f"{letter}x"} for letter in "abcdefghijklmn"]}
        yield {several: [{"pattern": f"^(.{{{prime}}})*$"} for prime in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)]}
        for make in hard:
            yield {several: [{"anyOf": [{"pattern": make(), "type": "string"} for _ in range(70)]} for _ in range(2)]}
            yield {
                several: [{"enum": [word(30) for _ in range(200)]}, {"anyOf": [{"pattern": make()} for _ in range(90)]}]
            }
    for count in (10, 60, 400):
        yield {"patternProperties": {f"^{at}x[a-z]*y[a-z]*z{at}$": {} for at in range(count)}}
        yield {"properties": {f"p{at}": {"multipleOf": 9973 - at, "minimum": at} for at in range(count)}}
        yield {"anyOf": [{"type": "integer", "minimum": at, "maximum": 10**15 - at} for at in range(count)]}
        yield {"format": "uri", "enum": ["http://" + word(30) for _ in range(8 * count)]}
        yield {"pattern": hard[0](), "enum": [word(30) for _ in range(8 * count)]}
        yield {"pattern": hard[0](), "anyOf": [{"type": "string", "minLength": at} for at in range(count)]}
        yield {
            "allOf": [{"anyOf": [{"properties": {f"{letter}{at}": {}}} for at in range(count // 4)]} for letter in "ab"]
            + [{"patternProperties": {f"^{at}.*x": {} for at in range(8)}}]
        }
        chain = {
            f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2 + [{"pattern": hard[2]()}]} for at in range(count)
        }
        yield {"$defs": {**chain, f"d{count}": {"type": "string"}}, "$ref": "#/$defs/d0"}
    for size in (1000, 8000, 500_000):
        for piece in ("[a-z]", r"\w*x", r"\p{L}?", "(ab?)?", "x{1,9}", "(a|b)*"):
            yield {"type": "string", "pattern": piece * (size // len(piece))}
            yield {"type": "string", "pattern": f"^{piece * (size // len(piece))}$", "minLength": 9, "maxLength": 99}
        yield {"properties": {word(size): {}}, "patternProperties": {"a(a|b){60}c": {}}}
        yield {"const": word(size), "pattern": "a(a|b){30}"}
        yield {"enum": [word(size // 10) for _ in range(100)]}
    for number in (1000, 10**9, 2**32, 2**63):
        for key in ("Length", "Items", "Properties"):
            yield {"min" + key: number}
            yield {"max" + key: number, "pattern": "^(ab|c)*$"}
    for pattern in (
        "^(a|a)*$", "^(((a*)*)*)*b$", "^x{1000}{1000}$", "^(x{1000}){0,1000}y$", "^((a{1,50}){1,50}b{1,50}){1,50}$",
        "(.{0,1000}){0,1000}", "^(a|b)*a(a|b){30}$", "x{4000000000}", "(" * 240 + ")" * 240,
    ):  # fmt: skip
        yield {"type": "string", "pattern": pattern}
        yield {"type": "object", "patternProperties": {pattern: {}, "z": {}}, "additionalProperties": False}


def mixed(seeds: range) -> Iterator[Any]:
    """Schemas of keywords in any mixture."""
    patterns = ["^a*$", "(a|b)*a(a|b){12}", r"^(\w+\s?)+$", "^[a-z]{1,80}$", "a.*b.*c", "[^x]*x[^y]*y", r"^\d{1,3}$"]
    leaves: dict[str, list[Any]] = {
        "type": ["string", "object", "array", "number", "integer", ["string", "null"]], "pattern": patterns,
        "format": ["date-time", "email", "uri", "ipv6", "uuid"], "minLength": [0, 1, 99], "maxLength": [3, 99, 10**6],
        "minimum": [-1e9, -3.5, 0, 7], "maximum": [7, 10**6 + 0.5, 10**12], "multipleOf": [1, 2, 0.01, 5, 7, 101],
        "enum": [["a", "ab"], list(range(90)), ["a" * at for at in range(40)]], "const": ["abba", 7],
        "minItems": [0, 3], "maxItems": [3, 9999], "required": [["p0"]], "uniqueItems": [False],
        "$ref": [f"#/$defs/d{at}" for at in range(5)],
    }  # fmt: skip

    def made(pick: random.Random, depth: int) -> Any:
        schema: dict[str, Any] = {}
        for _ in range(pick.choice((1, 1, 2, 3))):
            key = pick.choice([*leaves, "properties", "items", "patternProperties", "anyOf", "oneOf", "allOf"])
            inner = (
                [made(pick, depth - 1) for _ in range(pick.choice((1, 2, 3, 12)))]
                if depth and key not in leaves
                else []
            )
            if key in leaves:
                schema[key] = pick.choice(leaves[key])
            elif key == "properties":
                schema[key] = {f"p{at}": one for at, one in enumerate(inner)}
            elif key == "patternProperties":
                schema[key] = {f"^{at}{pick.choice(patterns[3:5])}": one for at, one in enumerate(inner[:4])}
            elif inner:
                schema[key] = inner[0] if key == "items" else inner
        return schema

    for seed in seeds:
        pick = random.Random(seed)
        yield {**made(pick, 3), "$defs": {f"d{at}": made(pick, 2) for at in range(5)}}


@pytest.mark.parametrize("which", ["attacks()", "mixed(range(300))", "mixed(range(300, 600))"])
def test_nothing_takes_long(which: str) -> None:
    """In a process of its own, which can be ended."""
    program = f"import test_serve_schema_costs as costs; costs.run(costs.{which}); print('done')"
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parent, timeout=PATIENCE, capture_output=True, text=True
    )
    assert found.stdout.endswith("done\n"), found.stdout[-400:] + found.stderr[-2000:]
