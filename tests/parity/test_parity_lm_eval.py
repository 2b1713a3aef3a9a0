"""lm-evaluation-harness on the servers of three languages: one result, however many ask, and that of transformers.

`make interop` installs the harness and runs this with NNCUDA_INTEROP=live.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import languages
import pytest
from servers import COMPLETIONS, SHAPE, served

from nncuda.bench.random_model import write_folder

SCORES = languages.ROOT / "tests" / "interop" / "clients" / "lm_eval" / "scores.py"
HARNESS = os.environ.get("NNCUDA_LM_EVAL", languages.ROOT / ".venv-interop" / "bin" / "python")

pytestmark = pytest.mark.skipif(os.environ.get("NNCUDA_INTEROP") != "live", reason="make interop runs it")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("lm_eval") / "model"
    write_folder(made, SHAPE, dtype="f32")
    return made


@pytest.fixture(scope="module")
def by_transformers(folder: Path) -> dict[str, Any]:
    return scores(folder)


def scores(folder: Path, *options: object) -> dict[str, Any]:
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    line = [HARNESS, SCORES, folder, *map(str, options)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, env=offline)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.case("scores of lm-evaluation-harness (make interop)")
@pytest.mark.parametrize("language", languages.SERVING)
def test_scores(folder: Path, by_transformers: dict[str, Any], language: str) -> None:
    with served(language, folder, "--threads", 1, "--cache-format", "f32") as server:
        url = f"http://127.0.0.1:{server.port}{COMPLETIONS}"
        one, many = (scores(folder, "--url", url, "--concurrency", number) for number in (1, 32))
    assert one == many
    assert one["choices"]["metrics"] == by_transformers["choices"]["metrics"]
    # Each is a sum of f32 logarithms, which either side rounds to 24 bits, and adds up in another order.
    for task in ("choices", "windows"):
        pairs = list(zip(numbers(one[task]["said"]), numbers(by_transformers[task]["said"]), strict=True))
        assert len(pairs) > 7 and all(math.isclose(a, b, rel_tol=1e-6) for a, b in pairs)
    assert len(one["written"]["said"]) == 12


def numbers(said: Any) -> list[float]:
    """Those in lists of lists."""
    if isinstance(said, list):
        return [number for one in said for number in numbers(one)]
    return [said] if isinstance(said, float) else []
