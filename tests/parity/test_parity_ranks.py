"""One job on several ranks: its checkpoints and metrics are those of one rank, whatever languages its ranks speak.

`make parity` runs a few of these; `make ranks` sets NNCUDA_RANKS=all and runs them whole.
"""

from __future__ import annotations

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
}
CHECKED = KINDS if WHOLE else ("bf16",)


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


def train(workshop: Workshop, ranks: list[languages.Language], kind: str, name: str) -> Path:
    run = workshop.folder / "runs" / f"{name}, {kind}"
    launch(ranks, "train", run, *workshop.options("replicas"), *KINDS[kind], "--threads", 1)
    return run


@pytest.mark.case("several ranks: every tensor and loss of one")
@pytest.mark.parametrize("kind", CHECKED)
@pytest.mark.parametrize("count", RANKS)
def test_ranks(workshop: Workshop, language: languages.Language, count: int, kind: str) -> None:
    run = train(workshop, [language] * count, kind, f"{count} x {language.name}")
    assert not (difference := differences.of_runs(reference(workshop, kind), run)), difference
    assert len(list_checkpoints(run / "checkpoints")) == 12


@pytest.mark.case("ranks of three languages in one job")
@pytest.mark.parametrize("first", languages.NAMES if WHOLE else ["go"])
@pytest.mark.parametrize("kind", CHECKED)
def test_mixed(workshop: Workshop, first: str, kind: str) -> None:
    """The first one writes what one rank alone writes."""
    order = [first, *(name for name in languages.NAMES if name != first), first]
    run = train(workshop, [find(name) for name in order], kind, f"mixed from {first}")
    assert not (difference := differences.of_runs(reference(workshop, kind), run)), difference


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
