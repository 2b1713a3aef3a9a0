"""Our engine against transformers, llama.cpp and candle, live; what the other side says is recorded.

`make interop` runs this where all three are. Where the two disagree it fails; when they agree it writes the other
side's results to `recorded/`, which test_llama.py checks without them.

NNCUDA_LARGE=FOLDER compares the model in that folder with transformers, too: `make interop-large` makes one of the
shape of TinyLlama.
"""

from __future__ import annotations

import json
import os
import subprocess
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
    TEXTS,
    folder,
    prompt,
)
from safetensors.numpy import save_file
from test_llama import RECORD, TOKENS, check_file, check_folder, digest, greedy

import nncuda
from nncuda.infer.language_model import LanguageModel

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("runs in `make interop`, which installs the other programs", allow_module_level=True)

import llama_cpp
import torch
import transformers
from llama_cpp_apart import LlamaCpp
from transformers_beside import logits_and_tokens

CANDLE = os.environ.get("NNCUDA_CANDLE", "")
LARGE = os.environ.get("NNCUDA_LARGE")


@pytest.mark.parametrize("name", FOLDERS)
def test_transformers(tmp_path: Path, name: str, record: dict[str, np.ndarray]) -> None:
    path = folder(tmp_path, name)
    logits, tokens = logits_and_tokens(path, prompt(FOLDERS[name]), GREEDY)
    found = {f"transformers.{name}.logits": logits[-8:].copy(), f"transformers.{name}.tokens": tokens}
    check_folder(path, name, found)
    record |= found


@pytest.mark.parametrize("name", FORMATS)
def test_gguf(ctx: nncuda.Context, files: dict[str, Path], name: str, record: dict[str, np.ndarray]) -> None:
    """Files of `nncuda quantize` in llama.cpp and candle."""
    ids = prompt(QUANTISED)
    other = LlamaCpp(str(files[name]), 1, 256, 1)
    found = {f"digest.{name}": digest(files[name]), f"llama.cpp.{name}.logits": other.logits(ids)}
    found[f"llama.cpp.{name}.tokens"] = other.greedy(ids, GREEDY_QUANTISED)
    if name in OF_CANDLE:
        command = [CANDLE, str(files[name]), *map(str, ids)]
        written = subprocess.run(command, check=True, capture_output=True).stdout
        found[f"candle.{name}.logits"] = np.frombuffer(written, np.float32).reshape(len(ids), -1)
    check_file(ctx, files[name], name, found)
    record |= found


@pytest.mark.parametrize("name", ["q8_0", "q4_0", "q6_k", "q4_k"])
def test_files_of_llama_cpp(files: dict[str, Path], tmp_path: Path, name: str) -> None:
    """llama.cpp's own quantiser on our f16 file: that file runs here as it does there."""
    import ctypes

    options = llama_cpp.llama_model_quantize_default_params()
    kinds = {"q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0, "q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
             "q6_k": llama_cpp.LLAMA_FTYPE_MOSTLY_Q6_K, "q4_k": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_S}  # fmt: skip
    options.ftype = kinds[name]
    path = tmp_path / f"{name}.gguf"
    assert llama_cpp.llama_model_quantize(str(files["f16"]).encode(), str(path).encode(), ctypes.byref(options)) == 0
    ids = prompt(QUANTISED)
    theirs = LlamaCpp(str(path), 1, 256, 1).logits(ids)
    with LanguageModel.load(path) as model:
        ours = model.logits(ids)
    assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.9998


def test_tokenizers(tmp_path: Path, files: dict[str, Path]) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(folder(tmp_path, "plain"))
    tokens = {"texts": list(TEXTS), "transformers": [theirs(text).input_ids for text in TEXTS]}
    model = llama_cpp.Llama(str(files["q8_0"]), vocab_only=True, verbose=False)
    tokens["llama.cpp"] = [model.tokenize(text.encode(), add_bos=True, special=False) for text in TEXTS]
    TOKENS.write_text(json.dumps(tokens, indent=1) + "\n")


def test_write_what_was_found(record: dict[str, np.ndarray]) -> None:
    """The last of the file: it keeps what the tests before it agreed on."""
    kinds = [name.split(".")[0] for name in record]
    if (kinds.count("transformers"), kinds.count("digest")) != (2 * len(FOLDERS), len(FORMATS)):
        pytest.skip("not all cases ran, or agreed")
    versions = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "llama-cpp-python": llama_cpp.__version__,
        "candle": "0.11.1",
    }
    save_file(record, RECORD, metadata=versions)


@pytest.mark.skipif(LARGE is None, reason="`make interop-large` names a model")
def test_large() -> None:
    assert LARGE is not None
    path, ids = Path(LARGE), list(range(300, 335))
    logits, tokens = logits_and_tokens(path, ids, GREEDY)
    with LanguageModel.load(path, cache_format="f32") as model:
        apart = np.abs(model.logits(ids) - logits).max()
        print(f"largest difference {apart:.1e} of logits with deviation {logits.std():.2f}")
        assert apart < 1e-3
        assert greedy(model, ids, GREEDY) == tokens.tolist()
