"""A model that is small enough to train in milliseconds, and its twin in the words of `nncuda.reference`."""

from __future__ import annotations

import numpy as np

from nncuda.models import MoEConfig
from nncuda.reference import model as reference

TINY = MoEConfig(
    vocab_size=48,
    hidden_size=24,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    num_experts=4,
    experts_per_token=2,
    ffn_size=20,
    context=32,
    extended_context=64,
    init_std=0.2,  # large enough for attention and routing to be far from uniform
)


def reference_config(config: MoEConfig) -> reference.Config:
    """The same model for the reference."""
    return reference.Config(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        num_local_experts=config.num_experts,
        num_experts_per_tok=config.experts_per_token,
        intermediate_size=config.ffn_size,
        rope_theta=config.rope_base,
        rms_norm_eps=config.norm_eps,
        norm_topk_prob=config.norm_topk_prob,
        capacity_factor=config.capacity_factor,
        router_aux_loss_coef=config.aux_alpha,
    )


def random_batch(config: MoEConfig, batch: int, length: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of random ids, int32 [batch, length]."""
    ids = np.random.default_rng(seed).integers(0, config.vocab_size, (batch, length + 1), dtype=np.int32)
    return ids[:, :-1].copy(), ids[:, 1:].copy()


def learnable_batch(config: MoEConfig, batch: int, length: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Something to learn: each token decides the next, but for a tenth of noise. int32 [batch, length]."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, config.vocab_size, (batch, length + 1)).astype(np.int32)
    for at in range(1, length + 1):
        follows = (5 * ids[:, at - 1] + 7) % config.vocab_size
        ids[:, at] = np.where(rng.random(batch) < 0.9, follows, ids[:, at])
    return ids[:, :-1].copy(), ids[:, 1:].copy()
