"""Training in torch beside ours: transformers' Mixtral with our initial weights, loss, optimiser and schedule.

Only for where torch and transformers are installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
import transformers

import nncuda
from nncuda.models import MoEConfig, MoETransformer, ParameterArena
from nncuda.models.folder import save_model
from nncuda.train import TrainConfig, Trainer

#: Inputs and targets, int32 [batch, length].
Batch = tuple[np.ndarray, np.ndarray]


def named(model: torch.nn.Module, value: str) -> dict[str, np.ndarray]:
    """Parameters or their gradients under the names of a Mixtral checkpoint, whose experts are not fused."""
    found = {}
    for name, parameter in model.named_parameters():
        tensor = parameter.grad if value == "gradient" else parameter
        assert tensor is not None
        array = tensor.detach().float().numpy()
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


def fused(name: str, arrays: Mapping[str, np.ndarray]) -> torch.Tensor:
    """The other way, copied: a parameter of transformers' Mixtral from arrays under a checkpoint's names."""
    base, _, part = name.replace(".mlp.", ".block_sparse_moe.").rpartition("experts.")
    if not base:
        return torch.from_numpy(arrays[part].copy())
    pairs = {"gate_up_proj": ("w1", "w3"), "down_proj": ("w2",)}[part]
    experts = sum(key.startswith(f"{base}experts.") for key in arrays) // 3
    stacks = [np.concatenate([arrays[f"{base}experts.{e}.{w}.weight"] for w in pairs]) for e in range(experts)]
    return torch.from_numpy(np.stack(stacks))


class TorchTrainer:
    """Trains a copy of the initial weights of one of our models.

    The mean cross-entropy over the targets, plus our load-balancing loss: in each layer alpha * sum over the experts of
    (share of the tokens that chose it) * (mean probability), where transformers' own counts each of the k choices apart
    and divides by all layers (huggingface/transformers#45120).
    """

    def __init__(self, model: MoETransformer, train: TrainConfig, folder: Path, autocast: bool = True):
        """In bf16 by torch's autocast, with weights and sums over blocks in f32; without `autocast` everything is bf16,
        as our activations are."""
        save_model(folder, model)
        narrow = train.precision == "bf16"
        dtype = torch.bfloat16 if narrow and not autocast else torch.float32
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        self.model.set_attn_implementation("eager")
        self._config, self._train, self._autocast = model.config, train, narrow and autocast
        matrices = [parameter for parameter in self.model.parameters() if parameter.dim() > 1]
        gains = [parameter for parameter in self.model.parameters() if parameter.dim() == 1]
        self._optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": train.weight_decay}, {"params": gains, "weight_decay": 0.0}],
            betas=(train.beta1, train.beta2),
            eps=train.eps,
        )

    def backward(self, batch: Batch) -> float:
        """Gradients of a batch; gives its mean cross-entropy."""
        ids, targets = (torch.from_numpy(np.ascontiguousarray(part)).long() for part in batch)
        self._optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self._autocast):
            output = self.model(input_ids=ids, output_router_logits=True)
        logits = output.logits.flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits.float(), targets.flatten(), ignore_index=-100)
        (loss + self._balance(output.router_logits)).backward()
        return float(loss.item())

    def _balance(self, router_logits: tuple[torch.Tensor, ...]) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for logits in router_logits:
            probabilities = logits.to(torch.float64).softmax(-1)
            chosen = probabilities.topk(self._config.experts_per_token, dim=-1).indices
            shares = torch.nn.functional.one_hot(chosen, self._config.num_experts).sum(1).to(torch.float64).mean(0)
            total = total + self._config.aux_alpha * (shares * probabilities.mean(0)).sum()
        return total

    def step(self, batch: Batch, rate: float) -> float:
        """One update with a learning rate; gives the loss before it."""
        loss = self.backward(batch)
        if self._train.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._train.clip_norm)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        return loss

    def take(self, trainer: Trainer) -> None:
        """Goes on from what our trainer has: its weights, both moments and its step."""
        first, second = trainer.first_moments, trainer.second_moments
        assert isinstance(first, ParameterArena) and isinstance(second, ParameterArena)
        parts = [arena.arrays() for arena in (trainer.model.parameters, first, second)]
        for name, parameter in self.model.named_parameters():
            weight, mean, square = (fused(name, arrays) for arrays in parts)
            with torch.no_grad():
                parameter.copy_(weight)
            state = {"step": torch.tensor(float(trainer.step)), "exp_avg": mean, "exp_avg_sq": square}
            self._optimizer.state[parameter] = state


def initial(ctx: nncuda.Context, config: MoEConfig, train: TrainConfig) -> MoETransformer:
    """The model that a run with these options begins with."""
    return MoETransformer(ctx, config, seed=train.seed, precision=train.precision)
