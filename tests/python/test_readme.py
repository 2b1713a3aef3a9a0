"""The code in the README and in the pages about training runs as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest
from fenced import blocks, commands

from nncuda.cli.options import build_configs, read_config

ROOT = Path(__file__).resolve().parents[2]


def test_first_look_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("README.md", "python")
    exec(compile(code, "README.md", "exec"), {})
    loss, _, tokens = capsys.readouterr().out.partition(" ")
    # It learns to count: from log(64) = 4.16 to well below, and goes on counting.
    assert float(loss) < 1.0 and tokens == "[4, 5, 6, 7, 8]\n"


def test_configuration_in_the_docs(tmp_path: Path) -> None:
    (text,) = blocks("docs/training.md", "toml")
    (tmp_path / "config.toml").write_text(text)
    model, train = build_configs(read_config(tmp_path / "config.toml"), None, {}, vocab_size=500)
    assert (model.vocab_size, model.hidden_size, model.capacity_factor) == (500, 256, 1.5)
    assert (train.steps, train.micro_batch_size, train.clip_norm) == (5000, 8, None)


def test_commands_in_the_readme_exist() -> None:
    from click import Context

    from nncuda.cli import main

    context = Context(main)
    for shown in (command for block in commands("README.md") for command in block):
        if shown.words[0] == "nncuda":
            command = main
            for word in shown.words[1:]:
                if not hasattr(command, "get_command"):
                    break
                command = command.get_command(context, word)
                assert command is not None, shown
            flags = {flag for parameter in command.params for flag in parameter.opts}
            assert {word for word in shown.words if word.startswith("--")} <= flags, shown
