"""Files that no program wrote, in every language: refused soon, in little memory, with one sentence and one code."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import languages
import pytest
from runs import Workshop
from test_parity_refusals import WRONG_FILE, text

from nncuda.train import resolve_checkpoint

#: What a refusal may take: seconds of the processor, and bytes beside those that the command takes for nothing.
SECONDS, MEMORY = 8.0, 350 << 20
CHECKPOINT = "checkpoints/step-00000015"


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def circle(path: Path) -> None:
    path.symlink_to(path)


def instead(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Puts something in the place of a file."""

    def spoil(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return spoil


def header(content: bytes, data: int = 0) -> Callable[[Path], object]:
    """A safetensors file of this header and so many bytes."""
    return lambda path: path.write_bytes(struct.pack("<Q", len(content)) + content + bytes(data))


def tensors(count: int) -> bytes:
    parts = (b'"%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}' % (at, at, at + 1) for at in range(count))
    return b"{" + b",".join(parts) + b"}"


def sparse(size: int, content: bytes = b"") -> Callable[[Path], object]:
    """A file of this content and then zeros, which take no room on the disk."""

    def make(path: Path) -> None:
        with open(path, "wb") as file:
            file.write(content)
            file.truncate(size)

    return make


def written(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


@dataclass(frozen=True)
class Hostile:
    """What is done to a copy of a run, the command that meets it, and the words of its sentence."""

    spoil: Callable[[Path], None]
    arguments: tuple[str, ...]
    words: tuple[str, ...]


INSPECT = ("inspect", "{run}")
RESUME = ("train", "{run}", "--resume")
TRAIN = ("train", "{run}-new", "--config", "{run}/x.toml", "--data", "{data}")
MODEL = f"{CHECKPOINT}/model.safetensors"
INDEX = f"{CHECKPOINT}/model.safetensors.index.json"
CONFIG, STATE = f"{CHECKPOINT}/config.json", f"{CHECKPOINT}/training.json"
IRREGULAR = "cannot be read: it is not a regular file"
A_SHAPE = b'{"a":{"dtype":"U8","shape":[' + b"1," * 100_000 + b'1],"data_offsets":[0,2]}}'


def no_model(then: Callable[[Path], None]) -> Callable[[Path], None]:
    """Takes the weights away before something else is done."""

    def spoil(run: Path) -> None:
        (run / MODEL).unlink()
        then(run)

    return spoil


CASES = {
    "config.json is a pipe": Hostile(instead(CONFIG, pipe), INSPECT, ("config.json", IRREGULAR)),
    "model.safetensors is a pipe": Hostile(instead(MODEL, pipe), INSPECT, ("model.safetensors", IRREGULAR)),
    "the index is a device": Hostile(no_model(instead(INDEX, device)), INSPECT, ("index.json", IRREGULAR)),
    "tokenizer.model is a device": Hostile(
        instead(f"{CHECKPOINT}/tokenizer.model", device), INSPECT, ("tokenizer.model", IRREGULAR)
    ),
    "training.json is a pipe": Hostile(instead(STATE, pipe), INSPECT, ("training.json", IRREGULAR)),
    "optimizer.safetensors is a pipe": Hostile(
        instead(f"{CHECKPOINT}/optimizer.safetensors", pipe), RESUME, ("optimizer.safetensors", IRREGULAR)
    ),
    "run.json is a device": Hostile(instead("run.json", device), RESUME, ("run.json", IRREGULAR)),
    "metrics.jsonl is a pipe": Hostile(instead("metrics.jsonl", pipe), RESUME, ("metrics.jsonl", IRREGULAR)),
    "metrics.jsonl of a report is a device": Hostile(
        instead("metrics.jsonl", device), ("report", "{run}"), ("metrics.jsonl", IRREGULAR)
    ),
    "a shard is a pipe": Hostile(instead("x.tokens", pipe), ("inspect", "{run}/x.tokens"), ("x.tokens", IRREGULAR)),
    "the data is a device": Hostile(
        instead("x.tokens", device), (*RESUME, "--data", "{run}/x.tokens"), ("x.tokens", IRREGULAR)
    ),
    "the configuration is a pipe": Hostile(instead("x.toml", pipe), TRAIN, ("x.toml", IRREGULAR)),
    "the configuration is a device": Hostile(instead("x.toml", device), TRAIN, ("x.toml", IRREGULAR)),
    "tokenizer.model is a link in a circle": Hostile(
        instead(f"{CHECKPOINT}/tokenizer.model", circle), INSPECT, ("tokenizer.model: cannot be read", "symbolic links")
    ),
    "training.json is a link in a circle": Hostile(
        instead(STATE, circle), INSPECT, ("training.json: cannot be read", "symbolic links")
    ),
    "training.json is a link to nothing": Hostile(
        instead(STATE, lambda path: path.symlink_to("x")), INSPECT, ("training.json: cannot be read",)
    ),
    "config.json without end": Hostile(
        instead(CONFIG, sparse(1 << 40)),
        INSPECT,
        ("config.json: has 1099511627776 bytes; a file of its kind may have at most",),
    ),
    "tokenizer.model without end": Hostile(
        instead(f"{CHECKPOINT}/tokenizer.model", sparse(1 << 40)),
        INSPECT,
        ("bytes; a file of its kind may have at most",),
    ),
    "metrics.jsonl of one line without end": Hostile(
        instead("metrics.jsonl", sparse(1 << 40)), ("report", "{run}"), ("line 1 has more than 16777216 bytes",)
    ),
    "131073 tensors": Hostile(
        instead(MODEL, header(tensors(131_073), 131_073)), INSPECT, ("131073 tensors; a file may have at most 131072",)
    ),
    "131072 tensors that are none of the model": Hostile(
        instead(MODEL, header(tensors(131_072), 131_072)), INSPECT, ("model.embed_tokens.weight", "and 38 more")
    ),
    "a million tensors": Hostile(
        instead(MODEL, header(tensors(500_000), 500_000)), INSPECT, ("it has more than 2097152 brackets, commas",)
    ),
    "a header of 100 MB": Hostile(
        instead(MODEL, sparse(2 * 10**8, struct.pack("<Q", 10**8))),
        INSPECT,
        ("100000000", "33554432"),
    ),
    "a shape of 100 001 dimensions": Hostile(instead(MODEL, header(A_SHAPE, 2)), INSPECT, ("model.safetensors",)),
    "a name of 100 000 letters": Hostile(
        instead(MODEL, header(b'{"%s":{"dtype":"F9","shape":[],"data_offsets":[0,1]}}' % (b"a" * 100_000), 1)),
        INSPECT,
        ("model.safetensors",),
    ),
    "an index of a name without end": Hostile(
        no_model(instead(INDEX, written(b'{"weight_map":{"a":"' + b"b" * 100_000 + b'"}}'))),
        INSPECT,
        ("longer than a name can be",),
    ),
    "a dtype with orders to the terminal": Hostile(
        instead(MODEL, header(b'{"a":{"dtype":"\\u001b[2J","shape":[],"data_offsets":[0,1]}}', 1)), INSPECT, (MODEL,)
    ),
    "run.json without data": Hostile(text("run.json", "{}"), RESUME, ("run.json: does not say where the data is",)),
}


def run_within_limits(language: languages.Language, *arguments: str) -> tuple[int, str, float, int]:
    """Exit code, what was said, seconds of the processor, and the most bytes in memory."""
    process = subprocess.Popen(
        [*language.command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env=languages.environment(), start_new_session=True,
    )  # fmt: skip
    killer = threading.Timer(60, lambda: os.killpg(process.pid, signal.SIGKILL))
    killer.start()
    assert process.stderr is not None
    said = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    killer.cancel()
    process.stderr.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, said.strip(), used.ru_utime + used.ru_stime, used.ru_maxrss << 10


@pytest.mark.case("hostile files, refused in seconds and in little memory")
@pytest.mark.parametrize("case", CASES)
def test_hostile_files(workshop: Workshop, language: languages.Language, tmp_path: Path, case: str) -> None:
    source, hostile = workshop.reference("small"), CASES[case]
    run = tmp_path / "run"
    shutil.copytree(source / CHECKPOINT, run / CHECKPOINT)
    for name in ("run.json", "metrics.jsonl"):
        shutil.copy(source / name, run / name)
    hostile.spoil(run)
    places = {"run": run, "data": workshop.folder / "words.tokens"}
    code, said, seconds, memory = run_within_limits(language, *(part.format(**places) for part in hostile.arguments))
    assert code == WRONG_FILE and said.startswith("Error: ") and "\n" not in said, said
    for word in hostile.words:
        assert word in said, said
    for inside in ("Traceback", "panic", "goroutine", "RUST_BACKTRACE", "\x1b"):
        assert inside not in said, said
    assert len(said.replace(str(tmp_path), "")) < 400, said
    assert seconds < SECONDS and memory < MEMORY, f"{seconds} s, {memory >> 20} MiB"
    assert not tmp_path.joinpath("run-new").exists()


def test_the_run_that_is_spoiled_is_whole(workshop: Workshop, language: languages.Language, tmp_path: Path) -> None:
    """The run that the cases above spoil continues if nothing is spoiled."""
    run = workshop.cut(workshop.reference("small"), int(CHECKPOINT[-8:]), f"hostile-{language}")
    assert resolve_checkpoint(run) == run / CHECKPOINT
    language.run("inspect", run)
    last = language.run("train", run, "--resume").stdout.splitlines()[-1]
    assert json.loads(last)["step"] == 30
