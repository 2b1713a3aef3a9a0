"""Dense models: options that they have, folders that transformers and the engine open, and where else they come from.

Their gradients and updates against the oracle are in test_training_step.py, the same bits in every language in
tests/parity.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from small_models import DENSE, LLAMA3, QWEN2, QWEN3, TERNARY, TINY, random_batch, random_model, reference_config

import nncuda
from nncuda.formats import SafetensorsFile
from nncuda.formats.safetensors import write_safetensors
from nncuda.layers.expert_parallel import check_expert_parallel
from nncuda.models import MoEConfig, MoETransformer, StoredModel, config_from_mixtral, config_to_mixtral
from nncuda.reference import model as reference
from nncuda.train import TrainConfig, Trainer
from nncuda.train.replicas import partitions_gradients


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"experts_per_token": 1}, "experts_per_token is 1; it must be 0 in a dense model"),
        ({"capacity_factor": 1.5}, "capacity_factor is 1.5; it must be None in a dense model"),
        ({"aux_alpha": 0.5}, "aux_alpha is 0.5; it must be 0.01 in a dense model"),
        ({"norm_topk_prob": False}, "norm_topk_prob is False; it must be True in a dense model"),
        ({"num_experts": 2}, "experts_per_token is 0; it must be 1 to 2"),
    ],
)
def test_options_of_a_router_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(DENSE, **changes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expert_parallel is 2; a dense model, whose num_experts is 0, has none"):
        check_expert_parallel(2, 4, 0)


@pytest.mark.parametrize("part", ["qkv_bias", "qk_norm", "tie_embeddings"])
def test_parts_of_dense_models_are_refused_beside_experts(part: str) -> None:
    with pytest.raises(ValueError, match=f"{part} is True; it must be False in a model with experts"):
        dataclasses.replace(TINY, **{part: True})  # type: ignore[arg-type]


def test_parameters_are_counted(ctx: nncuda.Context) -> None:
    for config, tensors in (
        (DENSE, DENSE.num_layers * 9 + 3),
        (QWEN2, DENSE.num_layers * 12 + 2),
        (QWEN3, DENSE.num_layers * 11 + 3),
        (TERNARY, DENSE.num_layers * 11 + 2),
    ):
        model = MoETransformer(ctx, config)
        assert model.layout.size == config.num_parameters == config.num_active_parameters
        assert len(model.layout) == tensors and "dense" in repr(model)
        taken = sorted(model.layout.backward_pieces(), key=lambda piece: piece.start)
        assert [at for piece in taken for at in piece] == list(range(model.layout.size))


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (DENSE, "LlamaForCausalLM"),
        (QWEN2, "Qwen2ForCausalLM"),
        (LLAMA3, "LlamaForCausalLM"),
        (QWEN3, "Qwen3ForCausalLM"),
    ],
)
def test_logits_are_those_of_the_reference_and_of_the_engine(
    ctx: nncuda.Context, tmp_path: Path, config: MoEConfig, name: str
) -> None:
    """Of the folder that `save` writes: of a family whose layers the engine has too."""
    model = random_model(ctx, config, seed=3)
    inputs, _ = random_batch(config, 1, 19)
    exact, _ = reference.forward(
        {name: array.astype(np.float64) for name, array in model.parameters.arrays().items()},
        reference_config(config),
        inputs,
    )
    np.testing.assert_allclose(model.forward(inputs).numpy()[0], exact, rtol=1e-4, atol=1e-4)
    model.save(tmp_path / "llama")
    assert json.loads((tmp_path / "llama" / "config.json").read_text())["architectures"] == [name]
    stored = StoredModel.open(tmp_path / "llama")
    assert stored.config.num_experts == 0 and stored.config.extended_context == config.extended_context
    with nncuda.LanguageModel(stored, ctx, context=32, max_batch=1) as engine:
        prompt = inputs[0].tolist()
        tokens = [event.token for event in engine.generate(prompt, 1, nncuda.Sampling(temperature=0.0))]
    assert tokens == [int(exact[-1].argmax())]
    again = MoETransformer.load(tmp_path / "llama", ctx)
    np.testing.assert_array_equal(again.forward(inputs).numpy(), model.forward(inputs).numpy())


@pytest.mark.parametrize(
    "parts",
    [{}, {"qkv_bias": True}, {"qk_norm": True}, {"tie_embeddings": True}, {"rope_factor": 8.0}, {"rope_original": 7}],
)
def test_config_survives_its_folder(parts: dict[str, object]) -> None:
    config = dataclasses.replace(DENSE, rope_base=5e5, norm_eps=1e-6, ntk_alpha=2.0, **parts)  # type: ignore[arg-type]
    assert config_from_mixtral(config_to_mixtral(config)) == config


LLAMA = {"model_type": "llama", "vocab_size": 48, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 20}  # fmt: skip


SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # fmt: skip


def test_what_a_llama_leaves_out() -> None:
    """transformers' own defaults."""
    config = config_from_mixtral(LLAMA)
    assert (config.num_kv_heads, config.head_dim, config.context, config.extended_context) == (4, 8, 2048, 2048)
    assert (config.norm_eps, config.rope_base, config.num_experts) == (1e-6, 1e4, 0)
    assert not config.qkv_bias and not config.tie_embeddings


