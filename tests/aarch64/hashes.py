"""The bits of every kernel on the golden cases, and of a short training run, on one instruction set: a JSON object of
SHA-256 by case and output. Two instruction sets of one arithmetic, on whatever processors, print the same.

Runs on the processor that is tested, or under an emulator of it: python hashes.py FIXTURES ISA [--train STEPS]
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

from nncuda.golden.fixtures import read_folder
from nncuda.golden.runner import Runner, available_isas


def digest(values: np.ndarray) -> str:
    """Of the bytes, with all NaN alike: their sign and payload are a processor's own."""
    values = np.array(values)
    if values.dtype.kind not in "iub":
        values[np.isnan(values.astype(np.float64))] = np.nan
    return hashlib.sha256(values.tobytes()).hexdigest()


def kernels(folder: Path, isa: str) -> dict[str, str]:
    found = {}
    with Runner(isa=isa, threads=1) as runner:
        for fixture in read_folder(folder):
            for output, values in runner.outputs(fixture).items():
                found[f"{fixture.id}: {output}"] = digest(values)
    return found


def training(isa: str, steps: int) -> dict[str, str]:
    """Losses and parameters of a small model after some steps, in f32 and in bf16."""
    import nncuda
    from nncuda.models import MoEConfig, MoETransformer
    from nncuda.train import TrainConfig, Trainer

    config = MoEConfig(
        vocab_size=64, hidden_size=32, num_layers=2, num_heads=4, head_dim=8,
        num_experts=4, experts_per_token=2, ffn_size=64, context=128,
    )  # fmt: skip
    ids = np.arange(8 * 17, dtype=np.int32).reshape(8, 17) * 7 % 64
    found = {}
    for precision in ("f32", "bf16"):
        with nncuda.Context("cpu", threads=1, isa=isa) as ctx:
            options = TrainConfig(
                steps=steps, warmup_steps=1, learning_rate=0.01, sequence_length=16, precision=precision
            )
            model = MoETransformer(ctx, config, seed=0, precision=precision)
            trainer = Trainer(model, options)
            names = [spec.name for spec in model.layout]
            losses = [trainer.train_step(input_ids=ids[:, :-1], targets=ids[:, 1:]).loss for _ in range(steps)]
            found[f"training in {precision}: losses"] = digest(np.array(losses))
            for name in names:
                found[f"training in {precision}: {name}"] = digest(model.parameters[name].numpy())
    return found


def main() -> None:
    folder, isa = Path(sys.argv[1]), sys.argv[2]
    if isa == "list":
        print(json.dumps(available_isas()))
        return
    found = kernels(folder, isa)
    if "--train" in sys.argv:
        found |= training(isa, int(sys.argv[sys.argv.index("--train") + 1]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
