"""Training adapters beside weights that stay as they are stored: gradients, runs, their files, what is refused."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file
from small_models import (
    BITNET,
    DENSE,
    QWEN2,
    TERNARY,
    TINY,
    llama_config,
    numbers,
    random_batch,
    random_model,
    stored_model,
)
from small_models import reference_config as reference_of
from test_training_step import assert_as_good_as, micro_batches

import nncuda
from nncuda import kernels
from nncuda.cli import main
from nncuda.convert.merge import merge_adapter
from nncuda.convert.model import convert_model
from nncuda.convert.quantize import quantize_model
from nncuda.formats import FormatError, write_shard
from nncuda.infer.engine import Engine
from nncuda.layers import FrozenLinear, FrozenTernary
from nncuda.models import MoETransformer, StoredModel
from nncuda.models.adapter import Adapter
from nncuda.models.adapter_gguf import interleaved_order
from nncuda.models.frozen import FrozenBase
from nncuda.models.llama import Rope
from nncuda.models.low_rank import LowRankOptions, LowRankTransformer
from nncuda.reference import layers as reference_layers
from nncuda.reference import model as reference
from nncuda.reference import quant
from nncuda.reference.layers import Roundings
from nncuda.train import FrozenOrigin, TrainConfig, Trainer, TrainingRun

RANK, ALPHA = 3, 5.0
SMALL = {"context": 32, "head_dim": 16}
#: Of a base: its configuration, and the format of its matrices.
BASES: dict[str, tuple[dict[str, Any], str]] = {
    "f32": ({}, "f32"),
    "q8_0, pairs side by side": ({"rope": Rope(layout="interleaved")}, "q8_0"),
    "q4_0, norms of heads": ({"qk_norm": "head"}, "q4_0"),
    "bf16, biases, a tied head": ({"qkv_bias": True, "tie_embeddings": True}, "bf16"),
    "ternary, squared ReLU, a tied head": ({**BITNET, "tie_embeddings": True}, "bf16"),
    "ternary, SiLU": ({**BITNET, "activation": "silu"}, "q8_0"),
}


def begun(ctx: nncuda.Context, base: FrozenBase, targets: str = "", seed: int = 2) -> LowRankTransformer:
    """A model whose B is not 0, so that A has a gradient."""
    options = LowRankOptions(RANK, ALPHA, *([tuple(targets.split(","))] if targets else []))
    model, rng = LowRankTransformer(ctx, base, options, seed=seed), np.random.default_rng(seed)
    for name, tensor in model.parameters.items():
        if "lora_B" in name:
            tensor.copy_(rng.normal(0.0, 0.2, tensor.shape).astype(np.float32))
    return model


def in_order(model: LowRankTransformer, name: str, rows: np.ndarray) -> np.ndarray:
    """Rows of queries and keys in the order of folders, which is that of the factors."""
    if model.base.stored.config.rope.layout == "half" or not name.endswith(("q_proj.weight", "k_proj.weight")):
        return rows
    order = np.argsort(interleaved_order(model.config.head_dim))
    return rows.reshape(-1, len(order), rows.shape[1])[:, order].reshape(rows.shape)


class Unrounded(Roundings):
    """What the reference rounds of ternary weights is rounded here, in the product with them alone."""

    def rows(self, x: np.ndarray) -> np.ndarray:
        return x

    def weight(self, name: str, weight: np.ndarray) -> np.ndarray:
        return weight


@pytest.mark.parametrize("name", BASES)
def test_gradients(ctx: nncuda.Context, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Those of A and B follow from that of the whole matrix, dW: scale B^T dW and scale dW A^T. Products with stored
    weights round what they take in, which the gradients do not see: both passes of the reference round what the model
    rounded, since a value near the midpoint of two codes could go up in one and down in the other. What A is multiplied
    with is not rounded. As everywhere, the relative error may be twice the largest of the same formulas in f32."""
    changes, format = BASES[name]
    base = FrozenBase(stored_model(ctx, llama_config(**SMALL, **changes), format))
    model = begun(ctx, base)
    inputs, targets = random_batch(model.config, 4, 17)
    targets[0, :5] = -100
    weights = numbers(ctx, base.stored)
    factors = {key: array.copy() for key, array in model.parameters.arrays().items()}  # before they move
    if base.config.tie_embeddings:
        del weights["lm_head.weight"]
    ternary = {key: matrix.codes() * np.float64(matrix.scale) for key, matrix in base.stored.matrices.items()}
    weights |= ternary
    pairs, products = model.layout.matrices(), {}
    taken: list[np.ndarray] = []
    forward = FrozenLinear.forward

    def watched(layer: FrozenLinear, x: nncuda.Tensor, *others: Any, **named: Any) -> nncuda.Tensor:
        taken.append(x.numpy())
        if isinstance(layer, FrozenTernary):
            codes, scale = kernels.act_quant_i8(x)
            taken[-1] = codes.numpy().astype(np.float64) * scale.numpy()[:, None]
        return forward(layer, x, *others, **named)

    monkeypatch.setattr(FrozenLinear, "forward", watched)
    options = TrainConfig(batch_size=4, micro_batch_size=3, sequence_length=17, lora_rank=RANK, lora_alpha=ALPHA)
    result = Trainer(model, options).train_step(inputs, targets)

    def linear(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        name, scale = products[id(weight)], x.dtype.type(model.options.scale)
        source = next(rows).astype(x.dtype)
        if name in ternary:
            y = source @ ternary[name].astype(x.dtype).T
        else:
            stored = base.stored.tensors[name]
            source = x if stored.code == quant.F32 else source
            y = quant.gemm_quant(source, in_order(model, name, stored.rows()), 1, 0, stored.code)["y"]
        if name in pairs:
            a, b = (factors[one].astype(x.dtype) for one in pairs[name])
            y = y + scale * ((x @ a.T) @ b.T)
        return y

    monkeypatch.setattr(reference_layers, "linear", linear)
    monkeypatch.setattr(reference, "linear", linear)
    found: dict[Any, dict[str, np.ndarray]] = {}
    losses = {}
    for dtype in (np.float64, np.float32):
        scale, whole, rows = dtype(model.options.scale), {}, iter(taken)
        for key, array in weights.items():
            whole[key] = in_order(model, key, array).astype(dtype)
            if key in pairs:
                a, b = (factors[one].astype(dtype) for one in pairs[key])
                whole[key] = whole[key] + scale * (b @ a)
            products[id(whole[key])] = key
        batches = micro_batches(inputs, targets, 3)
        losses[dtype], gradients = reference.loss_and_gradients(whole, reference_of(base.config), batches, Unrounded())
        assert next(rows, None) is None
        found[dtype] = {}
        for matrix, (a, b) in pairs.items():
            found[dtype][a] = scale * factors[b].astype(dtype).T @ gradients[matrix]
            found[dtype][b] = scale * gradients[matrix] @ factors[a].astype(dtype).T
    assert model.gradients is not None
    assert_as_good_as(model.gradients.arrays(), found[np.float32], found[np.float64])
    assert result.loss == pytest.approx(losses[np.float64], rel=1e-5)  # some 40 roundings of 2^-24 deep


def test_a_model_begins_as_it_is_and_what_is_not_adapted_stays(ctx: nncuda.Context) -> None:
    base = FrozenBase(stored_model(ctx, llama_config(**SMALL), "q8_0"))
    options = LowRankOptions(RANK, ALPHA, ("q_proj", "v_proj"))
    model = LowRankTransformer(ctx, base, options, seed=5)
    assert len(model.layout) == 2 * 2 * base.config.num_layers and model.layout.num_decayed == model.layout.size
    for name, array in model.parameters.arrays().items():
        bound = array.shape[1] ** -0.5
        if "lora_B" in name:
            assert not array.any()
        else:
            assert bound / 2 < abs(array).max() <= bound and abs(array.mean()) < bound / 4
    plain = LowRankTransformer(ctx, base, LowRankOptions(1, 1.0, ("down_proj",)))
    inputs, _ = random_batch(base.config, 2, 9)
    np.testing.assert_array_equal(model.forward(inputs).numpy(), plain.forward(inputs).numpy())


def test_what_is_computed_twice_has_the_same_bits(ctx: nncuda.Context) -> None:
    base = FrozenBase(stored_model(ctx, llama_config(**SMALL), "q8_0"))
    found = []
    for changes in ({}, {"activation_checkpointing": 1}, {"recompute_experts": True}, {"document_mask": 3}):
        model = begun(ctx, base)
        options = TrainConfig(
            batch_size=2, sequence_length=16, lora_rank=RANK, lora_alpha=ALPHA, steps=3, warmup_steps=0, **changes
        )  # type: ignore[arg-type]
        trainer = Trainer(model, options)
        for step in range(3):
            trainer.train_step(*random_batch(base.config, 2, 16, seed=step))
        found.append(model.parameters.data.numpy())
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    assert (found[0] != found[3]).any()


@pytest.mark.parametrize("config", [DENSE, QWEN2], ids=["Llama", "Qwen2"])
def test_the_merged_model_has_the_same_loss(ctx: nncuda.Context, tmp_path: Path, config: Any) -> None:
    """Both are within 1e-5 of the exact loss, as in `test_gradients`."""
    random_model(ctx, config, seed=3).save(tmp_path / "base")
    base = FrozenBase(tmp_path / "base")
    model = begun(ctx, base)
    model.save(tmp_path / "adapter")
    adapter = Adapter.open(tmp_path / "adapter", base.stored.config)
    merge_adapter(base.stored, adapter, tmp_path / "merged", ctx)
    batch = random_batch(config, 3, 19)
    loss, count = model.evaluate(*batch)
    expected, _ = MoETransformer.load(tmp_path / "merged", ctx).evaluate(*batch)
    before, _ = MoETransformer.load(tmp_path / "base", ctx).evaluate(*batch)
    assert loss == pytest.approx(expected, rel=2e-5)
    assert abs(before - loss) > 0.01 * count  # or it would say nothing


def test_a_gguf_file_is_a_base_and_the_engine_runs_the_adapter(ctx: nncuda.Context, tmp_path: Path) -> None:
    """Of a Llama, whose rows of queries and keys such a file has in another order than the adapter."""
    config = dataclasses.replace(DENSE, hidden_size=32, head_dim=16, ffn_size=64)
    random_model(ctx, config, seed=1).save(tmp_path / "folder")
    quantize_model(StoredModel.open(tmp_path / "folder"), tmp_path / "base.gguf", "q8_0", ctx)
    base = FrozenBase(tmp_path / "base.gguf")
    assert base.stored.config.rope.layout == "interleaved"
    model = begun(ctx, base)
    model.save(tmp_path / "adapter")
    adapter = Adapter.open(tmp_path / "adapter", base.stored.config)
    ids, _ = random_batch(model.config, 1, 12)
    engine = Engine(StoredModel.open(tmp_path / "base.gguf"), ctx, cache_format="f32", adapter=adapter)
    ours, theirs = model.forward(ids).numpy()[0], engine.logits(ids[0])
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * float(np.abs(theirs).max()))


