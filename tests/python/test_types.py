"""What a type checker sees of the package: nothing wrong in a good program, and each mistake of a bad one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nncuda

FOLDER = Path(__file__).parent / "typed"
PACKAGE = Path(nncuda.__file__).resolve().parents[1]


def test_mypy_finds_the_mistakes_and_nothing_else(tmp_path: Path) -> None:
    """mypy --strict on `typed/`, where a comment `# error: CODE` stands behind each mistake."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context"]
    command += ["--config-file", os.devnull, "--cache-dir", str(tmp_path), "--python-version", "3.11"]
    result = subprocess.run(
        [*command, "program.py", "mistakes.py"],
        cwd=FOLDER,
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode in (0, 1), result.stderr
    found = set(re.findall(r"^(\w+\.py):(\d+): error: .*\[([a-z-]+)\]$", result.stdout, re.MULTILINE))
    marked = {
        (path.name, str(number), code)
        for path in FOLDER.glob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for code in re.findall(r"# error: ([a-z-]+)$", line)
    }
    assert len(marked) > 20
    assert found == marked, result.stdout
