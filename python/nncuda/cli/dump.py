"""`nncuda dump`: every step of a layer, described, kept, or compared with another's."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from ..infer.dump import Difference, Dump, Statistics, compare, is_dump, record
from ..infer.dump_transformers import PeerMissing
from ..infer.dump_transformers import record as record_from_transformers
from ..infer.language_model import LanguageModel
from ..infer.paged_cache import CACHE_FORMATS
from .arguments import device_options
from .terminal import console, tell

_DIFFERENT = 1


@click.command()
@click.option("--model", type=click.Path(exists=True, path_type=Path), required=True,
              help="A GGUF file, a Hugging Face folder (Llama, Qwen and others), a checkpoint or a run.")  # fmt: skip
@click.option(
    "--layer",
    "layers",
    type=click.IntRange(min=0),
    multiple=True,
    help="The layer to show; may be repeated.  [default: 0]",
)
@click.option("--prompt", required=True, help="The text to run.")
@click.option("--ids", "as_ids", is_flag=True, help="The prompt is token ids; no tokenizer is needed.")
@click.option(
    "--values", type=click.IntRange(0, 64), default=3, show_default=True, help="How many values of each step to show."
)
@click.option(
    "--save", type=click.Path(dir_okay=False, path_type=Path), help="Save all values to this file, as safetensors."
)
@click.option("--compare", "other", type=click.Path(exists=True, path_type=Path),
              help="A dump written by --save, or a Hugging Face folder, which transformers runs in f32.")  # fmt: skip
@click.option("--tolerance", type=click.FloatRange(min=0), default=1e-3, show_default=True,
              help="A value differs if it is off by more than this share of its step's largest value.")  # fmt: skip
@click.option("--cache-format", type=click.Choice(list(CACHE_FORMATS)), default="f32",
              show_default=True, help="Format of the cached keys and values.")  # fmt: skip
@device_options
def dump(
    model: Path,
    layers: tuple[int, ...],
    prompt: str,
    as_ids: bool,
    values: int,
    save: Path | None,
    other: Path | None,
    tolerance: float,
    cache_format: str,
    device: str,
    threads: int | None,
) -> None:
    """Show every step of a layer for a prompt, from the embedding through attention and experts to the logits.

    The steps are those of the inference engine, one kernel call after another. With --compare, the first value that
    differs is reported, and the exit code is then 1.
    """
    layers = layers or (0,)
    with LanguageModel.load(model, device=device, threads=threads, cache_format=cache_format) as loaded:
        ids = [int(token) for token in loaded.encode(_ids(prompt) if as_ids else prompt)]
        if not ids:
            raise click.UsageError("the prompt is empty; it must have at least one token")
        mine = record(loaded.engine, ids, layers, str(model))
    terminal = console()
    if save is not None:
        mine.save(save)
    if other is None:
        _show(mine, values, terminal)
    else:
        theirs = _other(other, mine, layers)
        differences = compare(mine, theirs, tolerance)
        _show_differences(differences, theirs, tolerance, terminal)
    if save is not None:
        tell(f"written to {save}")
    if other is not None and any(difference.index is not None for difference in differences):
        raise SystemExit(_DIFFERENT)


def _ids(text: str) -> list[int]:
    try:
        return [int(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise click.UsageError("with --ids the prompt must be whole numbers, such as '1 15043 3186'") from None


def _other(path: Path, mine: Dump, layers: tuple[int, ...]) -> Dump:
    if is_dump(path):
        return Dump.load(path)
    if not (path / "config.json").is_file():
        raise click.UsageError(f"{path} is neither a dump (*.safetensors) nor a Hugging Face folder with a config.json")
    try:
        return record_from_transformers(path, mine.ids, layers)
    except PeerMissing as error:
        raise click.ClickException(str(error)) from error


def _show(shown: Dump, values: int, terminal: Console) -> None:
    tokens = len(shown.ids)
    table = Table(title=f"{shown.source}: {tokens} token{'s' if tokens > 1 else ''}", title_justify="left")
    table.add_column("step", no_wrap=True)
    table.add_column("shape", no_wrap=True)
    for name in ("min", "max", "mean", "std", "norm", "not finite"):
        table.add_column(name, justify="right")
    if values:
        table.add_column("first values")
    for name, array in shown.steps.items():
        found = Statistics.of(array, values)
        numbers = (found.least, found.greatest, found.mean, found.deviation, found.norm)
        cells = [name, " × ".join(map(str, found.shape)), *(f"{number:.4g}" for number in numbers)]
        cells.append(str(found.not_finite) if found.not_finite else "")
        table.add_row(*cells, *([" ".join(f"{value:.5g}" for value in found.first)] if values else []))
    terminal.print(table)


def _show_differences(differences: list[Difference], theirs: Dump, tolerance: float, terminal: Console) -> None:
    table = Table(title=f"beside {theirs.source}", title_justify="left")
    table.add_column("step", no_wrap=True)
    for name in ("largest difference", "mean difference", "share of largest value"):
        table.add_column(name, justify="right")
    table.add_column("")
    for each in differences:
        mark = "[red]differs[/]" if each.index is not None else ""
        table.add_row(each.step, f"{each.largest:.3g}", f"{each.mean:.3g}", f"{each.share:.2g}", mark)
    terminal.print(table)
    first = next((each for each in differences if each.index is not None), None)
    if first is None:
        terminal.print(
            f"no value differs by more than {tolerance:g} of its step's largest value value", highlight=False
        )
    else:
        terminal.print(
            f"first difference: {first.step} {list(first.index or ())}: {np.float32(first.mine)} here, "
            f"{np.float32(first.theirs)} there",
            highlight=False,
            soft_wrap=True,
        )