def test_a_bitnet_in_any_form_is_a_base(ctx: nncuda.Context, tmp_path: Path) -> None:
    """Codes and scales are the same in each form, and so is what is trained beside them. The engine runs it: of one
    token, whose attention adds nothing up, its logits are the model's but for the order in which the adapter's sums are
    made, of 256 numbers at most; a change of a scale or of a code is a change of the base."""
    config = dataclasses.replace(TERNARY, hidden_size=128, num_heads=4, head_dim=32, ffn_size=256, init_std=0.1)
    random_model(ctx, config, seed=1).save(tmp_path / "masters")
    found, hashes, options = [], set(), TrainConfig(sequence_length=9, lora_rank=RANK, lora_alpha=ALPHA)
    for form in ("masters", "hf-packed", "packed", "i2_s"):
        if form != "masters":
            convert_model(StoredModel.open(tmp_path / "masters"), tmp_path / form, form, ctx)
        base = FrozenBase(tmp_path / form)
        assert base.config.ternary and base.config.squared_relu
        model = begun(ctx, base)
        Trainer(model, options).train_step(*random_batch(config, 1, 9))
        found.append(model.parameters.data.numpy())
        hashes.add(base.sha256)
        np.testing.assert_array_equal(found[0], found[-1])
        model.save(tmp_path / f"adapter-{form}")
        adapter = Adapter.open(tmp_path / f"adapter-{form}", base.stored.config)
        engine = Engine(base.stored, ctx, cache_format="f32", adapter=adapter)
        ours, theirs = model.forward(np.array([[7]], np.int32)).numpy()[0], engine.logits([7])
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4 * float(np.abs(theirs).max()))
    assert len(hashes) == 4
    file = tmp_path / "hf-packed" / "config.json"  # which says whether scales multiply
    text = file.read_text()
    assert '"autobitlinear"' in text
    file.write_text(text.replace('"autobitlinear"', '"bitlinear"'))
    assert FrozenBase(tmp_path / "hf-packed").sha256 not in hashes
    with pytest.raises(FormatError, match="has ternary weights, and with an adapter added they are not ternary; run"):
        merge_adapter(base.stored, adapter, tmp_path / "merged", ctx)


