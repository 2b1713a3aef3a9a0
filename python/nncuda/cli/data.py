"""`nncuda data`: token shards from text."""

from __future__ import annotations

import re
from pathlib import Path

import click

from ..formats import find_texts, read_text, split_held_out, write_shard
from ..formats.shards import tokenizer_digest
from ..tokenizer import Tokenizer, encode_texts
from .arguments import force_option, include_option, out_option, texts_argument
from .outputs import require_room

# Names that shards for measuring go by.
_HELD_OUT = re.compile(r"(?<![a-z])(held[-_ ]?out|val|valid|validation|eval|test)(?![a-z])", re.IGNORECASE)


@click.group()
def data() -> None:
    """Encode text into the token shards that training reads."""


@data.command()
@texts_argument
@click.option(
    "--tokenizer", "tokenizer_path", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@out_option("shard (.tokens)")
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
@include_option
@click.option(
    "--no-held-out",
    is_flag=True,
    help="Encode all of TEXT, although a shard of held-out text lies beside that of --out.",
)
@force_option("the files of --out and --held-out if there are such")
def encode(
    text: tuple[Path, ...],
    tokenizer_path: Path,
    out: Path,
    held_out: Path | None,
    held_out_share: float,
    no_held_out: bool,
    include: tuple[str, ...],
    force: bool,
) -> None:
    """Encode TEXT, which is files or folders of them, putting each file between begin and end tokens.

    Files that are not UTF-8 text are skipped. Where a shard of held-out text lies beside that of --out, one of
    --held-out and --no-held-out must be given: a model measured on text that it learned from shows nothing.
    """
    if held_out is not None and (no_held_out or held_out.resolve() == out.resolve()):
        given = "--no-held-out is given" if no_held_out else "it is the file of --out"
        raise click.UsageError(f"--held-out is {held_out}, but {given}; give one or the other")
    for path in (out, *([held_out] if held_out else ())):
        require_room(path, force)
    if held_out is None and not no_held_out and (beside := _held_out_beside(out)) is not None:
        raise click.UsageError(
            f"{beside} is beside {out}, which would hold its text too; --held-out {beside} keeps it apart, "
            "--no-held-out encodes all"
        )
    tokenizer = Tokenizer.load(tokenizer_path)
    files = find_texts(text, include)
    parts = [(out, files)]
    if held_out is not None:
        train_files, held_out_files = split_held_out(files, held_out_share)
        parts = [(out, train_files), (held_out, held_out_files)]
    for path, members in parts:
        texts = (content for member in members if (content := read_text(member)) is not None)
        digest = tokenizer_digest(tokenizer.model)
        count = write_shard(path, encode_texts(tokenizer, texts), tokenizer.vocab_size, digest)
        click.echo(f"{path}: {count:,} tokens from {len(members)} files")


def _held_out_beside(out: Path) -> Path | None:
    """A shard in the folder of `out` that is one of held-out text by its name; None when `out` is one itself."""
    if _HELD_OUT.search(out.stem):
        return None
    shards = (path for path in sorted(out.parent.glob("*.tokens")) if path.is_file())
    return next((path for path in shards if _HELD_OUT.search(path.stem)), None)
