"""Constrained output against JSON Schema's own tests, of draft 2020-12: what is refused, and whether what is enforced
is neither looser nor stricter than the schema. docs/serving-constraints.md has the numbers.
(https://github.com/json-schema-org/JSON-Schema-Test-Suite)
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nncuda.infer.grammar import Grammar, GrammarError, Grammars

#: The folder of its tests, of all drafts.
SUITE = os.environ.get("NNCUDA_SCHEMA_SUITE")
PAGE = Path(__file__).parents[2] / "docs" / "serving-constraints.md"

pytestmark = pytest.mark.skipif(SUITE is None, reason="make interop runs it, with the tests in NNCUDA_SCHEMA_SUITE")


class Bytes:
    """A tokenizer of bytes: id 0 ends a text, byte b has the id b + 1."""

    vocab_size, ordinary_id, end_ids = 257, 1 + ord("a"), frozenset({0})

    def decode(self, ids: list[int]) -> str:
        return "".join(
            "" if not token else chr(token - 1) if token <= 128 else "\N{REPLACEMENT CHARACTER}" for token in ids
        )

    def piece(self, token: int) -> str:
        return f"<0x{token - 1:02X}>" if token else "</s>"

    def encode(self, text: str) -> list[int]:
        raise AssertionError("no text of a grammar is cut")


def writes(grammar: Grammar, text: str) -> bool:
    """Whether a grammar allows a text, and its end."""
    constraint = grammar.constraint()
    for byte in text.encode():
        allowed = np.unpackbits(constraint.mask().view(np.uint8), bitorder="little")
        if len(allowed) <= byte + 1 or not allowed[byte + 1]:
            return False
        constraint.accept(byte + 1)
    mask = constraint.mask()
    return not mask.any() or bool(mask[0] & 1)


def orders(value: Any) -> Iterator[Any]:
    """A value, with its keys in any order: texts have those of `properties` in the schema's order."""
    if isinstance(value, dict) and len(value) <= 4:
        for entries in itertools.permutations(value.items()):
            yield dict(entries)
    else:
        yield value


def counted(groups: Iterable[dict[str, Any]], grammars: Grammars) -> Counter[str]:
    """How many schemas are enforced and refused; and of the values that are tried on enforced ones, how many valid and
    invalid ones can be written, or are stopped."""
    found: Counter[str] = Counter()
    for group in groups:
        if not isinstance(group["schema"], dict):  # true and false, which the field does not take
            continue
        try:
            grammar = grammars.json_schema(group["schema"])
        except GrammarError:
            found["refused"] += 1
            continue
        found["enforced"] += 1
        for test in group["tests"]:
            texts = (json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in orders(test["data"]))
            written = any(writes(grammar, text) for text in texts)
            found[f"{'valid' if test['valid'] else 'invalid'} {'written' if written else 'stopped'}"] += 1
    return found


def test_neither_looser_nor_stricter() -> None:
    assert SUITE is not None
    grammars = Grammars(Bytes(), Bytes.vocab_size)  # type: ignore[arg-type]
    files = sorted((Path(SUITE) / "draft2020-12").glob("*.json"))
    assert len(files) > 40
    counts = {file.stem: counted(json.loads(file.read_text(encoding="utf-8")), grammars) for file in files}
    assert not {name: one["invalid written"] for name, one in counts.items() if one["invalid written"]}
    rows = [
        "| tests of | schemas enforced | refused | valid values written | invalid ones stopped |",
        "|---|---|---|---|---|",
    ]
    total: Counter[str] = Counter()
    for name, one in [*counts.items(), ("all", total)]:
        values = [sum(one[f"{kind} {what}"] for what in ("written", "stopped")) for kind in ("valid", "invalid")]
        cells = [one["enforced"], one["refused"], f"{one['valid written']} of {values[0]}"]
        if one["enforced"]:
            rows.append(f"| {name} | {' | '.join(map(str, cells))} | {one['invalid stopped']} of {values[1]} |")
        total += one
    refused = ", ".join(f"`{name}`" for name, one in counts.items() if one["refused"] and not one["enforced"])
    table = "\n".join(rows)
    page = PAGE.read_text(encoding="utf-8")
    assert table in page, f"docs/serving-constraints.md should have\n{table}"
    assert f"all schemas of {refused} are refused" in page.replace("\n", " "), refused
