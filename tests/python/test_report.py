"""`nncuda report`: what the page says of a run, that nothing of a run can break it, and how a browser shows it."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from browser import Browser, find_browser
from click.testing import CliRunner
from small_models import TINY

from nncuda import Context
from nncuda.cli import main
from nncuda.formats import FormatError, write_shard
from nncuda.report import read_run, report_html, write_report
from nncuda.report.figures import load_spread
from nncuda.train import TrainConfig, TrainingRun

HOSTILE = "</pre></svg><script>alert(1)</script><img src=https://example.org/x onerror='alert(2)'>&\"\0\x1b\ud800\u202e"
VOID = {"meta", "link", "br", "img"}


class Structure(HTMLParser):
    """Elements of a page: every one closed, no name given twice; what could run or load something is collected."""

    def __init__(self, page: str):
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open, self.open
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attributes:
            assert not name.startswith("on"), (tag, name)
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href"):
                self.links.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag


def check(page: str) -> Structure:
    """What holds of every page: whole, and with nothing in it that comes from elsewhere or runs."""
    structure = Structure(page)
    assert not structure.tags & {"script", "iframe", "object", "embed", "img", "form", "a", "base"}
    assert all(link.startswith(("#", "data:")) for link in structure.links)
    assert {link[1:] for link in structure.links if link.startswith("#")} <= set(structure.ids)
    assert not re.search(r"@import|url\((?!#)", page)
    page.encode("utf-8")
    return structure


def words(page: str) -> str:
    return unescape(re.sub(r"<[^>]*>", " ", page))


def write_metrics(folder: Path, *records: object, end: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
    (folder / "metrics.jsonl").write_text("".join(line + "\n" for line in lines) + end)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a tiny model in f16, whose first steps overflow, with notes and samples as of the demo."""
    folder = tmp_path_factory.mktemp("report") / "tiny"
    draw = np.random.default_rng(1)
    data, held_out = folder.parent / "train.tokens", folder.parent / "held-out.tokens"
    for path in (data, held_out):
        write_shard(path, [draw.integers(0, TINY.vocab_size, 600)], TINY.vocab_size)
    options = TrainConfig(
        steps=12, batch_size=2, sequence_length=16, warmup_steps=2, eval_every=4, eval_batches=2, save_every=4,
        precision="f16", loss_scale=2.0**24, clip_norm=0.25,
    )  # fmt: skip
    with Context(threads=1) as ctx:
        TrainingRun.start(folder, ctx, TINY, options, data, held_out).run()
    (folder / "run.json").write_text(json.dumps({"data": str(data), "held_out": str(held_out)}))
    (folder / "results.json").write_text(json.dumps({"device": "cpu, 1 thread", "bytes_peak": 3 << 20}))
    samples = [{"step": step, "prompt": "once", "text": f" upon {step}"} for step in (4, 8)]
    (folder / "samples.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    return folder


def test_content(run: Path) -> None:
    page = report_html(read_run(run))
    structure, text = check(page), words(page)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    names = {"losses", "rate", "norm", "throughput", "memory", "scale", "spread", "load-0"}
    assert names <= set(structure.ids)
    assert "Complete: 12 steps." in text and "cpu, 1 thread" in text and "3.0 MiB" in text
    total, active = TINY.num_parameters, TINY.num_active_parameters
    assert f"{total / 1000:.2f} k, {active / 1000:.2f} k active a token" in text
    measured = [record["held_out_loss"] for record in records if "held_out_loss" in record]
    assert len(measured) == 3
    for loss in measured:
        assert f"{loss:.4f}" in text  # in the table of numbers
    skipped = records[-2]["skipped_steps"]
    assert skipped > 0 and f"gradients overflowed: {skipped}." in text
    trained = [record for record in records if record.get("grad_norm") is not None]
    clipped = sum(record["grad_norm"] > 0.25 for record in trained) / len(trained)
    assert f"Clipped to 0.25 in {clipped:.0%} of the reported steps" in text
    assert "step-00000008" in text and "step-00000012" in text and "upon 8" in text
    assert "Unigram entropy of the held-out text: 3.8" in text  # of 600 draws from 48: somewhat below log 48 = 3.87
    # What a figure shows is said in its description, which the caption repeats for all readers.
    for name in names:
        assert f'aria-labelledby="{name}-title {name}-text"' in page


def test_same_run_same_bytes(run: Path, tmp_path: Path) -> None:
    first = write_report(run, tmp_path / "a.html").read_bytes()
    assert first == write_report(run).read_bytes() == (run / "report.html").read_bytes()


def test_command(run: Path, tmp_path: Path) -> None:
    def nncuda(*arguments: object, code: int = 0) -> str:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        assert result.exit_code == code, result.output
        return result.output

    assert "out.html" in nncuda("report", run, "--out", tmp_path / "out.html")
    assert (tmp_path / "out.html").read_bytes() == (nncuda("report", run) and (run / "report.html").read_bytes())
    assert "does not exist" in nncuda("report", tmp_path / "absent", code=2)
    assert "is no training run" in nncuda("report", tmp_path, code=3)
    write_metrics(tmp_path)
    assert "holds no record of a step yet" in nncuda("report", tmp_path, code=3)
    assert not (tmp_path / "report.html").exists()


def test_while_the_run_is_going_on(run: Path, tmp_path: Path) -> None:
    """Before the first checkpoint, in the middle of a line; then with checkpoints and steps still to come."""
    folder = tmp_path / "going"
    lines = (run / "metrics.jsonl").read_text().splitlines()
    page = report_html(read_run(write_metrics(folder, *lines[:3], end=lines[3][:40])))
    check(page)
    assert "no checkpoint yet" in page and "the last line of metrics.jsonl is cut off" in page
    shutil.copytree(run / "checkpoints", folder / "checkpoints")
    shutil.rmtree(folder / "checkpoints" / "step-00000012")
    page = report_html(read_run(write_metrics(folder, *lines[:11])))
    check(page)
    assert "of 12: going on, or interrupted" in page and "cut off" not in page


def test_values_that_are_no_numbers(tmp_path: Path) -> None:
    """NaN, null, infinite, huge and wrongly typed values, lines that are no records, in every place."""
    odd = ["NaN", "Infinity", "-Infinity", "null", "true", '"x"', "[]", "1e308", "-1e99", "1" * 400, "0", "-0.0"]
    names = ("loss", "held_out_loss", "grad_norm", "learning_rate", "tokens_per_second", "tokens", "seconds")
    names += ("loss_scale", "skipped_steps", "bytes_peak", "expert_shares")
    lines = [f'{{"step": {step}, {", ".join(f"{json.dumps(name)}: {value}" for name in names)}}}'
             for step, value in enumerate(odd, 1)]  # fmt: skip
    wrong = [
        "",
        "5",
        "[1]",
        "{",
        "nothing",
        '{"step": -1}',
        '{"step": 1e9}',
        '{"step": null, "loss": 1}',
        "[" * 100_000,
    ]
    tables = ([[0.5, 0.5]], [[0.5, 2.0]], [[1.0], [0.5, 0.5]], [[]], {}, [["x", 1]], [[0.25, 0.75]])
    shares = [{"step": step, "expert_shares": value} for step, value in enumerate(tables, 20)]
    run = read_run(write_metrics(tmp_path / "odd", *wrong, *lines, *shares))
    page = report_html(run)
    check(page)
    assert len(run.expert_shares()[0]) == 2
    assert "no finite number at 9 steps, first at step 1" in page
    assert "is not JSON and is left out" in page and "has no step and is left out" in page
    assert 'id="memory"' in page  # some records tell it
    for value in odd:  # each alone, so that no other makes up for it
        check(report_html(read_run(write_metrics(tmp_path / "one", lines[odd.index(value)]))))


def test_metrics_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b"\xff\xfe\0\n" * 50 + b"\x80")
    with pytest.raises(FormatError, match="no record of a step"):
        read_run(tmp_path)


