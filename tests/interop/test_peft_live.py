"""Adapters that are trained here against Hugging Face's PEFT on the same weights: `make interop` runs this."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nncuda
from nncuda.models import MoEConfig, MoETransformer
from nncuda.models.adapter import Adapter
from nncuda.models.frozen import FrozenBase
from nncuda.models.low_rank import LowRankOptions, LowRankTransformer
from nncuda.train import TrainConfig, Trainer

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("runs in `make interop`, which installs the other programs", allow_module_level=True)

import peft
import torch
import transformers
from transformers.quantizers import quantizer_bitnet

RANK, ALPHA = 3, 5.0
CONFIG = {
    "vocab_size": 48, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "head_dim": 16,
    "num_experts": 0, "experts_per_token": 0, "ffn_size": 64, "context": 32, "extended_context": 32, "init_std": 0.2,
}  # fmt: skip
#: The parts that a Llama has not.
PARTS: dict[str, dict[str, object]] = {
    "Llama": {}, "Qwen2": {"qkv_bias": True, "tie_embeddings": True}, "Qwen3": {"qk_norm": True},
    "BitNet": {"ternary": True, "squared_relu": True, "tie_embeddings": True, "head_dim": 8},
}  # fmt: skip
#: By how much one activation that is rounded to the neighbour of its 8 bits may move a gradient: 1/127 of the largest
#: of its row. Two programs, or two precisions of one, differ so where a number lies half-way.
STEP = 1 / 127


@pytest.fixture(autouse=True)
def _without_accelerate(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """BitNet as it is written: no compiler, and no look for a package that a model in one piece does not use."""
    monkeypatch.setattr(quantizer_bitnet, "is_accelerate_available", lambda: True)
    with torch._dynamo.config.patch(disable=True):
        yield


def theirs(base: Path, adapter: Path, dtype: torch.dtype) -> peft.PeftModel:
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=dtype, attn_implementation="eager")
    adapted = peft.PeftModel.from_pretrained(model, adapter, is_trainable=True)
    return torch.nn.Module.to(adapted, dtype)  # a quantised model refuses, though as a module it can be converted


@pytest.mark.parametrize("name", PARTS)
def test_loss_and_gradients(ctx: nncuda.Context, tmp_path: Path, name: str) -> None:
    """Of the mean cross-entropy, for every factor: our relative error against float64 may be twice the largest
    that PEFT has in f32."""
    MoETransformer(ctx, MoEConfig(**{**CONFIG, **PARTS[name]}), seed=3).save(tmp_path / "base")  # type: ignore[arg-type]
    options = LowRankOptions(RANK, ALPHA)
    model, rng = LowRankTransformer(ctx, FrozenBase(tmp_path / "base"), options, seed=2), np.random.default_rng(2)
    for key, tensor in model.parameters.items():
        if "lora_B" in key:
            tensor.copy_(rng.normal(0.0, 0.2, tensor.shape).astype(np.float32))
    model.save(tmp_path / "adapter")
    ids = rng.integers(0, 48, (3, 18)).astype(np.int32)
    train = TrainConfig(batch_size=3, sequence_length=17, lora_rank=RANK, lora_alpha=ALPHA)
    result = Trainer(model, train, capture=False).train_step(ids[:, :-1], ids[:, 1:])
    assert model.gradients is not None
    ours, losses, found = model.gradients.arrays(), {}, {}
    for dtype in (torch.float64, torch.float32):
        other = theirs(tmp_path / "base", tmp_path / "adapter", dtype)
        logits = other(input_ids=torch.tensor(ids[:, :-1].astype(np.int64))).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), torch.tensor(ids[:, 1:].astype(np.int64)).flatten()
        )
        loss.backward()
        losses[dtype] = loss.item()
        found[dtype] = {
            key.removeprefix("base_model.model.").replace(".default", ""): parameter.grad.numpy()
            for key, parameter in other.named_parameters()
            if parameter.grad is not None
        }
    assert set(found[torch.float64]) == set(ours)
    assert result.loss == pytest.approx(losses[torch.float64], rel=1e-5)  # some 40 roundings of 2^-24 deep

    def worst(gradients: dict[str, np.ndarray]) -> float:
        exact = found[torch.float64]
        return max(float(np.linalg.norm(gradients[key] - exact[key]) / np.linalg.norm(exact[key])) for key in exact)

    print(f"{name}: {worst(ours):.1e} here, {worst(found[torch.float32]):.1e} there")
    assert worst(ours) <= max(2 * worst(found[torch.float32]), STEP if name == "BitNet" else 0.0)


def test_what_peft_begins_with_and_saves(ctx: nncuda.Context, tmp_path: Path) -> None:
    """Uniform A to the same bound, B zero; and its folder is read."""
    MoETransformer(ctx, MoEConfig(**CONFIG), seed=3).save(tmp_path / "base")  # type: ignore[arg-type]
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    targets = ["q_proj", "down_proj"]
    options = peft.LoraConfig(r=16, lora_alpha=8, target_modules=targets, task_type="CAUSAL_LM")
    begun = peft.get_peft_model(model, options)
    begun.save_pretrained(tmp_path / "adapter")
    base = FrozenBase(tmp_path / "base")
    adapter = Adapter.open(tmp_path / "adapter", base.stored.config)
    ours = LowRankTransformer(ctx, base, LowRankOptions(16, 8.0, tuple(targets)), seed=1)
    assert (adapter.rank, adapter.scale) == (16, 0.5) and set(adapter.factors) == set(ours.layout.matrices())
    for name, (a, b) in ours.layout.matrices().items():
        pair = adapter.factors[name]
        assert not pair.b.numbers().any() and not ours.parameters[b].numpy().any()
        bound = pair.a.numbers().shape[1] ** -0.5
        for factor in (pair.a.numbers(), ours.parameters[a].numpy()):
            assert 0.9 * bound < np.abs(factor).max() <= bound
            # 16 rows of at least 32: the standard deviation of their mean is bound / sqrt(3 * 512).
            assert abs(factor.mean()) < 5 * bound / np.sqrt(3 * factor.size)
