"""Gradients and updates against the float64 reference.

Tolerance: the relative error of each tensor may be twice the largest that the same formulas have when NumPy carries
them out in float32, tensor by tensor. That is the rule for kernels, applied to the whole step.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from small_models import (
    DENSE,
    LLAMA3,
    QWEN2,
    QWEN3,
    TERNARY,
    TERNARY_SILU,
    TINY,
    random_batch,
    random_model,
    reference_config,
)

import nncuda
from nncuda import kernels
from nncuda.layers import TernaryLinear
from nncuda.models import MoEConfig, MoETransformer
from nncuda.reference import model as reference
from nncuda.reference.layers import Roundings
from nncuda.train import TrainConfig, Trainer

CASES = {
    "plain": TINY,
    "one key head": dataclasses.replace(TINY, num_kv_heads=1),
    "not renormalised": dataclasses.replace(TINY, norm_topk_prob=False),
    **{f"capacity {x}": dataclasses.replace(TINY, capacity_factor=x) for x in (0.5, 0.8, 1.0, 1.25, 1.5, 2.0)},
    "one expert a token": dataclasses.replace(TINY, experts_per_token=1, norm_topk_prob=False, aux_alpha=0.5),
    "all experts": dataclasses.replace(TINY, experts_per_token=4),
    "dense": DENSE,
    "biases, a tied head": QWEN2,
    "scaled angles": LLAMA3,
    "norms of heads": QWEN3,
}


def relative_errors(found: dict[str, np.ndarray], exact: dict[str, np.ndarray]) -> dict[str, float]:
    return {
        name: float(np.linalg.norm(found[name].astype(np.float64) - value) / np.linalg.norm(value))
        for name, value in exact.items()
    }


def assert_as_good_as(ours: dict, plain: dict, exact: dict) -> None:
    """No tensor has more than twice the largest error that `plain`, the formulas in that precision, has."""
    budget = 2 * max(relative_errors(plain, exact).values())
    errors = relative_errors(ours, exact)
    worst = max(errors, key=errors.__getitem__)
    assert errors[worst] <= budget, f"{worst}: {errors[worst]:.2e}, allowed {budget:.2e}"


def parameters_of(model: MoETransformer, dtype: type) -> dict[str, np.ndarray]:
    return {name: array.astype(dtype) for name, array in model.parameters.arrays().items()}


def micro_batches(inputs: np.ndarray, targets: np.ndarray, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(inputs[at : at + size], targets[at : at + size]) for at in range(0, len(inputs), size)]


def experts_chosen(params: dict[str, np.ndarray], config: MoEConfig, inputs: np.ndarray) -> list[np.ndarray]:
    if not config.num_experts:
        return []
    _, saved = reference.forward(params, reference_config(config), inputs)
    return [block.mixture.indices for block in saved.blocks]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("micro", [4, 3, 2])
def test_gradients(ctx: nncuda.Context, name: str, micro: int) -> None:
    config = CASES[name]
    inputs, targets = random_batch(config, 4, 17)
    targets[0, :5] = -100
    targets[3, 1:] = -100
    model = random_model(ctx, config, seed=3)
    params = {dtype: parameters_of(model, dtype) for dtype in (np.float64, np.float32)}
    chosen = [experts_chosen(params[dtype], config, inputs) for dtype in params]
    assert all(map(np.array_equal, *chosen)), "a near tie: choose another seed, or no gradient can be compared"

    batches = micro_batches(inputs, targets, micro)
    exact_loss, exact = reference.loss_and_gradients(params[np.float64], reference_config(config), batches)
    _, plain = reference.loss_and_gradients(params[np.float32], reference_config(config), batches)
    trainer = Trainer(model, TrainConfig(batch_size=4, micro_batch_size=micro, sequence_length=17))
    result = trainer.train_step(inputs, targets)
    assert_as_good_as(model.gradients.arrays(), plain, exact)
    assert result.tokens == np.count_nonzero(targets != -100)
    assert result.loss + result.aux_loss == pytest.approx(exact_loss, rel=1e-5)  # some 40 roundings of 2^-24 deep
    norm = np.sqrt(sum(float((gradient**2).sum()) for gradient in exact.values()))
    assert result.grad_norm == pytest.approx(norm, rel=1e-5)


class Taken(Roundings):
    """The rows that a model's products took, call after call: where a value lies in the middle between two codes, the
    least difference in front of it decides, so both passes are given the same."""

    def __init__(self, rows: list[np.ndarray]):
        self._rows = iter(rows)

    def rows(self, x: np.ndarray) -> np.ndarray:
        return next(self._rows).astype(x.dtype)


@pytest.mark.parametrize("config", [TERNARY, TERNARY_SILU], ids=["squared ReLU, a tied head", "SiLU"])
@pytest.mark.parametrize("micro", [4, 3])
def test_gradients_of_master_weights(
    ctx: nncuda.Context, monkeypatch: pytest.MonkeyPatch, config: MoEConfig, micro: int
) -> None:
    """Straight through both roundings. (Bengio, Léonard, Courville 2013, section 4)"""
    inputs, targets = random_batch(config, 4, 17)
    targets[0, :5] = -100
    model, taken = random_model(ctx, config, seed=3), []
    forward = TernaryLinear.forward

    def watched(product: TernaryLinear, x: nncuda.Tensor) -> nncuda.Tensor:
        normed = x if product.norm is None else product.norm.forward(x)
        codes, scale = kernels.act_quant_i8(normed)
        taken.append(codes.numpy().astype(np.float64) * scale.numpy()[:, None])
        return forward(product, x)

    monkeypatch.setattr(TernaryLinear, "forward", watched)
    params = {dtype: parameters_of(model, dtype) for dtype in (np.float64, np.float32)}
    trainer = Trainer(model, TrainConfig(batch_size=4, micro_batch_size=micro, sequence_length=17))
    result = trainer.train_step(inputs, targets)
    batches = micro_batches(inputs, targets, micro)
    exact_loss, exact = reference.loss_and_gradients(
        params[np.float64], reference_config(config), batches, Taken(taken)
    )
    _, plain = reference.loss_and_gradients(params[np.float32], reference_config(config), batches, Taken(taken))
    assert_as_good_as(model.gradients.arrays(), plain, exact)
    assert result.loss == pytest.approx(exact_loss, rel=1e-5)


def test_logits_in_chunks(ctx: nncuda.Context) -> None:
    """Tokens whose logits are made one chunk after the other count as if they had been made at once."""
    config = dataclasses.replace(TINY, vocab_size=8200, context=90, extended_context=90)
    inputs, targets = random_batch(config, 3, 90)
    targets[0, :5] = -100
    model = MoETransformer(ctx, config, seed=3)
    assert model.loss_pieces(inputs.size) == 2
    exact_loss, exact = reference.loss_and_gradients(
        parameters_of(model, np.float64), reference_config(config), [(inputs, targets)]
    )
    _, plain = reference.loss_and_gradients(
        parameters_of(model, np.float32), reference_config(config), [(inputs, targets)]
    )
    total, count = model.evaluate(inputs, targets)
    result = Trainer(model, TrainConfig(batch_size=3, sequence_length=90)).train_step(inputs, targets)
    assert_as_good_as(model.gradients.arrays(), plain, exact)
    assert result.loss + result.aux_loss == pytest.approx(exact_loss, rel=1e-5)
    assert count == result.tokens == np.count_nonzero(targets != -100)
    assert total / count == pytest.approx(result.loss, rel=1e-6)


@pytest.mark.parametrize(
    ("config", "seed"),  # with which no gradient is so near 0 that AdamW turns it into another update
    [(dataclasses.replace(TINY, capacity_factor=1.5), 3), (DENSE, 3), (QWEN2, 5), (QWEN3, 3)],
    ids=["experts", "dense", "Qwen2", "Qwen3"],
)
def test_updates(ctx: nncuda.Context, config: MoEConfig, seed: int) -> None:
    options = TrainConfig(
        steps=6, warmup_steps=2, batch_size=4, micro_batch_size=2, sequence_length=9, learning_rate=0.01, clip_norm=0.5
    )
    model = random_model(ctx, config, seed)
    trainer = Trainer(model, options)
    training = reference.Training(warmup=2, total=6, max_lr=0.01, min_lr=0.001, max_norm=0.5)
    exact = reference.State(parameters_of(model, np.float64))
    plain = reference.State(parameters_of(model, np.float32))
    for step in range(6):
        inputs, targets = random_batch(config, 4, 9, seed=step)
        batches = micro_batches(inputs, targets, 2)
        expected = reference.train_step(exact, reference_config(config), training, batches)
        reference.train_step(plain, reference_config(config), training, batches)
        result = trainer.train_step(inputs, targets)
        assert result.step == step + 1
        assert result.learning_rate == pytest.approx(expected["lr"], rel=1e-6)
        assert result.loss + result.aux_loss == pytest.approx(expected["loss"], rel=1e-4)
    assert_as_good_as(model.parameters.arrays(), plain.params, exact.params)


def test_old_gradients_leave_no_trace(ctx: nncuda.Context) -> None:
    """Every gradient is overwritten, those of experts without a token too."""
    config = dataclasses.replace(TINY, num_experts=16, experts_per_token=1)
    batch = random_batch(config, 1, 4)  # four tokens for sixteen experts
    gradients = []
    for value in (np.nan, 1.0):
        model = MoETransformer(ctx, config, seed=5)
        model.gradients.data.copy_(np.full(model.layout.size, value))
        Trainer(model, TrainConfig(sequence_length=4)).train_step(*batch)
        gradients.append(model.gradients.data.numpy())
    assert np.isfinite(gradients[0]).all()
    np.testing.assert_array_equal(*gradients)


def test_weight_decay_spares_the_gains(ctx: nncuda.Context) -> None:
    """With no gradient, decay is all that moves a parameter: by lr * weight_decay, matrices only."""
    model = MoETransformer(ctx, TINY, seed=0)
    before = {name: array.copy() for name, array in model.parameters.arrays().items()}
    trainer = Trainer(
        model, TrainConfig(steps=10, warmup_steps=0, learning_rate=0.1, weight_decay=0.5, sequence_length=8)
    )
    trainer._update()
    # The rate is that of the schedule at step 1 of 10: 0.1 * (0.1 + 0.9 * (1 + cos(pi / 10)) / 2).
    rate = 0.1 * (0.1 + 0.9 * (1 + np.cos(np.pi / 10)) / 2)
    for name, after in model.parameters.arrays().items():
        expected = before[name] if "norm" in name else before[name] * (1 - rate * 0.5)
        np.testing.assert_allclose(after, expected, rtol=1e-6, err_msg=name)


def train(ctx: nncuda.Context, config: MoEConfig, options: TrainConfig, batches: list) -> Trainer:
    trainer = Trainer(MoETransformer(ctx, config, seed=options.seed), options)
    for inputs, targets in batches:
        trainer.train_step(inputs, targets)
    return trainer


def test_accumulation_is_over_tokens(ctx: nncuda.Context) -> None:
    """Micro-batches with very different numbers of targets weigh by their targets, as if they were one batch."""
    config = dataclasses.replace(TINY, aux_alpha=0.0)  # the balancing loss is a micro-batch's own
    inputs, targets = random_batch(config, 4, 16)
    targets[:2, 1:] = -100
    gradients = []
    for micro in (None, 2, 1):
        options = TrainConfig(batch_size=4, micro_batch_size=micro, sequence_length=16)
        gradients.append(train(ctx, config, options, [(inputs, targets)]).model.gradients.arrays())
    for name, whole in gradients[0].items():
        for parts in gradients[1:]:
            # Only the order of sums differs: of at most 64 tokens, so 64 roundings of 2^-24 of the largest term.
            np.testing.assert_allclose(parts[name], whole, rtol=0, atol=64 * 2**-24 * np.abs(whole).max(), err_msg=name)


@pytest.mark.parametrize("micro", [None, 3])
def test_thread_count_changes_no_bit(micro: int | None) -> None:
    options = TrainConfig(steps=5, warmup_steps=1, batch_size=4, micro_batch_size=micro, sequence_length=32)
    batches = [random_batch(TINY, 4, 32, seed) for seed in range(5)]
    runs = []
    for threads in (1, 2, 3, 7):
        with nncuda.Context("cpu", threads=threads) as ctx:
            trainer = train(ctx, TINY, options, batches)
            runs.append([arena.data.numpy() for arena in (trainer.model.parameters, trainer.second_moments)])
    for one, other in itertools.pairwise(runs):
        assert all(np.array_equal(a.view(np.int32), b.view(np.int32)) for a, b in zip(one, other, strict=True))


def test_a_captured_step_has_the_bits_of_its_calls(ctx: nncuda.Context) -> None:
    """Also when shapes change and another one runs in between."""
    config = dataclasses.replace(TINY, capacity_factor=1.2)
    options = TrainConfig(steps=9, warmup_steps=2, batch_size=4, micro_batch_size=3, sequence_length=12)
    shapes = [(4, 12)] * 4 + [(2, 7)] + [(4, 12)] * 4
    runs = []
    for capture in (False, True):
        trainer = Trainer(MoETransformer(ctx, config, seed=2), options, capture=capture)
        results = []
        for seed, shape in enumerate(shapes):
            done = trainer.train_step(*random_batch(config, *shape, seed))
            counts = trainer.model.expert_counts().tolist()
            results.append((done.step, done.loss, done.aux_loss, done.grad_norm, done.learning_rate, counts))
            trainer.model.evaluate(*random_batch(config, 1, 5, seed))
        assert trainer._step.item() == trainer.step == len(shapes)
        runs.append((results, trainer.model.parameters.data.numpy(), trainer.second_moments.data.numpy()))
    assert runs[0][0] == runs[1][0]
    for one, other in zip(runs[0][1:], runs[1][1:], strict=True):
        assert np.array_equal(one.view(np.int32), other.view(np.int32))


def test_initial_values_are_the_references(ctx: nncuda.Context) -> None:
    """Tensor by tensor the same stream of the generator, in the same order."""
    expected = reference.initial(reference_config(TINY), seed=11, std=TINY.init_std)
    model = MoETransformer(ctx, TINY, seed=11)
    assert list(expected) == list(model.layout.shapes())
    for name, values in model.parameters.arrays().items():
        np.testing.assert_allclose(values, expected[name], rtol=0, atol=TINY.init_std * 8 * 2**-23, err_msg=name)


def test_bad_batches_change_nothing(ctx: nncuda.Context) -> None:
    model = MoETransformer(ctx, TINY, seed=0)
    trainer = Trainer(model, TrainConfig(sequence_length=8))
    before = model.parameters.data.numpy()
    inputs, targets = random_batch(TINY, 2, 8)
    with pytest.raises(ValueError, match="no target counts"):
        trainer.train_step(inputs, np.full_like(targets, -100))
    with pytest.raises(ValueError, match="the same shape"):
        trainer.train_step(inputs, targets[:, :-1])
    for wrong in (inputs + TINY.vocab_size, inputs - 1000):
        with pytest.raises(nncuda.OutOfRangeError, match="must be 0 to 47"):
            trainer.train_step(wrong, targets)
    with pytest.raises(nncuda.OutOfRangeError, match="targets"):
        trainer.train_step(inputs, targets + TINY.vocab_size)
    assert np.array_equal(before, model.parameters.data.numpy()) and trainer.step == 0
