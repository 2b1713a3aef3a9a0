"""The crates as a stranger meets them: unpacked, where no library is installed. `make crates` sets NNCUDA_CRATES."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import fenced
import pytest

FOLDER = os.environ.get("NNCUDA_CRATES", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="compiles the library anew: run `make crates`")


def test_a_program_builds_the_library_from_its_crate_and_runs(cargo: str, tmp_path: Path) -> None:
    patches = []
    for crate in ("nn-cuda", "nn-ffi"):
        (archive,) = Path(FOLDER).glob(f"{crate}-*.crate")
        with tarfile.open(archive) as packed:
            packed.extractall(tmp_path, filter="data")
        patches.append(f'{crate} = {{ path = "{archive.stem}" }}')
    version = archive.stem.removeprefix("nn-ffi-")
    (tmp_path / "src").mkdir()
    (program,) = fenced.blocks("docs/index.md", "rust")
    (tmp_path / "src/main.rs").write_text(program)
    (tmp_path / "Cargo.toml").write_text(
        '[package]\nname = "elsewhere"\nedition = "2024"\n\n[dependencies]\n'
        f'nn-ffi = "{version}"\n\n[patch.crates-io]\n' + "\n".join(patches) + "\n"
    )
    # No library is to be found; in an environment of Python's that has none, another python3 does not count.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NNCUDA_", "PKG_CONFIG"))}
    environment |= {
        "VIRTUAL_ENV": str(tmp_path),
        "PKG_CONFIG_LIBDIR": str(tmp_path),
        "CARGO_TARGET_DIR": str(tmp_path / "target"),
    }
    done = subprocess.run(
        [cargo, "run", "--quiet"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0.576, 0.212, 0.212, 0.212, 0.576, 0.212]\n"
    assert list((tmp_path / "target").rglob("build/libnncuda.so")), "it ran with a library from elsewhere"
