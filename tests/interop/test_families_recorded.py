"""Our engine against transformers for every family, from what `make interop` recorded of it.

`recorded/families.safetensors` holds transformers' logits and greedy tokens, in f32, for the models of
family_models.py, which are made anew here; its version stands in the metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from family_models import FAMILIES
from llama_cases import GREEDY, RECORDED, TOKENIZER, prompt
from safetensors import safe_open
from safetensors.numpy import load_file
from test_llama import greedy

from nncuda.bench.random_model import write_folder
from nncuda.infer.language_model import LanguageModel
from nncuda.models.families import FAMILIES as ALL

RECORD = RECORDED / "families.safetensors"


def folder(place: Path, name: str) -> Path:
    """The folder of a case of `FAMILIES`, written into `place`."""
    write_folder(place / name, FAMILIES[name], seed=1, dtype="f32", tokenizer_file=TOKENIZER.read_bytes())
    return place / name


def check_folder(path: Path, name: str, record: Mapping[str, np.ndarray]) -> None:
    """f32 on both sides: logits within 1e-3, and the same 200 tokens."""
    ids = prompt(FAMILIES[name])
    # transformers has LongRoPE's short factors for short sequences, we for short contexts.
    context = 256 if name == "phi3_long" else None
    with LanguageModel.load(path, threads=1, cache_format="f32", context=context) as model:
        apart = np.abs(model.logits(ids)[-8:] - record[f"{name}.logits"]).max()
        assert apart < 1e-3, f"logits differ by {apart:.1e}"
        assert greedy(model, ids, GREEDY) == record[f"{name}.tokens"].tolist()


@pytest.fixture(scope="module")
def record() -> Mapping[str, np.ndarray]:
    return load_file(RECORD)


@pytest.mark.parametrize("name", FAMILIES)
def test_transformers(tmp_path: Path, name: str, record: Mapping[str, np.ndarray]) -> None:
    check_folder(folder(tmp_path, name), name, record)


def test_every_family_is_compared() -> None:
    elsewhere = {"llama", "mixtral", "bitnet"}  # test_llama.py, test_bitnet.py
    assert {shape.family for shape in FAMILIES.values()} == set(ALL) - elsewhere


def test_versions_are_recorded() -> None:
    with safe_open(RECORD, "np") as file:
        assert set(file.metadata()) == {"torch", "transformers"}
