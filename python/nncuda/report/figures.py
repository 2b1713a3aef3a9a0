"""Figures of a report: matplotlib draws them, as SVG that stands in an HTML page and takes the page's colours."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from .run import ReportedRun, Series

# What is drawn in these becomes a variable of the page's style sheet, which has a value for light and one for dark.
_INK, _LINE, _BLUE, _RED, _GREEN = "#22303c", "#c9d1d9", "#2f6fae", "#c8442e", "#2a7f62"
_VARIABLES = {_INK: "ink", _LINE: "line", _BLUE: "blue", _RED: "red", _GREEN: "green"}
_STYLE = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _INK,
    "axes.titlecolor": _INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.4,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "nncuda",
}
_WIDTH, _HEIGHT = 5.0, 2.9  # inches: at the width of a phone the text is still of a size to be read
_MOST_POINTS = 200
_MOST_COLUMNS = 160
_LAYERS_A_FIGURE = 4
#: Layers that heat maps and tables show, the first ones of a model that has more.
MOST_LAYERS = 32


@dataclass(frozen=True)
class ReportFigure:
    """A figure as an SVG element, with its title and what it says in words."""

    name: str
    title: str
    description: str
    svg: str


def draw_figures(run: ReportedRun) -> list[ReportFigure]:
    """The figures that the records of a run allow, in the order of the page."""
    found = [_losses(run), _learning_rate(run), _gradient_norm(run), _throughput(run), _loss_scale(run), _memory(run)]
    return [figure for figure in found if figure is not None]


def draw_expert_figures(run: ReportedRun) -> list[ReportFigure]:
    """The spread of load over the steps, then heat maps of expert × step, a panel a layer."""
    steps, shares = run.expert_shares()
    if not len(steps):
        return []
    layers, experts = shares.shape[1:]
    loads = shares * experts  # 1 is an even share
    found = [_spread(steps, loads)]
    columns, edges = _columns(steps, loads)
    ceiling = max(2.0, float(columns.max()))
    for first in range(0, min(layers, MOST_LAYERS), _LAYERS_A_FIGURE):
        found.append(_heat_maps(columns[:, first : first + _LAYERS_A_FIGURE], edges, ceiling, first))
    return found


def load_spread(loads: np.ndarray) -> np.ndarray:
    """Coefficient of variation of the load over a layer's experts, [.., experts] to [..]: 0 when all get the same."""
    return loads.std(axis=-1) / np.maximum(loads.mean(axis=-1), 1e-30)


def _losses(run: ReportedRun) -> ReportFigure | None:
    train, held_out, entropy = run.series("loss"), run.series("held_out_loss"), run.unigram_entropy
    if not train and not held_out:
        return None
    words = []

    def draw(axes: Axes) -> None:
        if train:
            _curve(axes, train, _BLUE, "training")
        if held_out:
            _curve(axes, held_out, _RED, "held-out", marker="o")
        if entropy is not None:
            axes.axhline(entropy, color=_INK, linewidth=1, linestyle=(0, (4, 3)), label="unigram entropy")
        axes.set_ylabel("nats a token")
        axes.legend(loc="upper right")

    if train:
        words.append(f"Training loss, {_span(train)}.")
    if held_out:
        words.append(f"Held-out loss, {_span(held_out)}.")
    if entropy is not None:
        words.append(f"Unigram entropy of the held-out text: {entropy:.4g}.")
    return _figure("losses", "Loss", " ".join(words) + _band_words(train), draw)


def _learning_rate(run: ReportedRun) -> ReportFigure | None:
    series = run.series("learning_rate")
    if not series:
        return None

    def draw(axes: Axes) -> None:
        _curve(axes, series, _BLUE, band=False)
        axes.set_ylim(bottom=0)
        axes.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4))

    return _figure("rate", "Learning rate", f"Learning rate, {_span(series)}.", draw)


def _gradient_norm(run: ReportedRun) -> ReportFigure | None:
    series = run.series("grad_norm")
    if not series:
        return None
    clip = run.state.train.clip_norm if run.state is not None else None

    def draw(axes: Axes) -> None:
        _curve(axes, series, _BLUE, "gradient norm")
        if _positive(series):
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_locator(NullLocator())
        if clip is not None:
            axes.axhline(clip, color=_RED, linewidth=1, linestyle=(0, (4, 3)), label=f"clipped to {clip:g}")
        axes.legend(loc="upper right")

    words = f"Global norm of the gradients before clipping, {_span(series)}."
    if clip is not None:
        finite = series.values[np.isfinite(series.values)]
        words += f" Clipped to {clip:g} in {(finite > clip).mean():.0%} of the reported steps."
    return _figure("norm", "Gradient norm", words + _band_words(series), draw)


