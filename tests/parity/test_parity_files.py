"""Files of one language in another: options, shards, checkpoints, and what `inspect` says of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import differences
import languages
import pytest
from conftest import find
from runs import OPTIONS, Workshop

import nncuda
from nncuda.models import MoEConfig, MoETransformer
from nncuda.train import TrainConfig, Trainer, list_checkpoints, resolve_checkpoint
from nncuda.train.checkpoint import TrainingState, save_checkpoint

SIZES = {"vocab_size": 32, "hidden_size": 16, "num_layers": 1, "num_heads": 2, "head_dim": 8, "num_experts": 2,
         "experts_per_token": 1, "ffn_size": 16, "context": 16, "extended_context": 32}  # fmt: skip

# Every flag of `train` with a value that is not its default.
FLAGS = {
    "hidden-size": 24, "num-layers": 1, "num-heads": 4, "num-kv-heads": 2, "head-dim": 16, "num-experts": 3,
    "experts-per-token": 1, "ffn-size": 10, "context": 20, "extended-context": 40, "rope-base": 2e4, "ntk-alpha": 2.5,
    "norm-eps": 1e-3, "capacity-factor": 1.25, "aux-alpha": 0.125, "init-std": 0.07, "steps": 2, "batch-size": 3,
    "micro-batch-size": 2, "sequence-length": 9, "learning-rate": 1e-05, "min-rate-share": 0.25, "warmup-steps": 1,
    "beta1": 0.5, "beta2": 0.75, "eps": 1e-06, "weight-decay": 0, "clip-norm": "none", "seed": 11, "eval-every": 1,
    "eval-batches": 1, "save-every": 1, "keep-checkpoints": 1, "log-every": 2,
}  # fmt: skip


def described(language: languages.Language, path: Path) -> object:
    return json.loads(language.run("inspect", path, "--json").stdout)


@pytest.mark.case("options as flags, over a file, over a preset")
def test_every_flag(workshop: Workshop, language: languages.Language) -> None:
    """The flags alone, and a file below them that says otherwise for all of them."""
    flags = [part for name, value in FLAGS.items() for part in (f"--{name}", value)] + ["--no-norm-topk-prob"]
    data = ["--data", workshop.folder / "wide.tokens", "--held-out", workshop.folder / "held-out.tokens"]
    reference = workshop.folder / "runs" / "flags-reference"
    if not reference.exists():
        find("python").run("train", reference, *data, *flags, "--threads", 2)
    alone, over = (workshop.folder / "runs" / f"flags-{kind}-{language.name}" for kind in ("alone", "over"))
    language.run("train", alone, *data, *flags)
    language.run("train", over, *workshop.options("ragged"), *data, "--preset", "demo", *flags)
    for run in (alone, over):
        assert not (difference := differences.of_runs(reference, run)), difference
        assert not (difference := of_records(reference, run)), difference
        assert not list((run / "checkpoints").glob("*1"))  # one kept, and with one evaluation better than the other


@pytest.mark.case("files and folders with the permissions that the umask leaves")
def test_permissions(workshop: Workshop, language: languages.Language) -> None:
    """One that takes all from others and writing from the group; with it, what a temporary file has would be seen."""
    run = workshop.folder / "runs" / f"permissions-{language.name}"
    before = os.umask(0o027)
    try:
        language.run("train", run, *workshop.options("small"), "--steps", 1, "--warmup-steps", 0)
    finally:
        os.umask(before)
    written = [run, *run.rglob("*")]
    assert {"model.safetensors", "optimizer.safetensors", "metrics.jsonl"} <= {path.name for path in written}
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in written}
    assert modes == {path.name: "0o750" if path.is_dir() else "0o640" for path in written}


@pytest.mark.case("a preset by name, in a file and as a flag")
def test_preset(workshop: Workshop, language: languages.Language) -> None:
    """The sizes of a preset, with the vocabulary of the data and one option of the file over them."""
    file = workshop.folder / "preset.toml"
    file.write_text('[model]\npreset = "small"\nnum_layers = 1\nffn_size = 16\n[train]\nclip_norm = "none"\n')
    common = ["--config", file, "--data", workshop.folder / "words.tokens", "--steps", 1, "--batch-size", 1]
    checkpoints = []
    for name in ("python", language.name):
        run = workshop.folder / "runs" / f"preset-{language.name}-{name}-{len(checkpoints)}"
        languages.find(name).run("train", run, *common, "--sequence-length", 8)
        checkpoints.append(list_checkpoints(run / "checkpoints")[-1])
    assert not (difference := differences.of_checkpoints(*checkpoints)), difference
    config = json.loads((checkpoints[1] / "config.json").read_text())
    assert (config["vocab_size"], config["hidden_size"], config["num_hidden_layers"]) == (320, 256, 1)


@pytest.mark.case("inspect --json of everything that it knows")
@pytest.mark.parametrize("options", OPTIONS)
def test_inspect(workshop: Workshop, language: languages.Language, options: str) -> None:
    """Of the run that the language itself made, and of its files."""
    python, run = find("python"), workshop.run(language.name, options)
    checkpoint = resolve_checkpoint(run)
    files = [checkpoint / name for name in ("model.safetensors", "optimizer.safetensors")]
    for path in (run, checkpoint, *files):
        difference = differences.of_values(path.name, described(python, path), described(language, path))
        assert not difference, difference


@pytest.mark.case("inspect --json of shards and tokenizers")
@pytest.mark.parametrize("name", ["words.tokens", "wide.tokens", "shards/1.tokens", "tokenizer.model"])
def test_inspect_inputs(workshop: Workshop, language: languages.Language, name: str) -> None:
    path = workshop.folder / name
    difference = differences.of_values(name, described(find("python"), path), described(language, path))
    assert not difference, difference


@pytest.mark.case("inspect for people: the values of --json as rows of tables")
def test_inspect_for_people(language: languages.Language, tmp_path: Path) -> None:
    """No braces, no other language's None, and a group of values as rows of its own."""
    config = TrainConfig(precision="f16", sequence_length=8)
    with nncuda.Context("cpu") as ctx:
        trainer = Trainer(MoETransformer(ctx, MoEConfig(**SIZES), seed=1, precision="f16"), config)
        state = TrainingState(3, 24, 40, 1.5, config, None, trainer.loss_scaling)
        checkpoint = save_checkpoint(tmp_path, trainer, state)
    shown = language.run("inspect", checkpoint).stdout
    assert not {"{", "}", "'", "None", "True"} & {*shown.split(), *shown}, shown
    rows = [row.strip(" │").split() for row in shown.splitlines()]
    rows = [[cell for cell in row if cell != "│"] for row in rows]
    content = described(language, checkpoint)
    for row in (
        ["precision", "f16"], ["micro_batch_size", "none"], ["norm_topk_prob", "true"], ["step", "3"],
        ["held_out_loss", "none"], ["loss_scaling.scale", str(content["training state"]["loss_scaling"]["scale"])],
        ["loss_scaling.skipped", "0"], ["model.norm.weight", "16", "float32", "64", "B"],
    ):  # fmt: skip
        assert row in rows, (row, shown)


