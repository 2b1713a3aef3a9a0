"""`nncuda bench --compare`: what counts as slower, and which files belong together."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nncuda.bench import compare
from nncuda.bench.command import bench
from nncuda.bench.measure import Row

MACHINE = {"processor": "A", "cores": 2}


def run(
    times: dict[str, list[float]], probes: dict[str, list[float]] | None = None, **machine: object
) -> dict[str, Any]:
    """A file's content: seconds of each round by the name of a kernel."""
    rows = [
        Row("group", name, "avx2", rounds=tuple(seconds), probes=tuple((probes or {}).get(name, ()))).as_dict()
        for name, seconds in times.items()
    ]
    return {"machine": MACHINE | machine, "rows": rows}


def noisy(rng: random.Random, count: int, rounds: int = 9, factor: float = 1.0) -> dict[str, list[float]]:
    return {f"kernel {i}": [factor * rng.gauss(1.0, 0.03) for _ in range(rounds)] for i in range(count)}


def test_a_slower_figure_is_found_and_noise_is_not() -> None:
    rng, wrong, found = random.Random(0), 0, 0
    for _ in range(100):
        old, new = noisy(rng, 50), noisy(rng, 50)
        new["kernel 7"] = [1.15 * seconds for seconds in new["kernel 7"]]
        slower = {change.name for change in compare.compare(run(old), run(new)).slower}
        found += "avx2: group, kernel 7" in slower
        wrong += len(slower - {"avx2: group, kernel 7"})
    # 4,900 figures that did not change; a spread of 3 % hides less than 15 %.
    assert found >= 95 and wrong <= 10


def test_the_threshold_follows_the_spread_of_the_rounds() -> None:
    def threshold(spread: float) -> float:
        rounds = {"a": [1 + spread * (i - 4) / 4 for i in range(9)]}
        (change,) = compare.compare(run(rounds), run(rounds)).changes
        return change.threshold

    assert threshold(0.0) == 1.0
    # The middle half of nine values from 1 - s to 1 + s is s wide; its median's error is 0.3089 s, in both runs.
    assert threshold(0.02) == pytest.approx(1 + 4 * 2**0.5 * 0.3089 * 0.02, rel=1e-4)
    assert threshold(0.2) > threshold(0.02)


def test_rounds_that_agree_by_chance_have_the_error_of_the_others() -> None:
    wide = [0.9, 0.95, 1.0, 1.05, 1.1]
    old = run({"same": [1.0] * 5, "b": wide, "c": wide})
    new = run({"same": [1.02] * 5, "b": wide, "c": wide})
    assert compare.compare(old, new).slower == ()


def test_memory_is_compared_by_its_share_of_the_bandwidth() -> None:
    rounds = {"a": [1.0, 1.01, 0.99]}
    halved = {"a": [2.0, 2.02, 1.98]}
    full, half = {"a": [2e10] * 3}, {"a": [1e10] * 3}
    assert compare.compare(run(rounds, full), run(halved, half)).slower == ()
    assert len(compare.compare(run(rounds, full), run(halved, full)).slower) == 1


def test_figures_of_steps_and_models() -> None:
    step = {"name": "small, f32", "isa": "avx2", "rounds": {"nncuda": [100.0, 101, 99], "torch eager": [1.0, 1, 1]}}
    found = compare.figures({"machine": MACHINE, "steps": [step]})
    assert {name: figure.median for name, figure in found.items()} == {"avx2: training step of small, f32": 0.01}
    rates = [10.0, 11.0, 12.0]
    side = {"ours": True, "isa": "avx2", "prefill": rates, "share": rates, "first_token": rates, "answer": rates,
            "batched": {"4": rates}}  # fmt: skip
    model = {"machine": MACHINE, "model": "build/m.gguf", "sides": [], "rounds": [side, {"ours": False}]}
    found = compare.figures(model)
    assert [name.removeprefix("avx2: m.gguf: ") for name in found] == [
        "prefill", "decoding, by its share of the bandwidth", "first token", "answer", "4 together"
    ]  # fmt: skip
    assert [figure.median for figure in found.values()] == [1 / 11, 1 / 11, 11, 11, 1 / 11]


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (run({"a": [1.0] * 3}, processor="B"), "two machines: processor is A in the old one and B in the new"),
        (run({"b": [1.0] * 3}), "no figure in common"),
        (run({"a": [1.0] * 2}), "has 2 rounds; it takes 3"),
        (run({"a": [1.0, 0.0, 1.0]}), "no positive number"),
        ({"machine": MACHINE, "rows": [{"name": "a"}]}, "or one of an older version"),
        (run({"a": [1.0] * 3}) | {"threads": 4}, "the new one 4"),
    ],
)
def test_what_does_not_belong_together(new: dict[str, Any], text: str) -> None:
    with pytest.raises(compare.CannotCompare, match=text):
        compare.compare(run({"a": [1.0] * 3}), new)


def test_two_files_on_the_command_line(tmp_path: Path) -> None:
    def write(name: str, content: object) -> str:
        path = tmp_path / name
        path.write_text(json.dumps(content))
        return str(path)

    def invoke(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(bench, ["compare", *arguments])
        return done.exit_code, " ".join(done.output.split())

    steady = {"a": [1.0, 1.01, 0.99], "b": [1.0, 1.01, 0.99]}
    old = write("old", run(steady))
    code, output = invoke(old, old)
    assert code == 0 and "0 slower, 0 faster, 2 within the spread of the rounds" in output
    new = write("new", run({"a": [2.0, 2.02, 1.98], "c": [1.0, 1.01, 0.99]}))
    code, output = invoke(old, new)
    assert code == 1 and "group, a" in output and "x 2.000" in output and "1 slower" in output
    assert "only in the old run: avx2: group, b" in output and "only in the new run: avx2: group, c" in output
    code, output = invoke(new, write("faster", run({"a": [1.0, 1.01, 0.99], "c": steady["a"]})))
    assert code == 0 and "1 faster" in output
    for wrong, text in (([], "names no machine"), ("{", "names no machine"), (run({}), "no figure in common")):
        code, output = invoke(old, write("wrong", wrong))
        assert code == 1 and text in output, output
