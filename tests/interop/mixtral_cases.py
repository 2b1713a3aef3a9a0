"""The cases that our model and transformers' Mixtral are compared on, live and as recorded."""

from __future__ import annotations

import numpy as np

from nncuda.models import MoEConfig

#: Small enough to be committed, odd enough to notice a swapped size. Larger initial weights than in training spread the
#: router's probabilities, so that the choice of experts does not hang on the last bit.
CONFIG = MoEConfig(
    vocab_size=120,
    hidden_size=48,
    num_layers=3,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    num_experts=5,
    experts_per_token=2,
    ffn_size=40,
    context=64,
    extended_context=64,
    ntk_alpha=1.0,
    init_std=0.2,
)
BATCH, LENGTH, STEPS = 3, 33, 20
# A gentle rate: a token whose experts are nearly tied may change them on the last bit, and then the two curves part
# for good.
LEARNING_RATE, BETAS, WEIGHT_DECAY, CLIP = 5e-4, (0.9, 0.95), 0.1, 1.0


def batches() -> tuple[np.ndarray, np.ndarray]:
    """input_ids and targets, int32 [STEPS, BATCH, LENGTH]: two batches in turn; some targets are ignored (-100)."""
    rng = np.random.default_rng(20)
    ids = rng.integers(0, CONFIG.vocab_size, (2, BATCH, LENGTH + 1), dtype=np.int32)
    ids[:, :, 1::2] = ids[:, :, :-1:2]  # every second token repeats its neighbour: something to learn
    targets = ids[:, :, 1:].copy()
    targets[:, 0, :5] = -100
    turns = np.arange(STEPS) % 2
    return np.ascontiguousarray(ids[turns, :, :-1]), np.ascontiguousarray(targets[turns])
