"""Fuzzes readers with atheris (libFuzzer for Python), led by the coverage of their code.

    python tests/fuzz/fuzz_run.py [TARGET ...] [--seconds N] [--jobs N] [--keep]

Seeds and the kept corpus are where it begins; what it adds stays in build/fuzz/TARGET/corpus, and a finding's file in
build/fuzz/TARGET/findings. `--keep` then renews tests/fuzz/corpus/TARGET: the fewest small files that reach what all of
them reach. Exit status 1 when a target had a finding.
"""

from __future__ import annotations

import argparse
import random
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fuzz_harness import limit_address_space, run_case, temporary_folder
from fuzz_replay import CORPUS
from fuzz_seeds import SEEDS
from fuzz_targets import TARGETS, load_readers

WORK = Path(__file__).parents[2] / "build" / "fuzz"
LONGEST = 1 << 16
LONGEST_KEPT = 1 << 13
MOST_KEPT_BYTES = 80_000  # a target


class Finding(Exception):
    """What libFuzzer takes for a crash."""


def fuzz(name: str, arguments: list[str]) -> None:
    """libFuzzer's loop over a target. Does not return."""
    import atheris

    with atheris.instrument_imports(include=["nncuda"], enable_loader_override=False):
        load_readers()
    target = TARGETS[name]
    folder = temporary_folder()

    def one(data: bytes) -> None:
        outcome = run_case(target, data, Path(folder.name))
        if outcome.verdict == "finding":
            raise Finding(outcome.text)

    def mutate(data: bytes, longest: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.2:  # libFuzzer's own, which knows what the code compared bytes with
            return atheris.Mutate(data, longest)
        return target.mutate(data, rng)[:longest]

    # What libFuzzer starts itself by, through a shell, when it merges.
    command = shlex.join([sys.executable, str(Path(__file__).resolve()), name, "--libfuzzer"])
    atheris.Setup([command, *arguments], one, custom_mutator=mutate)
    limit_address_space()
    atheris.Fuzz()


def child(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A run of `fuzz` in a process of its own, which ends with libFuzzer."""
    command = [sys.executable, __file__, name, "--libfuzzer", *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")


def run(name: str, seconds: int) -> bool:
    """One target for so long; whether nothing was found. Prints a line, and what was found."""
    folder = WORK / name
    for part in ("corpus", "seeds", "findings"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for seed in SEEDS[name]:
        (folder / "seeds" / seed.name).write_bytes(seed.data)
    kept = CORPUS / name
    limits = (f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=8192", f"-max_len={LONGEST}")
    places = [folder / "corpus", folder / "seeds", *([kept] if kept.is_dir() else [])]
    done = child(name, *limits, f"-artifact_prefix={folder / 'findings'}/", "-print_final_stats=1", *places)
    (folder / "log").write_text(done.stdout, encoding="utf-8")
    executed = re.findall(r"number_of_executed_units: (\d+)", done.stdout)
    covered = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", done.stdout)
    reached = "edges {}, features {}, corpus {}".format(*covered[-1]) if covered else "nothing reached"
    said = f"{name}: {executed[-1] if executed else 0} runs, {reached}\n"
    if done.returncode != 0:
        every = done.stdout.splitlines()
        lines = [line for line in every if "Finding:" in line or "ERROR" in line or "Test unit" in line]
        said += "  FINDING: " + "\n  ".join(lines[:6] or every[-6:]) + "\n"
    print(said, end="", flush=True)  # at once, since targets may run side by side
    return done.returncode == 0


def keep(name: str) -> None:
    """Renews the kept corpus of a target."""
    small, merged = WORK / name / "small", WORK / name / "merged"
    for folder in (small, merged):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for folder in (CORPUS / name, WORK / name / "corpus"):
        for path in folder.glob("*"):
            if path.stat().st_size <= LONGEST_KEPT:
                shutil.copy(path, small / path.name)
    child(name, "-merge=1", f"-max_len={LONGEST_KEPT}", merged, WORK / name / "seeds", small)
    seeds = {seed.data for seed in SEEDS[name]}
    shutil.rmtree(CORPUS / name, ignore_errors=True)
    (CORPUS / name).mkdir(parents=True)
    left = MOST_KEPT_BYTES
    for path in sorted(merged.glob("*"), key=lambda path: (path.stat().st_size, path.name)):
        left -= path.stat().st_size
        if left >= 0 and path.read_bytes() not in seeds:
            shutil.copy(path, CORPUS / name / path.name[:16])
    sizes = [path.stat().st_size for path in (CORPUS / name).glob("*")]
    print(f"{name}: {len(sizes)} files kept, {sum(sizes)} bytes", flush=True)


def main() -> None:
    if "--libfuzzer" in sys.argv:
        fuzz(sys.argv[1], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=int, default=60, help="of each target; 0: with --keep alone")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time")
    parser.add_argument("--keep", action="store_true", help="renew the kept corpus")
    options = parser.parse_args()
    unknown = set(options.targets) - set(TARGETS)
    if unknown:
        parser.error(f"there is no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    names, good = options.targets or [*TARGETS], True
    if options.seconds > 0:
        with ThreadPoolExecutor(max(1, options.jobs)) as pool:
            good = all([*pool.map(run, names, [options.seconds] * len(names))])
    if options.keep:
        for name in names:
            keep(name)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
