"""Training and inference in bf16, f16 and fp8: gradients, losses, loss scaling, resuming, capturing.

Tolerance of gradients: the relative error of each tensor may be twice the largest that the reference's formulas have
when every result that the library stores in 16 bits is rounded to them (`rounded_reference`). That is the rule for f32
steps, and for kernels, carried over.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from rounded_reference import MANTISSA, in_precision, stored
from small_models import TINY, learnable_batch, random_batch, reference_config
from test_run import start, tensors_of, write_data
from test_training_step import assert_as_good_as, experts_chosen, micro_batches

import nncuda
from nncuda.infer import generate
from nncuda.models import MoEConfig, MoETransformer
from nncuda.reference import model as reference
from nncuda.reference.rounding import rounded
from nncuda.train import TrainConfig, Trainer, TrainingRun, read_metrics, resolve_checkpoint
from nncuda.train.divergence import DivergedError
from nncuda.train.scaling import LossScalingState

SIXTEEN = ("bf16", "f16")
#: With products of experts in 8 bits, which have a tolerance of their own.
NARROW = (*SIXTEEN, "fp8")

CASES = {
    "plain": TINY,
    "one key head, not renormalised": dataclasses.replace(TINY, num_kv_heads=1, norm_topk_prob=False),
    "drops": dataclasses.replace(TINY, capacity_factor=0.8),
}


def bits_of(*arenas: object) -> list[bytes]:
    return [arena.data.numpy().tobytes() for arena in arenas]  # type: ignore[attr-defined]


def state_of(trainer: Trainer) -> list[bytes]:
    model = trainer.model
    return bits_of(model.parameters, model.weights, trainer.first_moments, trainer.second_moments)


def make(ctx: nncuda.Context, precision: str, *, capture: bool = True, model: MoEConfig = TINY, **options) -> Trainer:
    config = TrainConfig.from_dict(
        {
            "steps": 200,
            "warmup_steps": 10,
            "batch_size": 4,
            "micro_batch_size": 3,
            "sequence_length": 12,
            "learning_rate": 5e-3,
            "precision": precision,
            **options,
        }
    )
    return Trainer(MoETransformer(ctx, model, seed=2, precision=config.precision), config, capture=capture)


@pytest.mark.parametrize("precision", SIXTEEN)
@pytest.mark.parametrize("micro", [4, 2])
@pytest.mark.parametrize("name", CASES)
def test_gradients(ctx: nncuda.Context, name: str, micro: int, precision: str) -> None:
    config = CASES[name]
    inputs, targets = random_batch(config, 4, 17)
    targets[0, :5] = -100
    targets[3, 1:] = -100
    model = MoETransformer(ctx, config, seed=3, precision=precision)
    bits = MANTISSA[precision]
    weights = {n: rounded(array, precision).astype(np.float64) for n, array in model.parameters.arrays().items()}
    for n, array in model.weights.arrays().items():
        np.testing.assert_array_equal(array.astype(np.float64), weights[n], err_msg=n)

    batches = micro_batches(inputs, targets, micro)
    exact_loss, exact = reference.loss_and_gradients(weights, reference_config(config), batches)
    parameters = {n: stored(array, bits) for n, array in weights.items()}
    with in_precision(precision, config.num_experts):
        _, plain = reference.loss_and_gradients(parameters, reference_config(config), batches)
        chosen = [experts_chosen(parameters, config, part) for part, _ in batches]
    tie = "a near tie: choose another seed, or nothing can be compared"
    np.testing.assert_array_equal(chosen, [experts_chosen(weights, config, part) for part, _ in batches], tie)

    trainer = Trainer(model, TrainConfig(batch_size=4, micro_batch_size=micro, sequence_length=17, precision=precision))
    result = trainer.train_step(inputs, targets)
    np.testing.assert_array_equal(model.expert_choices(), chosen[-1], tie)
    scale = result.loss_scale or 1.0
    ours = {n: gradient.astype(np.float64) / scale for n, gradient in model.gradients.arrays().items()}
    assert_as_good_as(ours, plain, exact)
    # Of the loss a mean over tokens, of the norm the tensors together: no worse than the worst of a tensor.
    error = 2**-bits * 8
    assert result.loss + result.aux_loss == pytest.approx(exact_loss, rel=error)
    norm = np.sqrt(sum(float((gradient**2).sum()) for gradient in exact.values()))
    assert result.grad_norm == pytest.approx(norm, rel=error)


@pytest.mark.parametrize("name", CASES)
def test_gradients_in_8_bits(ctx: nncuda.Context, name: str) -> None:
    """Those of bf16 up to the noise of E4M3: each factor is wrong by 2^-4 of itself at most, 2^-5.5 in the mean square,
    and a gradient has met five of a layer's products with two each, a sixth in all. A factor that is turned the wrong
    way, or has another's scale, makes an error of about 1. One layer, so that both have the same experts."""
    config, gradients = dataclasses.replace(CASES[name], num_layers=1), {}
    for precision in ("bf16", "fp8"):
        trainer = make(ctx, precision, model=config)
        trainer.train_step(*random_batch(config, 4, 12))
        arrays = trainer.model.gradients.arrays()
        gradients[precision] = {name: array.astype(np.float64) for name, array in arrays.items()}
    for tensor, exact in gradients["bf16"].items():
        error = np.linalg.norm(gradients["fp8"][tensor] - exact) / np.linalg.norm(exact)
        assert error < 0.25, tensor
        assert error > 2.0**-8 or "experts" not in tensor, tensor


