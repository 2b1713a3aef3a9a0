"""Training on packed documents that do not see one another: what each would give alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nncuda import Context
from nncuda.models import MoEConfig, MoETransformer
from nncuda.train import Checkpoint, TrainConfig, Trainer

END = 3
CONFIG = MoEConfig(
    vocab_size=40,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    ffn_size=24,
    num_experts=4,
    experts_per_token=2,
    context=64,
    init_std=0.2,
    aux_alpha=0.0,  # balance is over all tokens of a call
)
#: Tokens of the documents of each sequence; the last has no end.
LENGTHS = ((9, 1, 23, 7), (4, 36))


@pytest.fixture
def packed() -> tuple[np.ndarray, np.ndarray]:
    """Ids and targets, [2, 40]."""
    rows = np.random.default_rng(4).integers(END + 1, 40, (2, 41)).astype(np.int32)
    for row, lengths in zip(rows, LENGTHS, strict=True):
        row[np.cumsum(lengths)[:-1] - 1] = END
    return rows[:, :-1], rows[:, 1:]


def alone(ids: np.ndarray, targets: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The documents, each as one sequence."""
    parts = []
    for at, lengths in enumerate(LENGTHS):
        ends = np.cumsum(lengths)
        parts += [
            (ids[at : at + 1, end - length : end], targets[at : at + 1, end - length : end])
            for end, length in zip(ends, lengths, strict=True)
        ]
    return parts


def gradients(model: MoETransformer, batches: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
    """Those of the sum of the losses of all batches."""
    ctx, tensor = model.ctx, model.ctx.tensor
    one, aux = tensor(np.ones(1, np.float32)), tensor(np.zeros(1, np.float32))
    for number, (ids, targets) in enumerate(batches):
        losses = ctx.empty((model.loss_pieces(ids.size),))
        ids, targets = np.ascontiguousarray(ids), np.ascontiguousarray(targets)
        model.forward_backward(tensor(ids), tensor(targets), one, aux, losses, aux, accumulate=number > 0)
    assert model.gradients is not None
    return {name: value.numpy() for name, value in model.gradients.items()}


def test_losses_are_those_of_each_document_alone(packed: tuple[np.ndarray, np.ndarray]) -> None:
    model = MoETransformer(Context(), CONFIG, seed=1)
    unmasked, tokens = model.evaluate(*packed)
    wanted = sum(model.evaluate(*part)[0] for part in alone(*packed))
    model.mask_documents(END)
    masked, counted = model.evaluate(*packed)
    assert counted == tokens == packed[0].size
    # 80 losses of some units, each within some hundred roundings of f32 of itself.
    assert masked == pytest.approx(wanted, rel=1e-5)
    assert abs(unmasked - wanted) > 1e-3 * wanted
    model.mask_documents(None)
    assert model.evaluate(*packed)[0] == unmasked


@pytest.mark.parametrize("recomputed", [0, 1])
def test_gradients_are_those_of_each_document_alone(packed: tuple[np.ndarray, np.ndarray], recomputed: int) -> None:
    model = MoETransformer(Context(), CONFIG, seed=1)
    model.recompute(recomputed)
    wanted = gradients(model, alone(*packed))
    unmasked = gradients(model, [packed])
    model.mask_documents(END)
    found = gradients(model, [packed])
    for name, values in wanted.items():
        size = np.abs(values).max()
        assert np.abs(found[name] - values).max() <= 1e-4 * size, name
        assert not np.array_equal(found[name], unmasked[name]), name


def test_a_trainer_masks_and_a_checkpoint_remembers(packed: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    options = {"steps": 4, "batch_size": 2, "sequence_length": 40, "warmup_steps": 0}
    losses = {}
    for mask in (None, END):
        trainer = Trainer(MoETransformer(Context(), CONFIG, seed=1), TrainConfig(document_mask=mask, **options))
        losses[mask] = [trainer.train_step(*packed).loss for _ in range(3)]  # the last two as a graph
        trainer.save_checkpoint(tmp_path / str(mask))
        resumed = Checkpoint(tmp_path / str(mask)).trainer(Context())
        assert resumed.config.document_mask == mask
        assert resumed.train_step(*packed).loss == trainer.train_step(*packed).loss
    assert losses[None] != losses[END]
    assert "document_mask" not in TrainConfig(**options).to_dict()


@pytest.mark.parametrize("mask", [-1, 2.0, True, "3"])
def test_a_mask_is_a_token(mask: object) -> None:
    with pytest.raises(ValueError, match="document_mask is"):
        TrainConfig(document_mask=mask)  # type: ignore[arg-type]


def test_a_mask_is_a_token_of_the_model() -> None:
    with pytest.raises(ValueError, match="document_mask is 40; this model has a vocabulary of 40"):
        Trainer(MoETransformer(Context(), CONFIG, seed=1), TrainConfig(document_mask=40, sequence_length=40))
