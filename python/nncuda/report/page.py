"""The page of a report: HTML with its own style and figures, no script, and nothing that has to be fetched.

All text that comes from a run goes through `_text`. The page forbids itself, by its content security policy, to run or
load anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import numpy as np

from .. import __version__
from ..cli.terminal import bytes_text, count_text
from ..formats import write_file
from .figures import MOST_LAYERS, ReportFigure, draw_expert_figures, draw_figures, load_spread
from .run import ReportedRun, Sample, number, read_run

_STYLE = """
:root { --ink: #22303c; --soft: #5b6874; --line: #c9d1d9; --paper: #ffffff; --raised: #f5f7f9;
  --blue: #2f6fae; --red: #c8442e; --green: #2a7f62; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e3e9ee; --soft: #9aa7b3; --line: #46525e; --paper: #14191e; --raised: #1d242b;
    --blue: #6fb1ee; --red: #f0836f; --green: #5cc29c; }
}
* { box-sizing: border-box; }
html { color-scheme: light dark; -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1rem; max-width: 75rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; line-height: 1.2; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0 .75rem; max-width: 48rem; }
.soft, figcaption, caption, footer { color: var(--soft); font-size: .875rem; }
.notes { border-left: 4px solid var(--red); padding: .5rem .75rem; margin: 1rem 0; background: var(--raised); }
.notes ul { margin: 0; padding-left: 1.2rem; }
.grid { display: grid; gap: 1.25rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr));
  align-items: start; }
figure { margin: 0; min-width: 0; max-width: 40rem; break-inside: avoid; }
figure h3 { font-size: 1rem; margin: 0; }
figure svg { display: block; width: 100%; height: auto; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .25rem 0; }
th, td { text-align: left; vertical-align: top; padding: .2rem .75rem .2rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; white-space: nowrap; overflow-wrap: normal; }
.numbers th:not(:first-child), .numbers td:not(:first-child) { text-align: right; white-space: nowrap; }
pre { margin: .25rem 0 1rem; padding: .75rem; background: var(--raised); white-space: pre-wrap; font-size: .8125rem;
  unicode-bidi: isolate; break-inside: avoid; }
footer { margin-top: 2rem; }
@media print { body { padding: 0; font-size: 10pt; max-width: none; } .grid { grid-template-columns: 1fr 1fr; }
  h2 { break-after: avoid; } .wide { overflow: visible; } }
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p>{lead}</p>
</header>
<main>
{sections}
</main>
<footer>Made by <code>nncuda report</code>, version {version}, from the run's folder as it stood.</footer>
</body>
</html>
"""

# Besides line ends and tabs, HTML cannot hold these characters, or shows nothing for them.
_UNSEEN = {
    code: "\ufffd" for code in (*range(32), 127, *range(128, 160), *range(0xD800, 0xE000)) if chr(code) not in "\n\t"
}
_MOST_ROWS = 12


def write_report(folder: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Writes the page of the run in `folder` to `path`, by default `folder`/report.html, and returns where it is.

    Raises FormatError when the folder holds no metrics. The same folder gives the same bytes.
    """
    path = Path(folder) / "report.html" if path is None else Path(path)
    write_file(path, report_html(read_run(folder)))
    return path


def report_html(run: ReportedRun) -> str:
    """The page of a run."""
    sections = [
        _notes(run),
        _section("Summary", _summary(run)),
        _section("Curves", _grid(draw_figures(run)), _numbers(run)),
        _section("Experts", _grid(draw_expert_figures(run)), _expert_table(run)),
        _section("Checkpoints", _checkpoints(run)),
        _section("Samples", _samples(run.samples)),
        _section("Options", _options(run)),
    ]
    return _PAGE.format(
        title=_text(f"Training run {run.name}"),
        style=_STYLE,
        lead=_text(_lead(run)),
        sections="\n".join(section for section in sections if section),
        version=_text(__version__),
    )


def _text(value: object) -> str:
    return escape(str(value).translate(_UNSEEN))


def _section(title: str, *parts: str) -> str:
    content = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{title}</h2>\n{content}\n</section>" if content else ""


