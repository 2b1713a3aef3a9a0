"""Activation checkpointing and recomputed experts: the same bits, in less memory, by as much as the shapes say."""

from __future__ import annotations

import dataclasses
import gc

import numpy as np
import pytest
from small_models import TINY, random_batch

import nncuda
from nncuda.models import MoEConfig, MoETransformer
from nncuda.train import TrainConfig, Trainer

DEEP = dataclasses.replace(TINY, num_layers=6, capacity_factor=1.2)
WAYS = {
    "every block": {"activation_checkpointing": 1},
    "every second block": {"activation_checkpointing": 2},
    "every third block": {"activation_checkpointing": 3},
    "experts": {"recompute_experts": True},
    "every second block, experts of the others": {"activation_checkpointing": 2, "recompute_experts": True},
    "experts of the first four": {"recompute_experts": True, "keep_experts": 2},
}


def make(ctx: nncuda.Context, model: MoEConfig, capture: bool, **options: object) -> Trainer:
    config = TrainConfig.from_dict({"steps": 9, "warmup_steps": 1, "batch_size": 4, **options})
    return Trainer(MoETransformer(ctx, model, seed=2, precision=config.precision), config, capture=capture)


def run(ctx: nncuda.Context, capture: bool, **options: object) -> tuple[list[object], list[bytes]]:
    """What four steps tell, and all that they leave behind."""
    trainer = make(ctx, DEEP, capture, sequence_length=12, **options)
    told: list[object] = []
    for seed in range(4):
        done = trainer.train_step(*random_batch(DEEP, 4, 12, seed))
        told += [done.loss, done.aux_loss, done.grad_norm, done.learning_rate]
        told += [trainer.model.expert_counts().tolist(), trainer.model.expert_choices().tolist()]
    model = trainer.model
    arenas = model.parameters, model.gradients, trainer.first_moments, trainer.second_moments
    return told, [arena.data.numpy().tobytes() for arena in arenas]


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("micro", [None, 3])
def test_recomputation_changes_no_bit(ctx: nncuda.Context, micro: int | None, precision: str) -> None:
    options = {"micro_batch_size": micro, "precision": precision}
    expected = run(ctx, capture=False, **options)
    for name, way in WAYS.items():
        for capture in (False, True):
            assert run(ctx, capture, **options, **way) == expected, (name, capture)


WIDE = MoEConfig(
    vocab_size=64, hidden_size=64, num_layers=12, num_heads=4, num_kv_heads=2, head_dim=32, num_experts=4,
    experts_per_token=2, ffn_size=128, context=64, extended_context=64,
)  # fmt: skip
BATCH, LENGTH = 4, 64


