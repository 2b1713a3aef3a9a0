"""Wrong files and wrong use: the same exit code and the same kind of sentence in every language, and never a crash.

What is wrong within one file: test_parity_seeds.py. Here stand files that do not fit each other, options and arguments.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import languages
import numpy as np
import pytest
from runs import STEPS, Workshop

from nncuda.formats import SafetensorsFile, write_safetensors
from nncuda.formats.shards import HEADER, MAGIC
from nncuda.train import resolve_checkpoint

USAGE, WRONG_FILE, NO_DEVICE = 2, 3, 4


@dataclass(frozen=True)
class Damage:
    """Something wrong in a copy of a good file or folder, and the words that a message about it must have."""

    spoil: Callable[[Path], None]
    words: tuple[str, ...]


def overwrite(name: str, at: int, content: bytes) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[at : at + len(content)] = content[: len(data) - at]
        (folder / name).write_bytes(data)

    return spoil


def cut(name: str, size: int) -> Callable[[Path], None]:
    """Leaves the first `size` bytes, or all but so many when it is negative."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size]) and None


def text(name: str, content: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(content) and None


def edit(name: str, **values: object) -> Callable[[Path], None]:
    """Changes entries of a JSON file; those under "train" or "nncuda" are given with two underscores between."""

    def spoil(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        for key, value in values.items():
            *outer, last = key.split("__")
            place = content[outer[0]] if outer else content
            if value is ...:
                del place[last]
            else:
                place[last] = value
        (folder / name).write_text(json.dumps(content))

    return spoil


def tensors(name: str, change: Callable[[dict[str, np.ndarray]], None]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        content = {key: value.copy() for key, value in SafetensorsFile(folder / name).items()}
        change(content)
        write_safetensors(folder / name, content)

    return spoil


NORM = "model.norm.weight"
MODEL, MOMENTS = "model.safetensors", "optimizer.safetensors"

CHECKPOINTS = {
    "weights cut off": Damage(cut(MODEL, -100), (MODEL,)),
    "no weights": Damage(lambda folder: (folder / MODEL).unlink(), ("model.safetensors.index.json",)),
    "tensor missing": Damage(tensors(MODEL, lambda t: t.pop(NORM) is None), (NORM,)),
    "tensor too many": Damage(tensors(MODEL, lambda t: t.update(extra=np.zeros(2, np.float32))), ("extra",)),
    "tensor of another shape": Damage(tensors(MODEL, lambda t: t.update({NORM: t[NORM][:-1]})), (NORM, "[31]", "[32]")),
    "tensor of whole numbers": Damage(
        tensors(MODEL, lambda t: t.update({NORM: t[NORM].astype(np.int32)})), (NORM, "int32")
    ),
    "config.json of a layer more": Damage(edit("config.json", num_hidden_layers=3), ("missing: model.layers.2.",)),
    "config.json of a layer less": Damage(
        edit("config.json", num_hidden_layers=1), ("of this model: model.layers.1.",)
    ),
    "config.json of an expert more": Damage(edit("config.json", num_local_experts=5), ("missing: model", "experts.4.")),
    "config.json of a token more": Damage(
        edit("config.json", vocab_size=321), ("embed_tokens.weight", "[320, 32]", "[321, 32]")
    ),
    "config.json of wider experts": Damage(edit("config.json", intermediate_size=25), ("[24, 32]", "[25, 32]")),
    "config.json missing": Damage(lambda folder: (folder / "config.json").unlink(), ("config.json: cannot be read",)),
}

RESUMES = {
    "moments cut off": Damage(cut(MOMENTS, -1), (MOMENTS,)),
    "moment missing": Damage(tensors(MOMENTS, lambda t: t.pop(f"first_moment.{NORM}") is None), (MOMENTS, NORM)),
    "moment of another shape": Damage(
        tensors(MOMENTS, lambda t: t.update({f"second_moment.{NORM}": np.zeros((2, 3), np.float32)})), (MOMENTS, NORM)
    ),
    "no moments": Damage(lambda folder: (folder / MOMENTS).unlink(), (MOMENTS, "cannot be read")),
    "no training.json": Damage(lambda folder: (folder / "training.json").unlink(), ("training.json",)),
    "data of other windows": Damage(edit("training.json", data_windows=5), ("windows", "5")),
    "hash that is no text": Damage(
        edit("../../run.json", data_sha256=7), ("run.json: ", "data_sha256 is 7; it must be text")
    ),
}


SHARDS = {
    "magic": Damage(overwrite("x.tokens", 0, b"TNNOKENS"), ("does not begin with NNTOKENS",)),
    "cut off": Damage(cut("x.tokens", -1), ("bytes long", "tokens take")),
    "id out of range": Damage(overwrite("x.tokens", 64, b"\xff" * 9000), ("65535", "320")),
    "no window": Damage(
        lambda f: (f / "x.tokens").write_bytes(HEADER.pack(MAGIC, 1, 2, 320, 3, bytes(32)) + bytes(6)) and None,
        ("16 + 1 tokens",),
    ),
    "empty": Damage(cut("x.tokens", 0), ("does not begin with NNTOKENS",)),
}

USES = {
    "no data": (USAGE, ["train", "{new}"], ("say what to train on",)),
    "resume with options": (USAGE, ["train", "{run}", "--resume", "--steps", "9"], ("leave out --steps",)),
    "resume with a preset": (USAGE, ["train", "{run}", "--resume", "--preset", "small"], ("leave out --preset",)),
    "number that is a word": (USAGE, ["train", "{new}", "--steps", "many"], ("steps", "many")),
    "limit that is a word": (USAGE, ["train", "{new}", "--clip-norm", "much"], ("neither a number nor 'none'",)),
    "flag of nobody": (USAGE, ["train", "{new}", "--speed", "9"], ("--speed",)),
    "preset of nobody": (USAGE, ["train", "{new}", "--preset", "huge"], ("huge", "demo")),
    "threads of zero": (USAGE, ["train", "{new}", "--threads", "0"], ("threads", "0")),
    "flag that is nearly one": (USAGE, ["train", "{new}", "--num-layer", "9"], ("--num-layer", "--num-layers")),
    "command of nobody": (USAGE, ["paint"], ("paint",)),
    "command that is nearly one": (USAGE, ["trian"], ("trian", "train")),
    "no run": (USAGE, ["train"], ("RUN",)),
    "no prompt": (USAGE, ["generate", "{run}"], ("PROMPT",)),
    "share of zero": (USAGE, ["generate", "{run}", "a", "--top-p", "0"], ("top-p", "0")),
    "choice of zero": (USAGE, ["generate", "{run}", "a", "--top-k", "0"], ("top-k", "0")),
    "seed of more than 64 bits": (USAGE, ["generate", "{run}", "a", "--seed", str(2**63)], ("seed", str(2**63))),
    "prompt that is no id": (USAGE, ["generate", "{run}", "5 six", "--ids"], ("PROMPT has 'six'",)),
    "absent model": (USAGE, ["generate", "{new}", "a"], ("does not exist",)),
    "absent file": (USAGE, ["inspect", "{new}"], ("does not exist",)),
    "run that is there": (WRONG_FILE, ["train", "{run}", "--config", "{config}"], ("already holds a run",)),
    "run that is not": (WRONG_FILE, ["train", "{new}", "--resume"], ("run.json", "cannot be read")),
    "prompt beyond the vocabulary": (WRONG_FILE, ["generate", "{run}", "1 320", "--ids"], ("PROMPT[1] is 320", "319")),
    "empty prompt": (WRONG_FILE, ["generate", "{run}", "", "--ids"], ("at least one token",)),
    "more tokens than it reaches": (
        WRONG_FILE,
        ["generate", "{run}", "1", "--ids", "--max-tokens", "65"],
        ("65", "64"),
    ),
    "text without a tokenizer": (WRONG_FILE, ["generate", "{bare}", "a"], ("holds no tokenizer",)),
    "best of a run without evaluations": (
        WRONG_FILE,
        ["generate", "{run}", "a", "--best"],
        ("no evaluated checkpoint",),
    ),
    "file of nobody": (WRONG_FILE, ["inspect", "{config}"], ("not a kind of file",)),
    "two prompts": (USAGE, ["generate", "{run}", "a", "--prompt", "b"], ("one prompt",)),
    "an argument more": (USAGE, ["inspect", "{run}", "b"], ("b",)),
    "form of nobody": (USAGE, ["inspect", "{run}", "--xml"], ("--xml",)),
    "a folder for a file": (USAGE, ["train", "{new}", "--config", "{run}"], ("{run}",)),
    "resume with a file": (USAGE, ["train", "{run}", "--resume", "--config", "{config}"], ("leave out --config",)),
    "value for a switch": (USAGE, ["train", "{new}", "--no-norm-topk-prob=1"], ("norm-topk-prob",)),
    "other vocabulary": (
        WRONG_FILE,
        ["train", "{new}", "--data", "{data}", "--preset", "demo", "--vocab-size", "9"],
        ("vocabulary of 320",),
    ),
    "sequence beyond the context": (
        WRONG_FILE,
        ["train", "{new}", "--config", "{config}", "--data", "{data}", "--sequence-length", "33"],
        ("sequence_length is 33", "context is 32"),
    ),
    "data of a number": (
        WRONG_FILE,
        ["train", "{new}", "--config", "{wrong}"],
        ("{wrong}: line ", "[data] has 'data'"),
    ),
    "data without shards": (WRONG_FILE, ["train", "{new}", "--data", "{bare}"], ("no token shards (*.tokens)",)),
    "device of nobody": (WRONG_FILE, ["train", "{new}", "--config", "{config}", "--device", "gpu"], ("gpu",)),
    "device that is not there": (NO_DEVICE, ["generate", "{run}", "a", "--device", "cuda:99"], ("cuda:99",)),
}


def refused(language: languages.Language, code: int, words: tuple[str, ...], *arguments: object) -> None:
    """The command ends with the code and one sentence with the words, and shows nothing of its inside."""
    done = language.run(*arguments, code=code)
    message = done.stderr.strip()
    for word in words:
        assert word in message, f"{language.name} says {message!r}, without {word!r}"
    for inside in ("Traceback", "panic", "goroutine", "RUST_BACKTRACE", "SIGSEGV"):
        assert inside not in message, message
    if code != USAGE:
        assert message.startswith("Error: ") and "\n" not in message, message


@pytest.fixture
def checkpoint(workshop: Workshop, tmp_path: Path) -> Path:
    """A run with one checkpoint, to be spoiled."""
    source = workshop.reference("small")
    folder = tmp_path / "run" / "checkpoints" / resolve_checkpoint(source).name
    shutil.copytree(resolve_checkpoint(source), folder)
    shutil.copy(source / "run.json", tmp_path / "run" / "run.json")
    return folder


@pytest.mark.case("refusals: damaged checkpoints")
@pytest.mark.parametrize("damage", CHECKPOINTS)
def test_damaged_checkpoint(language: languages.Language, checkpoint: Path, damage: str) -> None:
    CHECKPOINTS[damage].spoil(checkpoint)
    refused(language, WRONG_FILE, CHECKPOINTS[damage].words, "generate", checkpoint, "1 2", "--ids")


@pytest.mark.case("refusals: damaged states of training")
@pytest.mark.parametrize("damage", RESUMES)
def test_damaged_training_state(language: languages.Language, checkpoint: Path, damage: str) -> None:
    RESUMES[damage].spoil(checkpoint)
    refused(language, WRONG_FILE, RESUMES[damage].words, "train", checkpoint.parents[1], "--resume")


@pytest.mark.case("refusals: data of other tokens")
def test_data_of_other_tokens(workshop: Workshop, language: languages.Language, tmp_path: Path) -> None:
    """A run goes on with the data it was started on; one from before there were hashes takes any of as many windows."""
    run = workshop.cut(workshop.reference("small"), STEPS - 1, f"other-tokens-{language.name}")
    shutil.copy(workshop.folder / "words.tokens", tmp_path / "x.tokens")
    overwrite("x.tokens", HEADER.size, bytes(8))(tmp_path)
    resume = ["train", run, "--resume", "--data", tmp_path / "x.tokens"]
    refused(language, WRONG_FILE, ("x.tokens: holds different tokens",), *resume)
    edit("run.json", data_sha256=...)(run)
    last = language.run(*resume).stdout.splitlines()[-1]
    assert json.loads(last)["step"] == STEPS


@pytest.mark.case("refusals: damaged shards")
@pytest.mark.parametrize("damage", SHARDS)
def test_damaged_shard(workshop: Workshop, language: languages.Language, tmp_path: Path, damage: str) -> None:
    shutil.copy(workshop.folder / "words.tokens", tmp_path / "x.tokens")
    SHARDS[damage].spoil(tmp_path)
    arguments = ["train", tmp_path / "run", *workshop.options("small"), "--data", tmp_path / "x.tokens"]
    refused(language, WRONG_FILE, ("x.tokens: ", *SHARDS[damage].words), *arguments)
    if damage not in ("magic", "empty", "no window"):
        refused(language, WRONG_FILE, ("x.tokens: ", *SHARDS[damage].words), "inspect", tmp_path / "x.tokens")


@pytest.mark.case("refusals: packed documents")
def test_documents_that_are_refused(workshop: Workshop, language: languages.Language, tmp_path: Path) -> None:
    """A mask beside shards that know their documents, and shards of both kinds in one folder."""
    train = ["train", tmp_path / "run", *workshop.options("conversations")]
    masked = ("document_mask is 7", "training data knows where its documents end")
    refused(language, WRONG_FILE, masked, *train, "--document-mask", 7)
    both = tmp_path / "both"
    shutil.copytree(workshop.folder / "conversations", both)
    shutil.copy(workshop.folder / "wide.tokens", both / "9.tokens")
    mixed = ("0.tokens knows where its documents end and 9.tokens does not",)
    refused(language, WRONG_FILE, mixed, *train, "--data", both)
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.case("refusals: wrong use")
@pytest.mark.parametrize("use", USES)
def test_wrong_use(workshop: Workshop, language: languages.Language, tmp_path: Path, use: str) -> None:
    code, arguments, words = USES[use]
    bare = workshop.folder / "bare"
    if not bare.exists():
        shutil.copytree(resolve_checkpoint(workshop.reference("ragged")), bare)
    places = {
        "new": tmp_path / "new", "run": workshop.reference("small"), "bare": bare, "config": workshop.config("small"),
        "data": workshop.folder / "words.tokens", "wrong": tmp_path / "wrong.toml",
    }  # fmt: skip
    places["wrong"].write_text("[data]\ndata = 3\n")
    words = tuple(word.format(**places) for word in words)
    refused(language, code, words, *(argument.format(**places) for argument in arguments))
    assert not (tmp_path / "new").exists()


@pytest.mark.case("refusals: a loss that is no number any more")
def test_diverged(workshop: Workshop, language: languages.Language) -> None:
    """Exit code 1, a sentence that names the step, and the last checkpoint is from before."""
    run = workshop.folder / "runs" / f"diverged-{language.name}"
    flags = ["--learning-rate", "1e30", "--warmup-steps", 0, "--weight-decay", "1e30"]
    done = language.run("train", run, *workshop.options("small"), *flags, code=1)
    assert "a lower learning rate" in done.stderr.lower() and "at step" in done.stderr
