"""The crates: what each declares, and that nn-cuda carries the library's sources, whole. `make crates` builds them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
RUST = ROOT / "rust"
CRATES = sorted(path.parent.name for path in RUST.glob("nn-*/Cargo.toml"))


def manifest(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def files(cargo: str, crate: str) -> set[str]:
    """What `cargo package` puts into a crate."""
    line = [cargo, "package", "--list", "--allow-dirty", "--offline", "--package", crate]
    done = subprocess.run(line, cwd=RUST, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines())


def test_crates_name_each_other_by_the_version_that_they_have() -> None:
    """A path alone means nothing to those who take a crate from a registry."""
    workspace = manifest(RUST / "Cargo.toml")["workspace"]
    for crate in CRATES:
        declared = workspace["dependencies"].get(crate)
        if declared is not None:
            assert declared == {"path": crate, "version": workspace["package"]["version"]}, crate


@pytest.mark.parametrize("crate", CRATES)
def test_a_crate_says_what_it_is(crate: str) -> None:
    shared = manifest(RUST / "Cargo.toml")["workspace"]["package"]
    own = manifest(RUST / crate / "Cargo.toml")["package"]
    for field in ("version", "license", "repository", "homepage", "keywords", "categories", "rust-version"):
        assert own[field] == {"workspace": True} and shared[field], field
    assert own["description"] and "publish" not in own
    readme = own["readme"]
    assert (RUST / shared["readme"] if readme == {"workspace": True} else RUST / crate / readme).is_file()


@pytest.mark.parametrize("crate", CRATES)
def test_a_crate_holds_its_licence_and_no_tests(cargo: str, crate: str) -> None:
    held = files(cargo, crate)
    assert {"LICENSE", "README.md", "Cargo.toml"} <= held
    assert (RUST / crate / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert not {name for name in held if name.startswith(("tests/", "benches/"))}


def test_a_build_of_the_library_needs_only_what_its_crate_holds(cargo: str, tmp_path: Path) -> None:
    held = {name.removeprefix("csrc/") for name in files(cargo, "nn-cuda") if name.startswith("csrc/")}
    sources = {"CMakeLists.txt", "bindings.h"}
    for folder in ("cuda", "cmake"):
        sources |= {
            str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.*") if "__pycache__" not in path.parts
        }
    assert sources <= held
    assert {"cuda/cpu_device/engine.c", "cuda/cpu/gemm.c"} <= held and any(name.endswith(".cu") for name in held)

    cmake = shutil.which("cmake") or pytest.skip("needs cmake, which is not installed")
    for name in held:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(RUST / "nn-cuda/csrc" / name, tmp_path / name)
    line = [cmake, "-S", tmp_path, "-B", tmp_path / "build", "-DNNCUDA_CUDA=OFF"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, env={**os.environ, "CUDACXX": ""})
    assert done.returncode == 0, done.stdout + done.stderr
