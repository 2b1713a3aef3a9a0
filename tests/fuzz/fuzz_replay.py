"""Replays seeds and corpus through a target, and a fixed run of its mutator, in a process with limits.

    python tests/fuzz/fuzz_replay.py TARGET [--mutations N] [--start N]

A line of JSON goes out before and after each case, so that a crash or a hang names the case that it happened in.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import fuzz_targets
from fuzz_harness import limit_address_space, run_case, temporary_folder
from fuzz_seeds import SEEDS
from fuzz_targets import TARGETS, Target

CORPUS = Path(__file__).parent / "corpus"


def corpus(target: str) -> list[Path]:
    """Files that fuzzing kept, in the order of their names."""
    return sorted((CORPUS / target).glob("*"))


def cases(target: str, mutations: int, start: int) -> Iterator[tuple[str, bytes]]:
    """Names and contents: seeds, corpus, then mutations of them, which a number determines."""
    basis = []
    for seed in SEEDS[target]:
        basis += [seed.data] * (1 if seed.expected else 8)  # what is in order has more ways to go wrong
        yield f"seed {seed.name}", seed.data
    for path in corpus(target):
        basis.append(path.read_bytes())
        yield f"corpus {path.name}", basis[-1]
    for number in range(start, start + mutations):
        rng = random.Random(number)
        yield f"mutation {number}", TARGETS[target].mutate(rng.choice(basis), rng)


def warm_up(target: Target, folder: Path) -> None:
    """Opens an empty file, so that no case pays for what the target imports."""
    (folder / target.name).write_bytes(b"")
    with contextlib.suppress(ValueError):
        target.use(folder / target.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--mutations", type=int, default=0)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the files of findings")
    options = parser.parse_args()
    target = TARGETS[options.target]
    out = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is none of our lines
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with temporary_folder() as folder:
        warm_up(target, Path(folder))
        limit_address_space()
        tracemalloc.start()
        for name, data in cases(options.target, options.mutations, options.start):
            out.write(json.dumps({"begins": name}) + "\n")
            # Seeds are judged by their sentences, so that a slow machine must not be the reason of a refusal.
            fuzz_targets.template_seconds = 60.0 if name.startswith("seed") and "forever" not in name else 0.5
            outcome = run_case(target, data, Path(folder))
            out.write(json.dumps({"case": name, "verdict": outcome.verdict, "text": outcome.text}) + "\n")
            if outcome.verdict == "finding" and options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / name.replace(" ", "_")).write_bytes(data)
    sys.exit(0)


if __name__ == "__main__":
    main()
