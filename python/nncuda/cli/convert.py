"""`nncuda convert`: a BitNet in another form."""

from __future__ import annotations

from pathlib import Path

import click

from ..convert.model import FOLDERS, FORMS, convert_model, head_name
from ..device import Context
from ..formats.block_formats import FORMATS
from ..models import StoredModel
from .arguments import device_options, force_option
from .outputs import require_room
from .progress import element_progress
from .terminal import bytes_text, count_text, tell

_HEADS = [name for name, entry in FORMATS.items() if entry.stores and name != "f32"]


@click.command()
@click.argument("model", metavar="IN", type=click.Path(exists=True, path_type=Path))
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "--to", "form", type=click.Choice(FORMS, case_sensitive=False), required=True, help="Format of the matrices."
)
@click.option(
    "--head",
    type=click.Choice(_HEADS, case_sensitive=False),
    help="Format of the LM head, or of the embeddings that serve as one; the effect on logits is measured.  "
    "[default: unchanged]",
)
@click.option(
    "--dtype",
    type=click.Choice(("f32", "f16", "bf16"), case_sensitive=False),
    help="Dtype of all numbers in hf and hf-packed, including scales; f32 keeps those exact.  [default: that of the "
    "embeddings]",
)
@force_option("OUT if it is a file")
@device_options
def convert(
    model: Path,
    out: Path,
    form: str,
    head: str | None,
    dtype: str | None,
    force: bool,
    device: str,
    threads: int | None,
) -> None:
    """Convert the BitNet IN to another format and write it to OUT. Weights stay the same, and so do scales, except in
    hf and hf-packed, which round them to the dtype.

    \b
    hf         a Hugging Face folder: -1, 0 and 1 as numbers, and their scale
    hf-packed  the same with four weights to a byte
    packed     a folder of this library: the bytes that products read, which loads fastest
    i2_s       a GGUF file of bitnet.cpp
    tq1_0      a GGUF file of llama.cpp, five weights to a byte
    tq2_0      a GGUF file of llama.cpp, four weights to a byte

    IN is a Hugging Face folder with master weights or packed ones, a folder of this library, or a GGUF file.
    """
    if out.exists() and form in FOLDERS:
        raise click.UsageError(f"{out} exists; a folder is never replaced")
    require_room(out, force)
    if out.resolve() == model.resolve():
        raise click.UsageError("IN and OUT are the same; they must be two files")
    opened = StoredModel.open(model)
    total = opened.num_parameters
    with Context(device, threads=threads) as ctx, element_progress("writing", total) as progress:
        convert_model(opened, out, form, ctx, head=head, dtype=dtype, progress=progress)
    written = StoredModel.open(out)
    size = sum(path.stat().st_size for path in out.iterdir()) if out.is_dir() else out.stat().st_size
    matrices = sum(matrix.nbytes for matrix in written.matrices.values())
    stored = written.tensors[head_name(written.config)]
    tell(
        f"{out}: {count_text(total)} parameters in {bytes_text(size)}: ternary matrices {bytes_text(matrices)}, "
        f"LM head {bytes_text(stored.nbytes)} in {stored.format}"
    )
    before = opened.tensors[head_name(opened.config)].format
    if head is not None and stored.format != before:
        tell(_effect(model, out, before, device, threads))


def _effect(model: Path, out: Path, before: str, device: str, threads: int | None) -> str:
    from ..infer.language_model import LanguageModel  # the engine is loaded where it is needed
    from ..infer.logits_effect import logits_effect

    context = min(512, StoredModel.open(model).config.context)

    def load(path: Path) -> LanguageModel:
        return LanguageModel.load(path, device=device, threads=threads, context=context, max_batch=1)

    effect = logits_effect(lambda: load(model), lambda: load(out))
    return (
        f"compared with the head in {before}, over {effect.positions} positions: divergence {effect.divergence:.2g} "
        f"nats (at most {effect.largest_divergence:.2g}), the same most likely token in {100 * effect.same_first:.1f} "
        f"%, logits differ by at most {effect.difference:.2g} (their standard deviation is {effect.deviation:.2g})"
    )
