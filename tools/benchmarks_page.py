"""The tables of docs/benchmarks.md, from the files that the benchmarks wrote on one day and one machine each.

A table stands between two lines, of which the first names its kind and its file:

    <!-- kernels: made from docs/benchmarks/zen5-2026-11-26.json -->
    <!-- end of kernels -->

The rest of the page is written by hand. A file is what `--json` wrote, named for its processor and its day; of the
figures that were only printed on their day the file says so in "note".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from nncuda.bench.ceilings import Ceilings
from nncuda.bench.growth import Point
from nncuda.bench.measure import Row
from nncuda.bench.step import cpu_cases
from nncuda.bench.tables import rate_text, time_text
from nncuda.binding.header import Header
from nncuda.cli.terminal import bytes_text

from .cuts import Balance
from .serving_bench import PEER

ROOT = Path(__file__).resolve().parents[1]
PAGE = "docs/benchmarks.md"
OWNED = (PAGE,)

_PLACE = re.compile(r"<!-- (?P<kind>[a-z]+): made from (?P<file>\S+) -->\n.*?<!-- end of (?P=kind) -->", re.DOTALL)
Content = Mapping[str, Any]


def filled(page: str, read: Callable[[str], Content]) -> str:
    """A page with its tables; `read` gives the content of a file. ValueError for a kind that there is not."""

    def table(place: re.Match[str]) -> str:
        kind, file = place["kind"], place["file"]
        if kind not in _TABLES:
            raise ValueError(f"{PAGE} asks for a table of {kind}; there are those of {', '.join(_TABLES)}")
        lines = "\n".join(_TABLES[kind](read(file)))
        return f"<!-- {kind}: made from {file} -->\n\n{lines}\n\n<!-- end of {kind} -->"

    return _PLACE.sub(table, page)


def files(_contract: Header, _source: bytes) -> dict[str, str]:
    """The page, by its path; it does not depend on the ABI."""
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    return {PAGE: filled(page, lambda file: json.loads((ROOT / file).read_text(encoding="utf-8")))}


def _lines(names: Iterable[str], rows: Iterable[Iterable[str]], left: int = 1) -> Iterable[str]:
    """A table whose first columns stand on the left."""
    names = list(names)
    yield f"| {' | '.join(names)} |".replace("|  |", "| |")
    yield f"|{'|'.join('---' if at < left else '---:' for at in range(len(names)))}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _of(kind: type, content: Content) -> Any:
    """A dataclass of the keys that it has: a file may be older or younger than it."""
    names = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in content.items() if name in names})


def _machine(content: Content) -> Iterable[str]:
    machine = content["machine"]
    parts = [f"{machine['cores']} cores of {machine['processor']}", f"widest instruction set `{machine['isa']}`"]
    parts += [f"torch {machine['torch']}"] if "torch" in machine else []
    note = content.get("note")
    yield f"*{', '.join(parts)}, on {machine['date']}.{f' {note}' if note else ''}*"


def _ceilings(content: Content) -> Iterable[str]:
    found = [_of(Ceilings, each) for each in content["ceilings"].values()]
    names = [f"ceiling, {found[0].threads} threads", *(f"`{each.isa}`" for each in found)]
    lines = zip(*(each.lines() for each in found), strict=True)
    return _lines(names, ([line[0][0], *(text for _, text in line)] for line in lines))


def _kernels(content: Content) -> Iterable[str]:
    rows = [_of(Row, each) for each in content["rows"]]
    isas = list(dict.fromkeys(row.isa for row in rows))
    against = any(row.ratio for row in rows)
    return _of_one_set(rows, against) if len(isas) == 1 else _of_sets(rows, isas, against)


def _of_one_set(rows: list[Row], against: bool) -> Iterable[str]:
    peer = ["torch / ours"] if against else []
    names = ["work", "time", "rate", "of ceiling", *peer, "goal"]

    def cells() -> Iterable[list[str]]:
        group = ""
        for row in rows:
            if row.group != group:
                group = row.group
                yield [f"**{group}**", *[""] * (len(names) - 1)]
            ratio = [f"{row.ratio:.2f}" if row.ratio else ""] if against else []
            goal = f"{row.asked}, short" if row.reached is False else row.asked
            yield [row.name, _time(row), rate_text(row), _share(row), *ratio, goal]

    return _lines(names, cells())


def _of_sets(rows: list[Row], isas: list[str | None], against: bool) -> Iterable[str]:
    peer = ["torch / ours"] if against else []
    names = ["work", *(name for isa in isas for name in (f"`{isa}`", "of ceiling", *peer))]

    def cells() -> Iterable[list[str]]:
        group = ""
        works = {(row.group, row.name): None for row in rows}
        found = {(row.group, row.name, row.isa): row for row in rows}
        for own, name in works:
            if own != group:
                group = own
                yield [f"**{group}**", *[""] * (len(names) - 1)]
            line = [name]
            for isa in isas:
                row = found.get((own, name, isa))
                line += [_time(row), _share(row)] if row else ["", ""]
                if against:
                    line.append(f"{row.ratio:.2f}" if row and row.ratio else "")
            yield line

    return _lines(names, cells())


def _time(row: Row) -> str:
    return time_text(row.seconds) if row.seconds is not None else "failed"


def _share(row: Row) -> str:
    return f"{row.share:.0%} of {row.floor}" if row.share is not None else ""


def _steps(content: Content) -> Iterable[str]:
    """Each training step's sides, with the share of the products' peak where it was measured."""
    cases = {case.name: case for case in cpu_cases()}

    def cells() -> Iterable[list[str]]:
        for step in content["steps"]:
            case, speeds, peaks = cases[step["name"]], step["tokens_per_second"], step["peak_bytes"]
            ceiling = content["ceilings"].get(step["isa"])
            wanted = "dot_bf16" if case.precision == "bf16" else "fma_f32"
            peak = step["peak"] if "peak" in step else _of(Ceilings, ceiling).of(wanted)[1]
            for side, speed in speeds.items():
                ratio = f"{speeds['nncuda'] / speed:.2f}" if side != "nncuda" else ""
                name = f"nncuda, `{step['isa']}`" if side == "nncuda" else side
                share = f"{speed * case.flops_a_token / peak:.0%}" if peak else ""
                yield [step["name"], name, f"{speed:,.0f}", share, bytes_text(peaks[side]), ratio]

    return _lines(["step", "side", "tokens/s", "of the peak", "peak memory", "ours is times as fast"], cells(), 2)


def _model(content: Content) -> Iterable[str]:
    """What `nncuda bench --model` found: sides in columns, and how many times as fast the first of ours is."""
    sides = content["sides"]
    compared = content["times_as_fast"]
    names = [f"{_name(side)}, `{side['isa']}`" if side.get("isa") else _name(side) for side in sides]
    ours = [side for side in sides if side["ours"]]
    several = len(ours) > 1
    times = [f"times as fast, `{side['isa']}`" if several else "times as fast" for side in ours[: len(compared)]]
    work = content["work"]

    def row(what: str, text: Callable[[Content], str], *keys: str) -> list[str]:
        found = []
        for each in compared:
            value: Any = each
            for key in keys:
                value = value.get(key) if isinstance(value, dict) else None
            found.append(f"{value:.2f}" if keys and value is not None else "")
        return [what, *(text(side) for side in sides), *found]

    def decoding(side: Content) -> str:
        share = f" ({side['share']:.0%} of the probe)" if side.get("share") else ""
        return f"{_speed(side['decode'])}{share}"

    def seconds(key: str) -> Callable[[Content], str]:
        return lambda side: f"{side[key]:,.2f} s" if side.get(key) else ""

    rows = [
        row(f"prefill {work['prefill']}, tokens/s", lambda side: _speed(side["prefill"]), "prefill"),
        row(f"decoding {work['decode']}, tokens/s", decoding, "decode"),
        row(f"first token after {work['prompt']}", seconds("first_token"), "first_token"),
        row(f"{work['answer']} tokens after {work['prompt']}", seconds("answer"), "answer"),
        *(
            row(f"{rows} together, tokens/s", lambda side, key=rows: _speed(side["batched"][key]), "batched", rows)
            for rows in sides[0]["batched"]
        ),
        row("peak memory", lambda side: bytes_text(side["memory"]["peak"])),
    ]
    if any(side["seconds_to_load"] for side in sides):
        rows.append(row("load, file in memory", seconds("seconds_to_load")))
    model = Path(content["model"]).name
    return _lines([f"{model}, {content['threads']} threads", *names, *times], rows)


def _speed(rate: float) -> str:
    """Tokens a second, in three digits or all that stand before the point."""
    return f"{rate:.3g}" if rate < 100 else f"{rate:,.0f}"


def _name(side: Content) -> str:
    return side["name"].split(" (")[0]


def _serving(content: Content) -> Iterable[str]:
    """Of several runs, each with other numbers of clients."""
    names = ["Python", "Go", "Rust"]
    found = {
        (each["clients"], each["side"]): each | {"written": run["work"]["output"]}
        for run in content["runs"]
        for each in run["figures"]
    }

    def cells() -> Iterable[list[str]]:
        for clients in sorted({clients for clients, _ in found}):
            ours, peer = [found[clients, name] for name in names], found[clients, PEER]
            speeds = [each["tokens_per_second"] for each in ours]
            firsts = " · ".join(f"{each['first_token_p95']:.2f}" for each in ours)
            yield [
                str(clients),
                str(peer["written"]),
                " · ".join(f"{speed:.1f}" for speed in speeds),
                f"{peer['tokens_per_second']:.1f}",
                f"{min(speeds) / peer['tokens_per_second']:.2f}",
                f"{firsts} s",
                f"{peer['first_token_p95']:.2f} s",
                str(sum(each["errors"] for each in [*ours, peer])),
            ]

    sides = " · ".join(names)
    slowest, first = f"the slowest of ours / {PEER}", f"first token, p95: {sides}"
    return _lines(["clients", "written", f"tokens/s: {sides}", PEER, slowest, first, PEER, "errors"], cells(), 0)


def _cuts(content: Content) -> Iterable[str]:
    """Of kernels: tasks, and the share of the threads' time in which they have one."""
    found = [each for each in _balances(content) if not each.whole]
    return _by_threads(content, found, (), lambda each: f"{each.tasks:,} · {each.balance:.0%}" if each.calls else "1")


