"""Evaluates a checkpoint, of whichever language, on held-out tokens: `python evaluate.py RUN held-out.tokens`."""

from __future__ import annotations

import argparse
import math

import numpy as np

import nncuda
from nncuda.train import load_model
from nncuda.train.data import TokenWindows, open_shards

BATCH = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a checkpoint, or the folder of a run, whose last checkpoint is taken")
    parser.add_argument("data", help="a token shard, or a folder of them")
    parser.add_argument("--length", type=int, help="tokens per window; default: the model's context")
    arguments = parser.parse_args()

    with nncuda.Context() as ctx:
        model, _ = load_model(arguments.model, ctx)
        windows = TokenWindows(open_shards(arguments.data), arguments.length or model.config.context)
        total, hits, tokens = 0.0, 0, 0
        shares = np.zeros((model.config.num_layers, model.config.num_experts))
        for inputs, targets in windows.spread(BATCH):
            loss, count = model.evaluate(inputs, targets)
            total, tokens = total + loss, tokens + count
            hits += int((model.forward(inputs).numpy().argmax(axis=-1) == targets).sum())
            shares += model.expert_counts()

    shares /= shares.sum(axis=1, keepdims=True)
    print(f"{tokens} tokens in {len(windows)} windows of {windows.length}")
    print(f"loss {total / tokens:.4f} nats per token, perplexity {math.exp(total / tokens):.2f}")
    print(f"the most likely token is the right one in {hits / tokens:.1%}")
    for layer, row in enumerate(shares):
        print(f"layer {layer}: experts take", " ".join(f"{share:.0%}" for share in row))


if __name__ == "__main__":
    main()
