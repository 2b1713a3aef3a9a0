"""`nncuda tokenizer`: train tokenizers."""

from __future__ import annotations

from pathlib import Path

import click

from ..formats import find_texts, read_text, write_file
from ..tokenizer import Tokenizer, train_tokenizer
from .arguments import force_option, include_option, out_option, texts_argument
from .outputs import require_room


@click.group()
def tokenizer() -> None:
    """Train SentencePiece tokenizers."""


@tokenizer.command()
@texts_argument
@out_option("tokenizer file")
@click.option(
    "--vocab-size", type=click.IntRange(min=8), default=32000, show_default=True, help="Total number of pieces."
)
@click.option("--model-type", type=click.Choice(["unigram", "bpe"]), default="unigram", show_default=True)
@click.option(
    "--character-coverage",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.9995,
    show_default=True,
    help="Share of the text's characters that get pieces of their own; the others are spelled in bytes.",
)
@include_option
@click.option(
    "--sample", type=click.IntRange(min=0), default=0, help="Learn from this many lines, chosen at random; 0: all."
)
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True)
@force_option("the file of --out if there is one")
def train(
    text: tuple[Path, ...],
    out: Path,
    vocab_size: int,
    model_type: str,
    character_coverage: float,
    include: tuple[str, ...],
    sample: int,
    threads: int,
    force: bool,
) -> None:
    """Train a tokenizer on TEXT, which is files or folders of them.

    Ids 0, 1, 2, 3 are pad, unknown, begin and end. Files that are not UTF-8 text are skipped.
    """
    require_room(out, force)
    texts = [content for path in find_texts(text, include) if (content := read_text(path)) is not None]
    model = train_tokenizer(
        texts,
        vocab_size=vocab_size,
        model_type=model_type,
        character_coverage=character_coverage,
        sample=sample,
        threads=threads,
    )
    write_file(out, model)
    characters = sum(map(len, texts))
    click.echo(f"{out}: {Tokenizer(model).vocab_size} pieces from {len(texts)} files, {characters:,} characters")