@pytest.mark.parametrize("precision", NARROW)
def test_losses_follow_those_of_f32(ctx: nncuda.Context, precision: str) -> None:
    """Within 2 % at the end of 120 steps, 5 % with factors of 4 bits, on the mean of 20, and the same whether the steps
    are captured."""
    curves = {}
    for kind in ("f32", precision, f"{precision}, captured"):
        trainer = make(ctx, kind.split(",")[0], capture="captured" in kind)
        results = (trainer.train_step(*learnable_batch(TINY, 4, 12, step)) for step in range(120))
        curves[kind] = [(result.loss, result.grad_norm, result.learning_rate) for result in results]
        assert trainer.loss_scaling is None or trainer.loss_scaling.skipped == 0
    assert curves[precision] == curves[f"{precision}, captured"]
    exact, found = (np.mean([loss for loss, _, _ in curves[kind][-20:]]) for kind in ("f32", precision))
    assert exact < 0.5 * curves["f32"][0][0]
    assert found == pytest.approx(exact, rel=0.05 if precision == "fp8" else 0.02)
    assert curves[precision] != curves["f32"]


@pytest.mark.parametrize("precision", NARROW)
def test_a_captured_step_has_the_bits_of_its_calls(ctx: nncuda.Context, precision: str) -> None:
    """Also when shapes change, another one runs in between, and steps are skipped."""
    model = dataclasses.replace(TINY, capacity_factor=1.2)
    shapes = [(4, 12)] * 4 + [(2, 7)] + [(4, 12)] * 4
    scaling = {"loss_scale": 2.0**24, "loss_scale_interval": 2} if precision == "f16" else {}
    runs = []
    for capture in (False, True):
        trainer = make(ctx, precision, capture=capture, model=model, **scaling)
        results = []
        for seed, shape in enumerate(shapes):
            done = trainer.train_step(*random_batch(model, *shape, seed))
            values = done.loss, repr(done.grad_norm), repr(done.learning_rate), done.loss_scale, done.skipped_steps
            results.append((*values, trainer.model.expert_counts().tolist()))
            trainer.model.evaluate(*random_batch(model, 1, 5, seed))
        runs.append((results, state_of(trainer)))
    assert runs[0] == runs[1]
    assert precision != "f16" or 0 < runs[0][0][-1][4] < len(shapes)


