"""The loss curve of a run beside that of torch: the same configuration, initial weights and batches.

    .venv-interop/bin/python tests/interop/curve.py RUN --steps 1000 --precision f32 --out curve-f32.json

RUN is the folder of a run, such as `make run` leaves: its configuration and its data are taken. `make interop-curve`
does it in f32 and bf16, and draws both (tests/interop/draw_curve.py). Exits with 1 when a bound is broken.

Two courses that begin alike part: a rounding decides which expert a token goes to, and from there on they differ as two
seeds do. So with --follow N torch takes our weights and moments every N steps, and the means have a bound; without it
both go their own way, and how far apart they come is told.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
import transformers
from torch_beside import TorchTrainer, initial, named

import nncuda
from nncuda.models import MoEConfig
from nncuda.reference import model as reference
from nncuda.train import TrainConfig, Trainer
from nncuda.train.data import TokenWindows, open_shards
from nncuda.train.record import read_record

#: Steps whose mean loss is compared, and how much the means may differ.
WINDOW, LARGEST = 50, {"f32": 0.005, "bf16": 0.01}
#: Half a unit in the last place of 1: the largest relative error of one rounding.
ROUNDING = {"f32": 2.0**-24, "bf16": 2.0**-9}
#: Roundings one after the other through a block, forward and backward: norm, three products, rotation, scores, softmax,
#: values, output, sum, and the same of the experts with their gate and weights. What they leave is never below so many.
BLOCK_ROUNDINGS = 32


@dataclass(frozen=True)
class Gradient:
    """How far the first gradient of a parameter is from that of `nncuda.reference`, in float64; shares of its norm."""

    name: str
    ours: float
    torch: float
    bound: float


def gradients(config: MoEConfig, train: TrainConfig, batch: tuple[np.ndarray, np.ndarray]) -> Iterator[Gradient]:
    """The gradients of a batch at the initial weights. The bound is by the rule of the fixtures: twice the error of the
    plain computation in the same precision, which is torch's, and not below what the roundings on the way justify."""
    with nncuda.Context("cpu") as ctx, tempfile.TemporaryDirectory() as folder:
        model = initial(ctx, config, train)
        exact = {name: array.astype(np.float64) for name, array in model.parameters.arrays().items()}
        _, expected = reference.loss_and_gradients(exact, _reference_config(config), [batch])
        plain = TorchTrainer(model, train, Path(folder) / "initial", autocast=False)
        plain.backward(batch)
        Trainer(model, replace(train, clip_norm=None)).train_step(*batch)
        assert model.gradients is not None
        ours = model.gradients.arrays()
        theirs = named(plain.model, "gradient")
        least = (config.num_layers * BLOCK_ROUNDINGS) * ROUNDING[train.precision]
        for name, gradient in expected.items():
            norm = float(np.linalg.norm(gradient))
            errors = [
                float(np.linalg.norm(found[name].astype(np.float64) - gradient)) / norm if norm else 0.0
                for found in (ours, theirs)
            ]
            yield Gradient(name, errors[0], errors[1], max(2 * errors[1], least))


def _reference_config(config: MoEConfig) -> reference.Config:
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
        router_aux_loss_coef=config.aux_alpha,
    )


def curves(
    config: MoEConfig, train: TrainConfig, windows: TokenWindows, steps: int, follow: int
) -> Iterator[tuple[int, float, float]]:
    """Step, our loss and torch's, in lock step, with the rates of our schedule. Torch goes on from what we have every
    `follow` steps; 0: never."""
    with nncuda.Context("cpu") as ctx, tempfile.TemporaryDirectory() as folder:
        model = initial(ctx, config, train)
        beside = TorchTrainer(model, train, Path(folder) / "initial")
        trainer = Trainer(model, train)
        for step in range(steps):
            if follow and step and step % follow == 0:
                beside.take(trainer)
            batch = windows.batch(ctx, train.seed, step * train.batch_size, train.batch_size)
            result = trainer.train_step(*batch)
            yield result.step, result.loss, beside.step(batch, result.learning_rate)


def largest_difference(ours: list[float], theirs: list[float], window: int = WINDOW) -> float:
    """Of the means of `window` neighbouring steps the largest difference, as a share of torch's."""
    window = min(window, len(ours))
    kernel = np.ones(window) / window
    means = [np.convolve(losses, kernel, mode="valid") for losses in (ours, theirs)]
    return float(np.max(np.abs(means[0] - means[1]) / means[1]))


def measure(
    config: MoEConfig, train: TrainConfig, windows: TokenWindows, steps: int, follow: int, tell: bool = False
) -> dict[str, object]:
    """All of it, as it is kept."""
    with nncuda.Context("cpu") as ctx:
        first = windows.batch(ctx, train.seed, 0, train.batch_size)
    found = list(gradients(config, train, first))
    ours, theirs = [], []
    for step, own, other in curves(config, train, windows, steps, follow):
        ours.append(own)
        theirs.append(other)
        if tell and step % WINDOW == 0:
            print(f"step {step}: {own:.4f}, torch {other:.4f}", flush=True)
    return {
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "precision": train.precision,
        "follow": follow,
        "largest_difference": largest_difference(ours, theirs),
        "gradients": [asdict(one) for one in found],
        "ours": ours,
        "torch": theirs,
    }


def problems(measured: dict[str, object]) -> list[str]:
    """What is beyond its bound, a sentence each."""
    found = [
        f"the gradient of {one['name']} is {one['ours']:.1e} from float64's, the bound is {one['bound']:.1e}"
        for one in measured["gradients"]  # type: ignore[attr-defined]
        if one["ours"] > one["bound"]
    ]
    largest, bound = measured["largest_difference"], LARGEST[str(measured["precision"])]
    if measured["follow"] and largest > bound:  # type: ignore[operator]
        found.append(f"means of {WINDOW} steps differ by up to {largest:.2%}, the bound is {bound:.1%}")
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run whose configuration and data are taken")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--precision", choices=sorted(LARGEST), default="f32")
    parser.add_argument(
        "--follow", type=int, default=0, metavar="N", help="torch goes on from our weights and moments every N steps"
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON file for both curves and what they show")
    arguments = parser.parse_args()
    record = read_record(arguments.run)
    config = MoEConfig.from_dict(record["model"])  # type: ignore[arg-type]
    options = TrainConfig.from_dict(record["train"])  # type: ignore[arg-type]
    train = replace(options, precision=arguments.precision)
    windows = TokenWindows(open_shards(str(record["data"])), train.sequence_length)
    measured = measure(config, train, windows, arguments.steps, arguments.follow, tell=True)
    arguments.out.write_text(json.dumps(measured, indent=1) + "\n")
    print(f"largest difference of means: {measured['largest_difference']:.3%}")
    if found := problems(measured):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
