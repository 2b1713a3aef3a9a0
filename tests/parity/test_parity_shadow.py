"""`shadow`: the same calls, compared in the same way, in every language."""

from __future__ import annotations

import json
from pathlib import Path

import differences
import languages
import pytest
from conftest import find
from runs import Workshop

USAGE, WRONG_FILE, NO_DEVICE = 2, 3, 4
BUILT = [name for name in languages.NAMES if name != "python"]


@pytest.fixture(params=BUILT)
def other(request: pytest.FixtureRequest) -> languages.Language:
    return find(request.param)


def told(one: languages.Language, path: Path, *arguments: object) -> tuple[dict, list[str]]:
    """The JSON of a shadow run, and the lines of its table, whatever stands between their columns."""
    out = one.run("shadow", "--threads", 2, "--json", path, *arguments).stdout
    lines = [" ".join(line.replace("│", " ").split()) for line in out.splitlines()]
    return json.loads(path.read_text(encoding="utf-8")), [line for line in lines if line.startswith("cuda_")]


def same(other: languages.Language, tmp_path: Path, *arguments: object) -> dict:
    """What the language tells, which is what Python tells."""
    (own, table), (python, wanted) = (
        told(one, tmp_path / f"{one.name}.json", *arguments) for one in (other, find("python"))
    )
    for found in (own, python):  # how a program sets its memory is its own affair, and so the number of a call
        assert found.pop("calls") - found.pop("moves") == sum(kernel["calls"] for kernel in found["kernels"])
        for largest in (found["largest"], *(kernel["largest"] for kernel in found["kernels"])):
            if largest is not None:
                del largest["call"]
    assert not (difference := differences.of_values("shadow", python, own)), difference
    assert table == wanted and len(table) == len(own["kernels"])
    return own


@pytest.mark.case("shadow --json of a step and of generation", *BUILT)
@pytest.mark.parametrize("name", ["small", "ragged", "accumulated"])
def test_step_of_a_new_model(other: languages.Language, workshop: Workshop, name: str, tmp_path: Path) -> None:
    found = same(other, tmp_path, "--config", workshop.config(name))
    assert (found["over"], found["first"], found["reference"]) == (0, None, "baseline")
    assert {"cuda_gemm", "cuda_adamw_step"} <= {kernel["kernel"] for kernel in found["kernels"]}


@pytest.mark.case("shadow --json of a step and of generation", *BUILT)
def test_checkpoint(other: languages.Language, workshop: Workshop, tmp_path: Path) -> None:
    run = workshop.reference("small")
    assert same(other, tmp_path, run, "--isa", "baseline", "--reference", "cpu")["isa"] == "baseline"
    generated = same(other, tmp_path, run, "--prompt", "7 8, 9", "--ids", "--max-tokens", 5)
    calls = {kernel["kernel"]: kernel["calls"] for kernel in generated["kernels"]}
    assert calls["cuda_argmax"] == 5 and "cuda_adamw_step" not in calls
    same(other, tmp_path, run, "--prompt", "the", "--max-tokens", 2)
    same(other, tmp_path, workshop.worsening(), "--best", "--prompt", "7", "--ids", "--max-tokens", 2)


@pytest.mark.case("shadow: what is refused", *BUILT)
@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (USAGE, "--reference plain"),
        (USAGE, "--isa avx3"),
        (USAGE, "--prompt x"),
        (USAGE, "--best"),
        (USAGE, "{run} --steps 3"),
        (USAGE, "{run} --preset small"),
        (USAGE, "{run} --prompt six --ids"),
        (USAGE, "{run} --prompt 7 --ids --max-tokens 0"),
        (USAGE, "{run}/none"),
        (WRONG_FILE, "{run}/run.json"),
        (WRONG_FILE, "{run} --prompt 99999 --ids"),
        (WRONG_FILE, "{run} --prompt 7 --ids --max-tokens 99999"),
        (WRONG_FILE, "--preset small --steps 0"),
        (NO_DEVICE, "--preset small --device cuda:99"),
    ],
)
def test_refusals(other: languages.Language, workshop: Workshop, code: int, arguments: str, tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    line = [word.format(run=workshop.reference("small")) for word in arguments.split()]
    for one in (find("python"), other):
        assert "Error: " in one.run("shadow", *line, "--json", path, code=code).stderr
    assert not path.exists()


@pytest.mark.case("shadow: what is refused")
@pytest.mark.parametrize("place", ["none/found.json", "."])
def test_no_place_for_the_json(language: languages.Language, place: str, tmp_path: Path) -> None:
    """Said before anything runs: a device that is not there is not looked for."""
    line = ["--preset", "small", "--device", "cuda:99", "--json", tmp_path / place]
    said = language.run("shadow", *line, code=USAGE).stderr
    assert "Error: " in said and str((tmp_path / place).parent if place != "." else tmp_path) in said
    assert not list(tmp_path.iterdir())


@pytest.mark.case("shadow: what is refused")
def test_options_beside_a_model(language: languages.Language, workshop: Workshop) -> None:
    """The first that was given is named: a file, a preset, then the options in their order."""
    flags = ["--steps", 3, "--preset", "small", "--config", workshop.config("small")]
    for first, given in (("config", flags), ("preset", flags[:4]), ("steps", flags[:2])):
        said = language.run("shadow", workshop.reference("small"), *given, code=USAGE).stderr
        assert said.strip().endswith(f"MODEL has its own options; leave out --{first}")


@pytest.mark.case("shadow: what is refused", *BUILT)
def test_f64_is_of_python_alone(other: languages.Language) -> None:
    error = other.run("shadow", "--reference", "f64", code=USAGE).stderr.splitlines()[-1]
    assert Path(other.command[0]).name in error and error.endswith("nncuda shadow --reference f64")
