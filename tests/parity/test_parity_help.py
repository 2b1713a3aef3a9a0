"""`train --help` shows the same defaults in every language."""

from __future__ import annotations

import dataclasses
import re

import languages
import pytest

from nncuda.models import MoEConfig
from nncuda.train import TrainConfig

FLAGS = [
    f"--{field.name.replace('_', '-')}" for options in (MoEConfig, TrainConfig) for field in dataclasses.fields(options)
]


def defaults(language: str, command: str) -> dict[str, str]:
    """What the help says of each option's default."""
    text = " ".join(languages.find(language).run(command, "--help").stdout.split())
    # An option's entry begins with its flag and what that takes, and its help with the table that it is in.
    found = {flag: re.search(rf" {flag} [^.]*?\[(?:model|train)\].*?\[default: ([^\]]+)\]", text) for flag in FLAGS}
    assert all(found.values()), [flag for flag, match in found.items() if match is None]
    # However a number is spelled.
    number = re.compile(r"\b\d+(?:\.\d+(?:e-\d+)?|e-\d+)\b")
    return {flag: number.sub(lambda e: str(float(e[0])), match[1]) for flag, match in found.items() if match}


@pytest.mark.parametrize("language", languages.NAMES)
@pytest.mark.parametrize("command", ["train", "plan", "shadow"])
def test_every_option_has_its_default(language: str, command: str) -> None:
    found = defaults(language, command)
    assert found == defaults("python", command)
    assert found["--learning-rate"] == "the preset's; small: 0.002"
    assert found["--vocab-size"] == "that of the data, else the preset's"
    assert (found["--warmup-steps"], found["--seed"], found["--norm-topk-prob"]) == ("none", "0", "on")


@pytest.mark.parametrize("language", languages.NAMES)
def test_version(language: str) -> None:
    assert re.search(r"\b\d+\.\d+\.\d+\b", languages.find(language).run("--version").stdout)


@pytest.mark.parametrize("language", languages.NAMES)
@pytest.mark.parametrize("command", ["train", "generate"])
def test_no_help_shows_the_limits_of_a_machine_word(language: str, command: str) -> None:
    text = "".join(languages.find(language).run(command, "--help").stdout.split())
    assert "18446744073709551615" not in text and "9223372036854775807" not in text
