"""Where the library is looked for, with real folders: the same places in the same order."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import languages
import pytest
from conftest import find
from runs import Workshop

from nncuda.binding import library

NO_LIBRARY = 4
BUILT = [name for name in languages.NAMES if name != "python"]


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of another version of the ABI: whoever finds one names it, and so tells which was found."""
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "other.c").write_text("int nncuda_abi_version(void) { return 7001; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libnncuda.so", folder / "other.c"], check=True)
    return folder / "libnncuda.so"


class Installed:
    """A language's command in a folder of its own, on a machine of which nothing else is known."""

    def __init__(self, language: languages.Language, root: Path, model: Path) -> None:
        self.program = root / "bin" / Path(language.command[0]).name
        self.program.parent.mkdir()
        shutil.copyfile(language.command[0], self.program)
        self.program.chmod(0o755)
        self.model, self.environment = model, {"PATH": "/nowhere", "HOME": str(root / "home")}

    def error(self) -> str:
        line = [self.program, "generate", self.model, "1", "--ids", "--max-tokens", "1"]
        done = subprocess.run(line, env=self.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == NO_LIBRARY, done
        return done.stderr.removeprefix("Error: ")


@pytest.fixture(params=BUILT)
def installed(request: pytest.FixtureRequest, workshop: Workshop, tmp_path: Path) -> Installed:
    return Installed(find(request.param), tmp_path, workshop.reference("ragged"))


@pytest.mark.case("the library is found in the same places", *BUILT)
def test_each_place_in_turn(installed: Installed, foreign: Path, tmp_path: Path) -> None:
    """From the last place to the first: each library that is added is found instead of those behind it."""
    python = tmp_path / "python" / "bin"
    places: list[tuple[Path, dict[str, str]]] = [
        (tmp_path / "python" / "lib" / "python3.11" / "site-packages" / "nncuda", {"PATH": f"/nowhere:{python}"}),
        (tmp_path / "home" / ".local" / "lib" / "python3.11" / "site-packages" / "nncuda", {}),
        (
            tmp_path / "conda" / "lib" / "python3.12" / "site-packages" / "nncuda",
            {"CONDA_PREFIX": str(tmp_path / "conda")},
        ),
        (
            tmp_path / "venv" / "lib" / "python3.10" / "site-packages" / "nncuda",
            {"VIRTUAL_ENV": str(tmp_path / "venv")},
        ),
        (tmp_path / "lib", {}),
        (tmp_path / "bin", {}),
        (tmp_path / "named", {library.ENVIRONMENT_VARIABLE: str(tmp_path / "named" / foreign.name)}),
    ]
    python.mkdir(parents=True)
    (python / "python3").symlink_to(sys.executable)
    for folder, variables in places:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(foreign, folder / foreign.name)
        installed.environment |= variables
        major, minor = library.load().header.abi
        error = installed.error()
        assert all(fact in error for fact in (str(folder / foreign.name), " 7.1", f" {major}.{minor}")), error


@pytest.mark.case("the library is found in the same places", *BUILT)
def test_a_library_that_is_named_and_not_there(installed: Installed, tmp_path: Path) -> None:
    """Only the place that is named is tried, and the error says so."""
    installed.environment["NNCUDA_LIBRARY"] = str(tmp_path / "none.so")
    error = installed.error()
    assert str(tmp_path / "none.so") in error and "NNCUDA_LIBRARY is set" in error and "site-packages" not in error


@pytest.mark.case("the library is found in the same places", *BUILT)
def test_the_environment_that_pip_installed_into(installed: Installed, tmp_path: Path) -> None:
    """The real library, where pip puts it, serves the program without any variable but that of the environment."""
    folder = tmp_path / "venv" / "lib" / "python3.13" / "site-packages" / "nncuda"
    folder.mkdir(parents=True)
    (folder / "libnncuda.so").symlink_to(os.path.abspath(library.load().path))
    installed.environment["VIRTUAL_ENV"] = str(tmp_path / "venv")
    line = [installed.program, "generate", installed.model, "1", "--ids", "--max-tokens", "2"]
    done = subprocess.run(line, env=installed.environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and len(done.stdout.split()) == 2, done
