"""The documentation: the reference is that of the header, and every example runs."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import fenced
import pytest

from nncuda.binding import exchange, library

ROOT = Path(__file__).resolve().parents[2]


def blocks(page: str) -> list[str]:
    """The Python code of a page."""
    found = fenced.blocks(f"docs/{page}", "python")
    assert found
    return found


def test_ctypes_example() -> None:
    """It is short, needs nothing of this package, and prints what the page says."""
    (example,) = blocks("ctypes.md")
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    assert "nncuda" not in re.sub(r"nncuda_\w+|libnncuda|NNCUDA_LIBRARY", "", example)
    result = subprocess.run(
        [sys.executable, "-S", "-c", example],
        env={**os.environ, "NNCUDA_LIBRARY": library.load().path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert f"`{result.stdout.strip()}`" in (ROOT / "docs/ctypes.md").read_text()


def test_examples_of_the_python_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    namespace: dict[str, object] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in blocks("python.md"):
            if "dlpack" in block and not exchange.available():
                continue  # installed without a C++ compiler
            exec(compile(block, "docs/python.md", "exec"), namespace)
    assert "give batch= or q_len= or kv_len=" in printed.getvalue()
    assert "ids[1] is 99; it must be 0 to 9" in printed.getvalue()
    assert "cuda_softmax" in printed.getvalue()
    assert "values=[2, 3, 4, 5]" in printed.getvalue()
    assert "a.numpy() == b.numpy()" in printed.getvalue()
    assert "prompt is the text 'Once upon a time'" in printed.getvalue()