def test_hostile_text_stays_text(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / 'a <b> & "c"'
    shutil.copytree(run, folder)
    (folder / "run.json").write_text(json.dumps({"data": HOSTILE, "held_out": HOSTILE}))
    (folder / "results.json").write_text(json.dumps({"device": HOSTILE, "library": [HOSTILE], "unigram_entropy": "x"}))
    (folder / "samples.jsonl").write_text(json.dumps({"step": 4, "prompt": HOSTILE, "text": HOSTILE}) + "\n")
    (folder / "checkpoints" / "step-00000004").mkdir(exist_ok=True)
    (folder / "checkpoints" / "step-00000004" / "training.json").write_text(json.dumps({HOSTILE: 1}))
    page = report_html(read_run(folder))
    check(page)
    assert "<script" not in page and page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 6
    assert not re.search("[\0\x1b\ud800]", page)
    assert "a &lt;b&gt; &amp; &quot;c&quot;" in page


def test_long_runs_stay_small(tmp_path: Path) -> None:
    """A page does not grow with the number of steps, nor beyond measure with that of layers."""
    draw = np.random.default_rng(2)
    sizes = []
    for steps in (300, 3000):
        shares = draw.dirichlet(np.ones(16), (steps, 6)).round(5).tolist()
        losses = draw.random(steps).tolist()
        records = [{"step": n, "loss": losses[n], "expert_shares": shares[n]} for n in range(steps)]
        sizes.append(len(report_html(read_run(write_metrics(tmp_path / str(steps), *records)))))
    assert sizes[1] < 1.1 * sizes[0] < 500_000
    many = [{"step": n, "expert_shares": [[0.5, 0.5]] * 1000} for n in (1, 2)]
    page = report_html(read_run(write_metrics(tmp_path / "many", *many)))
    assert len(page) < 500_000 and page.count("The maps show the first 32 layers") == 2
    assert 'id="load-28"' in page and 'id="load-32"' not in page and "first 32 of 1000 layers" in page


def test_spread_of_load() -> None:
    np.testing.assert_allclose(load_spread(np.array([[1.0, 1, 1, 1], [4, 0, 0, 0]])), [0, np.sqrt(3)])


@pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed (Debian: apt install chromium)")
def test_in_a_browser(run: Path, tmp_path: Path) -> None:
    """Chromium shows it without a complaint and without a request, all figures with a size, on paper and on a phone."""
    page = write_report(run, tmp_path / "page.html")
    program = find_browser()
    assert program is not None
    seen = []
    with Browser(program, tmp_path / "profile") as browser:
        for width, scheme in ((1200, "light"), (1200, "dark"), (360, "light")):
            browser.show(width, 800, scheme)
            browser.open(page.as_uri())
            complaints = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
            assert [event for event in browser.events if event["method"] in complaints] == []
            asked = [event["params"]["request"]["url"] for event in browser.events
                     if event["method"] == "Network.requestWillBeSent"]  # fmt: skip
            assert {url for url in asked if not url.startswith("data:")} == {page.as_uri()}
            boxes = browser.evaluate(
                "[...document.querySelectorAll('figure svg')].map(x => { const b = x.getBoundingClientRect(), "
                "i = x.querySelector('[id$=axes_1]').getBoundingClientRect(); "
                "return [b.width, b.height, b.right, i.width, i.height] })"
            )
            assert len(boxes) == 8
            for box_width, box_height, right, inner_width, inner_height in boxes:
                assert min(box_width, box_height, inner_width, inner_height) > 0 and right <= width
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            assert browser.evaluate("[...document.querySelectorAll('figure image')].every(x => x.getBBox().width > 0)")
            seen.append(browser.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill"))
            assert browser.screenshot()[:4] == b"\x89PNG"
        assert seen[0] == seen[2] != seen[1]  # the figures' text follows the reader's choice
        browser.show(794, 1123, "dark", "print")
        background = "getComputedStyle(document.body).backgroundColor"
        assert browser.evaluate(background) == "rgb(255, 255, 255)"  # paper is white
        assert browser.pdf()[:5] == b"%PDF-"
