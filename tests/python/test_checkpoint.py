"""Checkpoints: the Mixtral layout, other people's folders, and everything that may be wrong with one."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from small_models import TINY, random_batch

import nncuda
from nncuda.formats import FormatError, SafetensorsFile, write_safetensors
from nncuda.models import (
    PRESETS,
    MoEConfig,
    MoETransformer,
    ParameterLayout,
    config_from_mixtral,
    config_to_mixtral,
)
from nncuda.tokenizer import Tokenizer, train_tokenizer
from nncuda.train import Checkpoint, TrainConfig, Trainer, load_model
from nncuda.train.checkpoint import TrainingState, save_checkpoint

OPTIONS = TrainConfig(steps=4, batch_size=2, sequence_length=8, warmup_steps=1)


@pytest.fixture
def saved(tmp_path: Path, ctx: nncuda.Context) -> Path:
    trainer = Trainer(MoETransformer(ctx, TINY, seed=2), OPTIONS)
    trainer.train_step(*random_batch(TINY, 2, 8))
    tokenizer = Tokenizer(train_tokenizer(["a b c " * 50], vocab_size=266, model_type="bpe"))
    return save_checkpoint(tmp_path, trainer, TrainingState(1, 2, 10, 0.5, OPTIONS, 1.25), tokenizer)


def test_presets() -> None:
    full = MoEConfig.preset("6.9b")
    assert full == MoEConfig() and round(full.num_parameters / 1e9, 1) == 6.9
    assert round(full.num_active_parameters / 1e9, 1) == 1.8
    assert round(MoEConfig.preset("small").num_parameters / 1e6, 2) == 15.35
    for name in PRESETS:
        config = MoEConfig.preset(name)
        assert ParameterLayout(config).size == config.num_parameters
    with pytest.raises(ValueError, match="no preset 'large'"):
        MoEConfig.preset("large")


def test_layout_is_one_arena_with_fused_views(ctx: nncuda.Context) -> None:
    layout = ParameterLayout(TINY)
    end = 0
    for spec in layout:
        assert spec.offset == end
        end += spec.size
        assert (len(spec.shape) == 2) == (spec.offset < layout.num_decayed)
    assert end == layout.size
    model = MoETransformer(ctx, TINY, seed=0)
    arrays = model.parameters.arrays()
    block = model.blocks[1]
    prefix = "model.layers.1"
    qkv = [arrays[f"{prefix}.self_attn.{name}_proj.weight"] for name in "qkv"]
    np.testing.assert_array_equal(block.attention.qkv.weight.numpy(), np.concatenate(qkv))
    experts = [
        {part: arrays[f"{prefix}.block_sparse_moe.experts.{expert}.{part}.weight"] for part in ("w1", "w2", "w3")}
        for expert in range(TINY.num_experts)
    ]
    np.testing.assert_array_equal(block.moe.w13.numpy(), [np.concatenate([e["w1"], e["w3"]]) for e in experts])
    np.testing.assert_array_equal(block.moe.w2.numpy(), [e["w2"] for e in experts])


def test_capacity() -> None:
    assert TINY.capacity(100) == 0
    # ceil(1.25 * 10 * 2 / 4) = ceil(6.25)
    assert dataclasses.replace(TINY, capacity_factor=1.25).capacity(10) == 7


def test_round_trip(saved: Path, ctx: nncuda.Context) -> None:
    checkpoint = Checkpoint(saved)
    assert checkpoint.config == TINY
    assert checkpoint.training == TrainingState(1, 2, 10, 0.5, OPTIONS, 1.25)
    assert checkpoint.tokenizer is not None and checkpoint.tokenizer.vocab_size == 266
    original = Trainer(MoETransformer(ctx, TINY, seed=2), OPTIONS)
    original.train_step(*random_batch(TINY, 2, 8))
    restored = checkpoint.trainer(ctx)
    assert restored.step == 1
    for name in ("first_moments", "second_moments"):
        found, expected = (getattr(trainer, name).data.numpy() for trainer in (restored, original))
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(restored.model.parameters.data.numpy(), original.model.parameters.data.numpy())


def test_names_are_those_of_mixtral(saved: Path) -> None:
    tensors = SafetensorsFile(saved / "model.safetensors")
    assert tensors.metadata == {"format": "pt"}
    assert tensors["model.layers.1.block_sparse_moe.experts.3.w2.weight"].shape == (24, 20)
    assert tensors["model.layers.0.self_attn.k_proj.weight"].shape == (16, 24)
    assert {name.split(".")[-1] for name in tensors} == {"weight"}
    config = json.loads((saved / "config.json").read_text())
    assert config["architectures"] == ["MixtralForCausalLM"] and config["model_type"] == "mixtral"
    assert config["num_local_experts"] == 4 and config["num_experts_per_tok"] == 2 and config["head_dim"] == 8


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"capacity_factor": 1.5, "norm_topk_prob": False, "ntk_alpha": 2.0},
        {"rope_base": 500000.0, "num_kv_heads": 1},
    ],
)
def test_config_round_trip(changes: dict[str, object]) -> None:
    config = dataclasses.replace(TINY, **changes)
    assert config_from_mixtral(json.loads(json.dumps(config_to_mixtral(config)))) == config


def foreign_config(**changes: object) -> dict[str, object]:
    """As transformers writes it: no key of ours."""
    values = config_to_mixtral(TINY)
    del values["nncuda"]
    return {**values, **changes}


def test_foreign_configs() -> None:
    plain = config_from_mixtral(foreign_config())
    assert plain == dataclasses.replace(TINY, extended_context=32, ntk_alpha=1.0)
    derived = config_from_mixtral(foreign_config(head_dim=None, hidden_size=32))
    assert derived.head_dim == 8
    new_style = foreign_config(rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    del new_style["rope_theta"]
    assert config_from_mixtral(new_style).rope_base == 5e5


def test_sixteen_bit_and_fused_weights(tmp_path: Path, saved: Path, ctx: nncuda.Context) -> None:
    """The layout that transformers 5 holds in memory, in bfloat16 and float16."""
    original = SafetensorsFile(saved / "model.safetensors")
    for dtype in (ml_dtypes.bfloat16, np.float16, np.float32):
        folder = tmp_path / np.dtype(dtype).name
        folder.mkdir()
        shutil.copy(saved / "config.json", folder)
        tensors = {}
        for name, array in original.items():
            if ".experts." not in name:
                tensors[name.replace(".block_sparse_moe.gate", ".mlp.gate")] = array.astype(dtype)
        for layer in range(TINY.num_layers):
            prefix = f"model.layers.{layer}"

            def expert(number: int, part: str, prefix: str = prefix, dtype: type = dtype) -> np.ndarray:
                return original[f"{prefix}.block_sparse_moe.experts.{number}.{part}.weight"].astype(dtype)

            numbers = range(TINY.num_experts)
            gate_up = [np.concatenate([expert(number, "w1"), expert(number, "w3")]) for number in numbers]
            tensors[f"{prefix}.mlp.experts.gate_up_proj"] = np.stack(gate_up)
            tensors[f"{prefix}.mlp.experts.down_proj"] = np.stack([expert(number, "w2") for number in numbers])
        write_safetensors(folder / "model.safetensors", tensors)
        model, tokenizer = load_model(folder, ctx)
        assert tokenizer is None and model.gradients is None
        for name, array in model.parameters.arrays().items():
            np.testing.assert_array_equal(array, original[name].astype(dtype).astype(np.float32))
        with pytest.raises(FormatError, match=r"no training\.json"):
            Checkpoint(folder).trainer(ctx)


def test_corrupt_checkpoints(saved: Path, ctx: nncuda.Context) -> None:
    """Each file, missing or cut off: one error that names it. Nothing in the folder changes."""

    def opens() -> None:
        Checkpoint(saved).trainer(ctx)

    opens()
    for name in ("config.json", "model.safetensors", "optimizer.safetensors", "training.json"):
        content = (saved / name).read_bytes()
        for broken in (None, b"", content[: len(content) // 2], content[:-1], b"\0" * len(content)):
            (saved / name).unlink()
            if broken is not None:
                (saved / name).write_bytes(broken)
            before = {path: path.read_bytes() for path in saved.iterdir()}
            if name.endswith(".json") and broken == content[:-1]:
                opens()  # only the line end behind the last brace is gone
            else:
                with pytest.raises(FormatError) as caught:
                    opens()
                assert name in str(caught.value)
            assert {path: path.read_bytes() for path in saved.iterdir()} == before
            (saved / name).write_bytes(content)
    (saved / "tokenizer.model").write_bytes(b"broken")
    with pytest.raises(FormatError, match=r"tokenizer\.model"):
        opens()
    with pytest.raises(FormatError, match="is not a folder"):
        Checkpoint(saved / "config.json")


def test_a_model_takes_all_weights_or_none(ctx: nncuda.Context) -> None:
    model = MoETransformer(ctx, TINY, seed=0)
    before = model.parameters.data.numpy()
    arrays = {name: array.copy() + 1 for name, array in model.parameters.arrays().items()}
    last = list(arrays)[-1]
    for wrong in (
        {name: array for name, array in arrays.items() if name != last},
        {**arrays, "more": np.zeros(1)},
        {**arrays, last: np.zeros(5, np.float32)},
        {**arrays, last: np.zeros(TINY.hidden_size, np.int8)},
    ):
        with pytest.raises(ValueError, match="tensor"):
            model.load_arrays(wrong)
        np.testing.assert_array_equal(model.parameters.data.numpy(), before)
    model.load_arrays(arrays)
    np.testing.assert_array_equal(model.parameters.data.numpy(), before + 1)


def test_large_models_are_saved_in_shards(tmp_path: Path, saved: Path, ctx: nncuda.Context) -> None:
    trainer = Checkpoint(saved).trainer(ctx)
    folder = save_checkpoint(
        tmp_path / "sharded", trainer, TrainingState(1, 2, 10, 0.5, OPTIONS), max_shard_bytes=10_000
    )
    assert not (folder / "model.safetensors").exists() and len(list(folder.glob("model-*"))) > 1
    np.testing.assert_array_equal(
        Checkpoint(folder).model(ctx).parameters.data.numpy(), trainer.model.parameters.data.numpy()
    )
