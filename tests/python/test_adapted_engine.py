"""Adapters on the engine: against the reference of the merged weights, and with the same bits in any company."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from family_models import FAMILIES
from safetensors.numpy import load_file

from nncuda import Context
from nncuda.bench.random_model import SHAPES, Shape, write_folder
from nncuda.cli import main
from nncuda.convert.quantize import quantize_model
from nncuda.infer import LanguageModel
from nncuda.infer.engine import Engine
from nncuda.models.adapter import Adapter, save_adapter
from nncuda.models.llama import LlamaConfig
from nncuda.models.stored import StoredModel
from nncuda.reference import llama as reference

IDS = np.random.default_rng(3).integers(0, 600, 24).astype(np.int32)
RANK, ALPHA = 3, 5.0
ALL = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
       "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")  # fmt: skip
#: Models, and which of their matrices are adapted: all, some of those of a fused call, attention beside experts.
CASES: dict[str, tuple[Shape, tuple[str, ...]]] = {
    "llama": (SHAPES["tiny"], ALL),
    "llama_v_down": (SHAPES["tiny"], ("self_attn.v_proj", "mlp.down_proj")),
    "llama_gate": (SHAPES["tiny"], ("mlp.gate_proj",)),
    "qwen2": (FAMILIES["qwen2"], ALL),
    "qwen3": (FAMILIES["qwen3"], ALL),
    "granite": (FAMILIES["granite"], ALL),
    "olmoe": (FAMILIES["olmoe"], ALL[:4]),
    "phi3_partial": (FAMILIES["phi3_partial"], ALL),
}


@pytest.fixture(scope="module")
def ctx() -> Iterator[Context]:
    with Context(threads=1) as made:
        yield made


def write_adapter(path: Path, config: LlamaConfig, targets: tuple[str, ...], seed: int = 0) -> None:
    """Factors as large as the weights that they are beside."""
    random, made = np.random.default_rng(seed), {}
    for name, shape in config.shapes().items():
        if name.startswith("model.layers.") and name.removesuffix(".weight").split(".", 3)[-1] in targets:
            rows, columns = shape
            a = random.standard_normal((RANK, columns)).astype(np.float32) / np.float32(columns**0.5)
            b = random.standard_normal((rows, RANK)).astype(np.float32) * np.float32(0.3)
            made[name] = a, b
    save_adapter(path, made, alpha=ALPHA)


def made(place: Path, case: str) -> tuple[StoredModel, Adapter]:
    shape, targets = CASES[case]
    write_folder(place / "base", shape, seed=2, dtype="f32")
    model = StoredModel.open(place / "base")
    write_adapter(place / "adapter", model.config, targets)
    return model, Adapter.open(place / "adapter", model.config)


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_merged_weights(case: str, tmp_path: Path, ctx: Context) -> None:
    model, adapter = made(tmp_path, case)
    params = {name: tensor.f32().astype(np.float64) for name, tensor in model.tensors.items()}
    plain = reference.forward(params, model.config, IDS)
    for name, (a, b) in adapter.factors.items():
        params[name] = params[name] + ALPHA / RANK * (b.f32().astype(np.float64) @ a.f32().astype(np.float64))
    wanted = reference.forward(params, model.config, IDS)
    found = Engine(model, ctx, cache_format="f32", context=64, adapter=adapter).logits(IDS)
    assert np.abs(found - wanted).max() < 1e-4  # the bound that test_families has of these models without an adapter
    assert np.abs(plain - wanted).max() > 0.05


@pytest.mark.parametrize("case", ["llama", "granite"])
def test_rows_of_a_gguf_file_are_in_another_order(case: str, tmp_path: Path, ctx: Context) -> None:
    model, adapter = made(tmp_path, case)
    quantize_model(model, tmp_path / "base.gguf", "f32", ctx)
    other = StoredModel.open(tmp_path / "base.gguf")
    assert other.config.rope.layout == "interleaved"
    wanted = Engine(model, ctx, cache_format="f32", context=64, adapter=adapter).logits(IDS)
    adapted = Adapter.open(tmp_path / "adapter", other.config)
    found = Engine(other, ctx, cache_format="f32", context=64, adapter=adapted).logits(IDS)
    assert np.abs(found - wanted).max() < 1e-4


@pytest.mark.parametrize("format_name", ["q8_0", "q4_0", "bf16"])
def test_a_sequence_has_its_bits_in_any_company(format_name: str, tmp_path: Path, ctx: Context) -> None:
    """Whatever pieces its prompt is cut into, and whoever is decoded beside it, over weights as they are stored."""
    model, _ = made(tmp_path, "llama")
    quantize_model(model, tmp_path / "base.gguf", format_name, ctx)
    stored = StoredModel.open(tmp_path / "base.gguf")
    adapter = Adapter.open(tmp_path / "adapter", stored.config)
    whole = Engine(stored, ctx, context=64, adapter=adapter).logits(IDS)
    pieces = Engine(stored, ctx, context=64, adapter=adapter, piece=5).logits(IDS)
    np.testing.assert_array_equal(whole, pieces)
    with LanguageModel(stored, ctx, context=64, adapter=adapter) as engine:
        prompts = [IDS[:7].tolist(), IDS[3:20].tolist(), IDS[:1].tolist()]

        def texts(some: list[list[int]]) -> list[list[tuple[int, float]]]:
            drawn: list[list[tuple[int, float]]] = [[] for _ in some]
            for event in engine.generate(some, 12, end_ids=(), logprobs=0):
                if event.token >= 0 and event.logprobs is not None:
                    drawn[event.prompt].append((event.token, event.logprobs.logprob))
            return drawn

        together = texts(prompts)
        assert all(len(drawn) == 12 for drawn in together)
        assert together == [texts([prompt])[0] for prompt in prompts]


def test_ternary_weights_have_no_adapter(tmp_path: Path, ctx: Context) -> None:
    shape = SHAPES["bitnet-small"]
    write_folder(tmp_path / "base", Shape(**{**vars(shape), "layers": 1, "vocabulary": 700}), seed=2, dtype="bf16")
    model = StoredModel.open(tmp_path / "base")
    write_adapter(tmp_path / "adapter", model.config, ALL[:1])
    with pytest.raises(ValueError, match="the model has ternary weights"):
        Engine(model, ctx, adapter=Adapter.open(tmp_path / "adapter", model.config))


def test_the_command(tmp_path: Path) -> None:
    model, _ = made(tmp_path, "llama")
    base, adapter = str(model.path), str(tmp_path / "adapter")
    ids = " ".join(map(str, IDS[:6]))

    def run(*more: str) -> str:
        done = CliRunner().invoke(main, ["generate", *more, ids, "--ids", "--greedy", "--max-tokens", "8"])
        assert done.exit_code == 0, done.output
        return done.output

    with LanguageModel.load(base, context=64, adapter=adapter) as loaded:
        wanted = [event.token for event in loaded.generate([IDS[:6].tolist()], 8, end_ids=()) if event.token >= 0]
    assert run(base, "--adapter", adapter).split() == list(map(str, wanted))
    assert run(base).split() != list(map(str, wanted))
    merged = CliRunner().invoke(main, ["merge", base, adapter, str(tmp_path / "merged")])
    assert merged.exit_code == 0, merged.output
    assert set(load_file(tmp_path / "merged" / "model.safetensors")) == set(model.tensors)
    assert run(str(tmp_path / "merged")).split() == list(map(str, wanted))
    both = CliRunner().invoke(main, ["generate", base, ids, "--ids", "--contiguous", "--adapter", adapter])
    assert both.exit_code == 2 and "--adapter" in both.output