def _throughput(run: ReportedRun) -> ReportFigure | None:
    series = run.series("tokens_per_second")
    if not series:
        return None

    def draw(axes: Axes) -> None:
        _curve(axes, series, _GREEN)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("tokens a second")

    middle = np.median(series.values[np.isfinite(series.values)])
    words = f"Tokens trained on a second; the median is {middle:,.0f}."
    return _figure("throughput", "Throughput", words + _band_words(series), draw)


def _loss_scale(run: ReportedRun) -> ReportFigure | None:
    scale, skipped = run.series("loss_scale"), run.series("skipped_steps")
    if not scale:
        return None

    def draw(axes: Axes) -> None:
        axes.step(scale.steps, scale.values, where="post", color=_BLUE, linewidth=1.6, label="loss scale (left)")
        if _positive(scale):
            axes.set_yscale("log", base=2)
        if skipped:
            other = axes.twinx()
            other.grid(False)
            other.step(skipped.steps, skipped.values, where="post", color=_RED, linewidth=1.2, label="skipped (right)")
            other.set_ylim(bottom=0, top=max(1.0, float(np.nanmax(skipped.values)) * 1.1))
            other.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.figure.legend(loc="outside upper center", ncols=2)

    words = f"Scale of the losses in f16, {_span(scale)}."
    if skipped:
        words += f" Steps skipped because their gradients overflowed: {np.nanmax(skipped.values):.0f}."
    return _figure("scale", "Loss scale and skipped steps", words, draw)


def _memory(run: ReportedRun) -> ReportFigure | None:
    series = run.series("bytes_peak")
    if not series:
        return None
    series = Series(series.steps, series.values / 2**20)

    def draw(axes: Axes) -> None:
        _curve(axes, series, _GREEN, band=False)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("MiB")

    return _figure("memory", "Memory", f"Most memory of the device in use so far, in MiB, {_span(series)}.", draw)


def _spread(steps: np.ndarray, loads: np.ndarray) -> ReportFigure:
    spread = load_spread(loads)  # [time, layer]
    mean = Series(steps, spread.mean(axis=1))

    def draw(axes: Axes) -> None:
        at, means, _, _ = _binned(mean)
        _, _, low, _ = _binned(Series(steps, spread.min(axis=1)))
        _, _, _, high = _binned(Series(steps, spread.max(axis=1)))
        axes.fill_between(at, low, high, color=_BLUE, alpha=0.2, linewidth=0, label="from layer to layer")
        axes.plot(at, means, color=_BLUE, linewidth=1.6, marker="o" if len(at) == 1 else None, label="mean of layers")
        axes.set_ylim(bottom=0)
        axes.set_ylabel("deviation / mean")
        axes.legend(loc="upper right")

    words = (
        "Standard deviation of the load over a layer's experts, divided by its mean: 0 when all get the same. "
        f"Mean of the {spread.shape[1]} layers, {_span(mean)}."
    )
    if spread.shape[1] > MOST_LAYERS:
        words += f" The maps show the first {MOST_LAYERS} layers."
    return _figure("spread", "Spread of expert load", words, draw)


def _heat_maps(columns: np.ndarray, edges: tuple[float, float], ceiling: float, first: int) -> ReportFigure:
    """Panels of layers `first`.. from loads [column, layer, expert], in the colours from 0 to `ceiling`."""
    layers, experts = columns.shape[1:]
    last = first + layers - 1

    def draw(figure: Figure) -> None:
        ratios = [1.0] * layers + [0.08]
        grid = figure.subplots(layers + 1, 1, squeeze=False, height_ratios=ratios)[:, 0]
        for layer, axes in enumerate(grid[:-1]):
            axes.imshow(
                columns[:, layer].T,
                aspect="auto",
                interpolation="none",
                cmap="viridis",
                vmin=0,
                vmax=ceiling,
                extent=(*edges, experts - 0.5, -0.5),
            )
            axes.set_title(f"layer {first + layer}", pad=3)
            axes.grid(False)
            axes.set_ylabel("expert")
            axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.tick_params(labelbottom=layer == layers - 1)
        grid[-2].set_xlabel("step")
        scale = np.linspace(0, ceiling, 64)[None]
        grid[-1].imshow(scale, aspect="auto", interpolation="none", cmap="viridis", extent=(0, ceiling, 0, 1))
        grid[-1].set(yticks=[], xlabel="times an even share")
        grid[-1].grid(False)

    busiest = np.unravel_index(int(columns[-1].argmax()), columns[-1].shape)
    words = (
        "Load of each expert over the steps, in multiples of an even share, as the last micro-batch of each reported "
        "step had it. At the end the busiest is expert "
        f"{busiest[1]} of layer {first + busiest[0]}, with {columns[-1].max():.2f} times an even share."
    )
    title = f"Expert load, layer {first}" if first == last else f"Expert load, layers {first} to {last}"
    return _render(f"load-{first}", title, words, draw, 1.45 * layers + 0.75)


