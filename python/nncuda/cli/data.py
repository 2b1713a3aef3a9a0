"""`nncuda data`: token shards from text."""

from __future__ import annotations

from pathlib import Path

import click

from ..formats import Tokenizer, encode_texts, find_texts, read_text, split_held_out, write_shard
from ..formats.shards import tokenizer_digest


@click.group()
def data() -> None:
    """Encode text into the token shards that training reads."""


@data.command()
@click.argument("text", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--tokenizer", "tokenizer_path", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The shard to write (.tokens)."
)
@click.option(
    "--held-out", type=click.Path(dir_okay=False, path_type=Path), help="A second shard to write, of held-out files."
)
@click.option(
    "--held-out-share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="Share of files to hold out; a hash of their names chooses them.",
)
@click.option(
    "--include", multiple=True, default=["*"], show_default=True, help="Patterns of file names to take from folders."
)
def encode(
    text: tuple[Path, ...],
    tokenizer_path: Path,
    out: Path,
    held_out: Path | None,
    held_out_share: float,
    include: tuple[str, ...],
) -> None:
    """Encode TEXT, which is files or folders of them, putting each file between begin and end tokens.

    Files that are not UTF-8 text are skipped.
    """
    tokenizer = Tokenizer.load(tokenizer_path)
    files = find_texts(text, include)
    parts = [(out, files)]
    if held_out is not None:
        train_files, held_out_files = split_held_out(files, held_out_share)
        parts = [(out, train_files), (held_out, held_out_files)]
    for path, members in parts:
        texts = (content for member in members if (content := read_text(member)) is not None)
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = tokenizer_digest(tokenizer.model)
        count = write_shard(path, encode_texts(tokenizer, texts), tokenizer.vocab_size, digest)
        click.echo(f"{path}: {count:,} tokens from {len(members)} files")
