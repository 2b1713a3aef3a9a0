"""`nncuda data`: token shards from text."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import click

from ..formats import find_texts, split_held_out
from ..records.encoding import encode_records
from ..records.texts import encode_text_files
from .arguments import force_option, include_option, out_option, texts_argument
from .outputs import require_room
from .progress import element_progress

# Names that shards for measuring go by.
_HELD_OUT = re.compile(r"(?<![a-z])(held[-_ ]?out|val|valid|validation|eval|test)(?![a-z])", re.IGNORECASE)


@click.group()
def data() -> None:
    """Encode text into the token shards that training reads."""


@data.command()
@texts_argument
@click.option(
    "--tokenizer",
    "tokenizer_path",
    required=True,
    type=click.Path(exists=True, path_type=Path),
    help="A SentencePiece model, or the folder of a model, whose chat template is used for JSONL, too.",
)
@click.option(
    "--chat-template",
    "template_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Of JSONL, the chat template (a Jinja file) in place of the model's.",
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
    help="Share of files to hold out; a hash of their names chooses them. Of JSONL it is a share of records.",
)
@include_option
@click.option(
    "--no-held-out",
    is_flag=True,
    help="Encode all of TEXT, although a shard of held-out text lies beside that of --out.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    help="Number of processes that encode; it does not affect results.  [default: all cores]",
)
@force_option("the files of --out and --held-out if there are such")
def encode(
    text: tuple[Path, ...],
    tokenizer_path: Path,
    template_path: Path | None,
    out: Path,
    held_out: Path | None,
    held_out_share: float,
    no_held_out: bool,
    include: tuple[str, ...],
    processes: int | None,
    force: bool,
) -> None:
    """Encode TEXT, which is files or folders of them, putting each file between begin and end tokens.

    Files that are not UTF-8 text are skipped.

    Files named .jsonl hold a document a line: {"text": ...}, or {"messages": [...]}, which the model's chat template
    puts together and of which only the answers of the assistant count. Their shards know where documents end, and
    training packs them so that none sees another. What is no such record is refused, with its line.

    Where a shard of held-out text lies beside that of --out, one of
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
    files = find_texts(text, include)
    records = [path for path in files if path.suffix == ".jsonl"]
    if records and len(records) < len(files):
        other = next(path for path in files if path.suffix != ".jsonl")
        raise click.UsageError(
            f"{records[0]} is JSONL and {other} is not; their shards are of two kinds, so encode each apart (--include)"
        )
    if records:
        outs = [out, *([held_out] if held_out else ())]
        _encode_records(records, outs, (tokenizer_path, template_path), held_out_share, processes)
        return
    if template_path is not None:
        raise click.UsageError(f"--chat-template is for JSONL; {files[0]} is a text")
    parts = [(out, files)]
    if held_out is not None:
        train_files, held_out_files = split_held_out(files, held_out_share)
        parts = [(out, train_files), (held_out, held_out_files)]
    with _encoding(files) as progress:
        counts = encode_text_files(parts, (tokenizer_path, None), _count(processes), progress)
    for (path, members), tokens in zip(parts, counts, strict=True):
        click.echo(f"{path}: {tokens:,} tokens from {len(members)} files")


def _encode_records(
    files: list[Path],
    outs: list[Path],
    source: tuple[Path, Path | None],
    held_out_share: float,
    processes: int | None,
) -> None:
    with _encoding(files) as progress:
        found = encode_records(files, outs, source, held_out_share, _count(processes), progress)
    for path, (documents, tokens, targets) in zip(outs, found, strict=True):
        click.echo(f"{path}: {tokens:,} tokens, {targets:,} of them targets, in {documents:,} documents")


def _encoding(files: list[Path]) -> contextlib.AbstractContextManager[Callable[[int], None]]:
    return element_progress("encoding", sum(path.stat().st_size for path in files))


def _count(processes: int | None) -> int:
    return processes or len(os.sched_getaffinity(0))


def _held_out_beside(out: Path) -> Path | None:
    """A shard in the folder of `out` that is one of held-out text by its name; None when `out` is one itself."""
    if _HELD_OUT.search(out.stem):
        return None
    shards = (path for path in sorted(out.parent.glob("*.tokens")) if path.is_file())
    return next((path for path in shards if _HELD_OUT.search(path.stem)), None)
