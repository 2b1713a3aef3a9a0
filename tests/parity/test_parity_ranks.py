"""One job on several ranks: its checkpoints and metrics are those of one rank, whatever languages its ranks speak.

`make parity` runs a few of these; `make ranks` sets NNCUDA_RANKS=all and runs them whole.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
from pathlib import Path

import differences
import languages
import pytest
from conftest import find
from runs import Workshop

from nncuda.train import list_checkpoints

MPIEXEC = Path(sys.executable).with_name("mpiexec")
WHOLE = os.environ.get("NNCUDA_RANKS") == "all"
RANKS = (1, 2, 3, 4, 5, 7, 8) if WHOLE else (3,)
#: By name: flags over the configuration "replicas".
KINDS: dict[str, list[object]] = {
    "f32": [],
    "bf16": ["--precision", "bf16"],
    "f16, overflowing": ["--precision", "f16", "--loss-scale", 2**24, "--loss-scale-interval", 4],
    "moments in 8 bits": ["--moments", "f8"],
    "every block again": ["--activation-checkpointing", 1],
    "experts again": ["--recompute-experts"],
    "one micro-batch a replica": ["--batch-size", 8],
    "replicas of unequal work": ["--replicas", 9],
    "sums in bf16": ["--reduce-dtype", "bf16"],
    "sums in f16, overflowing": [
        "--reduce-dtype", "f16", "--precision", "f16", "--loss-scale", 2**24, "--loss-scale-interval", 4,
    ],
}  # fmt: skip
CHECKED = tuple(KINDS) if WHOLE else ("bf16", "sums in bf16")
#: Twelve experts instead of five: flags over "replicas" for jobs whose ranks divide them.
EXPERTS: list[object] = ["--num-experts", 12]
#: By name: flags over these. Slots of experts are dropped in all but one.
EXPERT_KINDS: dict[str, list[object]] = {
    "experts, f32": [],
    "experts, bf16": ["--precision", "bf16"],
    "experts, f16, overflowing": KINDS["f16, overflowing"],
    "experts, moments in 8 bits": KINDS["moments in 8 bits"],
    "experts, nothing dropped": ["--capacity-factor", "none"],
    "experts, accumulated": ["--batch-size", 39, "--micro-batch-size", 2],
    "experts, every block again": ["--precision", "bf16", *KINDS["every block again"]],
    "experts, every second block and the experts of the others": [
        "--activation-checkpointing", 2, "--recompute-experts",
    ],
    "experts, experts again": KINDS["experts again"],
    "experts, one micro-batch a replica": KINDS["one micro-batch a replica"],
    "experts, replicas of unequal work": KINDS["replicas of unequal work"],
    "experts, sums in bf16": [*KINDS["replicas of unequal work"], "--precision", "bf16", *KINDS["sums in bf16"]],
    "experts, sums in f16, overflowing": KINDS["sums in f16, overflowing"],
}  # fmt: skip
KINDS |= {name: [*EXPERTS, *flags] for name, flags in EXPERT_KINDS.items()}
#: With so many layers each of three ranks keeps the gradients alone that it updates.
PARTITIONED: list[object] = ["--num-layers", 9, "--batch-size", 3, "--replicas", 3]
PARTITIONED_KINDS: dict[str, list[object]] = {
    "partitioned, bf16": ["--precision", "bf16"],
    "partitioned, f32": [],
    "partitioned, every block again": KINDS["every block again"],
    "partitioned, sums in f16, overflowing": KINDS["sums in f16, overflowing"],
}
KINDS |= {name: [*PARTITIONED, *flags] for name, flags in PARTITIONED_KINDS.items()}
#: Kinds, ranks, and how many of these divide the experts: all, or groups that have the same ones.
DIVIDED: list[tuple[str, int, int]] = [("experts, sums in bf16", 4, 2), ("experts, accumulated", 3, 3)]
if WHOLE:
    groups = [(2, 2), (3, 3), (4, 2), (4, 4), (6, 2), (6, 3), (6, 6), (8, 2), (8, 4)]
    precisions = ["experts, f32", "experts, bf16"]
    others = [name for name in EXPERT_KINDS if name not in precisions]
    DIVIDED = [(kind, *sizes) for kind in precisions for sizes in groups]
    DIVIDED += [(kind, *sizes) for kind in others for sizes in [(3, 3), (6, 2)]]


def launch(ranks: list[languages.Language], *arguments: object, succeeds: bool = True) -> str:
    """Runs a command on one rank for each of these, in this order; what they wrote to stderr."""
    line: list[str] = [str(MPIEXEC)]
    for place, language in enumerate(ranks):
        line += [*([":"] if place else []), "-n", "1", *language._line(arguments)]
    done = subprocess.run(line, capture_output=True, text=True, env=languages.environment(), timeout=300)
    assert (done.returncode == 0) == succeeds, f"{' '.join(line)}\nexit code {done.returncode}\n{done.stderr}"
    return done.stderr


def reference(workshop: Workshop, kind: str) -> Path:
    """The run of one process with two threads, without a launcher."""
    run = workshop.folder / "runs" / f"one rank, {kind}"
    if not run.exists():
        find("python").run("train", run, *workshop.options("replicas"), *KINDS[kind], "--threads", 2)
    return run


def train(workshop: Workshop, ranks: list[languages.Language], kind: str, name: str, *flags: object) -> Path:
    run = workshop.folder / "runs" / f"{name}, {kind}"
    launch(ranks, "train", run, *workshop.options("replicas"), *KINDS[kind], "--threads", 1, *flags)
    return run


def digests(run: Path) -> dict[str, str]:
    """SHA-256 of all weights and moments that a run has saved."""
    return {
        f"{folder.name}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in list_checkpoints(run / "checkpoints")
        for path in sorted(folder.glob("*.safetensors"))
    }


def check(workshop: Workshop, run: Path, kind: str) -> None:
    """It is the run of one rank: checkpoints, bit by bit, and metrics."""
    expected = reference(workshop, kind)
    assert not (difference := differences.of_runs(expected, run)), difference
    assert digests(run) == digests(expected) and len(digests(run)) == 2 * 12


@pytest.mark.case("several ranks: every tensor and loss of one")
@pytest.mark.parametrize("kind", CHECKED)
@pytest.mark.parametrize("count", RANKS)
def test_ranks(workshop: Workshop, language: languages.Language, count: int, kind: str) -> None:
    check(workshop, train(workshop, [language] * count, kind, f"{count} x {language.name}"), kind)


@pytest.mark.case("ranks of three languages in one job")
@pytest.mark.parametrize("first", languages.NAMES if WHOLE else ["go"])
@pytest.mark.parametrize("kind", CHECKED)
def test_mixed(workshop: Workshop, first: str, kind: str) -> None:
    """The first one writes what one rank alone writes."""
    order = [first, *(name for name in languages.NAMES if name != first), first]
    check(workshop, train(workshop, [find(name) for name in order], kind, f"mixed from {first}"), kind)


@pytest.mark.case("ranks of three languages that partition gradients")
@pytest.mark.parametrize("kind", PARTITIONED_KINDS if WHOLE else ["partitioned, bf16"])
def test_partitioned(workshop: Workshop, kind: str) -> None:
    check(workshop, train(workshop, [find(name) for name in languages.NAMES], kind, "partitioned"), kind)


@pytest.mark.case("a run that changes ranks and language on the way")
@pytest.mark.parametrize("order", list(itertools.permutations(languages.NAMES)) if WHOLE else [languages.NAMES])
def test_changing(workshop: Workshop, order: tuple[str, ...]) -> None:
    """Each goes on from a checkpoint that another number of ranks wrote, in another language."""
    kind = "bf16"
    run = train(workshop, [find(order[0])] * 2, kind, "-".join(order))
    for step, (name, count) in zip((3, 6, 9), ((order[1], 5), (order[2], 3), (order[0], 1)), strict=True):
        run = workshop.cut(run, step, f"{'-'.join(order)}-{step}")
        launch([find(name)] * count, "train", run, "--resume", "--threads", 1)
    last = [list_checkpoints(one / "checkpoints")[-1] for one in (reference(workshop, kind), run)]
    assert not (difference := differences.of_checkpoints(*last)), difference


@pytest.mark.case("ranks that divide the experts")
@pytest.mark.parametrize(("kind", "count", "group"), DIVIDED)
def test_experts(workshop: Workshop, language: languages.Language, kind: str, count: int, group: int) -> None:
    """Most have a round without a micro-batch of their own, in which they serve the others'."""
    name = f"{count} in groups of {group} x {language.name}"
    check(workshop, train(workshop, [language] * count, kind, name, "--expert-parallel", group), kind)


