"""`nncuda demo`: from text to a trained model that writes, in one go. What `make run` runs."""

from __future__ import annotations

import ast
import dataclasses
import json
import sysconfig
import time
from pathlib import Path
from typing import get_args

import click
import numpy as np

from ..binding import library
from ..device import Context
from ..extras import left_out
from ..formats import TokenShard, find_texts, read_text, split_held_out, write_file, write_shard
from ..formats.json_values import read_json
from ..formats.shards import tokenizer_digest
from ..infer import Sampling, TextGenerator
from ..models import MoEConfig
from ..models.config import Precision
from ..tokenizer import Tokenizer, encode_texts, train_tokenizer
from ..train import TrainConfig, TrainingRun, list_checkpoints, read_metrics
from ..train.data import unigram_entropy
from ..train.metrics import drop_records
from ..train.run import Progress
from .arguments import device_options
from .terminal import console, tell
from .train import run_with_progress

VOCABULARY = 4096
HELD_OUT_SHARE = 0.05
EVALUATED_WINDOWS = 160
SAMPLE_TOKENS = 48

# Tests and generated tables are most of the standard library's bulk and teach little.
_SKIPPED = (
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "encodings",
    "pydoc_data",
    "site-packages",
    "dist-packages",
    "__pycache__",
)

_CODE_PROMPTS = (
    'def read_lines(path):\n    """',
    "class Queue:\n    def __init__(self",
    "for key, value in ",
)

OPTIONS = TrainConfig.preset(
    "demo",
    warmup_steps=60,
    seed=1,
    eval_every=100,
    eval_batches=EVALUATED_WINDOWS // 8,
    save_every=200,
)


@click.command()
@click.option(
    "--text",
    type=click.Path(exists=True, path_type=Path),
    help="Train on this file or folder instead of Python's library.",
)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("runs/demo"), show_default=True)
@click.option("--steps", type=click.IntRange(min=1), help="Train for this many steps instead of 1000.")
@click.option(
    "--precision",
    type=click.Choice(get_args(Precision)),
    default="f32",
    show_default=True,
    help="The precision to compute in.",
)
@device_options
def demo(
    text: Path | None, out: Path, steps: int | None, precision: Precision, device: str, threads: int | None
) -> None:
    """Train a tokenizer and a small mixture-of-experts model, draw its curves, and let it complete three prompts.

    Without --text it learns from the source and the docstrings of this Python's standard library. An interrupted run
    continues where it stopped; a complete one shows its results again.
    """
    from ..report import write_report

    began = time.perf_counter()
    terminal = console()
    out.mkdir(parents=True, exist_ok=True)
    source = Path(text) if text else Path(sysconfig.get_path("stdlib"))
    options = dataclasses.replace(OPTIONS if steps is None else shortened(steps), precision=precision)
    _prepare(source, out, options, is_library=text is None)

    tokenizer = Tokenizer.load(out / "tokenizer.model")
    train, held_out = out / "train.tokens", out / "held-out.tokens"
    with Context(device, threads=threads) as ctx:
        if list_checkpoints(out / "checkpoints"):
            training = TrainingRun.resume(out, ctx, train, held_out)
        else:
            model = MoEConfig.preset("demo", vocab_size=tokenizer.vocab_size)
            note = read_json(out / "run.json")
            training = TrainingRun.start(
                out, ctx, model, options, train, held_out, tokenizer, note={"demo": note["demo"]}
            )
        complete = training.trainer.step == training.trainer.config.steps
        prompts = _prompts(source, text is None)
        if run_with_progress(training, _SampleLog(training, tokenizer, out, prompts[0])):
            terminal.print("stopped; the same command continues from there")
            return
        machine = None if complete else _machine(ctx)
        _show_results(training, tokenizer, out, prompts, machine)
    page = write_report(out)
    minutes = (time.perf_counter() - began) / 60
    terminal.print(
        f"everything is in {out}; it took {minutes:.1f} minutes, {training.seconds / 60:.1f} of them training"
    )
    tell(f"{page} shows it all: curves, experts, samples")


