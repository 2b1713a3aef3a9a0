"""Three generators, one checkpoint: the same tokens from the same seed, whoever trained the model."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path

import languages
import pytest
from conftest import find
from runs import Workshop

from nncuda.models.transformer import PREFILL_PART
from nncuda.train import resolve_checkpoint

STRATEGIES = {
    "greedy": ["--greedy"],
    "sample": ["--seed", 7, "--temperature", 0.8],
    "top-k": ["--seed", -3, "--top-k", 9],
    "top-p": ["--seed", -(2**63), "--top-p", 0.85, "--temperature", 1.3],
    "top-k and top-p": ["--seed", 5, "--top-k", 20, "--top-p", 0.9],
}
PAIRS = list(itertools.product(languages.NAMES, repeat=2))
TEXT = "line 3 of 7: the quick brown\n\tfóx"


def reference(workshop: Workshop, run: Path, prompt: str, *options: object) -> str:
    """What Python's generator writes for Python's checkpoint, with other threads than the languages have."""
    key = (run, prompt, *options)
    if key not in _written:
        _written[key] = find("python").run("generate", run, prompt, *options, "--threads", 2).stdout
    return _written[key]


_written: dict[tuple[object, ...], str] = {}


@pytest.mark.case("tokens of every strategy, from every checkpoint")
@pytest.mark.parametrize(("trained", "generating"), PAIRS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_tokens(workshop: Workshop, strategy: str, trained: str, generating: str) -> None:
    find(trained)
    options, prompt = [*STRATEGIES[strategy], "--ids", "--max-tokens", 24], "2 50,60, 7\n"
    expected = reference(workshop, workshop.reference("ragged"), prompt, *options)
    assert len(expected.split()) == 24
    run = workshop.run(trained, "ragged")
    assert find(generating).run("generate", run, prompt, *options, "--threads", 1).stdout == expected


def test_strategies_differ(workshop: Workshop) -> None:
    """The strategies and the seeds lead to different tokens, or their equality would say nothing."""
    run = workshop.reference("ragged")
    prompt = "2 50,60, 7\n"
    written = {reference(workshop, run, prompt, *flags, "--ids", "--max-tokens", 24) for flags in STRATEGIES.values()}
    written.add(reference(workshop, run, prompt, "--seed", 8, "--temperature", 0.8, "--ids", "--max-tokens", 24))
    assert len(written) == len(STRATEGIES) + 1


@pytest.mark.case("beyond the context of training, to the end of the model's reach")
def test_long_generation(workshop: Workshop, language: languages.Language) -> None:
    """The context is 13, the extended one 64: without --max-tokens the model writes as long as it can."""
    run = workshop.reference("ragged")
    expected = reference(workshop, run, "1", "--ids", "--seed", 4)
    assert len(expected.split()) == 64
    assert language.run("generate", run, "1", "--ids", "--seed", 4).stdout == expected


@pytest.mark.case("a prompt that is longer than one part of it")
def test_prompt_in_parts(workshop: Workshop, language: languages.Language, tmp_path: Path) -> None:
    """All cut it at the same tokens, and go on from the same cache."""
    model = shutil.copytree(resolve_checkpoint(workshop.reference("ragged")), tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    config["nncuda"]["extended_context"] = PREFILL_PART + 64
    (model / "config.json").write_text(json.dumps(config))
    prompt = " ".join(str(token % config["vocab_size"]) for token in range(1, 5 * PREFILL_PART + 201, 5))
    options = ["--greedy", "--ids", "--max-tokens", 6]
    expected = find("python").run("generate", model, "-", *options, "--threads", 2, stdin=prompt).stdout
    assert len(expected.split()) == 6 and len(prompt.split()) > PREFILL_PART
    if language.name != "python":
        assert language.run("generate", model, "-", *options, "--threads", 1, stdin=prompt).stdout == expected


@pytest.mark.case("text, by the tokenizer in the checkpoint")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_text(workshop: Workshop, language: languages.Language, strategy: str) -> None:
    options = [*STRATEGIES[strategy], "--max-tokens", 24]
    run = workshop.reference("small")
    expected = reference(workshop, run, TEXT, *options)
    assert language.run("generate", workshop.run(language.name, "small"), TEXT, *options).stdout == expected
    assert language.run("generate", run, "-", *options, stdin=TEXT).stdout == expected


@pytest.mark.case("the best checkpoint of a run")
def test_best(workshop: Workshop, language: languages.Language) -> None:
    run = workshop.worsening()
    texts = [reference(workshop, run, "5 6", "--ids", "--seed", 1, *best) for best in ([], ["--best"])]
    assert texts[0] != texts[1]
    for best, text in zip(([], ["--best"]), texts, strict=True):
        assert language.run("generate", run, "5 6", "--ids", "--seed", 1, *best).stdout == text


@pytest.mark.case("tokens are written as they come")
def test_streaming(workshop: Workshop, language: languages.Language) -> None:
    """Each token is written when it is there, not held back: seen through a pipe that keeps writes apart."""
    run = workshop.reference("small")
    arguments = ["generate", str(run), "1 2", "--ids", "--max-tokens", "60", "--seed", "1"]
    reading, writing = os.pipe2(os.O_DIRECT)
    with subprocess.Popen([*language.command, *arguments], stdout=writing, env=languages.environment()) as process:
        os.close(writing)
        writes = []
        while chunk := os.read(reading, 65536):
            writes.append(chunk)
    os.close(reading)
    assert process.returncode == 0
    assert [len(chunk.split()) for chunk in writes if chunk.strip()] == [1] * 60
