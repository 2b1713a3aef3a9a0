"""Our checkpoints run in Hugging Face transformers and theirs in this library, live; what the other side says is
recorded.

`make interop` runs this in an environment with torch and transformers. Where the two disagree it fails; when they
agree it writes the other side's results to `recorded/`, which test_transformers.py checks without either package.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from mixtral_cases import BETAS, CLIP, CONFIG, LEARNING_RATE, LENGTH, STEPS, WEIGHT_DECAY, batches
from safetensors.numpy import save_file
from test_transformers import RECORDED, check_ours, check_theirs

import nncuda
from nncuda.models import MoETransformer
from nncuda.train import TrainConfig, Trainer
from nncuda.train.checkpoint import TrainingState, save_checkpoint

if os.environ.get("NNCUDA_INTEROP") != "live":
    pytest.skip("runs in `make interop`, which installs torch and transformers", allow_module_level=True)

import torch
import transformers

VERSIONS = {"torch": torch.__version__, "transformers": transformers.__version__}


def _named(model: torch.nn.Module, value: str) -> dict[str, np.ndarray]:
    """Parameters or their gradients under the names of a Mixtral checkpoint, whose experts are not fused."""
    found = {}
    for name, parameter in model.named_parameters():
        array = (parameter.grad if value == "gradient" else parameter).detach().numpy()
        if name.endswith("experts.gate_up_proj"):
            for expert, matrix in enumerate(array):
                base = f"{name.removesuffix('gate_up_proj')}{expert}".replace(".mlp.", ".block_sparse_moe.")
                found[f"{base}.w1.weight"], found[f"{base}.w3.weight"] = np.split(matrix, 2)
        elif name.endswith("experts.down_proj"):
            for expert, matrix in enumerate(array):
                base = f"{name.removesuffix('down_proj')}{expert}".replace(".mlp.", ".block_sparse_moe.")
                found[f"{base}.w2.weight"] = matrix
        else:
            found[name.replace(".mlp.", ".block_sparse_moe.")] = array
    return {name: np.ascontiguousarray(array) for name, array in found.items()}


def _cross_entropy(model: torch.nn.Module, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=ids).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten().long(), ignore_index=-100)


def test_our_checkpoint_in_transformers(tmp_path: Path) -> None:
    """Our checkpoint opened by AutoModelForCausalLM: logits, experts, gradients, a training curve."""
    ctx = nncuda.Context("cpu")
    train = TrainConfig(sequence_length=LENGTH)
    state = TrainingState(step=0, data_position=0, data_windows=1, seconds=0.0, train=train)
    saved = save_checkpoint(tmp_path, Trainer(MoETransformer(ctx, CONFIG, seed=11), train), state)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32)
    theirs.set_attn_implementation("eager")
    all_ids, all_targets = batches()
    ids, targets = torch.from_numpy(all_ids), torch.from_numpy(all_targets)
    record = {f"parameter.{name}": array.copy() for name, array in _named(theirs, "parameter").items()}
    with torch.no_grad():
        output = theirs(input_ids=ids[0], output_router_logits=True)
    record["logits"] = output.logits.numpy()
    for layer, logits in enumerate(output.router_logits):
        experts = logits.softmax(-1).topk(CONFIG.experts_per_token, dim=-1).indices
        record[f"experts.{layer}"] = experts.numpy().astype(np.int32)
    _cross_entropy(theirs, ids[0], targets[0]).backward()
    record |= {f"gradient.{name}": array.copy() for name, array in _named(theirs, "gradient").items()}
    theirs.zero_grad()

    matrices = [p for p in theirs.parameters() if p.dim() > 1]
    gains = [p for p in theirs.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": gains, "weight_decay": 0.0}],
        lr=LEARNING_RATE,
        betas=BETAS,
        eps=1e-8,
    )
    losses = []
    for step in range(STEPS):
        loss = _cross_entropy(theirs, ids[step], targets[step])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    record["losses"] = np.array(losses, np.float64)
    check_ours(ctx, record)
    save_file(record, RECORDED / "ours_in_transformers.safetensors", metadata=VERSIONS)


def test_mixtral_made_by_transformers() -> None:
    """A Mixtral that transformers made and saved, opened here."""
    torch.manual_seed(7)
    config = transformers.MixtralConfig(
        vocab_size=96,
        hidden_size=40,
        intermediate_size=56,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_local_experts=4,
        num_experts_per_tok=3,
        max_position_embeddings=64,
        initializer_range=0.2,
        tie_word_embeddings=False,
        sliding_window=None,
    )
    theirs = transformers.MixtralForCausalLM(config).eval()
    folder = RECORDED / "mixtral_by_transformers"
    theirs.save_pretrained(folder)
    ids = torch.randint(0, 96, (2, 40))
    with torch.no_grad():
        logits = theirs(input_ids=ids).logits.numpy()
    record = {"input_ids": ids.numpy().astype(np.int32), "logits": logits}
    save_file(record, RECORDED / "mixtral_by_transformers.safetensors", metadata=VERSIONS)
    check_theirs(nncuda.Context("cpu"), record, folder)
