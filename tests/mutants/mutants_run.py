"""Plants mistakes in a copy of the sources, one at a time, and tells which of them no test notices: `make mutants`.

What survives is information, not a failure: either a test is missing, or the mistake is none. What is drawn depends on
the seed and the sources alone.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import mutations
from mutants_workplace import ROOT, SAME, SURVIVED, UNBUILT, SetupError, Workplace
from mutations import Mutation


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="which sample (0)")
    parser.add_argument("--count", type=int, default=12, help="how many, half of them in C (12)")
    parser.add_argument(
        "--files", default="", metavar="PATTERN", help="in files whose path has this regular expression"
    )
    parser.add_argument("--far", action="store_true", help="also try the tests of other parts on what survives: slow")
    parser.add_argument("--fail-over", type=int, metavar="N", help="exit 1 when more than N survive")
    parser.add_argument("--list", action="store_true", help="show the sample and run nothing")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutants", help="of the copy (build/mutants)")
    options = parser.parse_args(arguments)
    drawn = [mutations.draw(ROOT, language, options.seed, options.files) for language in ("python", "c")]
    samples = [sample for sample in drawn if sample]
    if not samples:
        parser.error(f"there is nothing to mutate in files like {options.files!r}")
    shares = [(options.count + number) // len(samples) for number in range(len(samples))]
    if options.list:
        for sample, share in zip(samples, shares, strict=True):
            for mutation in sample[:share]:
                print(mutation.diff((ROOT / mutation.path).read_bytes()))
        return 0
    print(f"Building a copy of the sources in {options.folder}", flush=True)
    try:
        survivors = examine(Workplace(options.folder), samples, shares, options.far)
    except SetupError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    return int(options.fail_over is not None and survivors > options.fail_over)


def examine(place: Workplace, samples: list[list[Mutation]], shares: list[int], far: bool) -> int:
    """Judges so many of each sample, and tells; gives the number of those that survive."""
    outcomes: Counter[str] = Counter()
    survivors: list[str] = []
    begin, done, count = time.monotonic(), 0, sum(shares)
    for sample, share in zip(samples, shares, strict=True):
        for mutation, outcome in itertools.islice(judged(place, sample, far, outcomes), share):
            done += 1
            left = (time.monotonic() - begin) / done * (count - done) / 60
            source = (place.tree / mutation.path).read_bytes()
            where = f"{mutation.path}:{mutation.line(source)}"
            print(f"[{done}/{count}] {where} ({mutation.kind}): {outcome}; about {left:.0f} min left", flush=True)
            if outcome == SURVIVED:
                survivors.append(f"{where}\n{mutation.diff(source)}")
    for survivor in survivors:
        print(f"\nNo test noticed: {survivor}")
    print("\n" + ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in sorted(outcomes)))
    return len(survivors)


def judged(
    place: Workplace, sample: list[Mutation], far: bool, outcomes: Counter[str]
) -> Iterator[tuple[Mutation, str]]:
    """What becomes of each, without those that no test could notice; all are counted."""
    for mutation in sample:
        outcome = place.judge(mutation, far)
        outcomes[outcome] += 1
        if outcome not in (UNBUILT, SAME):
            yield mutation, outcome


if __name__ == "__main__":
    sys.exit(main())