@pytest.mark.case("experts divided among ranks of three languages")
@pytest.mark.parametrize("kind", ["experts, f32", "experts, bf16"] if WHOLE else ["experts, bf16"])
@pytest.mark.parametrize(("count", "group"), [(3, 3), (6, 6), (6, 3), (6, 2)] if WHOLE else [(3, 3)])
def test_mixed_experts(workshop: Workshop, kind: str, count: int, group: int) -> None:
    """Of six ranks, those that have the same experts are of different languages, too."""
    order = [find(name) for name in ("python", "go", "rust", "rust", "python", "go")[:count]]
    name = f"mixed, {count} in groups of {group}"
    check(workshop, train(workshop, order, kind, name, "--expert-parallel", group), kind)


@pytest.mark.case("a run that changes ranks, their experts and language on the way")
@pytest.mark.parametrize("order", list(itertools.permutations(languages.NAMES)) if WHOLE else [languages.NAMES])
def test_changing_experts(workshop: Workshop, order: tuple[str, ...]) -> None:
    kind = "experts, bf16"
    run = train(workshop, [find(order[0])] * 2, kind, f"{'-'.join(order)}, experts", "--expert-parallel", 2)
    parts = ((2, order[1], 6, 3), (5, order[2], 3, 3), (7, order[0], 5, 1), (9, order[1], 4, 4), (11, order[2], 1, 1))
    for step, name, count, group in parts if WHOLE else parts[:3]:
        run = workshop.cut(run, step, f"{'-'.join(order)}-{step}, experts")
        launch([find(name)] * count, "train", run, "--resume", "--threads", 1, "--expert-parallel", group)
    check(workshop, run, kind)


