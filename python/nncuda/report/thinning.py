"""How a run of any length becomes a page of bounded size: what a report shows of a series, and of the load of experts.

The three languages follow the same rule to the bit. Sums run in the order of the records, and what they give is rounded
to six significant digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

#: Most points of a curve; neighbouring records share one when there are more.
MOST_POINTS = 300
#: Steps whose mean is called the loss of the run.
RECENT_STEPS = 50
#: Most columns of the maps of experts' load, and about how many numbers all maps hold together.
MOST_COLUMNS = 120
MOST_CELLS = 100_000
#: Layers of which the load is shown, the first ones of a model that has more.
MOST_LAYERS = 32
#: Most rows of the table of numbers.
MOST_ROWS = 12
#: Shares are written as whole multiples of one over this.
SHARE_UNIT = 10_000

Points = Sequence[tuple[int, float]]


def rounded(value: float) -> float:
    """The nearest number of six significant decimal digits."""
    return float(f"{value:.5e}")


def thin(points: Points, lows: Sequence[float] | None = None, highs: Sequence[float] | None = None) -> dict | None:
    """A series of (step, value), steps ascending and values NaN where they are no number; None when all are.

    Of n records, point i of m = min(n, 300) stands for the records i·n // m up to (i+1)·n // m: the steps that they
    come `from` and go `to`, and the mean, lowest and highest of their finite values. `lows` and `highs`, a value a
    record, take the place of the values for the last two.
    """
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    if not finite:
        return None
    count = min(len(points), MOST_POINTS)
    made: dict[str, list] = {name: [] for name in ("from", "to", "mean", "low", "high")}
    for index in range(count):
        begin, end = index * len(points) // count, (index + 1) * len(points) // count
        values = [value for _, value in points[begin:end] if math.isfinite(value)]
        made["from"].append(points[begin][0])
        made["to"].append(points[end - 1][0])
        made["mean"].append(rounded(_sum(values) / len(values)) if values else None)
        for name, extreme, others in (("low", min, lows), ("high", max, highs)):
            found = values if others is None else others[begin:end]
            made[name].append(rounded(extreme(found)) if len(found) else None)
    first, last = finite[0], finite[-1]
    return {
        "records": len(points),
        "finite": len(finite),
        "first": [first[0], rounded(first[1])],
        "last": [last[0], rounded(last[1])],
        **made,
    }


def recent_mean(points: Points) -> list[float] | None:
    """The finite values of the last 50 steps that have one: the first and last of these steps, and their mean.

    The last value alone is that of one batch, and tells chance as much as the model.
    """
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    recent = [(step, value) for step, value in finite if step > finite[-1][0] - RECENT_STEPS]
    if not recent:
        return None
    return [recent[0][0], recent[-1][0], rounded(_sum([value for _, value in recent]) / len(recent))]


def chosen_rows(steps: Sequence[int]) -> list[int]:
    """At most 12 of the steps, evenly spaced from the first to the last."""
    count = min(len(steps), MOST_ROWS)
    if count < 2:
        return list(steps)
    gaps = count - 1
    return [steps[(2 * index * (len(steps) - 1) + gaps) // (2 * gaps)] for index in range(count)]


def thin_experts(steps: Sequence[int], shares: np.ndarray) -> dict:
    """Of the shares of choices that experts got, f64 [n, layers, experts]: the spread over the experts, and maps.

    The spread is the standard deviation of a layer's shares, divided by their mean: a series of the mean over the
    layers, with the lowest and highest layer. The maps have columns of equal numbers of steps: the mean of the records
    in them, and where there are none, the column before.
    """
    layers, experts = shares.shape[1:]
    spread = load_spread(shares)  # [n, layers]
    means = np.zeros(len(steps))
    for layer in range(layers):
        means += spread[:, layer]
    series = thin(
        list(zip(steps, (means / layers).tolist(), strict=True)),
        spread.min(axis=1).tolist(),
        spread.max(axis=1).tolist(),
    )
    shown = min(layers, MOST_LAYERS)
    count = min(len(steps), MOST_COLUMNS, max(2, MOST_CELLS // (shown * experts)))
    first, last = steps[0], steps[-1]
    edges: list[float] = [first, last]
    if first == last:
        columns, edges = [_in_units(shares[-1, :shown])], [first - 0.5, last + 0.5]
    else:
        places = [min((step - first) * count // (last - first), count - 1) for step in steps]
        columns = []
        for column in range(count):
            inside = [index for index, place in enumerate(places) if place == column]
            columns.append(_in_units(_mean_of(shares[inside, :shown])) if inside else columns[-1])
    return {"layers": layers, "experts": experts, "edges": edges, "spread": series, "columns": columns}


def load_spread(shares: np.ndarray) -> np.ndarray:
    """Coefficient of variation of the load over a layer's experts, [.., experts] to [..]: 0 when all get the same."""
    experts = shares.shape[-1]
    total = np.zeros(shares.shape[:-1])
    for expert in range(experts):
        total += shares[..., expert]
    mean = total / experts
    squares = np.zeros_like(total)
    for expert in range(experts):
        squares += (shares[..., expert] - mean) ** 2
    return np.divide(np.sqrt(squares / experts), mean, out=np.zeros_like(mean), where=mean > 0)


def _mean_of(shares: np.ndarray) -> np.ndarray:
    total = np.zeros(shares.shape[1:])
    for record in shares:
        total += record
    return total / len(shares)


def _in_units(shares: np.ndarray) -> list[list[int]]:
    return np.floor(shares * SHARE_UNIT + 0.5).astype(int).tolist()


def _sum(values: Sequence[float]) -> float:
    """In the order of the values: Python's own sum corrects its rounding errors, which other languages' do not."""
    total = 0.0
    for value in values:
        total += value
    return total
