"""`nncuda report`: what the page says of a run, that nothing of a run can break it, and how a browser shows it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
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
from nncuda.report import report_html, write_report
from nncuda.train import TrainConfig, TrainingRun

HOSTILE = "</pre></svg><script>alert(1)</script><img src=https://example.org/x onerror='alert(2)'>&\"\0\x1b\ud800\u202e"
VOID = {"meta", "link", "br", "img"}


SCRIPT = Path(__file__).with_name("page_in_node.js")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed (apt install nodejs)")
needs_browser = pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed (apt install chromium)")


class Structure(HTMLParser):
    """Elements of a page as it is read before its script runs, every one closed; `files` are those of the run."""

    def __init__(self, page: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.files: dict[str, str] = {}
        self.feed(page)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            assert not name.startswith("on") and name != "style", (tag, name)
            if name in ("href", "src"):
                self.links.append(value or "")
        if tag == "pre":
            assert [name for name, _ in attributes] == ["hidden", "data-file"]
            self.files[attributes[1][1] or ""] = ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "pre":
            self.files[list(self.files)[-1]] += data

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag


def check(page: str) -> dict[str, str]:
    """What holds of every page: one script, nothing else that loads or runs. Gives the files that stand in it."""
    structure = Structure(page)
    assert structure.tags.count("script") == 1 and not {"iframe", "object", "embed", "img", "form"} & {*structure.tags}
    assert structure.links == ["data:,"]
    return {name: text.removeprefix("\n") for name, text in structure.files.items()}


def in_node(page: Path) -> dict:
    """What the page's script makes, without a browser: `run`, what it read; `text`, what it says; its `figures`."""
    done = subprocess.run(["node", SCRIPT, page], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def read_run(folder: Path) -> dict:
    """The run in a folder as the page's script reads it."""
    return in_node(write_report(folder))["run"]


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
    (folder / "results.json").write_text(json.dumps({"device": "another", "bytes_peak": 3 << 20}))
    samples = [{"step": step, "prompt": "once", "text": f" upon {step}"} for step in (4, 8)]
    (folder / "samples.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    assert program is not None
    with Browser(program, tmp_path_factory.mktemp("browser")) as found:
        yield found


def show(browser: Browser, page: Path) -> str:
    """Opens a page in a browser, which may neither complain nor ask for anything else. Gives its text."""
    browser.open(page.as_uri())
    complaints = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
    assert [event for event in browser.events if event["method"] in complaints] == []
    asked = {event["params"]["request"]["url"] for event in browser.events
             if event["method"] == "Network.requestWillBeSent"}  # fmt: skip
    assert {url for url in asked if not url.startswith("data:")} == {page.as_uri()}
    return browser.evaluate("document.getElementById('page').innerText")


@pytest.mark.parametrize(("element", "directive"), [("style", "style-src"), ("script", "script-src")])
def test_the_policy_names_what_stands_in_the_page(run: Path, element: str, directive: str) -> None:
    """By its hash (W3C CSP level 2, section 4.2.5): a change of a file of the page changes page.html, too."""
    page = report_html(run)
    text = re.search(f"<{element}>(.*?)</{element}>", page, re.S)
    assert text is not None
    name = "sha256-" + base64.b64encode(hashlib.sha256(text[1].encode()).digest()).decode()
    assert f"{directive} '{name}'" in page, f"go/report/page/page.html must have {directive} '{name}'"


def test_files_of_a_run_are_in_the_page(run: Path) -> None:
    found = check(report_html(run))
    steps = [f"checkpoints/step-{step:08d}/" for step in (4, 8, 12)]
    files = ["run.json", "results.json", "samples.jsonl", "metrics.jsonl"]
    states = [step + "training.json" for step in steps]
    assert list(found) == [".", *files, *(name for pair in zip(steps, states, strict=True) for name in pair)]
    assert found["."] == "tiny"
    for name in (*files, *states):
        assert found[name] == (run / name).read_text()
    for name in steps:
        assert int(found[name]) == sum(file.stat().st_size for file in (run / name).iterdir())


@needs_node
def test_what_the_script_reads(run: Path) -> None:
    found = read_run(run)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    held_out = [(one["step"], one["held_out_loss"]) for one in records if "held_out_loss" in one]
    series = found["series"]
    assert list(series) == ["loss", "held_out_loss", "aux_loss", "grad_norm", "learning_rate", "tokens_per_second",
                            "loss_scale", "skipped_steps", "bytes_peak"]  # fmt: skip
    assert series["held_out_loss"]["from"] == [step for step, _ in held_out]
    assert series["held_out_loss"]["mean"] == [loss for _, loss in held_out]
    assert [row[:1] + row[2:3] for row in found["table"]] == [[step, loss] for step, loss in held_out]
    assert found["options"]["train"]["clip_norm"] == 0.25 and found["options"]["model"] == TINY.to_dict()
    assert (found["parameters"], found["active_parameters"]) == (TINY.num_parameters, TINY.num_active_parameters)
    norms = [one["grad_norm"] for one in records if one.get("grad_norm") is not None]
    assert found["clipped"] == sum(norm > 0.25 for norm in norms) and series["grad_norm"]["finite"] == len(norms)
    assert found["last_step"] == 12 and found["tokens"] == 12 * 32 and found["data_windows"] == 37
    assert found["unigram_entropy"] == pytest.approx(3.83, abs=0.04)  # of 600 draws from 48: somewhat below log 48
    assert [one["name"] for one in found["checkpoints"]] == ["step-00000004", "step-00000008", "step-00000012"]
    noted = json.loads((run / "run.json").read_text())
    names = ["program", "library", "abi", "device", "data", "data_sha256", "held_out", "held_out_sha256"]
    assert list(found["noted"].items()) == [(name, noted[name]) for name in names]
    assert found["bytes_peak"] == 3145728
    assert found["experts"]["layers"] == TINY.num_layers and found["experts"]["edges"] == [1, 12]
    np.testing.assert_allclose(found["experts"]["columns"][0], records[0]["expert_shares"], rtol=1e-15)
    assert not found["notes"]


@needs_node
def test_words(run: Path, tmp_path: Path) -> None:
    """What the page's script makes of it."""
    made = in_node(write_report(run, tmp_path / "page.html"))
    text = made["text"]
    assert made["title"] == "Training run tiny"
    assert "Complete: 12 steps." in text and "at most 3.0 MiB of device memory" in text
    noted = json.loads((run / "run.json").read_text())
    for name in ("program", "device", "data", "data_sha256"):
        assert noted[name] in text
    total, active = TINY.num_parameters, TINY.num_active_parameters
    assert f"{total / 1000:.2f} k, {active / 1000:.2f} k active per token" in text
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    measured = {one["step"]: one["held_out_loss"] for one in records if "held_out_loss" in one}
    assert len(measured) == 3 and all(f"{loss:.4f}" in text for loss in measured.values())
    best = min(measured, key=measured.__getitem__)
    assert f"best checkpoint\tstep-{best:08d}, held-out loss {measured[best]:.4f}" in text
    skipped = records[-2]["skipped_steps"]
    assert skipped > 0 and f"gradients overflowed: {skipped}." in text and "from 2^24 at step 1 to" in text
    trained = [record for record in records if record.get("grad_norm") is not None]
    clipped = sum(record["grad_norm"] > 0.25 for record in trained) / len(trained)
    assert f"Clipped to 0.25 in {clipped:.0%} of the reported steps" in text
    assert "once upon 8" in text and "Unigram entropy of the held-out text: 3.8" in text
    assert "precision\tf16" in text and "norm_topk_prob\ttrue" in text and "capacity_factor\tnone" in text
    assert made["figures"] == ["losses", "rate", "norm", "throughput", "scale", "balance", "memory", "spread", "load-0"]


@needs_browser
def test_figures_are_described(run: Path, browser: Browser, tmp_path: Path) -> None:
    """What a figure shows is said beside it, for those who cannot see it."""
    show(browser, write_report(run, tmp_path / "page.html"))
    described = "[...document.querySelectorAll('figure svg[role=img]')].map(x => ['labelledby', 'describedby'].map(" \
                "y => document.getElementById(x.getAttribute('aria-' + y)).textContent.length))"  # fmt: skip
    assert all(min(lengths) > 3 for lengths in browser.evaluate(described))


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


@needs_node
def test_while_the_run_is_going_on(run: Path, tmp_path: Path) -> None:
    """Before the first checkpoint, in the middle of a line; then with checkpoints and steps still to come."""
    folder = tmp_path / "going"
    lines = (run / "metrics.jsonl").read_text().splitlines()
    found = read_run(write_metrics(folder, *lines[:3], end=lines[3][:40]))
    assert found["options"] == {"model": None, "train": None} and found["notes"] == [["cut", "metrics.jsonl"]]
    train = json.loads((run / "checkpoints" / "step-00000004" / "training.json").read_text())["train"]
    noted = {"data": "a", "model": TINY.to_dict(), "train": train, "abi": "1.7"}
    (folder / "run.json").write_text(json.dumps(noted))
    found = read_run(folder)
    assert found["options"] == {"model": TINY.to_dict(), "train": train}
    assert found["noted"] == {"abi": "1.7", "data": "a"}
    for wrong in ({"train": {"steps": 0}}, {"train": 5}, {"model": {**TINY.to_dict(), "head_dim": "x"}}, {"model": []}):
        (folder / "run.json").write_text(json.dumps({**noted, **wrong}))
        assert read_run(folder)["notes"][-1] == ["options"]
    extension = {"from_step": 8, "steps": 20, "learning_rate": 0.1, "min_rate_share": 0.1, "warmup_steps": 2}
    (folder / "run.json").write_text(json.dumps({**noted, "extensions": [{**extension, "from_step": 4}, extension]}))
    shutil.copytree(run / "checkpoints", folder / "checkpoints")
    write_metrics(folder, *lines[:11])
    assert read_run(folder)["options"]["train"]["steps"] == 12
    shutil.rmtree(folder / "checkpoints" / "step-00000012")
    found = read_run(folder)
    assert found["options"]["train"]["steps"] == 20 > found["last_step"] and not found["notes"]


def odd_lines() -> list[str]:
    """Records whose values are no numbers, or none that can be: each of every kind, in every place."""
    odd = ["NaN", "Infinity", "-Infinity", "null", "true", '"x"', "[]", "1e308", "-1e99", "1" * 400, "0", "-0.0"]
    names = ("loss", "held_out_loss", "grad_norm", "learning_rate", "tokens_per_second", "tokens", "seconds")
    names += ("loss_scale", "skipped_steps", "bytes_peak", "expert_shares")
    return [f'{{"step": {step}, {", ".join(f"{json.dumps(name)}: {value}" for name in names)}}}'
            for step, value in enumerate(odd, 1)]  # fmt: skip


WRONG = ["", "5", "[1]", "{", "nothing", '{"step": -1}', '{"step": 1.5}', '{"step": null, "loss": 1}', "[" * 100_000]
WRONG += ['{"step": 9007199254740992}', '{"step": 1, "loss": 01}']


@needs_node
def test_values_that_are_no_numbers(tmp_path: Path) -> None:
    """NaN, null, infinite, huge and wrongly typed values, lines that are no records, in every place."""
    tables = ([[0.5, 0.5]], [[0.5, 2.0]], [[1.0], [0.5, 0.5]], [[]], {}, [["x", 1]], [[0.25, 0.75]])
    shares = [{"step": step, "expert_shares": value} for step, value in enumerate(tables, 20)]
    found = read_run(write_metrics(tmp_path / "odd", *WRONG, *odd_lines(), *shares))
    assert found["experts"]["edges"] == [20, 26] and found["experts"]["columns"] == [[[0.5, 0.5]], [[0.25, 0.75]]]
    assert found["notes"][0] == ["line", "metrics.jsonl", 2] and found["notes"][-1] == ["more", 1]
    assert found["series"]["loss"]["finite"] == 3 and found["series"]["loss"]["first"] == [9, -1e99]
    for line in odd_lines():  # each alone, so that no other makes up for it
        text = in_node(write_report(write_metrics(tmp_path / "one", line)))["text"]
        assert "NaN" not in text and "Infinity" not in text and "undefined" not in text


@needs_browser
def test_odd_values_in_a_browser(tmp_path: Path, browser: Browser) -> None:
    for number, lines in enumerate([[*WRONG, *odd_lines()], odd_lines()[8:9], odd_lines()[10:11], odd_lines()[:1]]):
        text = show(browser, write_report(write_metrics(tmp_path / str(number), *lines)))
        assert "NaN" not in text.replace("is NaN", "") and "Infinity" not in text and "undefined" not in text
    assert "the training loss is not finite at 1 step, first at step 1" in text


def test_metrics_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b"\xff\xfe\0\n" * 50 + b"\x80")
    with pytest.raises(FormatError, match="no record of a step"):
        report_html(tmp_path)


def spoil(folder: Path) -> None:
    """Puts what could break a page wherever a run has texts, and damages a checkpoint."""
    (folder / "run.json").write_text(json.dumps({"data": HOSTILE, "held_out": HOSTILE, "abi": [HOSTILE]}))
    (folder / "results.json").write_text(json.dumps({"device": HOSTILE, "library": {}, "unigram_entropy": "x"}))
    lines = [json.dumps({"step": 4, "prompt": HOSTILE, "text": HOSTILE * 200}), json.dumps({"step": 5, "text": 1})]
    (folder / "samples.jsonl").write_text("".join(line + "\n" for line in lines))
    (folder / "checkpoints" / "step-00000004" / "training.json").write_text(json.dumps({HOSTILE: 1}))


def test_hostile_text_stays_text(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / 'a <b> & "c"'
    shutil.copytree(run, folder)
    spoil(folder)
    (folder / "results.json").write_bytes(HOSTILE.encode("utf-8", "replace") + b"\xff</pre><!-- files -->")
    found = check(report_html(folder))
    assert found["."] == 'a <b> & "c"' and found["run.json"] == (folder / "run.json").read_text()
    assert found["results.json"].endswith("\ufffd</pre><!-- files -->")


@needs_node
def test_hostile_values(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / 'a <b> & "c"'
    shutil.copytree(run, folder)
    spoil(folder)
    made = in_node(write_report(folder))
    found, text = made["run"], made["text"]
    assert found["name"] == 'a <b> & "c"' and found["noted"]["device"].startswith("</pre></svg><script>alert(1)")
    assert len(found["samples"]) == 1 and found["samples"][0]["text"].endswith("…")
    assert found["notes"] == [["checkpoint", "step-00000004", "training.json"]]
    assert text.count("<script>alert(1)</script>") > 6 and not re.search("[\0\x1b\ud800]", text)
    assert "step-00000004 was left out: its training.json" in text


@needs_browser
def test_hostile_text_in_a_browser(run: Path, tmp_path: Path, browser: Browser) -> None:
    folder = tmp_path / 'a <b> & "c"'
    shutil.copytree(run, folder)
    spoil(folder)
    text = show(browser, write_report(folder, tmp_path / "page.html"))
    assert text.count("<script>alert(1)</script>") > 6 and 'Training run a <b> & "c"' in text
    assert not re.search("[\0\x1b\ud800]", text) and "step-00000004 was left out: its training.json" in text
    counted = "[...document.querySelectorAll('script, img, iframe')].length"
    assert browser.evaluate(counted) == 1
    # The policy lets no other script run, even one that gets into the page.
    browser.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = 1'})) + ''"
    )
    assert browser.evaluate("typeof window.ran") == "undefined"


@needs_node
def test_no_pipe_is_opened(tmp_path: Path) -> None:
    """What is no file is not read: reading might never end."""
    folder = write_metrics(tmp_path / "run", {"step": 1, "loss": 1.0})
    names = ["results.json", "run.json", "samples.jsonl"]
    for name in names:
        os.mkfifo(folder / name)
    assert sorted(read_run(folder)["notes"]) == [["file", name] for name in names]
    (folder / "metrics.jsonl").unlink()
    os.mkfifo(folder / "metrics.jsonl")
    with pytest.raises(FormatError, match=r"metrics\.jsonl: cannot be read: it is not a regular file"):
        report_html(folder)


@needs_node
def test_what_is_drawn_of_long_runs_stays_small(tmp_path: Path) -> None:
    """It does not grow with the number of steps, nor beyond measure with that of layers."""
    draw = np.random.default_rng(2)
    for steps in (300, 3000):
        shares = draw.dirichlet(np.ones(16), (steps, 6)).round(5).tolist()
        losses = draw.random(steps).tolist()
        records = [{"step": n, "loss": losses[n], "expert_shares": shares[n]} for n in range(steps)]
        found = read_run(write_metrics(tmp_path / str(steps), *records))
        assert found["series"]["loss"]["records"] == steps and len(found["table"]) == 12
        assert (len(found["series"]["loss"]["mean"]), len(found["experts"]["columns"])) == (300, 120)
    many = [{"step": n, "expert_shares": [[0.5, 0.5]] * 1000} for n in (1, 2)]
    found = read_run(write_metrics(tmp_path / "many", *many))
    assert found["experts"]["layers"] == 1000 and len(found["experts"]["columns"][0]) == 32


@needs_node
def test_thinning(tmp_path: Path) -> None:
    """Means over neighbours with their range, gaps where nothing is a number, no step lost."""
    made = read_run(write_metrics(tmp_path, *({"step": step, "loss": step} for step in range(1, 601))))
    loss = made["series"]["loss"]
    assert loss["from"] == list(range(1, 600, 2)) and loss["to"][-1] == 600
    assert loss["mean"][:2] == [1.5, 3.5] and loss["low"][1] == 3 and loss["high"][1] == 4
    assert [row[0] for row in made["table"]] == [round(1 + 599 * row / 11) for row in range(12)]
    values = ({"step": step, "loss": None if 3 <= step < 9 else 0.5} for step in range(10))
    made = read_run(write_metrics(tmp_path, *values))
    loss = made["series"]["loss"]
    assert loss["mean"] == [0.5] * 3 + [None] * 6 + [0.5] and [row[0] for row in made["table"]] == [*range(10)]
    assert (loss["finite"], loss["first"], loss["last"]) == (4, [0, 0.5], [9, 0.5])
    assert not read_run(write_metrics(tmp_path, {"step": 1, "loss": None}))["series"]


@needs_node
def test_maps_and_spread(tmp_path: Path) -> None:
    """Columns by their steps, so that a pause in the records is as wide as it was long."""

    def read(*shares: tuple[int, list[list[float]]]) -> dict:
        records = ({"step": step, "expert_shares": table} for step, table in shares)
        return read_run(write_metrics(tmp_path, *records))["experts"]

    made = read((0, [[1.0, 0]]), (1, [[0, 1.0]]), (30, [[0.5, 0.5]]))
    assert made["columns"] == [[[0.5, 0.5]], [[0.5, 0.5]], [[0.5, 0.5]]] and made["edges"] == [0, 30]
    made = read((0, [[1.0, 0]]), (20, [[0, 1.0]]), (30, [[0.5, 0.5]]))
    assert made["columns"] == [[[1, 0]], [[1, 0]], [[0.25, 0.75]]]
    made = read((5, [[0.25] * 4, [1, 0, 0, 0], [0] * 4]))
    assert made["edges"] == [4.5, 5.5] and made["spread"]["low"] == [0]
    np.testing.assert_allclose([made["spread"]["mean"][0], made["spread"]["high"][0]], [3**0.5 / 3, 3**0.5])


@needs_browser
def test_in_a_browser(run: Path, tmp_path: Path, browser: Browser) -> None:
    """All figures have a size and stay within the page, on paper, on a phone and in the dark."""
    page = write_report(run, tmp_path / "page.html")
    seen = []
    for width, scheme in ((1200, "light"), (1200, "dark"), (360, "light")):
        browser.show(width, 800, scheme)
        show(browser, page)
        boxes = browser.evaluate(
            "[...document.querySelectorAll('figure > svg')].map(x => { const b = x.getBoundingClientRect(), "
            "i = x.getBBox(), v = x.viewBox.baseVal; "
            "return [b.width, b.height, b.right, i.x, i.y, v.width - i.x - i.width, v.height - i.y - i.height] })"
        )
        assert len(boxes) == 9
        for box_width, box_height, right, *rooms in boxes:
            assert min(box_width, box_height) > 100 and right <= width
            assert min(rooms) >= -1, rooms  # nothing is drawn beyond the edges
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.evaluate("[...document.querySelectorAll('figure image')].every(x => x.getBBox().width > 0)")
        seen.append(browser.evaluate("getComputedStyle(document.querySelector('figure > svg text')).fill"))
        assert browser.screenshot()[:4] == b"\x89PNG"
    assert seen[0] == seen[2] != seen[1]  # the figures' text follows the reader's choice
    browser.show(794, 1123, "dark", "print")
    background = "getComputedStyle(document.body).backgroundColor"
    assert browser.evaluate(background) == "rgb(255, 255, 255)"  # paper is white
    assert browser.pdf()[:5] == b"%PDF-"


@needs_browser
def test_under_the_pointer(run: Path, tmp_path: Path, browser: Browser) -> None:
    """A curve says its values at the step under the pointer, a map the load of the expert there."""
    browser.show(1200, 800)
    show(browser, write_report(run, tmp_path / "page.html"))
    point = """(name, x, y) => {
        const svg = document.querySelector(`#${name} > svg`), box = svg.getBoundingClientRect();
        const place = {clientX: box.left + x * box.width, clientY: box.top + y * box.height};
        svg.dispatchEvent(new PointerEvent("pointermove", place));
        return document.querySelector(`#${name} .tip`).textContent;
    }"""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = {name: record[name] for record in records for name in record}
    said = browser.evaluate(f"({point})('losses', 0.96, 0.5)")
    assert said == f"step 12\ntraining: {last['loss']:.4f}\nheld-out: {last['held_out_loss']:.4f}"
    said = browser.evaluate(f"({point})('load-0', 0.96, 0.2)")
    layer, expert = map(int, re.findall(r"layer (\d+), expert (\d+)", said)[0])
    load = last["expert_shares"][layer][expert] * TINY.num_experts
    assert float(re.findall(r": ([0-9.]+) times", said)[0]) == pytest.approx(load, abs=0.011)
    hidden = "document.querySelector('#losses .tip').hidden"
    assert not browser.evaluate(hidden)
    browser.evaluate("document.querySelector('#losses > svg').dispatchEvent(new PointerEvent('pointerleave'))")
    assert browser.evaluate(hidden)


@needs_browser
def test_without_scripts(run: Path, tmp_path: Path, browser: Browser) -> None:
    """Then the page says what is missing, and shows the files of the run."""
    page = write_report(run, tmp_path / "page.html")
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page.as_uri())
        texts = browser.evaluate("document.body.innerText")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert "not allowed to run" in texts and '{"step": 12, "loss": ' in texts


@needs_node
def test_the_loss_of_a_run_is_the_mean_of_its_last_steps(tmp_path: Path) -> None:
    """Of 50 steps, not of 50 records; what is no number has no part in it."""
    every = [{"step": step, "loss": float(step)} for step in range(1, 121)]
    every[118]["loss"] = None
    for records, expected in (
        (every, [71, 120, (sum(range(71, 121)) - 119) / 49]),
        (every[9::10], [80, 120, 100.0]),
        (every[:1], [1, 1, 1.0]),
        ([{"step": 7, "held_out_loss": 2.0}], None),
        ([{"step": 3, "loss": "x"}], None),
    ):
        assert read_run(write_metrics(tmp_path / str(len(records)), *records))["recent_loss"] == expected