def test_what_a_qwen2_leaves_out() -> None:
    values = {**LLAMA, "model_type": "qwen2", "num_attention_heads": 32, "hidden_size": 256, "sliding_window": 16}
    config = config_from_mixtral({**values, "tie_word_embeddings": True, "layer_types": ["full_attention"] * 2})
    assert (config.num_kv_heads, config.head_dim, config.context) == (32, 8, 32768)
    assert config.qkv_bias and config.tie_embeddings and not config.qk_norm
    config = config_from_mixtral({**values, "model_type": "qwen3"})
    assert config.qk_norm and not config.qkv_bias and (config.num_kv_heads, config.head_dim) == (32, 128)


def test_biases_are_refused_beside_norms_of_heads() -> None:
    with pytest.raises(ValueError, match="qkv_bias is True; it must be False with qk_norm"):
        dataclasses.replace(QWEN2, qk_norm=True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tie_word_embeddings": 1}, "tie_embeddings is 1; it must be true or false"),
        ({"model_type": "qwen2", "use_sliding_window": True}, "use_sliding_window is True; this model has False"),
        ({"layer_types": ["sliding_attention"]}, "this model has 'full_attention' in all layers"),
        ({"attention_bias": True}, "attention_bias is True; this model has False"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 8.0}}, "rotary embedding of type 'yarn'; this model has"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, "low_freq_factor of the rotary embedding is missing"),
        ({"rope_scaling": {**SCALED, "low_freq_factor": 2.0}}, "rope_low is 2.0; it must be a number, from 1e-06 to 1"),
        ({"nncuda": {"capacity_factor": 1}}, "must be among extended_context, ntk_alpha"),
        (
            {
                "model_type": "mixtral",
                "num_key_value_heads": 4,
                "max_position_embeddings": 9,
                "num_local_experts": 0,
                "num_experts_per_tok": 0,
            },
            "num_local_experts is 0; a model of type 'mixtral' has experts",
        ),
        ({"model_type": "gemma2"}, "the model_type is 'gemma2'; this program trains 'mixtral', 'llama', 'qwen2', "),
    ],
)
def test_llamas_that_do_not_train(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        config_from_mixtral({**LLAMA, **changes})


def test_frequencies_of_old_llamas_are_left_out(ctx: nncuda.Context, tmp_path: Path) -> None:
    MoETransformer(ctx, DENSE, seed=3).save(tmp_path / "llama")
    path = tmp_path / "llama" / "model.safetensors"
    tensors = {name: array.copy() for name, array in SafetensorsFile(path).items()}
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)
    write_safetensors(path, tensors)
    assert MoETransformer.load(tmp_path / "llama", ctx).config == DENSE


def test_a_stored_copy_of_a_tied_head_is_left_out(ctx: nncuda.Context, tmp_path: Path) -> None:
    MoETransformer(ctx, QWEN2, seed=3).save(tmp_path / "qwen2")
    path = tmp_path / "qwen2" / "model.safetensors"
    tensors = {name: array.copy() for name, array in SafetensorsFile(path).items()}
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    write_safetensors(path, tensors)
    assert MoETransformer.load(tmp_path / "qwen2", ctx).config == QWEN2


def test_gradients_of_a_tied_head_are_not_partitioned(ctx: nncuda.Context) -> None:
    options = TrainConfig(batch_size=4, micro_batch_size=1, replicas=4)
    for config, partitions in ((DENSE, True), (QWEN2, False)):
        deep = dataclasses.replace(config, num_layers=9)
        assert partitions_gradients(deep, options, "cpu", 4) == partitions
    with pytest.raises(ValueError, match="gradients of a tied head"):
        MoETransformer(ctx, QWEN2, partition_gradients=True)


@pytest.mark.parametrize("config", [DENSE, QWEN2, QWEN3, TERNARY], ids=["Llama", "Qwen2", "Qwen3", "BitNet"])
def test_what_is_found_again_changes_no_bit(ctx: nncuda.Context, config: MoEConfig) -> None:
    batch, gradients = random_batch(config, 3, 11), []
    for options in ({}, {"recompute_experts": True}, {"activation_checkpointing": 1}):
        model = random_model(ctx, config, seed=2)
        Trainer(model, TrainConfig(batch_size=3, sequence_length=11, **options)).train_step(*batch)  # type: ignore[arg-type]
        gradients.append(model.gradients.data.numpy())
    assert all(np.array_equal(gradients[0], other) for other in gradients[1:])


def test_it_learns(ctx: nncuda.Context) -> None:
    config: MoEConfig = dataclasses.replace(DENSE, init_std=0.1)
    options = TrainConfig(steps=30, batch_size=4, sequence_length=16, learning_rate=0.01)
    trainer = Trainer(MoETransformer(ctx, config, seed=2), options)
    batch = random_batch(config, 4, 16)
    losses = [trainer.train_step(*batch).loss for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0] and trainer.expert_counts().size == 0
