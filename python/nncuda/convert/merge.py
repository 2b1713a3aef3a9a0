"""Writing a model with an adapter added to its matrices: W + scale * B * A, in f32, rounded once.

Tensor by tensor, each under its name in the model's files, so that the folder is what the base was, but for the
matrices that are adapted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from .. import kernels
from ..device import Context, Tensor
from ..formats.atomic import write_folder
from ..formats.block_formats import StoredTensor
from ..formats.errors import FormatError
from ..formats.mapped import release
from ..formats.safetensors import SafetensorsLayout, read_safetensors_folder
from ..models.adapter import Adapter
from ..models.stored import StoredModel
from .model import copy_tokenizer


def merge_adapter(
    model: StoredModel,
    adapter: Adapter,
    path: str | os.PathLike[str],
    ctx: Context,
    *,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Writes `model`, a folder in f32, f16 or bf16, with `adapter` added to it as a Hugging Face folder that must not
    exist, in one step; each matrix keeps its dtype. `progress` is called with the number of elements done.

    FormatError when the model is no such folder, has ternary weights, or has the matrices that are adapted in a form of
    its own, or when a sum is too large for its dtype.
    """
    if model.config.ternary:
        raise FormatError(
            model.path,
            "has ternary weights, and with an adapter added they are not ternary; run the model with the adapter "
            "beside it, as its --adapter",
        )
    if model.file is not None:
        raise FormatError(model.path, "is a GGUF file; an adapter is merged into a Hugging Face folder")
    files = read_safetensors_folder(model.path)
    for name in adapter.factors:
        if name not in files:
            raise FormatError(model.path, f"has {name} in one tensor with others; adapters of it are not merged")
    layout = SafetensorsLayout({name: (files.dtype(name), files.shape(name)) for name in files}, {"format": "pt"})

    def sums() -> Iterator[tuple[str, int, np.ndarray]]:
        for name in layout:  # each made when its turn comes
            stored = files.stored(name)
            yield name, 0, _merged(model.path, stored, adapter, name, ctx)
            release(stored.data)
            if progress is not None:
                progress(stored.elements)

    with write_folder(path) as folder:
        shutil.copyfile(model.path / "config.json", folder / "config.json")
        copy_tokenizer(model.path, folder)
        file = folder / "model.safetensors"
        layout.create(file)
        layout.write(file, sums())


def _merged(path: Path, stored: StoredTensor, adapter: Adapter, name: str, ctx: Context) -> np.ndarray:
    """The bytes of a tensor, with what the adapter adds to it."""
    pair = adapter.factors.get(name)
    if pair is None:
        return stored.data
    total = _wide(ctx, stored)
    kernels.gemm_beta(_wide(ctx, pair.b), _wide(ctx, pair.a), total, alpha=adapter.scale, beta=1.0)
    numbers = (
        kernels.cast(total, dtype_y=np.dtype(stored.numbers().dtype)).numpy()
        if stored.format != "f32"
        else total.numpy()
    )
    if not np.isfinite(numbers.astype(np.float32)).all():
        raise FormatError(path, f"tensor {name} and what the adapter adds give values that {stored.format} cannot hold")
    return np.ascontiguousarray(numbers).view(np.uint8).reshape(-1)


def _wide(ctx: Context, stored: StoredTensor) -> Tensor:
    """The numbers of a matrix in f32 on the device."""
    return ctx.tensor(np.ascontiguousarray(stored.f32()))
