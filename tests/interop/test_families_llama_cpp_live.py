"""GGUF files of every family in llama.cpp: models as `nncuda quantize` writes them, and adapters of them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from family_models import FAMILIES, IN_NO_GGUF, pack_experts
from llama_cases import GREEDY_QUANTISED, TOKENIZER, prompt
from small_models import write_adapter
from test_llama import check_tokens, exact

import nncuda
from nncuda.bench.random_model import Shape, write_folder
from nncuda.convert.quantize import quantize_model
from nncuda.infer.engine import Engine
from nncuda.infer.language_model import LanguageModel
from nncuda.models.adapter import Adapter
from nncuda.models.adapter_gguf import write_adapter_gguf
from nncuda.models.stored import StoredModel

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("runs in `make interop`, which installs the other programs", allow_module_level=True)

from llama_cpp_apart import LlamaCpp

#: Options that no published model of a family has, and that llama.cpp does not read, with what it does instead.
OTHERWISE_THERE = {
    "qwen3_biases": "has no biases",
    "qwen3_moe_unnormed": "norms the experts' weights",
    "phi3_window": "has no windows",
    "gemma2_caps": "has no biases",
    "gemma3_by_kind": "has a window in five of six layers",
    "gpt_oss_unbiased": "wants biases",
}


def _own(name: str, **own: object) -> Shape:
    return replace(FAMILIES[name], own={**FAMILIES[name].own, **own})


CASES = {name: shape for name, shape in FAMILIES.items() if name not in OTHERWISE_THERE and name not in IN_NO_GGUF}
#: Those that are as the published ones are, as llama.cpp takes for granted: heads of keys of their own, scores by the
#: head's size, windows in five of six layers; and no YaRN, whose ends it puts at whole numbers.
CASES |= {
    "olmoe": replace(FAMILIES["olmoe"], kv_heads=4),
    "gemma2": _own("gemma2", query_pre_attn_scalar=32),
    "gemma3": replace(_own("gemma3", query_pre_attn_scalar=32, sliding_window_pattern=6), layers=7),
    "gpt_oss": replace(FAMILIES["gpt_oss"], rope_scaling=None),
}
PUBLISHED = "gpt_oss as it is published"


@pytest.mark.parametrize("name", [*CASES, PUBLISHED])
def test_models(ctx: nncuda.Context, tmp_path: Path, name: str) -> None:
    """Logits by a file in q8_0: as near to exact arithmetic as llama.cpp's; and tokens along its own."""
    shape, folder = CASES["gpt_oss" if name == PUBLISHED else name], tmp_path / "model"
    write_folder(folder, shape, seed=1, dtype="f32", tokenizer_file=TOKENIZER.read_bytes())
    if name == PUBLISHED:
        pack_experts(folder, tmp_path / "packed")
        folder = tmp_path / "packed"
    path, ids = tmp_path / "model.gguf", prompt(shape)
    quantize_model(StoredModel.open(folder), path, "q8_0", ctx)
    other = LlamaCpp(str(path), 1, 256, 1)
    theirs, tokens = other.logits(ids), other.greedy(ids, GREEDY_QUANTISED)
    truth = Engine(exact(ctx, StoredModel.open(path)), ctx, cache_format="f32", context=256).logits(ids)
    with LanguageModel.load(path, threads=1, context=256) as model:
        check(name, model.logits(ids), theirs, truth)
        check_tokens(model, ids, tokens, name)


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "granite", "mistral", "olmoe"])
def test_adapters(ctx: nncuda.Context, tmp_path: Path, name: str) -> None:
    """A file of `nncuda adapter` beside a model in q8_0, in llama.cpp and here; the sum of both in f32 is exact."""
    write_folder(tmp_path / "model", CASES[name], seed=1, dtype="f32", tokenizer_file=TOKENIZER.read_bytes())
    path, ids = tmp_path / "model.gguf", prompt(CASES[name])
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
    """Both as near to exact arithmetic: what either rounds, activations to 8 bits, is the same to within a few percent
    of it; what computes another model is farther."""
    error, their_error, apart = (rms(a - b) / truth.std() for a, b in ((ours, truth), (theirs, truth), (ours, theirs)))
    print(f"{name}: {apart:.4f} apart, {error:.4f} and {their_error:.4f} from exact arithmetic")
    assert max(error, their_error) < 1.25 * min(error, their_error) and max(error, their_error) < 0.05


def rms(numbers: np.ndarray) -> float:
    return float(np.sqrt(np.square(numbers).mean()))
