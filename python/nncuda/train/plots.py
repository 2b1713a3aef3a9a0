"""Pictures of a run: its losses, and how its experts share the tokens. Needs matplotlib, the extra `plot`."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..extras import ExtraMissing, left_out

try:
    import matplotlib
except ModuleNotFoundError as error:
    raise ExtraMissing(left_out("plot", "pictures of a run")) from error

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

_INK, _FAINT, _TRAIN, _HELD_OUT = "#22303c", "#c9d1d9", "#8fb4d9", "#c8442e"
#: Of every picture.
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.titlecolor": _INK,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "legend.frameon": False,
    "figure.dpi": 150,
    "savefig.bbox": "tight",
}


def plot_losses(
    records: Sequence[dict[str, object]], path: str | os.PathLike[str], unigram_entropy: float | None = None
) -> None:
    """Training and held-out loss over the steps, and the unigram entropy that the model has to beat."""
    train = [(record["step"], record["loss"]) for record in records if record.get("loss") is not None]
    held_out = [(record["step"], record["held_out_loss"]) for record in records if "held_out_loss" in record]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8, 4.5))
        if train:
            steps, losses = np.array(train).T
            axes.plot(steps, losses, color=_TRAIN, linewidth=0.7, alpha=0.6)
            width = max(1, len(losses) // 50)
            if width > 1:
                smooth = np.convolve(losses, np.ones(width) / width, mode="valid")
                axes.plot(
                    steps[width - 1 :], smooth, color="#2f6fae", linewidth=1.6, label=f"training, mean of {width} steps"
                )
            else:
                axes.lines[0].set(alpha=1.0, label="training")
        if held_out:
            steps, losses = np.array(held_out).T
            axes.plot(steps, losses, color=_HELD_OUT, marker="o", markersize=3.5, linewidth=1.6, label="held-out")
            axes.annotate(
                f"{losses[-1]:.2f}",
                (steps[-1], losses[-1]),
                (6, 0),
                textcoords="offset points",
                va="center",
                color=_HELD_OUT,
            )
        if unigram_entropy is not None:
            axes.axhline(unigram_entropy, color=_INK, linewidth=1, linestyle=(0, (4, 3)))
            axes.annotate(
                f"unigram entropy of the held-out text, {unigram_entropy:.2f}",
                (1, unigram_entropy),
                (0, 4),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                ha="right",
            )
        axes.set(xlabel="step", ylabel="cross-entropy, nats per token")
        axes.margins(x=0.01)
        axes.legend(loc="upper right", bbox_to_anchor=(1, 0.93))
        figure.savefig(path)
        plt.close(figure)


def plot_experts(records: Sequence[dict[str, object]], path: str | os.PathLike[str]) -> None:
    """Share of the tokens' choices that each expert gets, a panel a layer, over the steps.

    Bands that stay even mean that the load-balancing loss works; a band that fills its panel, that a router collapsed.
    """
    points = [(record["step"], record["expert_shares"]) for record in records if "expert_shares" in record]
    if not points:
        raise ValueError("these metrics hold no expert shares")
    steps = np.array([step for step, _ in points], float)
    shares = np.array([share for _, share in points], float)  # [time, layer, expert]
    steps, shares = _thin(steps, shares)
    layers, experts = shares.shape[1:]
    columns = min(layers, 2 if layers <= 8 else 4)
    rows = math.ceil(layers / columns)
    colours = plt.get_cmap("viridis")(np.linspace(0.08, 0.95, experts))
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            rows, columns, figsize=(4.6 * columns, 2.3 * rows + 0.6), sharex=True, sharey=True, squeeze=False
        )
        for layer, axes in enumerate(grid.flat):
            if layer >= layers:
                axes.set_visible(False)
                continue
            _stack(axes, steps, shares[:, layer], colours)
            axes.set_title(f"layer {layer}", loc="left", fontsize=10)
        for axes in grid[:, 0]:
            axes.set_ylabel("share of tokens")
        for axes in grid[-1]:
            axes.set_xlabel("step")
        handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in colours]
        figure.legend(
            handles[::-1],
            [f"expert {number}" for number in range(experts)][::-1],
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            handlelength=1,
            handleheight=1,
        )
        figure.suptitle(
            "How each layer's experts share the tokens (lines: even shares)", x=0.01, ha="left", fontsize=12
        )
        figure.tight_layout()
        figure.savefig(path)
        plt.close(figure)


def _stack(axes: Axes, steps: np.ndarray, shares: np.ndarray, colours: np.ndarray) -> None:
    """Bands of one layer, expert 0 at the bottom, with a line where each would end if all were even."""
    axes.stackplot(steps, shares.T, colors=colours, edgecolor="white", linewidth=0.4)
    experts = shares.shape[1]
    for line in range(1, experts):
        axes.axhline(line / experts, color="white", linewidth=0.6, linestyle=(0, (1, 2)))
    axes.set(xlim=(steps[0], max(steps[-1], steps[0] + 1)), ylim=(0, 1), yticks=[0, 0.5, 1])
    axes.set_yticklabels(["0", "50 %", "100 %"])


def _thin(steps: np.ndarray, shares: np.ndarray, most: int = 160) -> tuple[np.ndarray, np.ndarray]:
    """Means over neighbouring steps, so that at most so many points are left and the bands do not flicker."""
    if len(steps) <= most:
        return steps, shares
    groups = np.array_split(np.arange(len(steps)), most)
    return (
        np.array([steps[group].mean() for group in groups]),
        np.array([shares[group].mean(axis=0) for group in groups]),
    )