def test_weights_are_the_rounded_parameters(ctx: nncuda.Context) -> None:
    for precision in SIXTEEN:
        trainer = make(ctx, precision)
        for seed in range(3):
            trainer.train_step(*random_batch(TINY, 4, 12, seed))
            parameters = trainer.model.parameters.data.numpy()
            weights = trainer.model.weights.data.numpy().astype(np.float32)
            np.testing.assert_array_equal(weights, rounded(parameters, precision))


def test_an_overflow_is_skipped(ctx: nncuda.Context) -> None:
    """The scale falls until the gradients fit; then training continues as if it had begun with that scale."""
    trainer = make(ctx, "f16", loss_scale=2.0**24)
    before, batch = state_of(trainer), learnable_batch(TINY, 4, 12)
    scales = []
    while (result := trainer.train_step(*batch)).skipped:
        scales.append(result.loss_scale)
        assert not np.isfinite(result.grad_norm) and np.isfinite(result.loss)
        assert state_of(trainer) == before
        assert result.skipped_steps == result.step == len(scales)
    skipped = len(scales)
    assert skipped >= 3
    assert [*scales, result.loss_scale] == [2.0 ** (24 - fallen) for fallen in range(skipped + 1)]
    assert state_of(trainer) != before and np.isfinite(result.grad_norm)
    assert trainer.loss_scaling == LossScalingState(result.loss_scale, 1, skipped)

    other = make(ctx, "f16", loss_scale=result.loss_scale)
    other.train_step(*batch)
    for seed in range(1, 8):
        ours, others = (t.train_step(*learnable_batch(TINY, 4, 12, seed)) for t in (trainer, other))
        assert (ours.loss, ours.grad_norm, ours.learning_rate) == (others.loss, others.grad_norm, others.learning_rate)
    assert state_of(trainer) == state_of(other)
    assert trainer.step == other.step + skipped


def test_an_exploding_input_is_skipped(ctx: nncuda.Context) -> None:
    """A token whose embedding is infinite in f16, but not in f32: its batch is skipped, others continue."""
    trainer = make(ctx, "f16")
    model = trainer.model
    inputs, targets = learnable_batch(TINY, 4, 12)
    inputs[inputs == 7] = 8
    trainer.train_step(inputs, targets)
    model.parameters["model.embed_tokens.weight"].narrow(0, 7, 1).copy_(np.full((1, TINY.hidden_size), 1e6))
    model.round_weights()
    before = state_of(trainer)
    poisoned = inputs.copy()
    poisoned[2, 5] = 7
    result = trainer.train_step(poisoned, targets)
    assert result.skipped and not np.isfinite(result.loss)
    assert state_of(trainer) == before
    result = trainer.train_step(inputs, targets)
    assert not result.skipped and np.isfinite(result.loss) and result.loss_scale == 32768
    assert state_of(trainer) != before


def test_the_scale_grows(ctx: nncuda.Context) -> None:
    trainer = make(ctx, "f16", loss_scale=1024.0, loss_scale_growth=4.0, loss_scale_interval=3)
    scales = [trainer.train_step(*learnable_batch(TINY, 4, 12, step)).loss_scale for step in range(7)]
    assert scales == [1024.0] * 3 + [4096.0] * 3 + [16384.0]
    assert trainer.loss_scaling == LossScalingState(16384.0, 1, 0)


def test_the_scale_leaves_the_gradients(ctx: nncuda.Context) -> None:
    """Powers of two change nothing but what falls below the smallest number of f16."""
    norms = []
    for scale in (1024.0, 65536.0):
        trainer = make(ctx, "f16", loss_scale=scale)
        result = trainer.train_step(*learnable_batch(TINY, 4, 12))
        assert result.loss_scale == scale
        norms.append(result.grad_norm)
    assert norms[0] == pytest.approx(norms[1], rel=2**-11)


