"""`nncuda generate`: text, or token ids, from a trained model, as they come."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click

from ..context import Context
from ..formats import FormatError
from ..infer import Sampling, TextGenerator, room
from ..infer import generate as generate_tokens
from ..models import MoETransformer
from ..models.config import Precision
from ..train import Checkpoint, resolve_checkpoint

_USUAL_TOKENS = 128


@click.command()
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("prompt")
@click.option(
    "--max-tokens",
    type=click.IntRange(min=0),
    help="Most tokens to write.  [default: 128, or as many as the model's context leaves]",
)
@click.option("--greedy", is_flag=True, help="Always take the likeliest token.")
@click.option("--temperature", type=click.FloatRange(min=0), default=1.0, show_default=True, help="0 is --greedy.")
@click.option("--top-k", type=click.IntRange(min=1), help="Draw among the so many likeliest tokens.")
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), help="Draw among the likeliest up to this share.")
@click.option(
    "--seed",
    type=click.IntRange(-(2**63), 2**63 - 1),
    default=0,
    show_default=True,
    help="The same seed gives the same text.",
)
@click.option(
    "--ids", "as_ids", is_flag=True, help="PROMPT is token ids, and so is the output; no tokenizer is needed."
)
@click.option(
    "--precision",
    type=click.Choice(get_args(Precision)),
    default="f32",
    show_default=True,
    help="What to compute in; weights and cache take half the memory in bf16 and f16.",
)
@click.option("--best", is_flag=True, help="Of a run, take the checkpoint with the lowest held-out loss, not the last.")
@click.option(
    "--device", default="cpu", show_default=True, help="cpu, cuda, cuda:INDEX, or auto: a GPU if there is one."
)
@click.option("--threads", type=click.IntRange(1, 256), help="Worker threads; results do not depend on it.")
def generate(
    model: Path,
    prompt: str,
    max_tokens: int | None,
    greedy: bool,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
    as_ids: bool,
    precision: Precision,
    best: bool,
    device: str,
    threads: int | None,
) -> None:
    """Continue PROMPT ("-" reads it from the standard input) with MODEL, and write the text as it comes.

    MODEL is a checkpoint, the folder of a run, or a Mixtral folder from elsewhere that has its tokenizer.model.

    With --ids, PROMPT is token ids between spaces or commas, just as the model is to read them, and the output is the
    ids that follow, on one line between spaces; no id ends it early.
    """
    if prompt == "-":
        prompt = sys.stdin.read()
    prompt_ids = _parse_ids(prompt) if as_ids else []
    sampling = Sampling(0.0 if greedy else temperature, top_k, top_p, seed)
    checkpoint = Checkpoint(resolve_checkpoint(model, "best" if best else "last"))
    if not as_ids and checkpoint.tokenizer is None:
        raise FormatError(checkpoint.folder, "holds no tokenizer.model, so it cannot take text")
    with Context(device, threads=threads) as ctx:
        if checkpoint.tokenizer is None or as_ids:
            pieces = _ids_stream(checkpoint.model(ctx, precision=precision), prompt_ids, max_tokens, sampling)
        else:
            generator = TextGenerator(checkpoint.model(ctx, precision=precision), checkpoint.tokenizer)
            if max_tokens is None:
                max_tokens = min(_USUAL_TOKENS, generator.room(prompt))
            pieces = generator.stream(prompt, max_tokens, sampling)
        for piece in pieces:
            click.echo(piece, nl=False)
            sys.stdout.flush()
    click.echo()


def _parse_ids(text: str) -> list[int]:
    ids = []
    for word in text.replace(",", " ").split():
        if not word.isascii() or not word.isdigit():
            raise click.UsageError(f"PROMPT has {word!r}; with --ids it is token ids, between spaces or commas")
        ids.append(int(word))
    return ids


def _ids_stream(model: MoETransformer, prompt: list[int], max_tokens: int | None, sampling: Sampling) -> Iterator[str]:
    vocab = model.config.vocab_size
    for position, token in enumerate(prompt):
        if token >= vocab:
            raise ValueError(f"PROMPT[{position}] is {token}; it must be 0 to {vocab - 1}")
    if max_tokens is None:
        max_tokens = min(_USUAL_TOKENS, room(model, len(prompt)))
    for number, token in enumerate(generate_tokens(model, prompt, max_tokens, sampling)):
        yield f" {token}" if number else str(token)
