"""Our engine against transformers, llama.cpp and candle, from what `make interop` recorded of them.

`recorded/llama.safetensors` holds logits and greedy tokens of the other programs for the models of llama_cases.py,
which are made anew here, and a digest of each file that was compared; the versions stand in its metadata.

How close two programs can come with weights in blocks: each rounds activations to 8 bits before a product, and a value
near the middle between two steps goes up in one and down in the other. What is compared besides is therefore each one's
distance from exact arithmetic: the same stored weights as f32, multiplied in f32.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from llama_cases import (
    FOLDERS,
    FORMATS,
    GREEDY,
    GREEDY_QUANTISED,
    OF_CANDLE,
    QUANTISED,
    RECORDED,
    TEXTS,
    folder,
    prompt,
)
from safetensors import safe_open
from safetensors.numpy import load_file

import nncuda
from nncuda import kernels
from nncuda.formats.block_formats import StoredTensor
from nncuda.infer.engine import Engine
from nncuda.infer.language_model import LanguageModel
from nncuda.models.stored import StoredModel, StoredTensors

RECORD = RECORDED / "llama.safetensors"
TOKENS = RECORDED / "llama_tokens.json"

Record = Mapping[str, np.ndarray]


def greedy(model: LanguageModel, ids: list[int], count: int) -> list[int]:
    return [event.token for event in model.generate([ids], count, end_ids=())]


def logits_along(model: LanguageModel, ids: list[int], tokens: np.ndarray) -> np.ndarray:
    """Logits that each of the tokens was chosen from, when all before it are as given."""
    return model.logits([*ids, *tokens.tolist()[:-1]])[len(ids) - 1 :]


def exact(ctx: nncuda.Context, stored: StoredModel) -> StoredModel:
    """The numbers that the weights stand for, in f32."""
    parts = {}
    for name, tensor in stored.tensors.items():
        rows = kernels.dequantize(ctx.tensor(tensor.rows()), format=tensor.code, k=tensor.columns, dtype="f32").numpy()
        parts[name] = [StoredTensor(name, "f32", tensor.shape, np.array(rows).view(np.uint8).reshape(-1))]
    return StoredModel(stored.path, stored.config, StoredTensors(parts, stored.config.shapes()))


def digest(path: Path) -> np.ndarray:
    return np.frombuffer(hashlib.sha256(path.read_bytes()).digest(), np.uint8)


def check_folder(path: Path, name: str, record: Record) -> None:
    """f32 on both sides: logits within 1e-3, and the same 200 tokens."""
    ids = prompt(FOLDERS[name])
    with LanguageModel.load(path, threads=1, cache_format="f32") as model:
        apart = np.abs(model.logits(ids)[-8:] - record[f"transformers.{name}.logits"]).max()
        assert apart < 1e-3, f"logits differ by {apart:.1e}"
        assert greedy(model, ids, GREEDY) == record[f"transformers.{name}.tokens"].tolist()
    # Random weights that serve both ends make a token its own likeliest successor; elsewhere that would compare little.
    assert FOLDERS[name].tied or len(set(record[f"transformers.{name}.tokens"].tolist())) > 20


def check_file(ctx: nncuda.Context, path: Path, name: str, record: Record) -> None:
    """The same file in llama.cpp and candle: how far apart, beside how far each is from exact arithmetic."""
    np.testing.assert_array_equal(digest(path), record[f"digest.{name}"], "the file is not the one that was compared")
    ids = prompt(QUANTISED)
    stored = StoredModel.open(path)
    truth = Engine(exact(ctx, stored), ctx, cache_format="f32").logits(ids)
    with LanguageModel.load(path, threads=1) as model:
        ours = model.logits(ids)
        check_tokens(model, ids, record[f"llama.cpp.{name}.tokens"], name)
    error = np.sqrt(np.square(ours - truth).mean())
    for program in ("llama.cpp", "candle"):
        if f"{program}.{name}.logits" not in record:
            assert program == "candle" and name not in OF_CANDLE
            continue
        theirs = record[f"{program}.{name}.logits"]
        their_error = np.sqrt(np.square(theirs - truth).mean())
        alike = np.corrcoef(ours.ravel(), theirs.ravel())[0, 1]
        print(
            f"{name}, {program}: correlation {alike:.7f}, largest difference {np.abs(ours - theirs).max():.4f}, "
            f"distance from exact arithmetic {error:.4f} here, {their_error:.4f} there"
        )
        if name == "f16":
            assert alike > 0.99999 and np.abs(ours - theirs).max() < 0.01
            continue
        assert np.corrcoef(ours.ravel(), truth.ravel())[0, 1] > 0.9999
        # Formats with blocks of 256 make llama.cpp round activations in such blocks, too, coarser than ours of 32.
        assert alike > 0.9999 or (error < their_error and alike > 0.9998)


def check_tokens(model: LanguageModel, ids: list[int], tokens: np.ndarray, name: str) -> None:
    """Along llama.cpp's continuation ours would take the same token each time, or one that is as good as tied with it:
    within twice the largest difference that rounding activations to 8 bits makes here."""
    along = logits_along(model, ids, tokens)
    best = along.argmax(-1)
    spread = float(along.std())
    for at in np.flatnonzero(best != tokens):
        margin = along[at, best[at]] - along[at, tokens[at]]
        print(f"{name}: token {at} is {best[at]} here and {tokens[at]} there, ahead by {margin:.4f} of {spread:.2f}")
        # 127 steps to a block's largest magnitude, about 2.2 standard deviations among 32 values, make an error of
        # 0.5 % in each product: over the layers and both programs about 1 % of the logits' deviation. Two logits
        # differ by sqrt(2) of that, and 5 standard deviations do not occur in so few tokens.
        assert margin < 0.01 * spread * 5 * 2**0.5
    assert (best == tokens).mean() > 0.8


@pytest.fixture(scope="module")
def record() -> Record:
    return load_file(RECORD)


@pytest.mark.parametrize("name", FOLDERS)
def test_transformers(tmp_path: Path, name: str, record: Record) -> None:
    check_folder(folder(tmp_path, name), name, record)


@pytest.mark.parametrize("name", FORMATS)
def test_gguf(ctx: nncuda.Context, files: dict[str, Path], name: str, record: Record) -> None:
    check_file(ctx, files[name], name, record)


def test_tokenizers(tmp_path: Path, files: dict[str, Path]) -> None:
    """The folder's tokenizer as transformers reads it, that of the GGUF file as llama.cpp does."""
    tokens = json.loads(TOKENS.read_text())
    assert tokens["texts"] == list(TEXTS)
    for source, program in ((folder(tmp_path, "plain"), "transformers"), (files["q8_0"], "llama.cpp")):
        tokenizer = StoredModel.open(source).tokenizer
        for text, theirs in zip(TEXTS, tokens[program], strict=True):
            # transformers puts no space in front of a text that begins with one, as SentencePiece itself and llama.cpp
            # do, and takes what is spelled like a control for one; the others are asked not to.
            if program == "transformers" and text.startswith((" ", "<unk>")):
                continue
            assert list(tokenizer.encode(text, begin=True)) == theirs, f"{text!r} against {program}"


def test_versions_are_recorded() -> None:
    with safe_open(RECORD, "np") as file:
        versions = file.metadata()
    assert set(versions) == {"torch", "transformers", "llama-cpp-python", "candle"}
    assert GREEDY_QUANTISED == 50
