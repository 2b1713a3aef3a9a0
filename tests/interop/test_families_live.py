"""Our engine against transformers for every family, live; what the other side says is recorded.

`make interop` runs this where transformers is. Where the two disagree it fails; when they agree it writes the other
side's results to `recorded/`, which test_families_recorded.py checks without it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_models import FAMILIES, pack_experts
from llama_cases import GREEDY, prompt
from safetensors.numpy import save_file
from test_families_recorded import RECORD, check_folder, folder
from test_llama import check_tokens, exact

import nncuda
from nncuda.infer.engine import Engine
from nncuda.infer.language_model import LanguageModel
from nncuda.models.stored import StoredModel

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("runs in `make interop`, which installs the other programs", allow_module_level=True)

import torch
import transformers
from transformers_beside import logits_and_tokens


@pytest.fixture(scope="module")
def record() -> Iterator[dict[str, np.ndarray]]:
    yield {}


def theirs(path: Path, name: str, **options: Any) -> dict[str, np.ndarray]:
    """What transformers says of the model in a folder, by the name of its case."""
    logits, tokens = logits_and_tokens(path, prompt(FAMILIES[name]), GREEDY, **options)
    return {f"{name}.logits": logits[-8:].copy(), f"{name}.tokens": tokens}


@pytest.mark.parametrize("name", FAMILIES)
def test_transformers(tmp_path: Path, name: str, record: dict[str, np.ndarray]) -> None:
    path = folder(tmp_path, name)
    found = theirs(path, name)
    check_folder(path, name, found)
    record |= found


def test_published_experts(ctx: nncuda.Context, tmp_path: Path) -> None:
    """gpt-oss with its experts in 4 bits, of which transformers makes bf16 without a loss where it has no kernels: the
    logits of the numbers that we read, and along its tokens no other choice than rounding activations explains."""
    packed = tmp_path / "mxfp4"
    pack_experts(folder(tmp_path, "gpt_oss"), packed)
    found = theirs(packed, "gpt_oss", quantization_config=transformers.Mxfp4Config(dequantize=True))
    stored, ids = StoredModel.open(packed), prompt(FAMILIES["gpt_oss"])
    logits = Engine(exact(ctx, stored), ctx, cache_format="f32").logits(ids)[-8:]
    assert np.abs(logits - found["gpt_oss.logits"]).max() < 1e-3
    with LanguageModel.load(packed, threads=1, cache_format="f32") as model:
        check_tokens(model, ids, found["gpt_oss.tokens"], "gpt_oss")


def test_write_what_was_found(record: dict[str, np.ndarray]) -> None:
    """The last of the file: it keeps what the tests before it agreed on."""
    if len(record) != 2 * len(FAMILIES):
        pytest.skip("not all cases ran, or agreed")
    save_file(record, RECORD, metadata={"torch": torch.__version__, "transformers": transformers.__version__})
