"""`nncuda quantize`: a model's matrices in another format, as a GGUF file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from ..convert.quantize import quantize_model
from ..device import Context
from ..formats.block_formats import FORMATS
from ..models import StoredModel
from .arguments import device_options, force_option
from .outputs import require_room
from .progress import element_progress
from .terminal import bytes_text, count_text, tell

_FORMAT = click.Choice([name for name, entry in FORMATS.items() if entry.stores], case_sensitive=False)


@click.command()
@click.argument("model", metavar="IN", type=click.Path(exists=True, path_type=Path))
@click.argument("out", metavar="OUT.gguf", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--format", "format_name", type=_FORMAT, required=True, help="Format of the matrices.")
@click.option(
    "--output-format",
    type=_FORMAT,
    help="Format of the LM head.  [default: q6_k if --format has fewer bits, else that of --format]",
)
@force_option("OUT.gguf if there is one")
@device_options
def quantize(
    model: Path,
    out: Path,
    format_name: str,
    output_format: str | None,
    force: bool,
    device: str,
    threads: int | None,
) -> None:
    """Write the model IN as the GGUF file OUT.gguf, which llama.cpp can open, too.

    IN is a Hugging Face folder of a Llama or Mixtral, a checkpoint, a run (its last checkpoint), or a GGUF file in f32,
    f16 or bf16. Norms, biases and routers become f32. A matrix whose rows are not whole blocks of the format gets
    another format: q4_0 for q2_k and q3_k, q5_0 for q4_k, q5_1 for q5_k, q8_0 for q6_k, and f16 if the rows are not
    even a multiple of 32. Experts in mxfp4, as gpt-oss' are published, stay as they are.
    """
    require_room(out, force)
    opened = StoredModel.open(model)
    total = opened.num_parameters
    with Context(device, threads=threads) as ctx, element_progress("rounding", total) as progress:
        formats = quantize_model(opened, out, format_name, ctx, output_format=output_format, progress=progress)
    counts = ", ".join(f"{count} in {name}" for name, count in Counter(formats.values()).most_common())
    size = out.stat().st_size
    tell(
        f"{out}: {count_text(total)} parameters in {bytes_text(size)}, {8 * size / total:.2f} bits each; "
        f"tensors: {counts}"
    )
