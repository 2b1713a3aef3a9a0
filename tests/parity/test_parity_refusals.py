"""Wrong files and wrong use: the same exit code and the same kind of sentence in every language, and never a crash."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import languages
import numpy as np
import pytest
from runs import Workshop

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


def header(name: str, change: Callable[[dict], None]) -> Callable[[Path], None]:
    """Changes the JSON header of a safetensors file, whose data stays."""

    def spoil(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        content = json.loads(data[8 : 8 + size])
        change(content)
        head = json.dumps(content).encode()
        (folder / name).write_bytes(struct.pack("<Q", len(head)) + head + data[8 + size :])

    return spoil


NORM = "model.norm.weight"
MODEL, MOMENTS = "model.safetensors", "optimizer.safetensors"

CHECKPOINTS = {
    "weights cut off": Damage(cut(MODEL, -100), (MODEL,)),
    "weights of three bytes": Damage(cut(MODEL, 3), (MODEL,)),
    "no weights": Damage(lambda folder: (folder / MODEL).unlink(), ("model.safetensors.index.json",)),
    "header longer than the file": Damage(overwrite(MODEL, 0, struct.pack("<Q", 1 << 40)), (MODEL,)),
    "header of all bits": Damage(overwrite(MODEL, 0, b"\xff" * 8), (MODEL,)),
    "header that is no JSON": Damage(overwrite(MODEL, 8, b"[[[["), (MODEL,)),
    "tensor missing": Damage(tensors(MODEL, lambda t: t.pop(NORM) is None), (NORM,)),
    "tensor too many": Damage(tensors(MODEL, lambda t: t.update(extra=np.zeros(2, np.float32))), ("extra",)),
    "tensor of another shape": Damage(tensors(MODEL, lambda t: t.update({NORM: t[NORM][:-1]})), (NORM, "[31]", "[32]")),
    "tensor of whole numbers": Damage(
        tensors(MODEL, lambda t: t.update({NORM: t[NORM].astype(np.int32)})), (NORM, "int32")
    ),
    "offsets beyond the data": Damage(
        header(MODEL, lambda h: h[NORM].update(data_offsets=[h[NORM]["data_offsets"][0], 1 << 50])), (MODEL,)
    ),
    "offsets backwards": Damage(
        header(MODEL, lambda h: h[NORM].update(data_offsets=h[NORM]["data_offsets"][::-1])), (MODEL,)
    ),
    "shape that overflows": Damage(header(MODEL, lambda h: h[NORM].update(shape=[1 << 62, 16])), (MODEL,)),
    "dtype of nobody": Damage(header(MODEL, lambda h: h[NORM].update(dtype="F33")), (MODEL,)),
    "config.json missing": Damage(lambda folder: (folder / "config.json").unlink(), ("config.json: cannot be read",)),
    "config.json cut off": Damage(cut("config.json", 50), ("config.json: is not JSON",)),
    "config.json of a list": Damage(text("config.json", "[1]"), ("config.json: is not a JSON object",)),
    "config.json of another model": Damage(edit("config.json", model_type="llama"), ("model_type", "llama", "mixtral")),
    "config.json without heads": Damage(edit("config.json", num_attention_heads=...), ("num_attention_heads",)),
    "config.json with a text for a size": Damage(edit("config.json", hidden_size="32"), ("hidden_size", "32")),
    "config.json with a negative size": Damage(edit("config.json", num_hidden_layers=-2), ("num_layers", "-2")),
    "config.json with a fraction for a size": Damage(edit("config.json", intermediate_size=24.0), ("ffn_size", "24.0")),
    "config.json with a huge size": Damage(edit("config.json", vocab_size=1 << 40), ("1099511627776",)),
    "config.json with tied embeddings": Damage(edit("config.json", tie_word_embeddings=True), ("tie_word_embeddings",)),
    "config.json with a sliding window": Damage(edit("config.json", sliding_window=8), ("sliding_window", "8", "32")),
    "config.json with an option of nobody": Damage(
        edit("config.json", nncuda__depth=3), ("nncuda", "extended_context")
    ),
    "training.json of another version": Damage(
        edit("training.json", version=2), ("training.json", "version 2", "version 1")
    ),
    "training.json of something else": Damage(
        edit("training.json", format="notes"), ("training.json", "not a training state")
    ),
    "training.json without a step": Damage(edit("training.json", step=...), ("training.json", "missing")),
    "training.json with a step of minus one": Damage(edit("training.json", step=-1), ("training.json", "step", "-1")),
    "training.json with an option of nobody": Damage(edit("training.json", train__speed=1), ("training.json", "speed")),
    "training.json with a wrong option": Damage(
        edit("training.json", train__beta1=1.5), ("training.json", "beta1", "1.5")
    ),
    "training.json that is no JSON": Damage(text("training.json", "{"), ("training.json: is not JSON",)),
    "tokenizer.model of zeros": Damage(
        text("tokenizer.model", "\0" * 64), ("tokenizer.model", "not a SentencePiece model")
    ),
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
}


def shard(width: int = 2, vocabulary: int = 320, count: int = 400, version: int = 1) -> bytes:
    return HEADER.pack(MAGIC, version, width, vocabulary, count, bytes(32))


SHARDS = {
    "magic": Damage(overwrite("x.tokens", 0, b"TNNOKENS"), ("does not begin with NNTOKENS",)),
    "version": Damage(overwrite("x.tokens", 0, shard(version=7)), ("version 7", "version 1")),
    "width": Damage(overwrite("x.tokens", 0, shard(width=3)), ("ids of 3 bytes",)),
    "vocabulary of none": Damage(overwrite("x.tokens", 0, shard(vocabulary=0)), ("vocabulary of 0",)),
    "vocabulary too large": Damage(overwrite("x.tokens", 0, shard(vocabulary=70000)), ("vocabulary of 70000",)),
    "cut off in the header": Damage(cut("x.tokens", 40), ("cut off inside its header, at byte 40",)),
    "cut off": Damage(cut("x.tokens", -1), ("bytes long", "tokens take")),
    "longer": Damage(
        lambda f: (f / "x.tokens").write_bytes((f / "x.tokens").read_bytes() + b"\0") and None, ("bytes long",)
    ),
    "count that overflows": Damage(overwrite("x.tokens", 0, shard(count=2**63 + 5)), (str(2**63 + 5), "tokens take")),
    "id out of range": Damage(overwrite("x.tokens", 64, b"\xff" * 9000), ("65535", "320")),
    "no window": Damage(lambda f: (f / "x.tokens").write_bytes(shard(count=3) + bytes(6)) and None, ("16 + 1 tokens",)),
    "empty": Damage(cut("x.tokens", 0), ("does not begin with NNTOKENS",)),
}

TOML = {
    "no TOML": ("[model", ("is not TOML",)),
    "table of nobody": ("[models]\n", ("'models'", "[model], [train] and [data]")),
    "model option of nobody": (
        "[model]\nlayers = 3\n",
        ("line 13: there is no model option 'layers'; did you mean num_layers?",),
    ),
    "training option of nobody": (
        "[train]\nspeed = 3\n",
        ("line 14: there is no training option 'speed'; did you mean seed?",),
    ),
    "training option far from all": (
        "[train]\ndropout = 3\n",
        ("line 14: there is no training option 'dropout'; `train --help` lists them",),
    ),
    "option of the other table": (
        "[train]\nnum_layers = 3\n",
        ("line 14: there is no training option 'num_layers'; it belongs under [model]",),
    ),
    "text for a number": ("[train]\nsteps = 'many'\n", ("steps is 'many'", "a whole number, from 1 to 2147483647")),
    "fraction for a count": (
        "[train]\nbatch_size = 2.0\n",
        ("batch_size is 2.0", "a whole number, from 1 to 2147483647"),
    ),
    "truth for a number": ("[train]\nsteps = true\n", ("steps is ", "a whole number, from 1 to 2147483647")),
    "rate that is no number": ("[train]\nlearning_rate = nan\n", ("learning_rate is ", "a number, from 0 to 1e+30")),
    "rate without end": ("[train]\nlearning_rate = inf\n", ("learning_rate is ", "a number, from 0 to 1e+30")),
    "rate below zero": ("[train]\nlearning_rate = -0.5\n", ("learning_rate is -0.5", "a number, from 0 to 1e+30")),
    "beta of one": ("[train]\nbeta2 = 1\n", ("beta2 is 1", "from 0 to 0.999999")),
    "share above one": ("[train]\nmin_rate_share = 1.5\n", ("min_rate_share is 1.5", "from 0 to 1")),
    "eps of zero": ("[train]\neps = 0.0\n", ("eps is 0", "from 1e-30 to 1")),
    "clipping to zero": ("[train]\nclip_norm = 0.0\n", ("clip_norm is 0", "from 1e-30 to 1e+30, or none")),
    "no steps": ("[train]\nsteps = 0\n", ("steps is 0", "a whole number, from 1 to 2147483647")),
    "sequence beyond the context": ("[train]\nsequence_length = 33\n", ("sequence_length is 33", "context is 32")),
    "heads in no groups": ("[model]\nnum_kv_heads = 3\n", ("num_kv_heads is 3", "a divisor of num_heads (4)")),
    "head of nine": ("[model]\nhead_dim = 9\n", ("head_dim is 9", "a multiple of 8, at most 256")),
    "more choices than experts": ("[model]\nexperts_per_token = 5\n", ("experts_per_token is 5", "at most 4")),
    "reach below the context": (
        "[model]\nextended_context = 31\n",
        ("extended_context is 31", "at least context (32)"),
    ),
    "capacity of zero": ("[model]\ncapacity_factor = 0\n", ("capacity_factor is 0", "from 1e-06 to 65536, or none")),
    "other vocabulary": ("[model]\nvocab_size = 400\n", ("a vocabulary of 320, the model one of 400",)),
    "preset of nobody": ("[model]\npreset = 'huge'\n", ("no preset 'huge'", "6.9b, demo, small")),
    "data of a number": ("[data]\ndata = 3\n", ("[data] has 'data'", "data, held_out and tokenizer")),
    "base near zero": ("[model]\nrope_base = 5e-324\n", ("rope_base is 5e-324", "a number, from 1 to 1e+12")),
    "name below an option": ("[model]\nrope_base.x = 3\n", ("rope_base is {", "a number, from 1 to 1e+12")),
    "truth that is none": ("[model]\nnorm_topk_prob = 1\n", ("norm_topk_prob is 1", "true or false")),
}

# What is wrong with options together with data, or the options of the model with those of training.
OUTSIDE = ("sequence beyond the context", "other vocabulary")

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
    "text without a tokenizer": (WRONG_FILE, ["generate", "{bare}", "a"], ("holds no tokenizer.model",)),
    "best of a run without evaluations": (
        WRONG_FILE,
        ["generate", "{run}", "a", "--best"],
        ("no evaluated checkpoint",),
    ),
    "file of nobody": (WRONG_FILE, ["inspect", "{config}"], ("not a kind of file",)),
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


@pytest.mark.case("refusals: damaged shards")
@pytest.mark.parametrize("damage", SHARDS)
def test_damaged_shard(workshop: Workshop, language: languages.Language, tmp_path: Path, damage: str) -> None:
    shutil.copy(workshop.folder / "words.tokens", tmp_path / "x.tokens")
    SHARDS[damage].spoil(tmp_path)
    arguments = ["train", tmp_path / "run", *workshop.options("small"), "--data", tmp_path / "x.tokens"]
    refused(language, WRONG_FILE, ("x.tokens: ", *SHARDS[damage].words), *arguments)
    if damage not in ("magic", "empty", "no window"):
        refused(language, WRONG_FILE, ("x.tokens: ", *SHARDS[damage].words), "inspect", tmp_path / "x.tokens")


@pytest.mark.case("refusals: wrong options in a file")
@pytest.mark.parametrize("damage", TOML)
def test_wrong_options(workshop: Workshop, language: languages.Language, tmp_path: Path, damage: str) -> None:
    content, words = TOML[damage]
    model, train = workshop.config("small").read_text().split("[data]")[0].split("[train]")
    if content.startswith("[model]\n") and "preset" not in content:
        name = content.removeprefix("[model]\n").split()[0]
        kept = [line for line in model.splitlines() if not line.startswith(f"{name} ")]
        content = "\n".join([*kept, content.removeprefix("[model]\n"), "[train]", train])
    elif content.startswith("[train]"):
        content = model + content
    (tmp_path / "wrong.toml").write_text(content)
    data = [] if damage == "data of a number" else ["--data", workshop.folder / "words.tokens"]
    if damage not in OUTSIDE:
        words = ("wrong.toml: ", "line ", *words)
    refused(language, WRONG_FILE, words, "train", tmp_path / "new", "--config", tmp_path / "wrong.toml", *data)
    assert not (tmp_path / "new").exists()


@pytest.mark.case("refusals: wrong use")
@pytest.mark.parametrize("use", USES)
def test_wrong_use(workshop: Workshop, language: languages.Language, tmp_path: Path, use: str) -> None:
    code, arguments, words = USES[use]
    bare = workshop.folder / "bare"
    if not bare.exists():
        shutil.copytree(resolve_checkpoint(workshop.reference("ragged")), bare)
    places = {
        "new": tmp_path / "new", "run": workshop.reference("small"), "bare": bare, "config": workshop.config("small")
    }  # fmt: skip
    refused(language, code, words, *(argument.format(**places) for argument in arguments))
    assert not (tmp_path / "new").exists()


@pytest.mark.case("refusals: a loss that is no number any more")
def test_diverged(workshop: Workshop, language: languages.Language) -> None:
    """Exit code 1, a sentence that names the step, and the last checkpoint is from before."""
    run = workshop.folder / "runs" / f"diverged-{language.name}"
    flags = ["--learning-rate", "1e30", "--warmup-steps", 0, "--weight-decay", "1e30"]
    done = language.run("train", run, *workshop.options("small"), *flags, code=1)
    assert "a lower learning rate" in done.stderr.lower() and "at step" in done.stderr
