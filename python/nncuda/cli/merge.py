"""`nncuda merge`: a model and an adapter as one model."""

from __future__ import annotations

from pathlib import Path

import click

from ..convert.merge import merge_adapter
from ..device import Context
from ..models import StoredModel
from ..models.adapter import Adapter
from .arguments import device_options
from .outputs import require_room
from .progress import element_progress
from .terminal import count_text, tell


@click.command()
@click.argument("base", metavar="BASE", type=click.Path(exists=True, path_type=Path))
@click.argument("adapter", metavar="ADAPTER", type=click.Path(exists=True, path_type=Path))
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@device_options
def merge(base: Path, adapter: Path, out: Path, device: str, threads: int | None) -> None:
    """Add the adapter ADAPTER to the model BASE, and write the sum to the folder OUT, which must not exist.

    BASE is a Hugging Face folder, or a checkpoint, in f32, f16 or bf16. ADAPTER is a LoRA of it: a folder of PEFT
    (adapter_config.json and adapter_model.safetensors), a GGUF file, a run or one of its checkpoints. Each sum is made
    in f32 and rounded once to the dtype of its matrix; everything else stays as it is.
    """
    if out.exists():
        raise click.UsageError(f"{out} exists; a folder is never replaced")
    require_room(out, force=False)
    opened = StoredModel.open(base)
    added = Adapter.open(adapter, opened.config)
    with Context(device, threads=threads) as ctx, element_progress("adding", opened.num_parameters) as progress:
        merge_adapter(opened, added, out, ctx, progress=progress)
    tell(
        f"{out}: {count_text(opened.num_parameters)} parameters; {len(added.factors)} matrices with "
        f"{added.scale:g} * B * A of rank {added.rank}"
    )
