"""What is made from the header and committed is what the generators make today."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import generate


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return generate.made()


def test_committed_files_are_those_of_the_header(files: dict[str, str]) -> None:
    stale = [name for name, text in files.items() if (generate.ROOT / name).read_text(encoding="utf-8") != text]
    assert not stale, "bindings.h or go/serve/api.json says otherwise: run `make generate`"


def test_no_generated_file_is_left_over(files: dict[str, str]) -> None:
    assert not generate.left_over(generate.ROOT, files)


@pytest.mark.parametrize("generator", generate.GENERATORS)
def test_every_generator_owns_what_it_makes(generator: object, files: dict[str, str]) -> None:
    """Otherwise a file would stay behind when its section leaves the header."""
    made = {name for name in files if any(Path(name).match(pattern) for pattern in generator.OWNED)}
    assert made
    assert len([*(path for pattern in generator.OWNED for path in generate.ROOT.glob(pattern))]) == len(made)


def test_writing_removes_old_files_and_touches_no_fresh_one(tmp_path: Path, files: dict[str, str]) -> None:
    old, kept = tmp_path / "go/cuda/gone_gen.go", tmp_path / "go/cuda/context.go"
    old.parent.mkdir(parents=True)
    for path in (old, kept):
        path.write_text("package cuda\n")
    generate.write(tmp_path, files)
    assert kept.exists() and not old.exists()
    assert (tmp_path / "go/cuda/bindings.h").read_bytes() == (generate.ROOT / "bindings.h").read_bytes()
    written = {name: (tmp_path / name).stat().st_mtime_ns for name in files}
    (tmp_path / "docs/abi.md").write_text("stale")
    generate.write(tmp_path, files)
    assert {n for n, at in written.items() if (tmp_path / n).stat().st_mtime_ns != at} == {"docs/abi.md"}


def test_stubs_compile(files: dict[str, str]) -> None:
    compile(files["python/nncuda/kernels.pyi"], "kernels.pyi", "exec")
