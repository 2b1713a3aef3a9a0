"""What may go wrong in the middle of a run, to each language's command: killed, no room on the disk, no memory.

Each ends in one clear error (a kill in none) and a folder that resumes, to the bits of a run that met nothing.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import differences
import languages
import pytest
from runs import Workshop

from nncuda.train import list_checkpoints, resolve_checkpoint

sys.path.insert(0, str(languages.ROOT / "tests" / "faults"))
import shim

STEPS = ["--steps", 12, "--save-every", 2, "--keep-checkpoints", 10]


def unbroken(workshop: Workshop) -> Path:
    """The last checkpoint of a run that met nothing."""
    run = workshop.folder / "runs" / "faultless"
    if not run.exists():
        languages.find("python").run("train", run, *workshop.options("small"), *STEPS)
    return resolve_checkpoint(run)


def finished(workshop: Workshop, language: languages.Language, run: Path) -> str:
    """Goes on to the end, or begins where there is no checkpoint; the difference to a run that met nothing."""
    if list_checkpoints(run / "checkpoints"):
        language.run("train", run, "--resume")
    else:
        language.run("train", run, *workshop.options("small"), *STEPS)
    found = resolve_checkpoint(run)
    assert not list(run.glob("checkpoints/.partial-*")), "leftovers stayed behind"
    return differences.of_checkpoints(unbroken(workshop), found)


def one_error(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """The command ended with `code` and one sentence that has the words."""
    assert done.returncode == code, f"{done.returncode}: {done.stderr}"
    message = done.stderr.strip()
    assert message.startswith("Error: ") and "\n" not in message, message
    for word in words:
        assert word.lower() in message.lower(), message  # systems' own words begin in capitals in some languages


@pytest.mark.case("killed at random moments, it always continues")
def test_killed(workshop: Workshop, language: languages.Language, tmp_path: Path) -> None:
    """While it starts, trains, saves or resumes: a run is killed again and again, and comes to its end nevertheless."""
    draw, run, kills = random.Random(3), tmp_path / "run", 0
    began = time.monotonic()
    unbroken(workshop)
    language.run("train", tmp_path / "timed", *workshop.options("small"), *STEPS)
    whole = time.monotonic() - began
    while kills < (200 if shim.everything() else 3):
        begun = bool(list_checkpoints(run / "checkpoints"))
        options = ["--resume"] if begun else [*workshop.options("small"), *STEPS]
        with language.start("train", run, *options) as process:
            try:
                _, said = process.communicate(timeout=draw.uniform(0.0, whole))
            except subprocess.TimeoutExpired:
                process.kill()
                _, said = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), said
        kills += process.returncode != 0  # it may have ended by itself in the moment before
        if process.returncode == 0:  # it came to its end before it could be killed
            difference = differences.of_checkpoints(unbroken(workshop), resolve_checkpoint(run))
            assert not difference, difference
            shutil.rmtree(run)
    assert not (difference := finished(workshop, language, run)), difference


# Runs a command with $FOLDER on a file system of $SIZE bytes, whose files go to $KEEP at the end.
SMALL_FILE_SYSTEM = (
    'mount -t tmpfs -o size="$SIZE" none "$FOLDER" || exit 99; "$@"; code=$?; cp -a "$FOLDER/." "$KEEP"; exit $code'
)


@pytest.mark.case("no room on the disk for a checkpoint")
def test_disk_full(workshop: Workshop, language: languages.Language, tmp_path: Path) -> None:
    """On a file system that has room for some checkpoints, and not for the next."""
    small, kept = tmp_path / "small", tmp_path / "kept"
    small.mkdir()
    kept.mkdir()
    each = sum(file.stat().st_size for file in unbroken(workshop).iterdir())
    train = [*language.command, "train", small / "run", *workshop.options("small"), *STEPS]
    environment = {"FOLDER": str(small), "SIZE": str(int(3.6 * each)), "KEEP": str(kept), **languages.environment()}
    own = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", SMALL_FILE_SYSTEM, "sh"]
    try:
        done = subprocess.run([*own, *map(str, train)], capture_output=True, text=True, env=environment, timeout=900)
    except FileNotFoundError:
        pytest.skip("needs unshare, of util-linux")
    if done.stderr.startswith("unshare: ") or done.returncode == 99:
        pytest.skip(f"may not mount a file system here: {done.stderr.strip()}")
    one_error(done, 3, "No space left on device", str(small / "run" / "checkpoints"))
    run = kept / "run"
    steps = [int(folder.name.removeprefix("step-")) for folder in list_checkpoints(run / "checkpoints")]
    assert steps == [2, 4, 6], steps
    assert not list(run.glob("checkpoints/.partial-*"))
    assert not (difference := finished(workshop, language, run)), difference


@pytest.mark.case("no memory, at one allocation after the other")
def test_no_memory(workshop: Workshop, language: languages.Language, tmp_path: Path) -> None:
    """The n-th request of the library fails, from the making of its context to the last step."""
    built = shim.build(tmp_path)
    point = met = 0
    while True:
        run, log = tmp_path / f"run-{point}", tmp_path / f"struck-{point}"
        line = [*language.command, "train", str(run), *map(str, [*workshop.options("small"), *STEPS])]
        environment = shim.environment(built, NNCUDA_FAULT_AT=point, NNCUDA_FAULT_LOG=log)
        done = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=900, check=False)
        if not log.exists():
            assert done.returncode == 0, done.stderr
            break
        if done.returncode:
            one_error(done, 4)
            met += 1
        # Else the library tried again with less, or a step that could not be captured ran call by call.
        assert not (difference := finished(workshop, language, run)), f"allocation {point}: {difference}"
        shutil.rmtree(run)
        point = point + 1 if shim.everything() else 10 * point + 9
    assert met > 0, "no allocation was an error"