def _scaling(content: Content) -> Iterable[str]:
    """Of whole steps: the serial share of one thread's time, and how many times as fast as that the cuts allow."""
    found = [each for each in _balances(content) if each.whole]
    serial = {each.name: f"{each.serial_share:.1%}" for each in reversed(found)}
    return _by_threads(content, found, (("serial", serial),), lambda each: f"{each.times_one:.1f} ×")


def _growth(content: Content) -> Iterable[str]:
    """A line a model, its sides beside one another: tokens a second and peak memory."""
    points = [_of(Point, each) for each in content["points"]]
    sides = list(dict.fromkeys(one.side for one in points))
    found = {(one.axis, one.parameters, one.layers, one.side): one for one in points}
    names = [
        "parameters",
        "layers",
        *(f"{side}, tokens/s" for side in sides),
        *(f"{side}, peak memory" for side in sides),
    ]

    def cells() -> Iterable[list[str]]:
        for axis, parameters, layers in dict.fromkeys((one.axis, one.parameters, one.layers) for one in points):
            line = [found.get((axis, parameters, layers, side)) for side in sides]
            speeds = [_of_point(one) for one in line]
            memory = [bytes_text(one.bytes) if one and one.bytes is not None else "" for one in line]
            yield [f"{parameters / 1e6:,.0f} M", str(layers), *speeds, *memory]

    return _lines(names, cells(), 0)