@dataclasses.dataclass(frozen=True)
class Expected:
    """Bytes of a training step of WIDE whose activations have `width` bytes."""

    width: int

    @property
    def tokens(self) -> int:
        return BATCH * LENGTH

    @property
    def slots(self) -> int:
        return self.tokens * WIDE.experts_per_token

    @property
    def stream(self) -> int:
        """What passes between blocks."""
        return self.width * self.tokens * WIDE.hidden_size

    @property
    def watched(self) -> int:
        """Counts and choices of the experts, which stay when all else of a block goes."""
        return 4 * (WIDE.num_experts + self.slots)

    @property
    def inside(self) -> int:
        """Inside the experts of a block: rows, gate and up, and what W2 takes in."""
        return self.width * self.slots * (WIDE.hidden_size + 3 * WIDE.ffn_size)

    @property
    def block(self) -> int:
        """What a block keeps beside its input and what is watched."""
        heads = WIDE.num_heads * WIDE.head_dim
        qkv = heads + 2 * WIDE.num_kv_heads * WIDE.head_dim
        attention = self.tokens * (self.width * (qkv + heads) + 4 * WIDE.num_heads)  # and lse in f32
        norms = 3 * self.stream + 2 * 4 * self.tokens  # both outputs, the stream between, two rstd in f32
        routing = 4 * (3 * self.slots + self.tokens * WIDE.num_experts + WIDE.num_experts + 1)
        outputs = self.width * self.slots * WIDE.hidden_size
        return attention + norms + routing + self.inside + outputs

    @property
    def loss(self) -> int:
        """What is there with the logits beside all that blocks keep: the last stream, its norm, the logits."""
        logits = self.tokens * WIDE.vocab_size * (4 if self.width == 4 else 4 + self.width)  # f32, and rounded
        return 2 * self.stream + logits + 2 * 4 * self.tokens  # rstd, lse

    @property
    def backward(self) -> int:
        """What is there in the backward call of the last block's experts beside all that blocks keep."""
        # The gradients of the block's output, of the weights of the experts, and of the router's logits.
        return self.stream + 4 * self.slots + self.width * self.tokens * WIDE.num_experts

    def fallen(self, *, blocks: int, experts: int) -> int:
        """By how much the peak falls with so many blocks recomputed, the last one too, and the experts of so many.

        With everything kept the most is in use at the logits, else in the backward call of the last block: what this
        one did not keep is there again by then, what was watched a second time.
        """
        again = self.block + self.watched if blocks else self.inside
        return self.loss + blocks * self.block + experts * self.inside - again - self.backward


def peak(ctx: nncuda.Context, capture: bool, **options: object) -> int:
    """Most bytes in use in the third step."""
    trainer = make(ctx, WIDE, capture, sequence_length=LENGTH, **options)
    batch = random_batch(WIDE, BATCH, LENGTH)
    for _ in range(2):
        trainer.train_step(*batch)
    gc.collect()
    ctx.trim()
    ctx.reset_peak()
    trainer.train_step(*batch)
    return ctx.bytes_peak


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("capture", [False, True])
def test_memory_falls_by_what_is_not_kept(capture: bool, precision: str) -> None:
    expected = Expected(4 if precision == "f32" else 2)
    # Memory of a graph is used again by what has the same size alone, so there the two peaks may overlap.
    slack = expected.loss + expected.backward if capture else 64

    def measured(**options: object) -> int:
        with nncuda.Context("cpu", threads=2) as ctx:
            return peak(ctx, capture, precision=precision, **options)

    everything, layers = measured(), WIDE.num_layers
    for every in (1, 2, 3, 4):
        fallen = everything - measured(activation_checkpointing=every)
        assert abs(fallen - expected.fallen(blocks=layers // every, experts=0)) <= slack, every
    fallen = everything - measured(recompute_experts=True)
    assert abs(fallen - expected.fallen(blocks=0, experts=layers)) <= slack
    fallen = everything - measured(recompute_experts=True, keep_experts=1)
    assert abs(fallen - (layers - 1) * expected.inside) <= slack
    fallen = everything - measured(recompute_experts=True, activation_checkpointing=2)
    assert abs(fallen - expected.fallen(blocks=layers // 2, experts=layers // 2)) <= slack


def test_options_that_came_later_stand_where_they_are_used() -> None:
    assert "recompute_experts" not in TrainConfig().to_dict()


def test_counts_are_those_of_the_forward_call(ctx: nncuda.Context) -> None:
    """The recomputed call neither replaces them nor counts the balancing loss again."""
    trainer = make(ctx, DEEP, False, sequence_length=12, activation_checkpointing=1)
    result = trainer.train_step(*random_batch(DEEP, 4, 12))
    counts = trainer.model.expert_counts()
    assert counts.sum() == DEEP.num_layers * 4 * 12 * DEEP.experts_per_token
    shares = counts / (4 * 12)
    # alpha * sum over layers and experts of f P, and P is near 1 / experts.
    assert result.aux_loss == pytest.approx(DEEP.aux_alpha * np.sum(shares) / DEEP.num_experts, rel=0.5)