# Runs

OPTIONS = {
    "steps": 8,
    "batch_size": 4,
    "micro_batch_size": 2,
    "sequence_length": 16,
    "warmup_steps": 2,
    "learning_rate": 0.02,
    "eval_every": 4,
    "save_every": 4,
    "keep_checkpoints": 9,
    "hash_every": 2,
    "seed": 7,
    "lora_rank": RANK,
    "lora_targets": "q_proj,v_proj,down_proj",
}


@pytest.fixture
def base(request: pytest.FixtureRequest, ctx: nncuda.Context, tmp_path: Path) -> Path:
    if getattr(request, "param", "Llama") == "Llama":
        random_model(ctx, DENSE, seed=3).save(tmp_path / "base")
    else:
        random_model(ctx, TERNARY, seed=3).save(tmp_path / "masters")
        convert_model(StoredModel.open(tmp_path / "masters"), tmp_path / "base", "hf-packed", ctx)
    return tmp_path / "base"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Something to learn: each token decides the next."""
    ids = np.zeros(900, np.int64)
    for at in range(1, len(ids)):
        ids[at] = (5 * ids[at - 1] + 7) % DENSE.vocab_size
    write_shard(tmp_path / "data.tokens", [ids], DENSE.vocab_size)
    return tmp_path / "data.tokens"


def start(folder: Path, ctx: nncuda.Context, base: Path, data: Path, **changes: object) -> TrainingRun:
    origin, train = FrozenOrigin(base), TrainConfig.from_dict({**OPTIONS, **changes})
    return TrainingRun.start(folder, ctx, origin.config, train, data, data, origin=origin)


def nncuda_cli(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [*map(str, arguments)])
    return result.exit_code, result.output


@pytest.mark.parametrize("base", ["Llama", "BitNet"], indirect=True)
def test_a_run_learns_goes_on_with_the_same_bits_and_is_verified(
    ctx: nncuda.Context, tmp_path: Path, base: Path, data: Path
) -> None:
    whole = start(tmp_path / "whole", ctx, base, data)
    losses = [progress.held_out_loss for progress in whole.steps() if progress.held_out_loss is not None]
    assert losses[-1] < losses[0] - 0.1
    parts = start(tmp_path / "parts", ctx, base, data)
    for progress in parts.steps():
        if progress.step == 4:
            parts.stop()
    TrainingRun.resume(tmp_path / "parts", ctx, data, data).run()
    last = "checkpoints/step-00000008"
    for file in ("adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors"):
        assert (tmp_path / "whole" / last / file).read_bytes() == (tmp_path / "parts" / last / file).read_bytes()

    values = json.loads((tmp_path / "whole" / last / "adapter_config.json").read_text())
    assert (values["r"], values["lora_alpha"]) == (RANK, RANK)
    assert values["target_modules"] == ["down_proj", "q_proj", "v_proj"]
    assert values["base_model_name_or_path"] == str(base.resolve())
    names = load_file(tmp_path / "whole" / last / "adapter_model.safetensors")
    assert "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight" in names
    record = json.loads((tmp_path / "whole" / "run.json").read_text())
    assert record["from"] == {
        "folder": str(base.resolve()), "weights_sha256": FrozenBase(base).sha256, "optimizer_sha256": None,
    }  # fmt: skip
    assert record["train"]["lora_rank"] == RANK

    code, said = nncuda_cli("verify-run", tmp_path / "whole", "--threads", "1")
    assert code == 0 and "computed again from" in said and "where it began" in said, said
    code, said = nncuda_cli("verify-run", tmp_path / "parts", "--from", "4")
    assert code == 0, said
    code, said = nncuda_cli("inspect", tmp_path / "whole")
    assert code == 0 and "adapter that is trained" in said and "lora_alpha" in said, said
    assert nncuda_cli("report", tmp_path / "whole")[0] == 0
    code, said = nncuda_cli("generate", base, "--ids", "1 2 3", "--max-tokens", "4", "--greedy", "--adapter",
                            tmp_path / "whole")  # fmt: skip
    assert code == 0 and len(said.split()) == 4, said
    code, said = nncuda_cli("merge", base, tmp_path / "whole", tmp_path / "merged")
    assert code == 0 or "has ternary weights" in said, said
    assert nncuda_cli("adapter", base, tmp_path / "whole", tmp_path / "a.gguf")[0] == 0
    code, said = nncuda_cli("generate", tmp_path / "whole", "--ids", "1", "--max-tokens", "1")
    assert code != 0 and "holds an adapter alone; give the model that it is of, and this as its adapter" in said, said
    trainer = Trainer.load(tmp_path / "whole", ctx)
    trainer.save_checkpoint(tmp_path / "again")
    assert Trainer.load(tmp_path / "again", ctx).step == 8


def test_a_run_goes_on_beside_the_same_weights_alone(
    ctx: nncuda.Context, tmp_path: Path, base: Path, data: Path
) -> None:
    start(tmp_path / "run", ctx, base, data, steps=4).run()
    shutil.move(base, tmp_path / "elsewhere")
    with pytest.raises(FormatError, match=r"is an adapter of .*base', which is not there: put it back"):
        TrainingRun.resume(tmp_path / "run", ctx, data, data)
    random_model(ctx, DENSE, seed=4).save(base)
    with pytest.raises(FormatError, match="has other weights than when this adapter was begun"):
        TrainingRun.resume(tmp_path / "run", ctx, data, data)
    code, said = nncuda_cli("verify-run", tmp_path / "run")
    assert code == 1 and "is not what the run began from: its weights_sha256 is" in said, said


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"lora_rank": -1}, "lora_rank is -1; it must be a whole number, from 0 to 65536"),
        (
            {"lora_targets": "q_proj,lm_head"},
            "lora_targets is 'q_proj,lm_head'; it must be all, or some of q_proj, k_proj, ",
        ),
        ({"lora_targets": "q_proj,q_proj"}, "lora_targets is 'q_proj,q_proj'; it must be all, or some of"),
        ({"lora_alpha": 0.0}, "lora_alpha is 0.0; it must be a number, from 1e-06 to 1e"),
        ({"lora_rank": 0, "lora_alpha": 2.0}, "lora_alpha is given, but lora_rank is 0; it is of an adapter"),
        ({"lora_rank": 0, "lora_targets": "q_proj"}, "lora_targets is given, but lora_rank is 0"),
        ({"precision": "bf16"}, "precision is bf16, but lora_rank is 4; adapters are trained in f32"),
    ],
)
def test_options_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        TrainConfig(**{"lora_rank": 4, **changes})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"num_experts": 4, "experts_per_token": 2}, "num_experts is 4; adapters are trained beside models with 0"),
        ({**BITNET, "sub_norms": False}, "sub_norms is False; adapters are trained beside models with True"),
        (
            {"activation": "gelu_pytorch_tanh"},
            "activation is 'gelu_pytorch_tanh'; adapters are trained beside models with 'silu'",
        ),
        ({"rope": Rope(rotated=8)}, "rope.rotated is 8; adapters are trained beside models with 0"),
        ({"qk_norm": "whole"}, "qk_norm is 'whole'; adapters are trained beside models with 'none' or 'head'"),
        ({"logits_scaling": 2.0}, "logits_scaling is 2.0; adapters are trained beside models with 1.0"),
    ],
)
def test_bases_are_refused_by_what_they_have(ctx: nncuda.Context, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        FrozenBase(stored_model(ctx, llama_config(**{**SMALL, **changes})))


def test_a_window_is_a_context(ctx: nncuda.Context) -> None:
    assert FrozenBase(stored_model(ctx, llama_config(**SMALL, window=20))).config.context == 20


def test_commands_refuse_by_name(ctx: nncuda.Context, tmp_path: Path, base: Path, data: Path) -> None:
    for extra, problem in (
        ((), "--lora-rank needs --from, the model beside which an adapter is trained"),
        (("--from", base, "--with-optimizer"), "--lora-rank begins with an optimizer of its own; leave out --with"),
        (("--from", base, "--tokenizer", data), "the tokenizer stays with the model of --from; leave out --tokenizer"),
        (("--from", base, "--hidden-size", "8"), "hidden_size is 8, but the model of"),
    ):
        code, said = nncuda_cli("train", tmp_path / "run", "--data", data, "--lora-rank", "4", *extra)
        assert code != 0 and problem in " ".join(said.replace("│", " ").split()), said
    code, said = nncuda_cli("plan", "--lora-rank", "4")
    assert code != 0 and "lora_rank is 4; runs that train an adapter are not planned" in said
    model = random_model(ctx, TINY, seed=1)
    with pytest.raises(ValueError, match="lora_rank is 4; this model trains all weights"):
        Trainer(model, TrainConfig(lora_rank=4, sequence_length=8))
    with pytest.raises(ValueError, match="lora_rank is 4, but there is no model beside which an adapter is trained"):
        TrainingRun.start(tmp_path / "run", ctx, DENSE, TrainConfig(lora_rank=4, sequence_length=8), data)
    assert not (tmp_path / "run").exists()


def test_damaged_checkpoints_are_refused(ctx: nncuda.Context, tmp_path: Path, base: Path, data: Path) -> None:
    start(tmp_path / "run", ctx, base, data, steps=4).run()
    state = tmp_path / "run" / "checkpoints" / "step-00000004" / "training.json"
    config = state.with_name("adapter_config.json")
    for path, name, value, problem in (
        (config, "r", 2, "with r 2 the model makes it"),
        (config, "lora_alpha", 2, "has r 3 and a scale of 0.666667; training.json makes them 3 and 1"),
        (state, "base", None, "base is None|has no base; its lora_rank is 3"),
        (state, "base", {"folder": "x"}, "it must have folder and weights_sha256, as text"),
        (state, "base", {"folder": "x", "weights_sha256": 3}, "it must have folder and weights_sha256, as text"),
    ):
        text = path.read_text()
        values = json.loads(text)
        path.write_text(json.dumps({**values, name: value}))
        with pytest.raises(FormatError, match=problem):
            TrainingRun.resume(tmp_path / "run", ctx, data, data)
        path.write_text(text)
    values = json.loads(state.read_text())
    values["train"]["lora_targets"] = "q_proj"
    state.write_text(json.dumps(values))
    with pytest.raises(FormatError, match="its options and its factors differ: one of them alone has "):
        TrainingRun.resume(tmp_path / "run", ctx, data, data)
