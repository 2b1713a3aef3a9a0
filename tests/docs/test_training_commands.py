"""The pages' commands that train do train: as they stand there, on text that is made here, but for fewer steps.

Commands of Go and Rust are those of tests/parity/test_parity_pages.py.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import fenced
import numpy as np
import pytest

from nncuda.formats import TokenShard
from nncuda.train import read_metrics
from nncuda.train.data import unigram_entropy

#: Steps in place of a page's, which take an hour. With 2000 steps of warm-up, as there once were, so few learn nothing.
ENOUGH, LONGER, FEW = "60", "62", "3"
INPUTS = ("tokenizer.model", "train.tokens", "held-out.tokens")


def write_texts(folder: Path) -> None:
    """Text in which a word tells what may come next, so that who learns that beats the frequencies of the words."""
    draw = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(draw.choice(letters, draw.integers(3, 9))) for _ in range(800)]
    rare = ["".join(draw.choice(letters, 6)) for _ in range(8000)]  # the vocabulary asks for so many pieces
    following = draw.integers(0, len(words), (len(words), 2))
    folder.mkdir()
    for number in range(40):
        at, text = 0, []
        for choice, chance in zip(draw.integers(0, 2, 5000), draw.random(5000), strict=True):
            at = following[at, choice]
            text.append(words[at] if chance > 0.1 else rare[draw.integers(len(rare))])
        lines = (" ".join(text[begin : begin + 12]) for begin in range(0, len(text), 12))
        (folder / f"{number}.txt").write_text("\n".join(lines) + "\n")


def named(page: str, *words: str) -> list[fenced.Command]:
    """The block of a page with a command that begins so."""
    (found,) = (block for block in fenced.commands(page) if any(one.words[: len(words)] == words for one in block))
    return found


@pytest.fixture(scope="module")
def first_look(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the first block of the README was run."""
    folder = tmp_path_factory.mktemp("first-look")
    write_texts(folder / "texts")
    for command in named("README.md", "nncuda", "tokenizer", "train"):
        if command.words[0] == "nncuda":  # and not pip, which test_installed_package.py has
            steps = LONGER if "--extend" in command.words else ENOUGH
            command.run(folder, {"--steps": steps} if "--steps" in command.words else None)
    return folder


def test_the_first_look_learns(first_look: Path) -> None:
    """Its model knows more of the held-out text than the frequencies of its tokens."""
    records = read_metrics(first_look / "run/metrics.jsonl")
    losses = {record["step"]: record["held_out_loss"] for record in records if "held_out_loss" in record}
    assert [*losses] == [int(ENOUGH), int(LONGER)]
    loss, entropy = losses[int(ENOUGH)], unigram_entropy(TokenShard(first_look / "held-out.tokens"))
    assert loss < entropy - 0.2, (loss, entropy)
    assert (first_look / "run/report.html").stat().st_size > 0
    options = json.loads((first_look / "run/run.json").read_text())["train"]
    assert (options["steps"], options["warmup_steps"]) == (60, 3)


def others() -> list[list[fenced.Command]]:
    """The other blocks that train with nncuda and with it alone."""
    blocks = [block for page in fenced.PAGES for block in fenced.commands(page)]
    training = [block for block in blocks if any(one.words[:2] == ("nncuda", "train") for one in block)]
    alone = [block for block in training if {one.words[0] for one in block} == {"nncuda"}]
    return [block for block in alone if block != named("README.md", "nncuda", "tokenizer", "train")]


@pytest.mark.parametrize("block", others(), ids=lambda block: f"{block[0].page}:{block[0].line}")
def test_other_pages_train(first_look: Path, tmp_path: Path, block: list[fenced.Command]) -> None:
    """On the text of the first look; what makes its tokenizer and shards again is left out."""
    for place in (tmp_path, tmp_path / "runs/demo"):
        place.mkdir(parents=True, exist_ok=True)
        for name in INPUTS:
            shutil.copy(first_look / name, place)
    for command in block:
        if command.words[1] in ("tokenizer", "data"):
            continue
        instead = {"--steps": FEW, "--warmup-steps": "1", "--eval-every": FEW}
        command.run(tmp_path, {flag: value for flag, value in instead.items() if flag in command.words})
    (metrics,) = (path for path in tmp_path.rglob("metrics.jsonl"))
    assert read_metrics(metrics)[-1]["step"] == int(FEW)
