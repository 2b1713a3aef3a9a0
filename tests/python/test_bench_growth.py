"""`nncuda bench growth`: points, their file and their picture; what memory or a missing torch leaves out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from nncuda.bench import growth
from nncuda.bench.growth_command import growth as command

LEAST = growth.Effort(rounds=1, steps=1, seconds=0.0)


def test_points_a_file_and_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path, picture = tmp_path / "growth.json", tmp_path / "growth.svg"
    done = CliRunner().invoke(command, ["--quick", "--threads", "1", "--json", str(path), "--picture", str(picture)])
    assert done.exit_code == 0, done.output
    points = json.loads(path.read_text())["points"]
    assert [(one["axis"], one["layers"], one["side"]) for one in points] == [
        ("width", 2, "nncuda"),
        ("width", 2, "nncuda"),
        ("depth", 1, "nncuda"),
        ("depth", 2, "nncuda"),
    ]
    assert all(one["tokens_per_second"] > 0 and one["bytes"] > 4 * one["parameters"] for one in points)
    assert "tokens/s" in picture.read_text()


def test_a_model_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "available_bytes", lambda: int(1e6))
    points = list(growth.measure(1, "f32", ["nncuda"], LEAST, True, lambda _: None))
    assert len(points) == 4
    assert all(one.missing == "needs 0 GB; 0 GB are free" for one in points if one.parameters < 3e7)


def test_a_side_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "models", lambda quick: {"width": [], "depth": [growth._model(64, 1)]})
    (point,) = growth.measure(1, "f32", ["no such side"], LEAST, True, lambda _: None)
    assert point.tokens_per_second is None and point.missing is not None


def test_what_the_models_are() -> None:
    whole = growth.models(quick=False)
    sizes = [model.num_parameters for model in whole["width"]]
    assert sizes[0] < 1e7 and 0.9e9 < sizes[-1] < 1.1e9 and sizes == sorted(sizes)
    assert [model.num_layers for model in whole["depth"]] == [1, 2, 4, 8, 16, 32]
    assert growth.bytes_needed(whole["depth"][0], "bf16") > growth.bytes_needed(whole["depth"][0], "f32")