def _of_point(point: Point | None) -> str:
    if point is None:
        return ""
    return f"{point.tokens_per_second:,.0f}" if point.tokens_per_second is not None else str(point.missing)


def _balances(content: Content) -> list[Balance]:
    return [_of(Balance, each) for each in content["balances"]]


def _by_threads(
    content: Content,
    found: list[Balance],
    more: Iterable[tuple[str, Mapping[str, str]]],
    text: Callable[[Balance], str],
) -> Iterable[str]:
    """A line a work and a column a number of threads, after columns of `more`."""
    threads = sorted({each.threads for each in found})
    by_name: dict[str, dict[int, Balance]] = {}
    for each in found:
        by_name.setdefault(each.name, {})[each.threads] = each
    names = [f"`{content['isa']}`", *(title for title, _ in more), *(f"{count} threads" for count in threads)]
    lines = (
        [name, *(texts[name] for _, texts in more), *(text(cells[n]) if n in cells else "" for n in threads)]
        for name, cells in by_name.items()
    )
    return _lines(names, lines)


_TABLES: dict[str, Callable[[Content], Iterable[str]]] = {
    "machine": _machine,
    "ceilings": _ceilings,
    "kernels": _kernels,
    "steps": _steps,
    "model": _model,
    "serving": _serving,
    "cuts": _cuts,
    "scaling": _scaling,
    "growth": _growth,
}
