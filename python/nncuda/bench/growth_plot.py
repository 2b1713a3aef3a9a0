"""The picture of `nncuda bench growth`: speed and memory over the size and over the depth of a model."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..train.plots import STYLE  # which says what is missing without matplotlib, and draws without a screen
from .growth import Point

import matplotlib.pyplot as plt  # isort: skip

_COLOURS = {"nncuda": "#2f6fae", "torch compile": "#c8442e", "torch eager": "#d9a05b"}


def plot_growth(points: Sequence[Point], path: str | os.PathLike[str]) -> None:
    """Four panels, all logarithmic; a side's points that could not be measured are left out."""
    with plt.rc_context({**STYLE, "svg.hashsalt": "nncuda", "svg.fonttype": "none"}):
        figure, grid = plt.subplots(2, 2, figsize=(9, 6), sharex="col")
        for column, (axis, label) in enumerate((("width", "parameters, millions (8 layers)"), ("depth", "layers"))):
            for row, (key, unit, scale) in enumerate(
                (("tokens_per_second", "tokens/s", 1), ("bytes", "peak memory, GB", 1e9))
            ):
                axes = grid[row][column]
                for side in dict.fromkeys(point.side for point in points):
                    some = [one for one in points if one.axis == axis and one.side == side and one.missing is None]
                    across = [one.layers if axis == "depth" else one.parameters / 1e6 for one in some]
                    up = [getattr(one, key) / scale for one in some]
                    axes.plot(across, up, marker="o", markersize=3.5, linewidth=1.6, label=side, color=_COLOURS[side])
                axes.set_xscale("log")
                axes.set_yscale("log")
                axes.set_ylabel(unit if column == 0 else "")
                axes.grid(True, which="major", linewidth=0.4, alpha=0.5)
            grid[1][column].set_xlabel(label)
        grid[0][0].legend(loc="upper right")
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None} if str(path).endswith(".svg") else None)
        plt.close(figure)