@pytest.mark.case("experts that cannot be divided so")
@pytest.mark.parametrize(("count", "group"), [(4, 3), (5, 5), (2, 4)] if WHOLE else [(4, 3)])
def test_experts_that_cannot_be_divided(
    workshop: Workshop, language: languages.Language, count: int, group: int
) -> None:
    """3 is no divisor of 4 ranks, 5 none of 12 experts."""
    run = workshop.folder / "runs" / f"divided-{count}-{group}-{language.name}"
    flags = [*workshop.options("replicas"), *EXPERTS, "--expert-parallel", group]
    error = launch([language] * count, "train", run, *flags, succeeds=False)
    assert {float(count), float(group), 12.0} <= differences.facts(error) and "expert" in error, error
    assert not list_checkpoints(run / "checkpoints")


@pytest.mark.case("a rank with other options or data")
@pytest.mark.parametrize(
    ("flags", "word"), [(["--learning-rate", 0.001], "configuration"), (["--data", "rest"], "data")]
)
def test_unlike_ranks(workshop: Workshop, language: languages.Language, flags: list[object], word: str) -> None:
    run = workshop.folder / "runs" / f"unlike-{word}-{language.name}"
    flags = [workshop.folder / str(flag) if flag == "rest" else flag for flag in flags]
    same = [*language._line(("train",)), str(run), *map(str, workshop.options("replicas"))]
    line = [str(MPIEXEC), "-n", "2", *same, ":", "-n", "1", *same, *map(str, flags)]
    done = subprocess.run(line, capture_output=True, text=True, env=languages.environment(), timeout=120)
    assert done.returncode != 0
    assert "rank 2" in done.stderr and word in done.stderr, done.stderr
    assert not list_checkpoints(run / "checkpoints")


@pytest.mark.case("more ranks than replicas")
def test_too_many_ranks(workshop: Workshop, language: languages.Language) -> None:
    run = workshop.folder / "runs" / f"too-many-{language.name}"
    error = launch([language] * 3, "train", run, *workshop.options("replicas"), "--replicas", 2, succeeds=False)
    assert {2.0, 3.0} <= differences.facts(error) and "replicas" in error, error
    assert not list_checkpoints(run / "checkpoints")


@pytest.mark.case("a rank that cannot begin")
@pytest.mark.parametrize("flags", [["--learning-rate", "fast"], ["--device", "cuda:99"]])
def test_a_rank_that_cannot_begin(workshop: Workshop, language: languages.Language, flags: list[object]) -> None:
    """It tells the others, which MPI would let wait for it: here for ever."""
    run = workshop.folder / "runs" / f"never-{flags[0]}-{language.name}"
    same = [*language._line(("train",)), str(run), *map(str, workshop.options("replicas")), "--peer-timeout", "0"]
    line = [str(MPIEXEC), "-n", "1", *same, ":", "-n", "1", *same, *map(str, flags)]
    done = subprocess.run(line, capture_output=True, text=True, env=languages.environment(), timeout=60)
    assert done.returncode != 0 and "rank 1: " in done.stderr and str(flags[1]) in done.stderr, done.stderr
    assert not list_checkpoints(run / "checkpoints")