def _grid(figures: Sequence[ReportFigure]) -> str:
    if not figures:
        return ""
    return '<div class="grid">\n' + "\n".join(map(_figure, figures)) + "\n</div>"


def _figure(figure: ReportFigure) -> str:
    return (
        f'<figure id="{figure.name}">\n<h3>{_text(figure.title)}</h3>\n{figure.svg}\n'
        f"<figcaption>{_text(figure.description)}</figcaption>\n</figure>"
    )


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]], numbers: bool = True) -> str:
    """A table whose first column says what its rows are."""
    columns = "".join(f'<th scope="col">{_text(name)}</th>' for name in head)
    lines = [
        f'<tr><th scope="row">{_text(row[0])}</th>' + "".join(f"<td>{_text(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    ]
    kind = ' class="numbers"' if numbers else ""
    return (
        f'<div class="wide"><table{kind}>\n<caption>{_text(caption)}</caption>\n'
        f"<thead><tr>{columns}</tr></thead>\n<tbody>\n" + "\n".join(lines) + "\n</tbody>\n</table></div>"
    )


def _lead(run: ReportedRun) -> str:
    if run.state is None:
        return f"At step {run.last_step:,}; there is no checkpoint yet, so sizes and options are not known."
    steps = run.state.train.steps
    if run.last_step >= steps:
        return f"Complete: {steps:,} steps."
    return f"At step {run.last_step:,} of {steps:,}: going on, or interrupted."


def _notes(run: ReportedRun) -> str:
    if not run.notes:
        return ""
    return (
        '<div class="notes" role="note"><ul>' + "".join(f"<li>{_text(note)}</li>" for note in run.notes) + "</ul></div>"
    )


def _summary(run: ReportedRun) -> str:
    rows: list[tuple[str, str]] = []
    model, state = run.model, run.state
    if model is not None:
        active = count_text(model.num_active_parameters)
        rows.append(("parameters", f"{count_text(model.num_parameters)}, {active} active a token"))
        sizes = f"{model.num_layers} layers of width {model.hidden_size}, {model.num_heads} heads of {model.head_dim}"
        experts = f"{model.num_experts} experts of {model.ffn_size}, {model.experts_per_token} a token"
        rows.append(("model", f"{sizes}; {experts}; vocabulary {model.vocab_size:,}"))
    if state is not None:
        rows.append(("precision", state.train.precision))
    for name, last in (("training loss", _last(run, "loss")), ("held-out loss", _last(run, "held_out_loss"))):
        if last is not None:
            rows.append((name, f"{last[1]:.4f} nats a token, at step {last[0]:,}"))
    if run.unigram_entropy is not None:
        rows.append(("unigram entropy", f"{run.unigram_entropy:.4f} nats a token, of the held-out text"))
    best = run.best_checkpoint
    if best is not None:
        rows.append(("best checkpoint", f"{best.name}, held-out loss {best.held_out_loss:.4f}"))
    tokens, seconds = _last(run, "tokens"), _last(run, "seconds")
    if tokens is not None:
        seen = f"{count_text(int(tokens[1]))} trained on"
        if state is not None:
            size = state.data_windows * state.train.sequence_length
            seen += f", {tokens[1] / size:.2f} times the {count_text(size)} of the data"
        rows.append(("tokens", seen))
    if seconds is not None:
        rows.append(("time", _duration(seconds[1])))
    skipped = _last(run, "skipped_steps")
    if skipped is not None:
        rows.append(("skipped steps", f"{skipped[1]:.0f}"))
    rows += [(name, str(run.results.get(name, "not noted by this run"))) for name in ("device", "library")]
    peak = number(run.results.get("bytes_peak"))
    if peak >= 0:
        rows.append(("memory", f"{bytes_text(int(peak))} of the device at most"))
    rows += [(name.replace("_", "-"), str(run.sources[name])) for name in ("data", "held_out") if run.sources.get(name)]
    return _table("The run and its model", ("", ""), rows, numbers=False)


def _last(run: ReportedRun, name: str) -> tuple[int, float] | None:
    series = run.series(name)
    finite = np.flatnonzero(np.isfinite(series.values))
    return (int(series.steps[finite[-1]]), float(series.values[finite[-1]])) if len(finite) else None


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s of training"
    minutes = round(seconds / 60)
    return (
        f"{seconds / 60:.1f} minutes of training"
        if minutes < 120
        else f"{minutes // 60} h {minutes % 60} min of training"
    )


def _numbers(run: ReportedRun) -> str:
    """The curves in numbers: at the evaluations, or at evenly spaced steps when there were none."""
    columns = (
        ("training loss", "loss", "{:.4f}"),
        ("held-out loss", "held_out_loss", "{:.4f}"),
        ("learning rate", "learning_rate", "{:.3g}"),
        ("gradient norm", "grad_norm", "{:.3g}"),
        ("tokens/s", "tokens_per_second", "{:,.0f}"),
    )
    tables = {
        name: dict(zip(*map(np.ndarray.tolist, vars(run.series(name)).values()), strict=True)) for _, name, _ in columns
    }
    steps = sorted(tables["held_out_loss"]) or sorted(tables["loss"])
    if not steps:
        return ""
    chosen = [steps[index] for index in np.unique(np.linspace(0, len(steps) - 1, _MOST_ROWS).round().astype(int))]
    rows = []
    for step in chosen:
        values = [tables[name].get(step, float("nan")) for _, name, _ in columns]
        cells = (
            "–" if value != value else form.format(value) for value, (_, _, form) in zip(values, columns, strict=True)
        )
        rows.append((f"{step:,.0f}", *cells))
    return _table("The curves in numbers; – where there is none", ("step", *(title for title, _, _ in columns)), rows)


def _expert_table(run: ReportedRun) -> str:
    """How even each layer's load was in the first and the last tenth of the records."""
    steps, shares = run.expert_shares()
    if not len(steps):
        return ""
    tenth = max(1, len(steps) // 10)
    early, late = (part.mean(axis=0) * part.shape[-1] for part in (shares[:tenth], shares[-tenth:]))
    before, after = load_spread(early), load_spread(late)
    rows = [
        (layer, f"{before[layer]:.3f}", f"{after[layer]:.3f}", f"{late[layer].max():.2f}", f"{late[layer].min():.2f}")
        for layer in range(min(len(late), MOST_LAYERS))
    ]
    head = ("layer", "spread, first", "spread, last", "busiest, last", "idlest, last")
    caption = "Mean load in the first and last tenth of the records; loads in multiples of an even share"
    left = "" if len(late) <= MOST_LAYERS else f"; the first {MOST_LAYERS} of {len(late)} layers"
    return _table(caption + left, head, rows)


def _checkpoints(run: ReportedRun) -> str:
    if not run.checkpoints:
        return ""
    best, last = run.best_checkpoint, run.checkpoints[-1]
    rows = []
    for checkpoint in run.checkpoints:
        marks = [word for word, which in (("best", best), ("last", last)) if checkpoint is which]
        loss = "–" if checkpoint.held_out_loss is None else f"{checkpoint.held_out_loss:.4f}"
        rows.append(
            (checkpoint.name, loss, _duration(checkpoint.seconds), bytes_text(checkpoint.bytes), " and ".join(marks))
        )
    return _table("Those that are kept", ("checkpoint", "held-out loss", "after", "size", ""), rows)


def _samples(samples: Sequence[Sample]) -> str:
    parts = []
    for sample in samples:
        written = f"<strong>{_text(sample.prompt)}</strong>{_text(sample.text)}"
        parts.append(f'<p class="soft">after step {sample.step:,}</p>\n<pre>{written}</pre>')
    return "\n".join(parts)


def _options(run: ReportedRun) -> str:
    if run.model is None or run.state is None:
        return ""
    tables = [
        _table("of the model", ("option", "value"), _option_rows(run.model.to_dict())),
        _table("of the training", ("option", "value"), _option_rows(run.state.train.to_dict())),
    ]
    return '<div class="grid">\n' + "\n".join(tables) + "\n</div>"


def _option_rows(options: dict[str, object]) -> list[tuple[str, str]]:
    """Options with their values in the words of a configuration file."""
    words = {None: "none", True: "true", False: "false"}
    return [
        (name, words[value] if value is None or isinstance(value, bool) else str(value))
        for name, value in options.items()
    ]