def _columns(steps: np.ndarray, loads: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """Loads in columns of equal numbers of steps, and the first and last edge in steps.

    A column is the mean of its records; one that has none repeats the one before it.
    """
    count = min(len(steps), _MOST_COLUMNS)
    first, last = float(steps[0]), float(steps[-1])
    if first == last:
        return loads[-1:], (first - 0.5, last + 0.5)
    places = np.minimum(((steps - first) / (last - first) * count).astype(int), count - 1)
    columns = np.empty((count, *loads.shape[1:]))
    for column in range(count):
        inside = loads[places == column]
        columns[column] = inside.mean(axis=0) if len(inside) else columns[column - 1]
    return columns, (first, last)


def _binned(series: Series) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Steps, means, lowest and highest values of neighbouring points, so that at most `_MOST_POINTS` are left.

    What has no finite value at all is NaN.
    """
    groups = np.array_split(np.arange(len(series.steps)), min(len(series.steps), _MOST_POINTS))
    rows = np.full((4, len(groups)), np.nan)
    for index, group in enumerate(groups):
        rows[0, index] = series.steps[group].mean()
        values = series.values[group]
        values = values[np.isfinite(values)]
        if len(values):
            rows[1:, index] = values.mean(), values.min(), values.max()
    return rows[0], rows[1], rows[2], rows[3]


def _curve(
    axes: Axes, series: Series, colour: str, label: str | None = None, *, band: bool = True, marker: str | None = None
) -> None:
    """A line through the means, over a band from lowest to highest where a point stands for several."""
    steps, means, low, high = _binned(series)
    if band and len(series.steps) > len(steps):
        axes.fill_between(steps, low, high, color=colour, alpha=0.25, linewidth=0)
    axes.plot(steps, means, color=colour, linewidth=1.6, label=label, marker=marker, markersize=3.5)
    # A point between two gaps has no line to be seen by.
    finite = np.pad(np.isfinite(means), 1)
    alone = finite[1:-1] & ~finite[:-2] & ~finite[2:]
    axes.plot(steps[alone], means[alone], color=colour, linewidth=0, marker="o", markersize=3.5)


def _positive(series: Series) -> bool:
    return bool((series.values[np.isfinite(series.values)] > 0).all())


def _band_words(series: Series) -> str:
    if len(series.steps) <= _MOST_POINTS:
        return ""
    return f" The line is the mean of about {len(series.steps) / _MOST_POINTS:.0f} records, the band their range."


def _span(series: Series) -> str:
    finite = np.flatnonzero(np.isfinite(series.values))
    first, last = finite[0], finite[-1]
    return (
        f"from {series.values[first]:.4g} at step {series.steps[first]:.0f} "
        f"to {series.values[last]:.4g} at step {series.steps[last]:.0f}"
    )


def _figure(name: str, title: str, description: str, draw: Callable[[Axes], None]) -> ReportFigure:
    """A figure of one panel over the steps."""

    def whole(figure: Figure) -> None:
        axes = figure.subplots()
        axes.margins(x=0.01)
        draw(axes)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))

    return _render(name, title, description, whole, _HEIGHT)


def _render(name: str, title: str, description: str, draw: Callable[[Figure], None], height: float) -> ReportFigure:
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        file = io.StringIO()
        # Without its date, the same run gives the same bytes.
        figure.savefig(file, format="svg", metadata={"Date": None})
    return ReportFigure(name, title, description, _for_page(file.getvalue(), name, title, description))


def _for_page(svg: str, name: str, title: str, description: str) -> str:
    """An SVG file as an element of a page: no namespaces, no metadata, names of its own, the page's colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*|<style\b.*?</style>\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("xlink:href=", "href=")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'\bhref="#', f'href="#{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-")
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var(--{variable})")
    (box,) = re.findall(r'viewBox="([^"]*)"', svg[: svg.index(">")])
    head = (
        f'<svg viewBox="{box}" role="img" aria-labelledby="{name}-title {name}-text">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-text">{escape(description)}</desc>'
    )
    return head + svg[svg.index(">") + 1 :].rstrip()
