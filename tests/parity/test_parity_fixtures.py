"""The golden fixtures in each language's own runner, read from the folder: a new case is tested everywhere."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import languages
import numpy as np
import pytest

from nncuda.formats import SafetensorsFile, write_safetensors
from nncuda.golden.fixtures import ENVIRONMENT_VARIABLE, read_folder

GOLDEN = languages.ROOT / "tests" / "golden"


@dataclass(frozen=True)
class Runner:
    """How a language runs the fixtures, once each; how many it says there are, and which failed."""

    command: tuple[str, ...]
    folder: Path
    count: re.Pattern[str]
    failed: re.Pattern[str]


RUNNERS = {
    "python": Runner(
        (sys.executable, "-m", "nncuda", "verify", "--isa", "baseline"),
        languages.ROOT,
        re.compile(r"^\d+ of (\d+) cases passed$", re.MULTILINE),
        re.compile(r"^failed (\w+/[\w.-]+):", re.MULTILINE),
    ),
    "go": Runner(
        ("go", "test", "-count=1", "-v", "-run", "^TestFixtures$/^baseline", "./internal/golden"),
        languages.ROOT / "go",
        re.compile(r": (\d+) fixtures;"),
        re.compile(r"^ *--- FAIL: TestFixtures/baseline-\d+/(\w+/[\w.-]+) ", re.MULTILINE),
    ),
    "rust": Runner(
        ("cargo", "test", "--locked", "--package", "nn-ffi", "--test", "golden", "--", "--nocapture", "every_fixture"),
        languages.ROOT / "rust",
        re.compile(r"^baseline: (\d+) cases", re.MULTILINE),
        re.compile(r"^baseline: (\w+/[\w.-]+): ", re.MULTILINE),
    ),
}


def run(name: str, golden: Path) -> tuple[int, str, int, set[str]]:
    """Exit code, all output, the number of cases that the runner says it had, and those that failed."""
    runner = RUNNERS[name]
    environment = {**languages.environment(), ENVIRONMENT_VARIABLE: str(golden)}
    done = subprocess.run(
        runner.command, cwd=runner.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    counts = runner.count.findall(done.stdout)
    assert counts, f"{' '.join(runner.command)} does not say how many cases it ran:\n{done.stdout[-3000:]}"
    return done.returncode, done.stdout, int(counts[0]), set(runner.failed.findall(done.stdout))


@pytest.fixture(scope="module")
def count() -> int:
    return sum(1 for _ in read_folder(GOLDEN))


@pytest.mark.case("golden fixtures: all of the folder")
def test_all_fixtures(language: languages.Language, count: int) -> None:
    code, output, ran, failed = run(language.name, GOLDEN)
    assert code == 0 and not failed, output[-3000:]
    assert ran == count > 1900


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with two more cases of softmax: copies of one, the second with a wrong expectation."""
    folder = tmp_path_factory.mktemp("planted") / "golden"
    shutil.copytree(GOLDEN, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    path = folder / "softmax" / "softmax.safetensors"
    file = SafetensorsFile(path)
    cases, tensors = json.loads(file.metadata["cases"]), {name: np.array(file[name]) for name in file}
    original = next(name for name in cases if name.startswith("f32."))
    for copy in ("f32.planted-right", "f32.planted-wrong"):
        cases[copy] = cases[original]
        for name in [name for name in tensors if name.startswith(f"{original}/")]:
            tensors[copy + name.removeprefix(original)] = tensors[name].copy()
    tensors["f32.planted-wrong/out/y"].reshape(-1)[0] += 0.01
    write_safetensors(path, tensors, {"cases": json.dumps(cases)})
    return folder


@pytest.mark.case("golden fixtures: new ones are found, wrong ones refused")
def test_planted_fixtures(language: languages.Language, count: int, planted: Path) -> None:
    code, output, ran, failed = run(language.name, planted)
    assert ran == count + 2, output[-3000:]
    assert code != 0 and failed == {"softmax/f32.planted-wrong"}, output[-3000:]
