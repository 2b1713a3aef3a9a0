"""Output that nobody reads any more, as of `inspect RUN | head -1`: a command ends quietly, with exit code 0."""

from __future__ import annotations

import os
import subprocess

import languages
import pytest
from runs import Workshop

COMMANDS = {
    "help": ["--help"],
    "help of a command": ["shadow", "--help"],
    "inspect": ["inspect", "{run}"],
    "generate": ["generate", "{run}", "7 8", "--ids", "--max-tokens", "4"],
    "shadow": ["shadow", "{run}", "--prompt", "7 8", "--ids", "--max-tokens", "2"],
    "train": ["train", "{run}-{language}-unread", "--config", "{config}", "--steps", "500"],
}


@pytest.mark.case("a reader that went away")
@pytest.mark.parametrize("command", COMMANDS)
def test_reader_that_went_away(workshop: Workshop, language: languages.Language, command: str) -> None:
    """It went before the first byte, so that every write fails; of Python's also the last one, of what is buffered."""
    places = {
        "run": workshop.reference("small"), "config": workshop.config("small"), "language": language.name,
    }  # fmt: skip
    line = [*language.command, *(part.format(**places) for part in COMMANDS[command])]
    env = {name: value for name, value in languages.environment().items() if name != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(line, stdout=writer, stderr=subprocess.PIPE, text=True, env=env, timeout=120)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