def test_a_step_reads_nothing_back(ctx: nncuda.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[str] = []
    original = nncuda.Context._copy

    def counted(self: nncuda.Context, target: object, source: object, nbytes: int, kind: str) -> None:
        copies.append(kind)
        original(self, target, source, nbytes, kind)

    trainer = make(ctx, "f16", capture=False)
    monkeypatch.setattr(nncuda.Context, "_copy", counted)
    for seed in range(3):
        trainer.train_step(*random_batch(TINY, 4, 12, seed))
    assert "device_to_host" not in copies


@pytest.mark.parametrize("precision", NARROW)
def test_resumed_run_equals_an_unbroken_one(tmp_path: Path, ctx: nncuda.Context, precision: str) -> None:
    data = write_data(tmp_path)
    scaling = {"loss_scale": 2.0**24, "loss_scale_interval": 3} if precision == "f16" else {}
    whole = start(tmp_path / "whole", ctx, data, precision=precision, **scaling)
    whole.run()
    broken = start(tmp_path / "broken", ctx, data, precision=precision, **scaling)
    for progress in broken.steps():
        if progress.step == 13:
            broken.stop()
    with nncuda.Context("cpu", threads=1) as other:
        TrainingRun.resume(tmp_path / "broken", other, *data).run()
    checkpoints = [resolve_checkpoint(tmp_path / name) for name in ("broken", "whole")]
    found, expected = map(tensors_of, checkpoints)
    assert found == expected
    states = [json.loads((folder / "training.json").read_text()) for folder in checkpoints]
    for state in states:
        del state["seconds"]
    assert states[0] == states[1] and states[0]["train"]["precision"] == precision
    assert json.loads((checkpoints[0] / "config.json").read_text())["torch_dtype"] == "float32"

    measured = ("tokens_per_second", "seconds", "bytes_peak")
    lines = [read_metrics(tmp_path / name / "metrics.jsonl") for name in ("broken", "whole")]
    for record in lines[0] + lines[1]:
        for name in measured:
            record.pop(name, None)
    assert lines[0] == lines[1]
    steps = [record for record in lines[0] if "loss" in record]
    if precision != "f16":
        assert not any("loss_scale" in record for record in steps)
        return
    skipped = [record for record in steps if record["grad_norm"] is None]
    assert 0 < len(skipped) < len(steps) == 20
    assert steps[-1]["skipped_steps"] == states[0]["loss_scaling"]["skipped"] == len(skipped)
    assert "Infinity" not in (tmp_path / "whole" / "metrics.jsonl").read_text()
    # The steps that were skipped are steps of the run, but no updates: the schedule waited for them.
    rates = [record["learning_rate"] for record in steps if record["learning_rate"] is not None]
    assert len(rates) == len(steps) - len(skipped)
    assert rates[:5] == pytest.approx([0.01 * step / 5 for step in range(1, 6)], rel=1e-6)


def test_overflows_again_and_again(tmp_path: Path, ctx: nncuda.Context) -> None:
    """In a long run whose scale grows until it is too large, every few steps: each is skipped, and the model learns."""
    options = {"precision": "f16", "loss_scale": 2.0**20, "loss_scale_interval": 4, "steps": 300, "eval_every": 0}
    run = start(tmp_path / "run", ctx, write_data(tmp_path), save_every=0, learning_rate=0.002, **options)
    run.run()
    records = [record for record in read_metrics(tmp_path / "run" / "metrics.jsonl") if "loss" in record]
    skipped = [record["step"] for record in records if record["learning_rate"] is None]
    assert len(skipped) == records[-1]["skipped_steps"] > 30 and max(skipped) > 280
    assert run.trainer.updates == 300 - len(skipped)
    for before, after in itertools.pairwise(records):
        factor = 0.5 if before["step"] in skipped else after["loss_scale"] / before["loss_scale"]
        assert after["loss_scale"] == factor * before["loss_scale"] and factor in (0.5, 1, 2)
    losses = [record["loss"] for record in records if record["step"] not in skipped]
    assert all(map(math.isfinite, losses)) and np.mean(losses[-30:]) < 0.9 * np.mean(losses[:30])
    assert all(np.isfinite(array).all() for array in run.trainer.model.parameters.arrays().values())


def test_gradients_that_never_fit_end_the_run(tmp_path: Path, ctx: nncuda.Context) -> None:
    options = {"precision": "f16", "loss_scale": 2.0**-22, "steps": 9}
    run = start(tmp_path / "run", ctx, write_data(tmp_path), **options)
    run.trainer.model.parameters["model.norm.weight"].copy_(np.full(TINY.hidden_size, np.nan))
    run.trainer.model.round_weights()
    with pytest.raises(DivergedError, match="overflow at step 3 with the least loss scale"):
        run.run()


def test_inference(ctx: nncuda.Context) -> None:
    """Weights and cache take 16 bits; over the cache the model gives what it gives for the whole text."""
    ids = np.random.default_rng(1).integers(0, TINY.vocab_size, 20, dtype=np.int32)
    exact = MoETransformer(ctx, TINY, seed=4, training=False)
    for precision in SIXTEEN:
        model = MoETransformer(ctx, TINY, seed=4, training=False, precision=precision)
        assert model.weights is model.parameters
        assert model.weights.data.nbytes == exact.weights.data.nbytes // 2
        rounded_weights = rounded(exact.weights.data.numpy(), precision)
        np.testing.assert_array_equal(model.weights.data.numpy().astype(np.float32), rounded_weights)
        whole = model.forward(ids[None]).numpy()[0]
        assert whole.dtype == np.float32
        # Two blocks of some eight roundings each way, of values up to the largest.
        bound = 16 * 2.0 ** -MANTISSA[precision] * np.abs(whole).max()
        np.testing.assert_allclose(whole, exact.forward(ids[None]).numpy()[0], rtol=0, atol=bound)
        cache = model.cache(1, 20)
        assert cache.keys[0].dtype == cache.values[1].dtype == precision
        logits = [model.prefill(ids[:6], cache, 0).numpy()[0]]
        logits += [model.decode(ctx.tensor(ids[at : at + 1]), cache).numpy()[0] for at in range(6, 20)]
        np.testing.assert_allclose(logits, whole[5:], rtol=0, atol=bound)
        assert len(list(generate(model, [5, 6], 12))) == 12


def test_loaded_weights_are_rounded_once(ctx: nncuda.Context) -> None:
    """From f32, and from either 16-bit type, whatever the precision to compute in."""
    exact = MoETransformer(ctx, TINY, seed=4, training=False).parameters.arrays()
    for given in (np.float32, np.float16):
        arrays = {name: array.astype(given) for name, array in exact.items()}
        for precision in SIXTEEN:
            for training in (False, True):
                model = MoETransformer.from_arrays(ctx, TINY, arrays, training=training, precision=precision)
                for name, weight in model.weights.arrays().items():
                    expected = rounded(arrays[name].astype(np.float32), precision)
                    np.testing.assert_array_equal(weight.astype(np.float32), expected)


def test_options() -> None:
    assert "precision" not in TrainConfig().to_dict() and "loss_scale" not in TrainConfig().to_dict()
    options = TrainConfig(precision="f16", loss_scale=128.0)
    assert options.to_dict()["precision"] == "f16" and TrainConfig.from_dict(options.to_dict()) == options


def test_the_trainer_has_the_precision_of_its_model(ctx: nncuda.Context) -> None:
    with pytest.raises(ValueError, match="precision is bf16; this model computes in f32"):
        Trainer(MoETransformer(ctx, TINY), TrainConfig(precision="bf16", sequence_length=8))
