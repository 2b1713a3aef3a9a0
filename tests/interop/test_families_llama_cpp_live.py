"""GGUF files of every family in llama.cpp: models as `nncuda quantize` writes them, and adapters of them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from family_models import FAMILIES, IN_NO_GGUF
from llama_cases import GREEDY_QUANTISED, TOKENIZER, prompt
from small_models import write_adapter
from test_llama import check_tokens, exact

import nncuda
from nncuda.bench.random_model import write_folder
from nncuda.convert.quantize import quantize_model
from nncuda.infer.engine import Engine
from nncuda.infer.language_model import LanguageModel
from nncuda.models.adapter import Adapter
from nncuda.models.adapter_gguf import write_adapter_gguf
from nncuda.models.stored import StoredModel

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("runs in `make interop`, which installs the other programs", allow_module_level=True)

from llama_cpp_apart import LlamaCpp

#: What the same file is another model in, there; each with the reason.
OTHERWISE_THERE: dict[str, str] = {}


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in IN_NO_GGUF])
def test_models(ctx: nncuda.Context, tmp_path: Path, name: str) -> None:
    """Logits by a file in q8_0: as near to llama.cpp's as either is to exact arithmetic; and tokens along its own."""
    write_folder(tmp_path / "model", FAMILIES[name], seed=1, dtype="f32", tokenizer_file=TOKENIZER.read_bytes())
    path, ids = tmp_path / "model.gguf", prompt(FAMILIES[name])
    quantize_model(StoredModel.open(tmp_path / "model"), path, "q8_0", ctx)
    other = LlamaCpp(str(path), 1, 256, 1)
    theirs, tokens = other.logits(ids), other.start([ids])[:]
    for _ in range(GREEDY_QUANTISED - 1):
        other.step(1)
        tokens += other.tokens()
    truth = Engine(exact(ctx, StoredModel.open(path)), ctx, cache_format="f32", context=256).logits(ids)
    with LanguageModel.load(path, threads=1, context=256) as model:
        check(name, model.logits(ids), theirs, truth)
        check_tokens(model, ids, np.array(tokens, np.int32), name)


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "granite", "mistral", "olmoe"])
def test_adapters(ctx: nncuda.Context, tmp_path: Path, name: str) -> None:
    """A file of `nncuda adapter` beside a model in q8_0, in llama.cpp and here; the sum of both in f32 is exact."""
    write_folder(tmp_path / "model", FAMILIES[name], seed=1, dtype="f32", tokenizer_file=TOKENIZER.read_bytes())
    path, ids = tmp_path / "model.gguf", prompt(FAMILIES[name])
    stored = StoredModel.open(tmp_path / "model")
    quantize_model(stored, path, "q8_0", ctx)
    targets = tuple(f"self_attn.{part}_proj" for part in "qkvo")
    if not stored.config.num_experts:
        targets += tuple(f"mlp.{part}_proj" for part in ("gate", "up", "down"))
    write_adapter(tmp_path / "adapter", stored.config, targets)
    adapter = Adapter.open(tmp_path / "adapter", stored.config)
    write_adapter_gguf(tmp_path / "adapter.gguf", adapter, stored.config)
    other = LlamaCpp(str(path), 1, 256, 1)
    alone = other.logits(ids)
    other.adapt(str(tmp_path / "adapter.gguf"))
    theirs = other.logits(ids)
    numbers = exact(ctx, StoredModel.open(path))
    beside = Adapter.open(tmp_path / "adapter.gguf", numbers.config)
    truth = Engine(numbers, ctx, cache_format="f32", context=256, adapter=beside).logits(ids)
    with LanguageModel.load(path, threads=1, context=256, adapter=tmp_path / "adapter.gguf") as model:
        check(name, model.logits(ids), theirs, truth)
    assert rms(theirs - alone) > 0.2 * truth.std()


def check(name: str, ours: np.ndarray, theirs: np.ndarray, truth: np.ndarray) -> None:
    """As near to one another as both are to exact arithmetic, and that is near."""
    error, their_error, apart = (rms(a - b) / truth.std() for a, b in ((ours, truth), (theirs, truth), (ours, theirs)))
    print(f"{name}: {apart:.4f} apart, {error:.4f} and {their_error:.4f} from exact arithmetic")
    # What has nothing to do with one another adds up by its squares.
    assert apart <= 1.5 * np.hypot(error, their_error) and max(error, their_error) < 0.02


def rms(numbers: np.ndarray) -> float:
    return float(np.sqrt(np.square(numbers).mean()))
