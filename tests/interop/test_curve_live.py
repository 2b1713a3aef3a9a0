"""A few steps of tests/interop/curve.py on a small model: the same losses and gradients as torch's, within bounds."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from nncuda.formats import write_shard
from nncuda.models import MoEConfig
from nncuda.train import TrainConfig
from nncuda.train.data import TokenWindows, open_shards

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("runs in `make interop`, which installs torch and transformers", allow_module_level=True)

from curve import LARGEST, gradients, largest_difference, measure, problems

CONFIG = dataclasses.replace(
    MoEConfig.preset("demo"), vocab_size=160, hidden_size=64, num_layers=2, num_heads=4, head_dim=16, ffn_size=48,
    context=32, extended_context=32, ntk_alpha=1.0, init_std=0.1,
)  # fmt: skip
STEPS = 30


@pytest.fixture
def windows(tmp_path: Path) -> TokenWindows:
    rng = np.random.default_rng(4)
    ids = np.minimum(3 + rng.geometric(0.08, 8000), CONFIG.vocab_size - 1)  # some are frequent: something to learn
    write_shard(tmp_path / "train.tokens", [ids], CONFIG.vocab_size)
    return TokenWindows(open_shards(tmp_path / "train.tokens"), 32)


@pytest.mark.parametrize("precision", sorted(LARGEST))
def test_a_short_curve(windows: TokenWindows, precision: str) -> None:
    options = {
        "steps": STEPS,
        "batch_size": 6,
        "sequence_length": 32,
        "learning_rate": 2e-3,
        "warmup_steps": 5,
        "seed": 3,
    }
    train = TrainConfig.from_dict({**options, "precision": precision})
    measured = measure(CONFIG, train, windows, STEPS, follow=STEPS // 2)
    assert not problems(measured)
    ours = measured["ours"]
    assert isinstance(ours, list) and ours[-1] < ours[0] - 0.2, "the curve must go down, or it compares nothing"


def test_another_loss_is_noticed(windows: TokenWindows) -> None:
    """Without the load-balancing loss the router's gradients are others: the bounds are not so wide as to miss that."""
    train = TrainConfig(steps=2, batch_size=6, sequence_length=32, warmup_steps=1, seed=3)
    batch = windows.take(range(6))
    found = {one.name: one for one in gradients(dataclasses.replace(CONFIG, aux_alpha=0.5), train, batch)}
    assert all(one.ours <= one.bound < 1e-3 for one in found.values())
    assert largest_difference([2.0] * 60, [2.0] * 59 + [2.2]) == pytest.approx(0.2 / 50 / 2.004, rel=1e-3)
