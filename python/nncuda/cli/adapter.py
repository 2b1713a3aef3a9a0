"""`nncuda adapter`: an adapter in its other form."""

from __future__ import annotations

from pathlib import Path

import click

from ..models import StoredModel
from ..models.adapter import Adapter, save_adapter
from ..models.adapter_gguf import write_adapter_gguf
from .outputs import require_room
from .terminal import tell


@click.command()
@click.argument("base", metavar="BASE", type=click.Path(exists=True, path_type=Path))
@click.argument("source", metavar="ADAPTER", type=click.Path(exists=True, path_type=Path))
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
def adapter(base: Path, source: Path, out: Path) -> None:
    """Write the adapter ADAPTER of the model BASE to OUT, which must not exist: as a GGUF file for llama.cpp where OUT
    ends with .gguf, and as a folder of PEFT otherwise.

    ADAPTER is either of them, a run or one of its checkpoints. BASE says which matrices there are, and in which order a
    GGUF file has their rows; its weights are not read. The numbers stay as they are, each in its dtype.
    """
    if out.exists():
        raise click.UsageError(f"{out} exists; it is never replaced")
    require_room(out, force=False)
    config = StoredModel.open(base).config
    opened = Adapter.open(source, config)
    if out.name.endswith(".gguf"):
        write_adapter_gguf(out, opened, config)
    else:
        factors = {name: (pair.a.numbers(), pair.b.numbers()) for name, pair in opened.factors.items()}
        save_adapter(out, factors, alpha=opened.alpha, base=str(base))
    tell(f"{out}: {len(opened.factors)} matrices, rank {opened.rank}, scale {opened.scale:g}")
