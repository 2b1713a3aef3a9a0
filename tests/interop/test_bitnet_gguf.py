"""BitNets in GGUF files between this library, llama.cpp and the `gguf` package, from what `make interop` recorded.

llama.cpp rounds activations to 8 bits in blocks of 256, where the model is defined with one scale a token: a value near
the middle between two codes goes up in one and down in the other, and the two agree to that.

i2_s has no reader here but this library's (llama.cpp took its number from the types that it knows), so its files are
read by a decoder of this page, made from the published layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from bitnet_cases import (
    GGUF_FORMATS,
    GGUF_PROMPT,
    IN_GGUF,
    RECORDED,
    TOKENIZER,
    prompt,
    tensors_by_package,
)
from safetensors import safe_open
from safetensors.numpy import load_file
from test_llama import digest, logits_along

import nncuda
from nncuda.bench.random_model import write_folder
from nncuda.convert.model import convert_model
from nncuda.formats.gguf import GGUFFile
from nncuda.infer.language_model import LanguageModel
from nncuda.models.stored import StoredModel

RECORD = RECORDED / "bitnet_gguf.safetensors"
PACKAGE_FILES = {form: RECORDED / f"bitnet_by_gguf_package_{form}.gguf" for form in GGUF_FORMATS}

Record = Mapping[str, np.ndarray]


def check_logits(path: Path, theirs: np.ndarray, tokens: np.ndarray, what: str) -> None:
    """Of llama.cpp: logits [ids, vocabulary] behind the prompt's ids, and the tokens that follow greedily."""
    ids = prompt(IN_GGUF, GGUF_PROMPT)
    with LanguageModel.load(path, threads=1) as model:
        ours = model.logits(ids)
        along = logits_along(model, ids, tokens)
    alike = np.corrcoef(ours.ravel(), theirs.ravel())[0, 1]
    apart = np.sqrt(np.square(ours - theirs).mean())
    best = along.argmax(-1)
    ahead = along.max(-1) - np.take_along_axis(along, tokens[:, None].astype(np.int64), -1)[:, 0]
    print(
        f"{what}: correlation {alike:.6f}, root mean square of the difference {apart:.3f} of logits with deviation "
        f"{ours.std():.2f}; of {len(tokens)} greedy tokens {(best != tokens).sum()} are others here, ahead by at most "
        f"{ahead.max():.3f}"
    )
    assert alike > 0.999
    # Two logits that differ by so much each change places when they are closer than that; 5 standard deviations do not
    # occur in so few tokens.
    assert ahead.max() < 5 * np.sqrt(2) * apart


def check_package_file(path: Path, form: str) -> None:
    """A file of the `gguf` package: every matrix has the codes and the scale that went into it."""
    model = StoredModel.open(path)
    assert (model.config.activation, model.config.tie_embeddings, model.config.ternary) == ("silu", True, True)
    by_name = {**model.tensors, **model.matrices}
    given = tensors_by_package()
    assert len(given) == len(by_name) - 1  # the head is the table of embeddings
    for tensor in by_name.values():
        numbers = given[tensor.name]
        if tensor.name.startswith("blk") and "norm" not in tensor.name:
            assert tensor.form == form
            np.testing.assert_array_equal(tensor.codes(), np.sign(numbers))
            assert tensor.scale == np.abs(numbers).max()
        else:
            np.testing.assert_array_equal(tensor.f32(), numbers.astype(np.float16) if numbers.ndim > 1 else numbers)


@pytest.mark.parametrize("form", GGUF_FORMATS)
def test_ours_in_llama_cpp(files: dict[str, Path], form: str) -> None:
    record = load_file(RECORD)
    np.testing.assert_array_equal(digest(files[form]), record[f"{form}.digest"], "the file is not the one compared")
    check_logits(files[form], record[f"{form}.logits"], record[f"{form}.tokens"], form)


@pytest.mark.parametrize("form", GGUF_FORMATS)
def test_theirs_here(form: str) -> None:
    check_package_file(PACKAGE_FILES[form], form)


def i2_s_decoded(data: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, np.float32]:
    """Codes and scale: of each 128 elements, one after the other, byte b has element 32 g + b in bits 6 - 2 g and 7 -
    2 g, as code + 1; the scale, f32, follows the last byte, and with it the tensor takes 32 bytes more.
    (https://github.com/microsoft/BitNet, src/ggml-bitnet-mad.cpp, on x86)"""
    elements = shape[0] * shape[1]
    assert data.size == elements // 4 + 32
    codes = np.empty(elements, np.int8)
    for at in range(elements):
        block, inside = divmod(at, 128)
        group, byte = divmod(inside, 32)
        codes[at] = (int(data[32 * block + byte]) >> (6 - 2 * group) & 3) - 1
    return codes.reshape(shape), data[elements // 4 :][:4].copy().view("<f4")[0]


def test_i2_s_by_its_published_layout(ctx: nncuda.Context, tmp_path: Path) -> None:
    write_folder(tmp_path / "masters", IN_GGUF, seed=2, dtype="f32", tokenizer_file=TOKENIZER.read_bytes())
    model, path = StoredModel.open(tmp_path / "masters"), tmp_path / "i2_s.gguf"
    convert_model(model, path, "i2_s", ctx)
    file = GGUFFile(path)
    for ours, name in (("self_attn.k_proj", "attn_k"), ("mlp.down_proj", "ffn_down")):
        matrix = model.ternary(f"model.layers.0.{ours}.weight")
        codes, scale = i2_s_decoded(file.mapped(f"blk.0.{name}.weight"), matrix.shape)
        np.testing.assert_array_equal(codes, matrix.codes())
        assert scale == matrix.scale


def test_what_is_recorded() -> None:
    with safe_open(RECORD, "np") as file:
        assert set(file.metadata()) == {"llama-cpp-python", "gguf"}
        assert set(file.keys()) == {
            f"{form}.{name}" for form in GGUF_FORMATS for name in ("digest", "logits", "tokens")
        }
