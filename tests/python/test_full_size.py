"""The configuration "6.9b" and long contexts, by their mechanisms at sizes that take seconds."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from small_models import TINY

import nncuda
from nncuda.bench import inference
from nncuda.bench.inference import bytes_a_token
from nncuda.cli import main
from nncuda.formats import write_safetensors_folder
from nncuda.infer import generate
from nncuda.models import MoEConfig, MoETransformer, ParameterLayout, transformer
from nncuda.models.mixtral import config_to_mixtral
from nncuda.train import load_model

FULL = MoEConfig.preset("6.9b")

#: Parameters by kind of layer: in all, and met by one token. Written out, so that nothing here computes them.
COUNTS = {
    "embedding": (24_576_000, 24_576_000),
    "attention": (38_338_560, 38_338_560),
    "routers": (368_640, 368_640),
    "norms": (46_848, 46_848),
    "head": (24_576_000, 24_576_000),
    "experts": (6_794_772_480, 1_698_693_120),
}


def kind_of(name: str) -> str:
    words = {"embed_tokens": "embedding", "self_attn": "attention", "gate": "routers", "experts": "experts"}
    found = [kind for part, kind in words.items() if part in name.split(".")]
    return found[0] if found else "head" if name.startswith("lm_head") else "norms"


def test_counts_of_the_full_configuration() -> None:
    """6.9 B parameters, 1.8 B active: what the plan prints is what lies in the arena."""
    assert FULL.parameters_by_kind() == COUNTS
    layout, laid_out = ParameterLayout(FULL), Counter()
    for spec in layout:
        laid_out[kind_of(spec.name)] += spec.size
    assert laid_out == {kind: total for kind, (total, _) in COUNTS.items()}
    assert layout.size == FULL.num_parameters == 6_882_678_528
    assert FULL.num_active_parameters == 1_786_599_168


def test_bytes_that_a_token_touches() -> None:
    """Of "6.9b" in bf16 3.5 GB: the rows of a small arena that decoding reads, counted one by one."""
    assert bytes_a_token(FULL, "bf16", 191) == 3_525_522_432
    read = 0
    for spec in ParameterLayout(TINY):
        share = TINY.experts_per_token / TINY.num_experts if kind_of(spec.name) == "experts" else 1
        read += round((spec.shape[-1] if kind_of(spec.name) == "embedding" else spec.size) * share)
    cache = TINY.num_layers * 2 * 11 * TINY.num_kv_heads * TINY.head_dim
    assert bytes_a_token(TINY, "f32", 10) == 4 * (read + cache)


def wide() -> MoEConfig:
    """A model whose weights outweigh all else that making it could take."""
    return dataclasses.replace(TINY, vocab_size=512, hidden_size=256, num_experts=8, ffn_size=512, num_layers=4)


def test_weights_are_made_in_place() -> None:
    """A model for inference in 16 bits never holds more than its weights: no f32 copy, no other one."""
    config = wide()
    with nncuda.Context("cpu", threads=2) as ctx:
        model = MoETransformer(ctx, config, training=False, precision="bf16")
        assert ctx.bytes_used == 2 * config.num_parameters
        assert ctx.bytes_peak <= 2 * config.num_parameters + (1 << 18)  # and a chunk of scratch
        assert model.parameters is model.weights and model.gradients is None


@pytest.mark.parametrize("precision", ["bf16", "f32"])
def test_a_checkpoint_is_loaded_tensor_by_tensor(tmp_path: Path, precision: str) -> None:
    config = wide()
    layout = ParameterLayout(config)
    rng = np.random.default_rng(0)
    write_safetensors_folder(tmp_path, {spec.name: rng.random(spec.shape, np.float32) for spec in layout})
    (tmp_path / "config.json").write_text(json.dumps(config_to_mixtral(config)))
    with nncuda.Context("cpu", threads=2) as ctx:
        model, _ = load_model(tmp_path, ctx, precision=precision)
        largest = max(4 * spec.size for spec in layout)
        assert ctx.bytes_peak <= model.weights.data.nbytes + largest + (1 << 18)
        assert 4 * largest < model.weights.data.nbytes


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_long_prompt_in_parts(monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    """Nearly the same logits as in one, the same where no group of tokens is small; and the memory of a part."""
    config = dataclasses.replace(TINY, context=1024, extended_context=4096, num_experts=2, experts_per_token=2)
    prompt = np.random.default_rng(1).integers(0, config.vocab_size, 1500)
    logits, peaks = [], []
    for part in (2000, 480, 1300):
        monkeypatch.setattr(transformer, "PREFILL_PART", part)
        with nncuda.Context("cpu", threads=2) as ctx:
            model = MoETransformer(ctx, config, training=False, precision=precision)
            cache = model.cache(2, 1501)
            ctx.reset_peak()
            before = ctx.bytes_used
            logits.append(model.prefill(prompt, cache, 1).numpy())
            peaks.append(ctx.bytes_peak - before - ctx.bytes_arena)
            assert cache.used == [0, 1500] and cache.starts.tolist() == [0, 1500]
            step = model.decode(ctx.tensor(np.zeros(2, np.int32)), cache).numpy()[1]
            logits[-1] = np.stack([logits[-1][0], step])
    assert logits[0].tobytes() == logits[1].tobytes() == logits[2].tobytes()
    assert peaks[1] < 0.5 * peaks[0]


def test_memory_is_flat_over_a_long_context() -> None:
    """Decoding takes nothing more, whatever was before it: only what the cache was made with."""
    config = dataclasses.replace(TINY, extended_context=4096)
    with nncuda.Context("cpu", threads=2) as ctx:
        model = MoETransformer(ctx, config, training=False)
        stream = generate(model, np.arange(10) % config.vocab_size, 3000)
        used = []
        for _, _ in zip(range(2999), stream, strict=False):
            used.append((ctx.bytes_used, ctx.bytes_peak))
        assert len(set(used[4:])) == 1


def test_bench_inference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "ROUNDS", 2)
    config = tmp_path / "long.toml"
    config.write_text('[model]\npreset = "small"\nnum_layers = 2\ncontext = 64\n')
    arguments = ["bench", "inference", "--config", str(config), "--prompt", "100", "--tokens", "9", "--json"]
    result = CliRunner().invoke(main, [*arguments, "--threads", "2"])
    assert result.exit_code == 0, result.output
    line = json.loads(result.output)
    model = MoEConfig.preset("small", num_layers=2, context=64)
    assert line["parameters"] == model.num_parameters and line["precision"] == "bf16"
    assert line["bytes_a_token"] == bytes_a_token(model, "bf16", 106)
    assert line["bytes_grown"] == 0 and line["bytes_peak"] < 2.5 * model.num_parameters
    assert line["share"] > 0 and line["read_bytes_per_second"] > 1e8
    assert line["bytes_per_second"] == pytest.approx(line["bytes_a_token"] * line["tokens_per_second"])
