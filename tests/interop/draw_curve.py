"""One picture of what curve.py measured: ours and torch's loss, a panel a precision, each above its differences.

.venv/bin/python tests/interop/draw_curve.py curve-f32.json curve-bf16.json --out curves.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

_WINDOW = 50


def draw(measured: list[dict[str, object]], path: Path) -> None:
    """Losses above, and below them how far the means of 50 steps are apart."""
    figure, grid = plt.subplots(
        2, len(measured), figsize=(5.2 * len(measured), 5), sharex=True, squeeze=False, height_ratios=(3, 1)
    )
    for column, one in enumerate(measured):
        ours, theirs = np.array(one["ours"]), np.array(one["torch"])
        window = min(_WINDOW, len(ours))
        means = [np.convolve(losses, np.ones(window) / window, mode="valid") for losses in (ours, theirs)]
        steps, above, below = np.arange(1, len(ours) + 1), grid[0, column], grid[1, column]
        above.plot(steps, theirs, color="#c8442e", linewidth=1.8, alpha=0.5, label="torch")
        above.plot(steps, ours, color="#2f6fae", linewidth=0.8, label="nncuda")
        follow = one["follow"]
        how = f", torch set to ours every {follow} steps" if follow else ", each its own way"
        above.set(title=f"{one['precision']}{how}", ylabel="cross-entropy, nats per token")
        above.legend(frameon=False)
        below.axhline(0, color="#c9d1d9", linewidth=1)
        below.plot(steps[window - 1 :], 100 * (means[0] - means[1]) / means[1], color="#22303c", linewidth=1)
        below.set(xlabel="step", ylabel=f"difference, %\nmean of {window}")
    for axes in grid.flat:
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, nargs="+", help="files of curve.py")
    parser.add_argument("--out", type=Path, required=True, help="the picture, by its ending SVG or PNG")
    arguments = parser.parse_args()
    draw([json.loads(path.read_text()) for path in arguments.measured], arguments.out)


if __name__ == "__main__":
    main()
