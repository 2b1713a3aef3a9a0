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
from small_models import DENSE, random_batch, reference_config

import nncuda
from nncuda.formats import SafetensorsFile
from nncuda.formats.safetensors import write_safetensors
from nncuda.layers.expert_parallel import check_expert_parallel
from nncuda.models import MoEConfig, MoETransformer, StoredModel, config_from_mixtral, config_to_mixtral
from nncuda.reference import model as reference
from nncuda.train import TrainConfig, Trainer


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


def test_parameters_are_counted(ctx: nncuda.Context) -> None:
    model = MoETransformer(ctx, DENSE)
    assert model.layout.size == DENSE.num_parameters == DENSE.num_active_parameters
    assert len(model.layout) == DENSE.num_layers * 9 + 3 and "dense" in repr(model)


def test_logits_are_those_of_the_reference_and_of_the_engine(ctx: nncuda.Context, tmp_path: Path) -> None:
    """Of the folder that `save` writes: a Llama, whose layers the engine has too."""
    model = MoETransformer(ctx, DENSE, seed=3, training=False)
    inputs, _ = random_batch(DENSE, 1, 19)
    exact, _ = reference.forward(
        {name: array.astype(np.float64) for name, array in model.parameters.arrays().items()},
        reference_config(DENSE),
        inputs,
    )
    np.testing.assert_allclose(model.forward(inputs).numpy()[0], exact, rtol=1e-4, atol=1e-4)
    model.save(tmp_path / "llama")
    assert json.loads((tmp_path / "llama" / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    stored = StoredModel.open(tmp_path / "llama")
    assert stored.config.num_experts == 0 and stored.config.extended_context == DENSE.extended_context
    with nncuda.LanguageModel(stored, ctx, context=32, max_batch=1) as engine:
        prompt = inputs[0].tolist()
        tokens = [event.token for event in engine.generate(prompt, 1, nncuda.Sampling(temperature=0.0))]
    assert tokens == [int(exact[-1].argmax())]
    again = MoETransformer.load(tmp_path / "llama", ctx)
    np.testing.assert_array_equal(again.forward(inputs).numpy(), model.forward(inputs).numpy())


def test_config_survives_its_folder() -> None:
    config = dataclasses.replace(DENSE, rope_base=5e5, norm_eps=1e-6, ntk_alpha=2.0)
    assert config_from_mixtral(config_to_mixtral(config)) == config


LLAMA = {"model_type": "llama", "vocab_size": 48, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 20}  # fmt: skip


def test_what_a_llama_leaves_out() -> None:
    """transformers' own defaults."""
    config = config_from_mixtral(LLAMA)
    assert (config.num_kv_heads, config.head_dim, config.context, config.extended_context) == (4, 8, 2048, 2048)
    assert (config.norm_eps, config.rope_base, config.num_experts) == (1e-6, 1e4, 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tie_word_embeddings": True}, "tie_word_embeddings is True; this model has False"),
        ({"attention_bias": True}, "attention_bias is True; this model has False"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rotary embedding of type 'llama3'"),
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
        ({"model_type": "qwen2"}, "the model_type is 'qwen2'; this program trains 'mixtral' and 'llama'"),
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


def test_what_is_found_again_changes_no_bit(ctx: nncuda.Context) -> None:
    batch, gradients = random_batch(DENSE, 3, 11), []
    for options in ({}, {"recompute_experts": True}, {"activation_checkpointing": 1}):
        model = MoETransformer(ctx, DENSE, seed=2)
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
