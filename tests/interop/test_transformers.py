"""Our model against Hugging Face transformers, from what `make interop` recorded of the other side.

`recorded/` holds the parameters that transformers read out of our checkpoint, and its logits, choices of experts,
gradients and losses; and a Mixtral that transformers made. The versions stand in each file's metadata. The auxiliary
loss is not compared, since transformers' own is known to differ (huggingface/transformers#45120);
test_auxiliary_loss.py computes cases by hand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from mixtral_cases import BETAS, CLIP, CONFIG, LEARNING_RATE, STEPS, WEIGHT_DECAY, batches
from safetensors import safe_open
from safetensors.numpy import load_file

import nncuda
from nncuda.models import MoETransformer
from nncuda.train import TrainConfig, Trainer, load_model

RECORDED = Path(__file__).parent / "recorded"


def _part(record: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in record.items() if name.startswith(prefix)}


def check_ours(ctx: nncuda.Context, record: Mapping[str, np.ndarray]) -> None:
    """Our model with the recorded parameters: logits, experts, gradients and the curve of 20 AdamW steps."""
    config = dataclasses.replace(CONFIG, aux_alpha=0.0)
    model = MoETransformer.from_arrays(ctx, config, _part(record, "parameter."))
    input_ids, targets = batches()
    logits = model.forward(input_ids[0]).numpy()
    assert np.abs(logits - record["logits"]).max() < 1e-4
    for layer, experts in enumerate(model.expert_choices()):
        np.testing.assert_array_equal(experts, record[f"experts.{layer}"])

    train = TrainConfig(
        sequence_length=input_ids.shape[-1],
        learning_rate=LEARNING_RATE,
        min_rate_share=1.0,
        warmup_steps=0,
        steps=STEPS,
        beta1=BETAS[0],
        beta2=BETAS[1],
        weight_decay=WEIGHT_DECAY,
        clip_norm=CLIP,
    )
    trainer = Trainer(model, train)
    losses = []
    for step in range(STEPS):
        losses.append(trainer.train_step(input_ids[step], targets[step]).loss)
        if step == 0:
            for name, expected in _part(record, "gradient.").items():
                error = np.linalg.norm(model.gradients[name].numpy() - expected) / np.linalg.norm(expected)
                assert error < 1e-4, f"gradient of {name}: relative error {error:.1e}"
    np.testing.assert_allclose(losses, record["losses"], rtol=1e-3)
    assert losses[-2] < losses[0] - 0.2, "the curve must go down, or it compares nothing"


def check_theirs(ctx: nncuda.Context, record: Mapping[str, np.ndarray], folder: Path) -> None:
    """A folder that transformers wrote gives the same logits here."""
    model, _ = load_model(folder, ctx)
    assert np.abs(model.forward(record["input_ids"]).numpy() - record["logits"]).max() < 1e-4


def test_our_checkpoint_in_transformers(ctx: nncuda.Context) -> None:
    check_ours(ctx, load_file(RECORDED / "ours_in_transformers.safetensors"))


def test_mixtral_made_by_transformers(ctx: nncuda.Context) -> None:
    record = load_file(RECORDED / "mixtral_by_transformers.safetensors")
    check_theirs(ctx, record, RECORDED / "mixtral_by_transformers")


@pytest.mark.parametrize("name", ["ours_in_transformers", "mixtral_by_transformers"])
def test_versions_are_recorded(name: str) -> None:
    with safe_open(RECORDED / f"{name}.safetensors", "np") as file:
        assert set(file.metadata()) == {"torch", "transformers"}
