"""Every reader of outside files, replayed over its seeds, the kept corpus, and a fixed run of its mutator."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz_replay import corpus
from fuzz_seeds import SEEDS
from fuzz_targets import TARGETS

# Templates that run for ever take their limit of half a second each, tokenizers without end that of their memory.
MUTATIONS = {target: {"template": 30, "tokenizer_json": 50}.get(target, 100) for target in TARGETS}
HERE = Path(__file__).parent


@functools.cache
def outcomes(target: str) -> dict[str, tuple[str, str]]:
    """Verdict and text of each case, from one process a target."""
    command = [sys.executable, HERE / "fuzz_replay.py", target, "--mutations", str(MUTATIONS[target])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    last = next((line["begins"] for line in reversed(lines) if "begins" in line), "nothing")
    assert done.returncode == 0, f"exit status {done.returncode} in case {last!r}:\n{done.stderr[-4000:]}"
    return {line["case"]: (line["verdict"], line["text"]) for line in lines if "case" in line}


@pytest.mark.parametrize(
    ("target", "name", "expected"),
    [pytest.param(t, s.name, s.expected, id=f"{t}-{s.name}") for t, seeds in SEEDS.items() for s in seeds],
)
def test_seed(target: str, name: str, expected: str | None) -> None:
    verdict, text = outcomes(target)[f"seed {name}"]
    assert verdict == ("read" if expected is None else "refused"), text
    assert expected is None or expected in text


@pytest.mark.parametrize("target", TARGETS)
def test_corpus_and_mutations(target: str) -> None:
    found = {name: text for name, (verdict, text) in outcomes(target).items() if verdict == "finding"}
    assert not found
    assert len(outcomes(target)) == len(SEEDS[target]) + len(corpus(target)) + MUTATIONS[target]
    verdicts = {verdict for name, (verdict, _) in outcomes(target).items() if name.startswith("mutation")}
    assert verdicts == {"read", "refused"}  # the mutator makes files of both kinds


@pytest.mark.parametrize("target", TARGETS)
def test_names_of_seeds_are_unlike(target: str) -> None:
    names = [seed.name for seed in SEEDS[target]]
    assert len(set(names)) == len(names)
