"""The tool of `make mutants`: its mutations are those of the seed, are what they say, and a known one is found."""

from __future__ import annotations

import ast
import itertools
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import mutants_near
import mutants_run
import mutants_workplace
import mutations
import pytest

PYTHON = b'''"""Says that 1 < 2."""

from __future__ import annotations


def clamp(x: float, low: float = 0, high: float = 1.5) -> float:
    if x < low or not x:
        raise ValueError(f"{x} is below {low - 1}")
    found: list[float] = []
    found.append(min(x * 2, high))
    return found[0]
'''
C = b"""#define TWICE(x) ((x) * 2)
enum { BLOCK = 64 }; /* 1 < 2 */

/* The sum of n elements. */
static float total(const float *x, int64_t n, float first) {
  float sum = first * 0.5f;
  for (int64_t i = 0; i < n; i++) {
    nn_fetch(x, i + 3);
    sum += nn_load(x, i);
  }
  sum = sum - TWICE(first);
  return sum;
}
"""


def changes(path: str, source: bytes) -> set[tuple[str, str, str]]:
    """What becomes of which text, by kind."""
    found = mutations.of_file(path, source)
    return {(m.kind, source[m.start : m.end].decode(), m.new.decode()) for m in found}


def test_mutations_of_python() -> None:
    """None in annotations, texts and the wording of errors."""
    assert changes("x.py", PYTHON) == {
        ("constant", "0", "1"), ("constant", "1.5", "3.0"), ("constant", "2", "3"),
        ("operator", "<", "<="), ("operator", "or", "and"), ("operator", "not ", ""), ("operator", "*", "+"),
        ("condition", "x < low or not x", "not (x < low or not x)"),
        ("statement", 'raise ValueError(f"{x} is below {low - 1}")', "pass"),
        ("statement", "found.append(min(x * 2, high))", "pass"),
        ("arguments", "x * 2, high", "high, x * 2"),
    }  # fmt: skip
    for mutation in mutations.of_file("x.py", PYTHON):
        assert ast.dump(ast.parse(mutation.apply(PYTHON))) != ast.dump(ast.parse(PYTHON))


def test_mutations_of_c() -> None:
    """None in comments, macros and what is only fetched; a star beside a name is a pointer."""
    assert changes("x.c", C) == {
        ("constant", "64", "65"), ("constant", "0.5f", "1.0f"), ("constant", "0", "1"),
        ("operator", "*", "+"), ("operator", "<", "<="), ("operator", "+=", "-="), ("operator", "-", "+"),
        ("statement", "sum += nn_load(x, i);", ";"), ("statement", "sum = sum - TWICE(first);", ";"),
        ("arguments", "x, i", "i, x"),
    }  # fmt: skip


def test_the_seed_decides_the_sample() -> None:
    for language in mutations.SOURCES:
        first, again, other = (mutations.draw(mutants_workplace.ROOT, language, seed, "/[a-m]") for seed in (5, 5, 6))
        assert first == again != other
        assert set(first) == set(other)
        assert min(Counter(mutation.kind for mutation in first).values()) > 100


def test_every_source_has_tests_near_it() -> None:
    for language in mutations.SOURCES:
        for path in mutations.paths(mutants_workplace.ROOT, language):
            named = itertools.takewhile(lambda pattern: pattern != "-k", mutants_near.near(path))
            for pattern in [*named, *mutants_near.far(path)]:
                found = list((mutants_workplace.ROOT / "tests").glob(f"{pattern}.py"))
                assert any(file.name.startswith("test_") for file in found), (path, pattern)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_known_mistake_is_found_and_another_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """On sources of two lines and a test of one of them, with a file in the place of the library."""
    root = tmp_path / "root"
    (root / "python/nncuda/report").mkdir(parents=True)
    (root / "tests/python").mkdir(parents=True)
    source = root / "python/nncuda/report/__init__.py"
    (root / "python/nncuda/__init__.py").touch()
    source.write_text("TESTED = 1\nUNTESTED = 5\n")
    (root / "tests/python/test_report.py").write_text(
        "from nncuda.report import TESTED\n\n\ndef test_it() -> None:\n    while TESTED != 1:\n        raise OSError\n"
    )
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    place = tmp_path / "place"
    (place / "build").mkdir(parents=True)
    (place / "build/libnncuda.so").write_bytes(b"")
    for module in (mutants_run, mutants_workplace):
        monkeypatch.setattr(module, "ROOT", root)
    monkeypatch.setattr(mutants_workplace.Workplace, "configure", lambda self: None)
    monkeypatch.setattr(mutants_workplace.Workplace, "compile", lambda self: (True, ""))
    options = ["--folder", str(place), "--count", "2"]
    assert mutants_run.main([*options, "--fail-over", "0"]) == 1
    said = capfd.readouterr().out
    assert "python/nncuda/report/__init__.py:1 (constant): found" in said
    assert "No test noticed: python/nncuda/report/__init__.py:2\n" in said and "+UNTESTED = 6\n" in said
    assert said.endswith("\n1 found, 1 survived\n")
    assert source.read_text() == (place / "tree/python/nncuda/report/__init__.py").read_text()
    source.write_text("TESTED = 2\n")
    assert mutants_run.main(options) == 2
    assert "the unchanged sources do not pass python/test_report" in capfd.readouterr().err
