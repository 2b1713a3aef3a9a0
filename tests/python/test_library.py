"""Finding and loading the library, and the agreement of header, cffi and library."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nncuda import errors
from nncuda.binding import header, library


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )


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
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "a C compiler is needed to build the library in the first place"
    source = tmp_path / "other.c"
    source.write_text(f"int nncuda_abi_version(void) {{ return {version}; }}\n")
    built = tmp_path / library.file_name()
    subprocess.run([compiler, "-shared", "-fPIC", "-o", built, source], check=True)
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


def test_another_major_is_refused_on_import_of_a_context(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    source = tmp_path / "other.c"
    source.write_text("int nncuda_abi_version(void) { return 7001; }\n")
    built = tmp_path / library.file_name()
    subprocess.run([str(compiler), "-shared", "-fPIC", "-o", built, source], check=True)
    result = python("import nncuda; nncuda.Context()", NNCUDA_LIBRARY=str(built))
    assert result.returncode == 1
    assert "LibraryError" in result.stderr and "7.1" in result.stderr


def test_a_library_that_is_none(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    source = tmp_path / "other.c"
    source.write_text("int nothing(void) { return 0; }\n")
    built = tmp_path / library.file_name()
    subprocess.run([str(compiler), "-shared", "-fPIC", "-o", built, source], check=True)
    result = python("import nncuda; nncuda.Context()", NNCUDA_LIBRARY=str(built))
    assert "it has no nncuda_abi_version" in result.stderr


def test_environment_variable_comes_first_and_alone(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.so"
    result = python("import nncuda; nncuda.Context()", NNCUDA_LIBRARY=str(missing))
    assert result.returncode == 1
    assert f"NNCUDA_LIBRARY: {missing} does not exist" in result.stderr
    foreign = tmp_path / "text.so"
    foreign.write_text("no library")
    result = python("import nncuda; nncuda.Context()", NNCUDA_LIBRARY=str(foreign))
    assert "LibraryError" in result.stderr and str(foreign) in result.stderr


def test_import_needs_no_library(tmp_path: Path) -> None:
    """`import nncuda` and its kernels' documentation work where the library is broken, so that doctor can say why."""
    code = "import nncuda, nncuda.kernels; print(nncuda.kernels.gemm.__doc__[:14])"
    result = python(code, NNCUDA_LIBRARY=str(tmp_path / "nowhere.so"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "Matrix product"


def test_places_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NNCUDA_LIBRARY", raising=False)
    places = [place for place, _ in library.candidates()]
    assert list(dict.fromkeys(places)) == ["the package", "the system"]
    monkeypatch.setenv("NNCUDA_LIBRARY", "/some/where.so")
    assert library.candidates() == [("the environment variable NNCUDA_LIBRARY", "/some/where.so")]
