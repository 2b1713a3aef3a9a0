"""Constrained output on real schemas: a tenth of those of JSONSchemaBench, with the values that its MaskBench has.

`make schema-suite SCHEMA_BENCH=PATH` runs this, with the path of its source. docs/serving-constraints.md has the
numbers. (https://github.com/guidance-ai/jsonschemabench)
"""

from __future__ import annotations

import json
import os
import zlib
from collections import Counter
from pathlib import Path

import pytest
from test_serve_schema_suite import PAGE, Bytes, counted

from nncuda.infer.grammar import GrammarFailed, Grammars

BENCH = os.environ.get("SCHEMA_BENCH")


@pytest.mark.skipif(not BENCH, reason="SCHEMA_BENCH does not say where JSONSchemaBench's source is")
def test_neither_looser_nor_stricter() -> None:
    grammars = Grammars(Bytes(), Bytes.vocab_size)  # type: ignore[arg-type]
    folder = Path(str(BENCH), "maskbench", "data")
    files = [file for file in sorted(folder.glob("*.json")) if zlib.crc32(file.name.encode()) % 10 == 0]
    total: Counter[str] = Counter()
    for file in files:
        try:
            found = counted([json.loads(file.read_text(encoding="utf-8"))], grammars)
        except GrammarFailed:  # a limit that is reached while a text is written
            found = Counter(enforced=1, costly=1)
        assert not found["invalid written"], file
        total += found
    valid = total["valid written"] + total["valid stopped"]
    sentence = (
        f"Of a tenth of the schemas of JSONSchemaBench, {len(files)} in all, {total['enforced']} are enforced and "
        f"{total['refused']} refused; of the values that MaskBench has for them, {total['valid written']} of {valid} "
        f"valid ones can be written, and all {total['invalid stopped']} that are not valid are stopped. The limits of "
        f"llguidance are reached with {total['costly']} of them."
    )
    assert sentence in PAGE.read_text(encoding="utf-8").replace("\n", " "), sentence
