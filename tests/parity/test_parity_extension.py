"""Runs that become longer: begun in one language, extended in another, taken up in a third, to the same bits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import differences
import languages
import pytest
from conftest import find
from runs import STEPS, Workshop
from test_parity_runs import USAGE, WRONG_FILE, said

from nncuda.train import list_checkpoints, read_metrics

LONGER = ["--extend", "--steps", STEPS + 6, "--learning-rate", 0.004, "--min-rate-share", 0.2]
NAME = "accumulated"


def longer(workshop: Workshop, begun: str, extended: str, step: int) -> tuple[Path, str]:
    """A run as one language left it after `step`, made longer by another; and what that said."""
    name = f"longer-{len(list((workshop.folder / 'cuts').glob('longer-*')))}"
    run = workshop.cut(workshop.run(begun, NAME), step, name)
    return run, find(extended).run("train", run, *LONGER).stderr


def extensions(run: Path) -> object:
    return json.loads((run / "run.json").read_text())["extensions"]


@pytest.mark.case("a run is extended by another language")
@pytest.mark.parametrize("step", [STEPS, 12])
def test_extended(workshop: Workshop, language: languages.Language, step: int) -> None:
    """A run that is done, and one that was stopped. The first and the last words are another language's."""
    expected, words = longer(workshop, "python", "python", step)
    assert differences.facts(words) >= {step, STEPS, STEPS + 6}
    for begun, extended in (("python", language.name), (language.name, "python")):
        run, own = longer(workshop, begun, extended, step)
        assert differences.facts(own) == differences.facts(words)
        assert not (difference := differences.of_runs(expected, run)), difference
        assert extensions(run) == extensions(expected)
        assert extensions(run) == [
            {"from_step": step, "steps": STEPS + 6, "learning_rate": 0.004, "min_rate_share": 0.2, "warmup_steps": 4}
        ]
    assert read_metrics(expected / "metrics.jsonl")[-1]["step"] == STEPS + 6


@pytest.mark.case("an extended run is taken up by another language")
def test_extended_and_taken_up(workshop: Workshop, language: languages.Language) -> None:
    """Where it was extended, as after a kill before the first step, and behind it."""
    whole, _ = longer(workshop, "python", "python", STEPS)
    for last in (STEPS, STEPS + 2):
        run = workshop.folder / "cuts" / f"taken-up-{language.name}-{last}"
        shutil.copytree(whole, run)
        for checkpoint in list_checkpoints(run / "checkpoints"):
            if int(checkpoint.name.removeprefix("step-")) > last:
                shutil.rmtree(checkpoint)
        assert language.run("train", run, "--resume").stderr == ""
        assert not (difference := differences.of_runs(whole, run)), difference


@pytest.mark.case("extensions that are refused")
@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        ([], USAGE, "--extend needs --steps"),
        (["--learning-rate", 1], USAGE, "--extend needs --steps"),
        (["--resume", "--steps", 99], USAGE, "give one of them"),
        (["--steps", 99, "--seed", 3], USAGE, "leave out --seed. It takes --steps, --learning-rate, "),
        (["--steps", STEPS], WRONG_FILE, f"steps is {STEPS}; this run has {STEPS} already: extend it to more"),
        (["--steps", 99, "--warmup-steps", 99], WRONG_FILE, "warmup_steps is 99, but there are 99 steps"),
        (["--steps", 99, "--min-rate-share", 2], WRONG_FILE, "min_rate_share is 2.0; it must be a number, from 0 to 1"),
        (["--steps", 99, "--learning-rate", -1], WRONG_FILE, "learning_rate is -1.0; it must be a number, from 0 to"),
    ],
)
def test_refused(workshop: Workshop, language: languages.Language, flags: list[object], code: int, words: str) -> None:
    run = workshop.run("python", NAME)
    record = (run / "run.json").read_bytes()
    assert words in said(language.run("train", run, "--extend", *flags, code=code))
    assert (run / "run.json").read_bytes() == record


ENTRY = {"from_step": 3, "steps": 9, "learning_rate": 0.1, "min_rate_share": 0, "warmup_steps": 1}


@pytest.mark.case("extensions of a record that is wrong")
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (3, "extensions is 3; it must be a list"),
        (None, "it must be a list"),
        ([7], "extensions has 7; an entry must have from_step, steps, learning_rate"),
        ([{**ENTRY, "x": 1}], "; an entry must have from_step"),
        ([{**ENTRY, "from_step": 1.0}], "from_step is 1.0; it must be a whole number, from 0 to 2147483647"),
        ([{**ENTRY, "from_step": -1}], "from_step is -1; it must be a whole number, from 0 to 2147483647"),
        ([{**ENTRY, "from_step": True}], "; it must be a whole number, from 0 to 2147483647"),
        ([{**ENTRY, "steps": 0}], "steps is 0; it must be a whole number, from 1 to 2147483647"),
        ([{**ENTRY, "steps": "x"}], "steps is 'x'; it must be a whole number"),
        ([{**ENTRY, "learning_rate": None}], "; it must be a number"),
        ([ENTRY, {**ENTRY, "learning_rate": "1"}], "learning_rate is '1'; it must be a number"),
    ],
)
def test_wrong_record(
    workshop: Workshop, language: languages.Language, wrong: object, words: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(workshop.run("python", NAME), run)
    record = {**json.loads((run / "run.json").read_text()), "extensions": wrong}
    (run / "run.json").write_text(json.dumps(record))
    own = said(language.run("train", run, "--resume", code=WRONG_FILE))
    assert f"{run / 'run.json'}: extensions" in own and words in own, own
