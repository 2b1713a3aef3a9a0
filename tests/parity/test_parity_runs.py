"""Runs that are stopped, changed or go wrong: what a folder then holds and what is said, word for word."""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path

import differences
import languages
import pytest
from conftest import find
from runs import Workshop

from nncuda.train import list_checkpoints, read_metrics

WRONG_FILE, DIVERGED, USAGE = 3, 1, 2


def said(done: object) -> str:
    """The sentence of an error, without the usage that a command writes before it."""
    return done.stderr[done.stderr.index("Error: ") :]  # type: ignore[attr-defined]


@pytest.mark.case("run.json: what it takes to repeat a run")
@pytest.mark.parametrize("options", ["ragged", "accumulated"])
def test_record(workshop: Workshop, language: languages.Language, options: str) -> None:
    python, own = (
        json.loads((workshop.run(name, options) / "run.json").read_text()) for name in ("python", language.name)
    )
    program = {"python": "nncuda", "go": "nncuda-go", "rust": "nncuda-rs"}[language.name]
    assert re.fullmatch(rf"{program} \d+\.\d+\.\d+", own["program"])
    assert {**own, "program": 0} == {**python, "program": 0}


@pytest.mark.case("what is said when a run stops")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stop(workshop: Workshop, language: languages.Language, number: int) -> None:
    run = workshop.folder / "runs" / f"stopped-{number}-{language.name}"
    with language.start("train", run, *workshop.options("small"), "--steps", 3000, "--save-every", 0) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if json.loads(line)["step"] == 5:
                process.send_signal(number)
        error = process.stderr.read()
    last = read_metrics(run / "metrics.jsonl")[-1]["step"]
    assert process.returncode == 0 and differences.facts(error) == {last, 3000} and "--resume" in error
    assert [folder.name for folder in list_checkpoints(run / "checkpoints")] == [f"step-{last:08d}"]


@pytest.mark.case("a second signal ends a run at once")
def test_second_signal(workshop: Workshop, language: languages.Language) -> None:
    """In the middle of a step, which takes long."""
    run = workshop.folder / "runs" / f"ended-{language.name}"
    large = ["--batch-size", 2000, "--micro-batch-size", 50, "--save-every", 0]
    with language.start("train", run, *workshop.options("small"), *large) as process:
        assert process.stdout is not None and process.stderr is not None
        assert json.loads(process.stdout.readline())["step"] == 1
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        error = process.stderr.read()
    assert process.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM), error  # both wait: either may come first
    assert not list_checkpoints(run / "checkpoints")


@pytest.mark.case("a run goes on with other options")
def test_resume_with_other_options(workshop: Workshop, language: languages.Language) -> None:
    """Other micro-batches change bits, in all languages alike; the options that are saved change, too."""
    changes = ["--micro-batch-size", "none", "--activation-checkpointing", 2, "--recompute-experts", "--max-loss", 77.5]
    changes += ["--log-every", 4, "--keep-checkpoints", 3]
    runs = []
    for one in (find("python"), language):
        run = workshop.cut(workshop.run("python", "accumulated"), 10, f"changed-{language.name}-{len(runs)}")
        one.run("train", run, "--resume", *changes)
        runs.append(run)
    assert not (difference := differences.of_runs(*runs)), difference


@pytest.mark.case("options that a run does not go on with")
@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--log-every", 2, "--steps", 9], USAGE),
        (["--preset", "small", "--hidden-size", 8], USAGE),
        (["--tokenizer", "tokenizer.model", "--config", "small.toml"], USAGE),
        (["--log-every", 0], WRONG_FILE),
        (["--activation-checkpointing", 1, "--recompute-experts"], WRONG_FILE),
        (["--activation-checkpointing", 9], WRONG_FILE),
    ],
)
def test_options_refused(workshop: Workshop, language: languages.Language, flags: list[object], code: int) -> None:
    run = workshop.run("python", "accumulated")
    flags = [workshop.folder / flag if Path(str(flag)).suffix else flag for flag in flags]
    own, python = (said(one.run("train", run, "--resume", *flags, code=code)) for one in (language, find("python")))
    assert differences.facts(own) == differences.facts(python)


@pytest.mark.case("other tokens than those a run began with")
@pytest.mark.parametrize("part", ["data", "held-out"])
def test_other_data(workshop: Workshop, language: languages.Language, part: str) -> None:
    run = workshop.run("python", "accumulated")
    path = workshop.folder / f"other-{part}.tokens"
    shutil.copy(workshop.folder / ("wide.tokens" if part == "data" else "held-out.tokens"), path)
    with open(path, "r+b") as file:
        file.seek(-4, 2)
        file.write(b"\0\0")
    own, python = (
        one.run("train", run, "--resume", f"--{part}", path, code=WRONG_FILE).stderr
        for one in (language, find("python"))
    )
    assert differences.facts(own) == differences.facts(python) and str(path) in own


@pytest.mark.case("where a run diverged")
@pytest.mark.parametrize(
    "flags",
    [
        ["--learning-rate", "1e30", "--weight-decay", "1e30", "--warmup-steps", 0],
        ["--learning-rate", "1e12", "--warmup-steps", 0, "--clip-norm", "none", "--max-loss", "1e30"],
        ["--learning-rate", "1e12", "--warmup-steps", 0, "--precision", "bf16", "--log-every", 7, "--max-loss", "1e30"],
        ["--learning-rate", 50, "--warmup-steps", 0],
        ["--max-loss", 3.25, "--log-every", 4],
        ["--max-loss", 3.25, "--log-every", 50, "--save-every", 3, "--precision", "f16", "--loss-scale", 64],
    ],
)
def test_divergence(workshop: Workshop, language: languages.Language, flags: list[object], tmp_path: Path) -> None:
    """A sentence with the same loss, tensor and place, and the same folder, which is that of before."""
    runs, sentences = [], []
    for one in (find("python"), language):
        run = tmp_path / f"{len(runs)}-{one.name}"
        done = one.run("train", run, *workshop.options("accumulated"), *flags, code=DIVERGED)
        sentences.append(done.stderr)
        runs.append(run)
    assert differences.facts(sentences[0]) == differences.facts(sentences[1])
    assert sentences[0].startswith("Error: the loss is ")
    assert not (difference := differences.of_metrics(*runs)), difference
    kept = [[folder.name for folder in list_checkpoints(run / "checkpoints")] for run in runs]
    assert kept[0] == kept[1]


@pytest.mark.case("a shard cut short while a run reads it")
def test_shard_cut_short(workshop: Workshop, language: languages.Language, tmp_path: Path) -> None:
    data, run = tmp_path / "cut.tokens", tmp_path / "run"
    shutil.copy(workshop.folder / "words.tokens", data)
    size = data.stat().st_size
    steps = ["--data", data, "--steps", 100000, "--save-every", 10, "--keep-checkpoints", 1]
    with language.start("train", run, *workshop.options("small"), *steps) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if json.loads(line)["step"] == 25:
                with open(data, "r+b") as file:
                    file.truncate(70)
        error = process.stderr.read()
    assert process.returncode == WRONG_FILE
    assert differences.facts(error) == {str(data), 70, size}
    shutil.copy(workshop.folder / "words.tokens", data)
    last = int(list_checkpoints(run / "checkpoints")[-1].name.removeprefix("step-"))
    with language.start("train", run, "--resume") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["step"] == last + 1
        process.kill()
