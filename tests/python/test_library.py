"""Finding and loading the library, and the agreement of header, cffi and library."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from nncuda import errors
from nncuda.binding import header, library


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )


def another(folder: Path, source: str) -> Path:
    """A library of this C code, under the name of ours."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "a C compiler is needed to build the library in the first place"
    (folder / "other.c").write_text(f"{source}\n")
    built = folder / library.file_name()
    subprocess.run([compiler, "-shared", "-fPIC", "-o", built, folder / "other.c"], check=True)
    return built


def test_names_and_types_agree() -> None:
    loaded = library.load()
    symbols = set()
    for name, function in loaded.header.functions.items():
        pointer = getattr(loaded.lib, name)  # cffi looks the symbol up here: AttributeError when the library lacks it
        kind = loaded.ffi.typeof(pointer)
        assert kind.result is loaded.ffi.typeof(function.returns), name
        spelled = [loaded.ffi.typeof(param.ctype.replace("const ", "")) for param in function.params]
        plain = [loaded.ffi.typeof(re.sub(r"\bconst ", "", arg.cname)) for arg in kind.args]
        assert plain == spelled, name
        assert not kind.ellipsis, name
        symbols.add(name)
    assert symbols == {name for name in dir(loaded.lib) if name.startswith(("cuda_", "nncuda_"))}


def test_constants_agree() -> None:
    loaded = library.load()
    for name, value in loaded.header.constants.items():
        assert getattr(loaded.lib, name) == value
    assert set(errors.CLASS_OF_STATUS) == {
        value for name, value in loaded.header.constants.items() if name.startswith("NNCUDA_ERROR_")
    }
    for status in errors.CLASS_OF_STATUS:
        assert loaded.header.constants[loaded.status_name(status)] == status


def test_abi_version_is_that_of_the_header() -> None:
    loaded = library.load()
    assert loaded.abi == header.parse().abi
    assert loaded.build_info


@pytest.mark.parametrize(
    ("version", "refused"), [(2000, True), (0, True), (999, True), (1000, False), (1003, False), (1002, True)]
)
def test_other_abi_versions(tmp_path: Path, version: int, refused: bool) -> None:
    """A library of another major version, or of an older minor one, is refused and both versions are named."""
    built = another(tmp_path, f"int nncuda_abi_version(void) {{ return {version}; }}")
    ffi = library.cffi.FFI()
    ffi.cdef("int32_t nncuda_abi_version(void);")
    lib = ffi.dlopen(str(built))
    expected = (1, 0) if version != 1002 else (1, 3)
    if not refused:
        assert library.check_abi(lib, expected, str(built)) == divmod(version, 1000)
        return
    with pytest.raises(errors.LibraryError) as caught:
        library.check_abi(lib, expected, str(built))
    text = str(caught.value)
    assert f"ABI version {version // 1000}.{version % 1000}" in text
    assert f"made for {expected[0]}.{expected[1]}" in text
    assert str(built) in text


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("int nncuda_abi_version(void) { return 7001; }", "7.1"),
        ("int nothing(void) { return 0; }", "it has no nncuda_abi_version"),
    ],
)
def test_another_library_is_refused_where_a_context_is_made(tmp_path: Path, source: str, words: str) -> None:
    result = python("import nncuda; nncuda.Context()", NNCUDA_LIBRARY=str(another(tmp_path, source)))
    assert result.returncode == 1 and "LibraryError" in result.stderr and words in result.stderr


