"""`report`: of one run every language makes the same page, to the byte, whatever the run is like."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import languages
import numpy as np
import pytest
from click.testing import CliRunner
from runs import OPTIONS, Workshop

from nncuda.cli import main
from nncuda.report import read_run, report_html

USAGE, WRONG_FILE = 2, 3
HOSTILE = "</script><script>alert(1)</script>&\"'\0\x1b\u2028\u202e\U0001f600é\ud800{{run}}"


def compare(language: languages.Language, run: Path) -> None:
    """The page that the language makes, at its default place, and the one that this process makes."""
    out = run / "report.html"
    said = language.run("report", run).stdout
    assert said == f"{out}: {out.stat().st_size / 1e3:,.0f} kB\n"
    expected, found = report_html(read_run(run)), out.read_text(encoding="utf-8")
    if expected != found:
        at = next((at for at, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), len(found))
        pytest.fail(f"from character {at} on: {expected[at - 80 : at + 40]!r} and {found[at - 80 : at + 40]!r}")


@pytest.mark.case("report of a training run")
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("language", languages.NAMES[1:], indirect=True)
def test_runs(workshop: Workshop, language: languages.Language, options: str) -> None:
    """Of the run that the language itself made."""
    compare(language, workshop.run(language.name, options))


def write(folder: Path, name: str, *lines: object) -> None:
    folder.mkdir(exist_ok=True)
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (folder / name).write_text(text)


def long_run(folder: Path) -> None:
    """More records, layers and digits than a page shows, of every size."""
    draw = np.random.default_rng(6)
    names = ("loss", "aux_loss", "grad_norm", "learning_rate", "tokens_per_second", "tokens", "seconds", "loss_scale")
    records: list[dict[str, object]] = []
    for step in np.cumsum(draw.integers(1, 9, 1000)).tolist():
        values = (draw.standard_normal(len(names)) * 10.0 ** draw.integers(-30, 30, len(names))).tolist()
        values[0] = None if draw.random() < 0.3 else values[0]
        shares = draw.dirichlet(np.full(7, 0.3), 34).tolist()
        records.append({"step": step, **dict(zip(names, values, strict=True)), "expert_shares": shares})
        if draw.random() < 0.1:
            records.append({"step": step, "held_out_loss": draw.random()})
    write(folder, "metrics.jsonl", *records)


def odd_run(folder: Path) -> None:
    """Lines that are no records, values that are no numbers, texts that are hostile, files that are none."""
    odd = [
        "NaN",
        "Infinity",
        "-Infinity",
        "null",
        "true",
        '"x"',
        "[]",
        "1e308",
        "-1e99",
        "1" * 400,
        "0",
        "-0.0",
        "1e999",
    ]
    odd += ["1e-320", "0.1e1", "123456.5", "1234565", "-2.5e-5", "9007199254740993", "-0", str(2**63), "1" * 50]
    names = ("loss", "held_out_loss", "grad_norm", "tokens", "skipped_steps", "bytes_peak", "expert_shares")
    lines = [f'{{"step": {step}, {", ".join(f"{json.dumps(name)}: {value}" for name in names)}}}'
             for step, value in enumerate(odd, 1)]  # fmt: skip
    lines += [
        "",
        " \t\r",
        "\x0b",
        "5",
        "[1]",
        "{",
        "NaN",
        '{"step": -1}',
        '{"step": 1e9}',
        '{"step": 01}',
        "[" * 100_000,
    ]
    lines += ['{"step": 40, "a": ' + "[" * depth + "]" * depth + "}" for depth in (511, 512, 513, 600)]
    lines += [
        '{"step": 41, "a": "\\ud800\\ud83d\\ude00", "a": 1,}',
        '{"step": 9007199254740992}',
        '{"step": 3, "loss": .5}',
    ]
    lines += ['{"loss": 1, "step": 30, "loss": 2.0000005}', '{"step": 31, "loss": ' + "9" * 5000 + "}", '{"step": 2} x']
    write(folder, "metrics.jsonl", *lines, '{"step": 50, "loss"')
    (folder / "metrics.jsonl").write_bytes(
        b'\xef\xbb\xbf{"step": 1}\n\xff\n' + (folder / "metrics.jsonl").read_bytes()[:-1]
    )
    write(folder, "run.json", {"data": HOSTILE, "held_out": "/dev/zero", "program": [1], "abi": "é" * 1001})
    write(
        folder, "results.json", {"device": HOSTILE, "program": "p", "unigram_entropy": 10**400, "bytes_peak": 1234567}
    )
    write(folder, "samples.jsonl", *({"step": n // 2, "prompt": HOSTILE * (1 + 400 * (n == 204)), "text": str(n)}
                                     for n in range(205)), {"step": 1, "prompt": 1, "text": ""}, "{")  # fmt: skip
    for name in ("step-00000001", "step-00000002", "step-3", "step-000000010"):
        (folder / "checkpoints" / name).mkdir(parents=True)
    write(folder / "checkpoints" / "step-00000001", "training.json", {HOSTILE: 1})
    os.mkfifo(folder / "checkpoints" / "step-00000002" / "training.json")


def few_records(folder: Path) -> None:
    """One step, and options that stand in run.json alone, one of them wrong."""
    record = {"step": 0, "expert_shares": [[1, 0], [0.25, 0.75]], "grad_norm": 2, "held_out_loss": 1}
    write(folder, "metrics.jsonl", record)
    options = {"model": {"num_layers": 2, "rope_base": 5000}, "train": {"steps": 3, "clip_norm": 1}}
    write(folder, "run.json", {**options, "held_out": "/dev/zero"})


def wrong_options(folder: Path) -> None:
    few_records(folder)
    write(folder, "run.json", {"model": {"num_layers": 2}, "train": {"steps": 0}})
    os.mkfifo(folder / "results.json")


@pytest.mark.case("report of runs that are long, cut off or damaged")
@pytest.mark.parametrize("make", [long_run, odd_run, few_records, wrong_options])
@pytest.mark.parametrize("language", languages.NAMES[1:], indirect=True)
def test_other_runs(make: Callable[[Path], None], language: languages.Language, tmp_path: Path) -> None:
    run = tmp_path / "a <run> & more é"
    make(run)
    compare(language, run)


@pytest.mark.case("report of what is no run")
@pytest.mark.parametrize("language", languages.NAMES[1:], indirect=True)
def test_refusals(language: languages.Language, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    write(empty, "metrics.jsonl", "5")
    for arguments, code in (((tmp_path,), WRONG_FILE), ((empty,), WRONG_FILE),
                            ((tmp_path / "absent",), USAGE), ((empty / "metrics.jsonl",), USAGE),
                            ((empty, "--out", tmp_path), USAGE), ((), USAGE)):  # fmt: skip
        expected = CliRunner().invoke(main, ["report", *map(str, arguments)])
        said = language.run("report", *arguments, code=code).stderr
        assert expected.exit_code == code and (code == USAGE or said == expected.stderr)
    write(empty, "metrics.jsonl", {"step": 1})
    language.run("report", empty, "--out", tmp_path / "absent" / "page.html", code=WRONG_FILE)
