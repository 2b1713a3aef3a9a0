"""The router: which slots a capacity drops, and what the load-balancing loss does to the load of the experts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from small_models import TINY, learnable_batch, reference_config

import nncuda
from nncuda.layers import Linear, MoELayer, Router
from nncuda.models import MoETransformer
from nncuda.reference import layers as reference
from nncuda.train import TrainConfig, Trainer

FACTORS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
TOKENS = 50


def crooked_router_weights(seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """x [TOKENS, hidden] and the weights of a mixture whose router likes its first experts best, in f64."""
    rng = np.random.default_rng(seed)
    hidden, ffn = TINY.hidden_size, TINY.ffn_size
    x = rng.normal(size=(TOKENS, hidden))
    x[:, 0] = 1.0  # a bias, through which experts differ in popularity
    gate = rng.normal(size=(TINY.num_experts, hidden)) * 0.3
    gate[:, 0] = np.linspace(2.0, -1.0, TINY.num_experts)
    params = {"moe.gate.weight": gate}
    for expert in range(TINY.num_experts):
        for name, shape in (("w1", (ffn, hidden)), ("w3", (ffn, hidden)), ("w2", (hidden, ffn))):
            params[f"moe.experts.{expert}.{name}.weight"] = rng.normal(size=shape) * 0.2
    as_f32 = {name: array.astype(np.float32).astype(np.float64) for name, array in params.items()}
    return x.astype(np.float32).astype(np.float64), as_f32


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_drops_are_the_references(ctx: nncuda.Context, factor: float, seed: int) -> None:
    config = dataclasses.replace(TINY, capacity_factor=factor)
    x, params = crooked_router_weights(seed)
    capacity = config.capacity(TOKENS)
    exact, saved = reference.mixture(x, params, "moe", reference_config(config))
    rounded = {name: array.astype(np.float32) for name, array in params.items()}
    plain, plain_saved = reference.mixture(x.astype(np.float32), rounded, "moe", reference_config(config))
    assert np.array_equal(saved.indices, plain_saved.indices), "a near tie: choose another seed"

    experts = range(config.num_experts)
    w13 = np.stack([np.concatenate([params[f"moe.experts.{e}.{w}.weight"] for w in ("w1", "w3")]) for e in experts])
    w2 = np.stack([params[f"moe.experts.{e}.w2.weight"] for e in experts])
    gate = Linear(ctx.tensor(params["moe.gate.weight"].astype(np.float32)))
    router = Router(gate, config.experts_per_token, config.norm_topk_prob, config.aux_alpha)
    layer = MoELayer(router, ctx.tensor(w13.astype(np.float32)), ctx.tensor(w2.astype(np.float32)))
    tokens = ctx.tensor(x.astype(np.float32))
    out = layer.forward(tokens, ctx.zeros(x.shape), capacity)[0].numpy()

    routing, _ = router.forward(tokens, capacity)
    for name in ("indices", "counts", "offsets", "slot_row", "row_slot"):
        np.testing.assert_array_equal(getattr(routing, name).numpy(), getattr(saved, name), err_msg=name)
    dropped = int(np.count_nonzero(saved.slot_row < 0))
    assert dropped == np.maximum(saved.counts - capacity, 0).sum()
    slots = TOKENS * config.experts_per_token
    assert dropped >= slots - config.num_experts * capacity
    if factor <= 1:
        assert dropped > 0  # no room for an uneven load
    if factor == config.num_experts / config.experts_per_token:
        assert dropped == 0  # room for every token
    # A token all of whose experts were full gets nothing, to the bit; the others are as good as the plain formula.
    lost = (saved.slot_row < 0).all(axis=1)
    assert not out[lost].any()
    error = np.linalg.norm(out - exact) / np.linalg.norm(exact)
    assert error <= 2 * np.linalg.norm(plain - exact) / np.linalg.norm(exact)


def spread_of_load(alpha: float, seed: int) -> float:
    """Standard deviation of the experts' shares, in even shares, over the last 40 of 120 steps and all layers."""
    config = dataclasses.replace(TINY, num_experts=8, aux_alpha=alpha)
    steps, batch = 120, 8
    options = TrainConfig(steps=steps, warmup_steps=10, batch_size=batch, sequence_length=24, learning_rate=5e-3)
    shares = []
    with nncuda.Context("cpu", threads=1) as ctx:
        trainer = Trainer(MoETransformer(ctx, config, seed=seed), options)
        for step in range(steps):
            trainer.train_step(*learnable_batch(config, batch, 24, seed=1000 * seed + step))
            counts = trainer.model.expert_counts()
            shares.append(counts / counts.sum(axis=1, keepdims=True))
    return float(np.stack(shares[-40:]).std(axis=2).mean() * config.num_experts)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_balancing_loss_lowers_the_spread_of_the_load(seed: int) -> None:
    """Ten times the default weight, as the model learns for 120 steps: docs/training.md shows what the default does."""
    balanced, free = spread_of_load(0.1, seed), spread_of_load(0.0, seed)
    assert balanced < free
