"""Training of models with ternary weights: the products of the engine, what is written and read, what is refused.

Their gradients against the oracle are in test_training_step.py, the same bits in every language in tests/parity.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from small_models import DENSE, TERNARY, TERNARY_SILU, TINY, learnable_batch, random_batch, random_model

import nncuda
from nncuda import kernels
from nncuda.cli import main
from nncuda.convert.model import convert_model
from nncuda.device import Comm
from nncuda.formats import SafetensorsFile, write_shard
from nncuda.models import MoEConfig, MoETransformer, StoredModel, config_from_mixtral, config_to_mixtral
from nncuda.models.packed import packed
from nncuda.train import TrainConfig, Trainer, TrainingRun, read_metrics, resolve_checkpoint
from nncuda.train.fit import ways_to_fit
from nncuda.train.plan import Machine

#: Whose rows are whole blocks of every ternary format.
WIDE = dataclasses.replace(TERNARY, hidden_size=256, num_heads=8, head_dim=32, ffn_size=256, init_std=0.05)


def logits_of(stored: StoredModel, ctx: nncuda.Context, ids: list[int]) -> np.ndarray:
    with nncuda.LanguageModel(stored, ctx, context=32, max_batch=1, cache_format="f32") as engine:
        return engine.logits(ids)


def trained(ctx: nncuda.Context, config: MoEConfig) -> MoETransformer:
    model = random_model(ctx, config, seed=3)
    Trainer(model, TrainConfig(batch_size=2, sequence_length=9, learning_rate=0.01)).train_step(
        *random_batch(config, 2, 9)
    )
    return model


@pytest.mark.parametrize("config", [TERNARY, TERNARY_SILU], ids=["squared ReLU", "SiLU"])
def test_products_are_the_engine_s(ctx: nncuda.Context, config: MoEConfig) -> None:
    """To the bit, of masters and of the matrices that the engine makes of them; of one token, whose attention adds
    nothing up, the logits too."""
    model = trained(ctx, config)
    stored = StoredModel.of(model)
    attention, x = (
        "model.layers.1.self_attn",
        ctx.tensor(np.random.default_rng(1).normal(0, 2, (5, 32)).astype(np.float32)),
    )
    weight = packed(ctx, [stored.ternary(f"{attention}.o_proj.weight")])
    gain = model.parameters[f"{attention}.attn_sub_norm.weight"]
    expected = kernels.bitlinear_norm(x, gain, weight.data, weight.scale, eps=config.norm_eps).numpy()
    np.testing.assert_array_equal(model.blocks[1].attention.output.forward(x).numpy(), expected)
    np.testing.assert_array_equal(logits_of(stored, ctx, [7]), model.forward(np.array([[7]], np.int32)).numpy()[0])


def test_files_have_the_logits_of_the_masters(ctx: nncuda.Context, tmp_path: Path) -> None:
    """A trained model's folder, and the ternary files that it becomes: what the engine makes of them is the same to the
    bit, since codes and scales are."""
    model, ids = trained(ctx, WIDE), random_batch(WIDE, 1, 21)[0]
    model.save(tmp_path / "masters")
    values = json.loads((tmp_path / "masters" / "config.json").read_text())
    assert (values["architectures"], values["hidden_act"]) == (["BitNetForCausalLM"], "relu2")
    assert values["quantization_config"]["quantization_mode"] == "online"
    expected = logits_of(StoredModel.open(tmp_path / "masters"), ctx, ids[0].tolist())
    for form in ("i2_s", "tq1_0", "tq2_0", "packed", "hf-packed"):
        convert_model(StoredModel.open(tmp_path / "masters"), tmp_path / form, form, ctx)
        found = logits_of(StoredModel.open(tmp_path / form), ctx, ids[0].tolist())
        np.testing.assert_array_equal(found, expected, form)
    again = MoETransformer.load(tmp_path / "masters", ctx)
    assert again.config == WIDE
    np.testing.assert_array_equal(again.forward(ids).numpy(), model.forward(ids).numpy())


def test_it_learns_and_goes_on(ctx: nncuda.Context, tmp_path: Path) -> None:
    """From random masters; a run that is stopped half way comes to the bits of one that is not, and to these with
    recomputation too."""
    config, (ids, _) = TERNARY, learnable_batch(TERNARY, 1, 4000)
    write_shard(tmp_path / "data.tokens", [ids[0]], config.vocab_size)
    options = TrainConfig(
        steps=40, batch_size=8, micro_batch_size=4, sequence_length=16, learning_rate=0.02, save_every=20, hash_every=10
    )
    weights = []
    for name, changes in (("whole", {}), ("halved", {}), ("again", {"activation_checkpointing": 1})):
        run = TrainingRun.start(
            tmp_path / name, ctx, config, dataclasses.replace(options, **changes), tmp_path / "data.tokens"
        )
        for progress in run.steps():
            if name == "halved" and progress.step == 20:
                run.stop()
        if name == "halved":
            TrainingRun.resume(tmp_path / name, ctx, tmp_path / "data.tokens").run()
        losses = [line["loss"] for line in read_metrics(tmp_path / name / "metrics.jsonl") if "loss" in line]
        assert len(losses) == 40 and losses[-1] < 0.7 * losses[0]
        found = SafetensorsFile(resolve_checkpoint(tmp_path / name) / "model.safetensors")
        weights.append({name: array.tobytes() for name, array in found.items()})
    assert weights[0] == weights[1] == weights[2]


def test_ranks_train_what_one_does(ctx: nncuda.Context) -> None:
    options = TrainConfig(steps=3, batch_size=4, micro_batch_size=1, replicas=4, sequence_length=16, learning_rate=0.01)
    inputs, targets = learnable_batch(TERNARY, 4, 16)
    found: dict[int, np.ndarray] = {}

    def train(rank: int, own: nncuda.Context, comm: Comm | None) -> None:
        trainer = Trainer(MoETransformer(own, TERNARY, seed=1, comm=comm), options, comm=comm)
        for _ in range(3):
            trainer.train_step(inputs[trainer.rows()], targets[trainer.rows()])
        found[rank] = trainer.model.parameters.data.numpy().copy()

    def of_two(rank: int) -> None:
        with nncuda.Context(threads=1) as own:
            train(rank, own, Comm(own, "threads", "ternary-training", rank=rank, ranks=2))

    train(2, ctx, None)
    ranks = [threading.Thread(target=of_two, args=(rank,)) for rank in (0, 1)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], found[2])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"qkv_bias": True}, "qkv_bias is True; it must be False with ternary weights"),
        ({"qk_norm": True}, "qk_norm is True; it must be False with ternary weights"),
        ({"ternary": False}, "squared_relu is True; it must be False without ternary weights"),
    ],
)
def test_parts_that_do_not_go_together(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(TERNARY, **changes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ternary is True; it must be False in a model with experts"):
        dataclasses.replace(TINY, ternary=True)


def test_other_precisions_are_refused(ctx: nncuda.Context) -> None:
    """And none is proposed where memory is short."""
    for precision in ("bf16", "f16", "fp8"):
        with pytest.raises(
            ValueError, match=f"precision is {precision}; a model with ternary weights, which come of f32"
        ):
            MoETransformer(ctx, TERNARY, precision=precision)  # type: ignore[arg-type]
    ways, least = ways_to_fit(TERNARY, TrainConfig(batch_size=4, sequence_length=32), Machine(threads=1), 1)
    assert not ways and least is not None and "precision" not in least.changes
    assert ways_to_fit(DENSE, TrainConfig(batch_size=4, sequence_length=32), Machine(threads=1), 1)[1].changes[
        "precision"
    ]


def test_config_of_a_bitnet() -> None:
    """What transformers takes where config.json does not say, and what is no model with master weights."""
    values = {"model_type": "bitnet", "vocab_size": 48, "hidden_size": 160, "num_hidden_layers": 2,
              "num_attention_heads": 20, "intermediate_size": 20}  # fmt: skip
    config = config_from_mixtral(values)
    assert (config.num_kv_heads, config.head_dim, config.context, config.norm_eps) == (5, 8, 2048, 1e-5)
    assert (config.rope_base, config.ternary, config.squared_relu, config.tie_embeddings) == (5e5, True, True, False)
    assert not config_from_mixtral({**values, "hidden_act": "silu"}).squared_relu
    for config in (TERNARY, TERNARY_SILU):
        assert config_from_mixtral(config_to_mixtral(config)) == config
    for changes, words in (
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; this model has 'relu2' or 'silu'"),
        ({"attention_bias": True}, "attention_bias is True; this model has False"),
        (
            {"quantization_config": {"quant_method": "bitnet"}},
            "the weights are ternary already; training needs the master",
        ),
        ({"quantization_config": {"quant_method": "nncuda-tern2"}}, "the weights are ternary already"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quant_method is 'gptq'; this program reads 'bitnet'"),
    ):
        with pytest.raises(ValueError, match=words):
            config_from_mixtral({**values, **changes})


def test_what_has_no_masters_is_refused(ctx: nncuda.Context, tmp_path: Path) -> None:
    """By the command, in one sentence, and nothing is written."""
    trained(ctx, WIDE).save(tmp_path / "masters")
    write_shard(tmp_path / "data.tokens", [np.arange(200) % WIDE.vocab_size], WIDE.vocab_size)
    convert_model(StoredModel.open(tmp_path / "masters"), tmp_path / "packed", "hf-packed", ctx)
    line = ["train", str(tmp_path / "run"), "--data", str(tmp_path / "data.tokens"), "--sequence-length", "8"]
    line += ["--batch-size", "2", "--steps", "2", "--from"]
    refused = CliRunner().invoke(main, [*line, str(tmp_path / "packed")])
    assert refused.exit_code == 3 and "training needs the master weights that they were rounded from" in refused.output
    refused = CliRunner().invoke(main, [*line, str(tmp_path / "masters"), "--precision", "bf16"])
    assert refused.exit_code == 3 and "precision is bf16; a model with ternary weights" in refused.output
    assert not (tmp_path / "run").exists()
    begun = CliRunner().invoke(main, [*line, str(tmp_path / "masters")])
    assert begun.exit_code == 0, begun.output