def test_environment_variable_comes_first_and_alone(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.so"
    result = python("import nncuda; nncuda.Context()", NNCUDA_LIBRARY=str(missing))
    assert result.returncode == 1
    assert f"  NNCUDA_LIBRARY: {missing} does not exist\n" in result.stderr
    assert result.stderr.endswith("NNCUDA_LIBRARY is set, so no other place is tried: correct it or unset it\n")
    foreign = tmp_path / "text.so"
    foreign.write_text("no library")
    result = python("import nncuda; nncuda.Context()", NNCUDA_LIBRARY=str(foreign))
    assert "LibraryError" in result.stderr and str(foreign) in result.stderr


@pytest.fixture
def source_tree(tmp_path: Path) -> Path:
    """The package in a source tree, without a library."""
    tree = tmp_path / "tree"
    shutil.copytree(Path(library.__file__).parent.parent, tree / "python" / "nncuda", ignore=_no_libraries)
    shutil.copyfile(header.find(), tree / "bindings.h")
    return tree


def _no_libraries(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__" or ".so" in name or name == "bindings.h"]


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """The python of an environment with the packages of this one's, but without nncuda."""
    venv.create(tmp_path / "venv", with_pip=False)
    inside, mine = (sysconfig.get_path("purelib", vars={"base": base}) for base in (str(tmp_path / "venv"), sys.prefix))
    for entry in Path(mine).iterdir():
        if not entry.name.startswith(("nncuda", "_nncuda")):
            (Path(inside) / entry.name).symlink_to(entry)
    return tmp_path / "venv" / "bin" / "python"


def test_each_place_in_turn(source_tree: Path, bare_python: Path) -> None:
    """Real folders: a library in each of the places is found when those before it have none, and doctor says which."""
    environment = {name: value for name, value in os.environ.items() if name != library.ENVIRONMENT_VARIABLE}
    environment |= {"PYTHONPATH": str(source_tree / "python"), "LD_LIBRARY_PATH": str(source_tree / "system")}

    def run(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([bare_python, "-c", code], env=environment, capture_output=True, text=True, timeout=60)

    missing = run("import nncuda; nncuda.Context()").stderr.splitlines()
    places = [line.strip().partition(":")[0] for line in missing[-7:-1]]
    one = bare_python.parent.parent.glob("lib/python3*/site-packages")
    installed = next(one) / "nncuda" / library.file_name()
    package = source_tree / "python" / "nncuda" / library.file_name()
    expected = ["NNCUDA_LIBRARY", "the package", "the Python environment in use", "the source tree", "the system"]
    assert missing[-8].endswith("was not found:") and places == [*expected, "the system"], missing
    assert f"  the package: {package} does not exist" in missing
    assert f"  the Python environment in use: {installed} does not exist" in missing
    assert "`pip install nncuda`" in missing[-1] and "`make install`" in missing[-1]

    code = "from nncuda import doctor; from nncuda.binding import library; loaded = library.load();"
    code += "print(loaded.path, doctor._library(loaded).value, sep='\\n')"
    system = source_tree / "system" / f"{library.file_name()}.2"
    for file, name, why in (
        (system, system.name, "by the system's loader"),
        (source_tree / "build" / "lib" / library.file_name(), None, "make lib"),
        (installed, None, "the Python environment in use"),
        (package, None, "inside the package"),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(library.load().path)
        done = run(code)
        assert done.returncode == 0, done.stderr
        path, found = done.stdout.splitlines()
        assert path == (name or str(file)) and found.startswith(f"{path} (") and why in found


def test_import_needs_no_library(tmp_path: Path) -> None:
    """`import nncuda` and its kernels' documentation work where the library is broken, so that doctor can say why."""
    code = "import nncuda, nncuda.kernels; print(nncuda.kernels.gemm.__doc__[:14])"
    result = python(code, NNCUDA_LIBRARY=str(tmp_path / "nowhere.so"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "Matrix product"


def test_threads_get_one_library() -> None:
    """Those that need it first at the same moment, too."""
    program = """
import threading
from nncuda.binding import library

start, found = threading.Barrier(8), []
threads = [threading.Thread(target=lambda: (start.wait(), found.append(id(library.load().ffi)))) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(found) == 8 and len(set(found)) == 1, found
"""
    done = python(program)
    assert done.returncode == 0, done.stderr