def shortened(steps: int) -> TrainConfig:
    """The demonstration's options for a run of so many steps."""
    values = OPTIONS.to_dict()
    every = max(1, steps // 10)
    return TrainConfig.from_dict({**values, "steps": steps, "warmup_steps": None, "eval_every": every})


def _prepare(source: Path, out: Path, options: TrainConfig, is_library: bool) -> None:
    """Tokenizer and shards in `out`, unless they are there already and of the same text."""
    terminal, note = console(), out / "run.json"
    shards = {"data": out / "train.tokens", "held_out": out / "held-out.tokens"}
    sources = {name: str(path.resolve()) for name, path in shards.items()}  # what `nncuda train --resume` looks for
    demonstrated = {"text": str(source.resolve()), "vocabulary": VOCABULARY, "steps": options.steps}
    if options.precision != "f32":
        demonstrated["precision"] = options.precision
    described = {**sources, "demo": demonstrated}
    if note.exists():
        found = read_json(note)
        if {name: found.get(name) for name in described} == described:
            return
        raise click.ClickException(f"{out} holds a different run; remove it, or choose another --out")
    files = find_texts([source], ("*.py",) if is_library else ("*",), _SKIPPED if is_library else ())
    texts = {file: content for file in files if (content := read_text(file)) is not None}
    train_files, held_out_files = split_held_out(list(texts), HELD_OUT_SHARE)
    characters = sum(map(len, texts.values()))
    terminal.print(f"{len(texts)} files, {characters / 1e6:.1f} M characters, {len(held_out_files)} files held out")
    with terminal.status("training the tokenizer"):
        learned = [part for file in train_files for part in (texts[file], *_docstrings(file, texts[file]))]
        model = train_tokenizer(learned, vocab_size=VOCABULARY, sample=200_000)
    tokenizer = Tokenizer(model)
    write_file(out / "tokenizer.model", model)
    with terminal.status("encoding"):
        for path, members in zip(shards.values(), (train_files, held_out_files), strict=True):
            encoded = encode_texts(tokenizer, (texts[file] for file in members))
            count = write_shard(path, encoded, tokenizer.vocab_size, tokenizer_digest(model))
            terminal.print(f"{path.name}: {count:,} tokens")
    # Last, since it says that all the others are there.
    write_file(note, json.dumps(described, indent=2) + "\n")


def _docstrings(file: Path, text: str) -> list[str]:
    """The docstrings of a Python file, which the tokenizer thereby sees twice: they are its prose."""
    if file.suffix != ".py":
        return []
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
    return [docstring for docstring in found if docstring]


def _prompts(source: Path, is_library: bool) -> list[str]:
    """Prompts in the manner of the text: of Python, or the beginnings of lines of the user's own files."""
    if is_library:
        return list(_CODE_PROMPTS)
    texts = (content for file in find_texts([source]) if (content := read_text(file)) is not None)
    lines = [line for content in texts for line in content.splitlines() if len(line) >= 40]
    if len(lines) < 3:
        return ["\n", "The ", "A "]
    chosen = np.linspace(0, len(lines) - 1, 5).astype(int)[1:4]
    return [" ".join(lines[index].split()[:4]) for index in chosen]


class _SampleLog:
    """After each evaluation, lets the model continue a prompt, always with the same draws, into `samples.jsonl`.

    What an earlier process wrote beyond the step where the run continues is dropped: those steps will come again.
    """

    def __init__(self, training: TrainingRun, tokenizer: Tokenizer, out: Path, prompt: str):
        self.path = out / "samples.jsonl"
        self.prompt = prompt
        self.every = training.trainer.config.eval_every
        self.generator = TextGenerator(training.trainer.model, tokenizer)
        drop_records(self.path, training.trainer.step)

    def __call__(self, progress: Progress) -> None:
        if progress.step % self.every:
            return
        text = self.generator.complete(self.prompt, SAMPLE_TOKENS, Sampling(temperature=0.7, top_p=0.9, seed=0))
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": progress.step, "prompt": self.prompt, "text": text}) + "\n")


def _machine(ctx: Context) -> dict[str, object]:
    """What a run was trained on, and how much memory that took."""
    loaded = library.load()
    return {
        "device": f"{loaded.device_text(ctx.device_type, ctx.device_index)}; {ctx}",
        "library": loaded.build_info,
        "bytes_peak": ctx.bytes_peak,
    }


def _show_results(
    training: TrainingRun, tokenizer: Tokenizer, out: Path, prompts: list[str], machine: dict[str, object] | None
) -> None:
    """Pictures, samples and losses. `machine` is what `_machine` said after training; None when that was earlier."""
    terminal = console()
    entropy = unigram_entropy(TokenShard(out / "held-out.tokens"))
    records = read_metrics(out / "metrics.jsonl")
    if missing := left_out("plot", "loss.png and experts.png"):
        click.echo(missing, err=True)
    else:
        from ..train.plots import plot_experts, plot_losses

        plot_losses(records, out / "loss.png", entropy)
        plot_experts(records, out / "experts.png")
    generator = TextGenerator(training.trainer.model, tokenizer)
    for number, prompt in enumerate(prompts):
        terminal.rule(f"prompt {number + 1}", align="left")
        click.echo(click.style(prompt, bold=True), nl=False)
        for piece in generator.stream(prompt, 96, Sampling(temperature=0.7, top_p=0.9, seed=number)):
            click.echo(piece, nl=False)
        click.echo()
    with terminal.status("evaluating on the held-out text"):
        loss = training.evaluate(training.trainer.config.eval_batches)  # as at the last step, so to the same number
    if machine is None:
        earlier = read_json(out / "results.json") if (out / "results.json").exists() else {}
        machine = {name: earlier[name] for name in ("device", "library", "bytes_peak") if name in earlier}
    summary = {"held_out_loss": loss, "unigram_entropy": entropy, "below": entropy - loss, **machine}
    write_file(out / "results.json", json.dumps(summary, indent=2) + "\n")
    terminal.rule(align="left")
    terminal.print(
        f"held-out loss {loss:.3f} nats per token; unigram entropy of the held-out text {entropy:.3f}: "
        f"the model is {entropy - loss:.3f} below it",
        soft_wrap=True,
    )