@pytest.mark.case("a folder of transformers")
def test_foreign_folder(language: languages.Language) -> None:
    """A Mixtral that Hugging Face transformers wrote: described alike, and the same tokens come out of it."""
    folder = languages.ROOT / "tests" / "interop" / "recorded" / "mixtral_by_transformers"
    python = find("python")
    assert not (text := differences.of_values("", described(python, folder), described(language, folder))), text
    arguments = ["generate", folder, "1 2 3", "--ids", "--greedy", "--max-tokens", 8]
    assert language.run(*arguments).stdout == python.run(*arguments).stdout


@pytest.mark.case("weights in several files")
def test_weights_in_parts(workshop: Workshop, language: languages.Language) -> None:
    """A checkpoint as large ones are: cut into parts with an index."""
    from nncuda.formats.safetensors import SafetensorsFile, write_safetensors_folder

    folder = workshop.folder / "parts"
    whole = resolve_checkpoint(workshop.reference("ragged"))
    if not folder.exists():
        folder.mkdir()
        (folder / "config.json").write_bytes((whole / "config.json").read_bytes())
        tensors = dict(SafetensorsFile(whole / "model.safetensors"))
        write_safetensors_folder(folder, tensors, {"format": "pt"}, max_shard_bytes=9000)
        assert len(list(folder.glob("model-*.safetensors"))) > 3
    arguments = ["1 2", "--ids", "--seed", 3]
    assert (
        language.run("generate", folder, *arguments).stdout == find("python").run("generate", whole, *arguments).stdout
    )


def of_records(expected: Path, found: Path) -> str:
    """The first difference of two `run.json`, which name different programs."""
    records = [json.loads((run / "run.json").read_text()) for run in (expected, found)]
    programs = [record.pop("program") for record in records]
    assert all(program.startswith("nncuda") for program in programs), programs
    return differences.of_values("run.json", *records)


# Options of commands that Python alone has.
AHEAD = {
    (language, command): options
    for language in ("go", "rust")
    for command, options in (("generate", {"--expert-parallel"}), ("inspect", {"--ternary"}))
}


@pytest.mark.case("help: the same options with the same words")
@pytest.mark.parametrize("command", ["train", "plan", "generate", "inspect", "report", "merge", "adapter"])
def test_help(language: languages.Language, command: str) -> None:
    """Every flag of Python's command is one of this language's, and no more."""
    assert _flags(language, command) == _flags(find("python"), command) - AHEAD.get((language.name, command), set())


def _flags(language: languages.Language, command: str) -> set[str]:
    import re

    text = language.run(command, "--help").stdout
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text)) - {"--help", "--version"}
