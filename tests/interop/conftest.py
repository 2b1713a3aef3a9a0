"""What tests of both kinds share, live and of what was recorded."""

from __future__ import annotations

from pathlib import Path

import bitnet_cases
import llama_cases
import numpy as np
import pytest

import nncuda


@pytest.fixture(scope="module")
def ctx() -> nncuda.Context:
    return nncuda.Context("cpu")


@pytest.fixture(scope="module")
def record() -> dict[str, np.ndarray]:
    """What a live test found, for the last test of its file to keep."""
    return {}


@pytest.fixture(scope="module")
def files(
    ctx: nncuda.Context, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The GGUF files of the Llamas, or of the BitNets where the tests are of those."""
    cases = bitnet_cases if "bitnet" in request.module.__name__ else llama_cases
    return cases.gguf_files(ctx, tmp_path_factory.mktemp("gguf"))
