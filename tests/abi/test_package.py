"""The installed package serves C programs, and the sources compile without warnings elsewhere than here."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import fenced
import pytest
from raw import LIB, PATH
from toolchain import ROOT, configure, link, program, run

pytestmark = pytest.mark.skipif(not (ROOT / "CMakeLists.txt").is_file(), reason="needs the source tree")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory) -> Path:
    """An installation. The library under test takes the place of a second build of the same sources."""
    base = tmp_path_factory.mktemp("package")
    build, prefix = base / "build", base / "prefix"
    configure(build, f"-DCMAKE_INSTALL_PREFIX={prefix}", "-DCMAKE_INSTALL_LIBDIR=lib", "-DBUILD_TESTING=OFF")
    soname = build / "libnncuda.so.2"
    shutil.copy(Path(PATH).resolve(), soname)
    (build / "libnncuda.so").symlink_to(soname.name)
    run(program("cmake"), "-P", build / "cmake_install.cmake")
    return prefix


PAGE = "docs/c.md"
COMPILERS = {"c": (("cc", "gcc", "clang"), "-std=c99"), "c++": (("c++", "g++", "clang++"), "-std=c++17")}


def source(language: str, folder: Path) -> Path:
    """The page's program in a language."""
    (text,) = fenced.blocks(PAGE, language)
    path = folder / ("program.c" if language == "c" else "program.cpp")
    path.write_text(text)
    return path


def check(binary: Path, language: str, prefix: Path) -> None:
    """It prints what the page says."""
    printed = run(binary, environment={"LD_LIBRARY_PATH": str(prefix / "lib")})
    assert [line.strip() for line in printed.splitlines()] == fenced.blocks(PAGE, "text")[
        language == "c++"
    ].splitlines()


def test_what_is_installed(prefix):
    found = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    assert found == {
        "include/nncuda/bindings.h",
        "lib/libnncuda.so",
        "lib/libnncuda.so.2",
        "lib/pkgconfig/nncuda.pc",
        "lib/cmake/nncuda/nncuda-config.cmake",
        "lib/cmake/nncuda/nncuda-config-version.cmake",
        "lib/cmake/nncuda/nncuda-targets.cmake",
        "lib/cmake/nncuda/nncuda-targets-release.cmake",
    }


def test_make_install(prefix, tmp_path):
    """The same files, below DESTDIR; what is built is not built again (-o lib)."""
    run(program("make"), "-C", ROOT, "-o", "lib", "install", f"BUILD={prefix.parent / 'build'}", "PREFIX=/opt/nn",
        f"DESTDIR={tmp_path}")  # fmt: skip
    staged = tmp_path / "opt" / "nn"
    assert {path.relative_to(staged) for path in staged.rglob("*")} == {
        path.relative_to(prefix) for path in prefix.rglob("*")
    }


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("language", ["c", "c++"])
def test_the_programs_of_the_page_built_with_pkg_config(prefix, tmp_path, language, moved):
    """Also after the whole tree was moved to another place."""
    if moved:
        prefix = Path(shutil.copytree(prefix, tmp_path / "elsewhere", symlinks=True))
    names, standard = COMPILERS[language]
    path = {"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    flags = run(program("pkg-config", "pkgconf"), "--cflags", "--libs", "nncuda", environment=path).split()
    binary = tmp_path / "program"
    run(program(*names), standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", source(language, tmp_path), *flags,
        "-o", binary)  # fmt: skip
    check(binary, language, prefix)


def test_the_programs_of_the_page_built_with_find_package(prefix, tmp_path):
    for language, (names, _) in COMPILERS.items():
        program(*names)
        source(language, tmp_path)
    (lines,) = fenced.blocks(PAGE, "cmake")
    (tmp_path / "CMakeLists.txt").write_text(lines)
    run(program("cmake"), "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build")
    check(tmp_path / "build" / "program", "c", prefix)
    check(tmp_path / "build" / "program_cpp", "c++", prefix)


def test_the_package_says_its_version(prefix, tmp_path):
    """To CMake and to pkg-config: the one of the library."""
    version = re.match(r"nncuda (\S+), ", LIB.nncuda_build_info().decode())[1]
    path = {"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    assert run(program("pkg-config", "pkgconf"), "--modversion", "nncuda", environment=path).strip() == version
    assert f'PACKAGE_VERSION "{version}"' in (prefix / "lib/cmake/nncuda/nncuda-config-version.cmake").read_text()


def test_a_c_program_linked_to_the_library_itself(tmp_path):
    binary = link(source("c", tmp_path), tmp_path / "program")
    check(binary, "c", Path(PATH).parent)


def test_clang_compiles_everything_without_a_warning(tmp_path):
    """And links the same exports; unoptimised and for the widest sets alone: it is the diagnostics that count."""
    compiler = program("clang", "clang-19", "clang-18", "clang-17", "clang-16")
    if "clang" in os.environ.get("CC", "") or b"clang" in Path(PATH).read_bytes():
        pytest.skip("the library under test was compiled by clang itself")
    configure(
        tmp_path, f"-DCMAKE_C_COMPILER={compiler}", "-DCMAKE_C_FLAGS_RELEASE=-O0", "-DNNCUDA_ISAS=baseline;avx512;amx"
    )
    run("cmake", "--build", tmp_path, "--target", "nncuda", "--parallel", str(os.cpu_count() or 1))


def test_aarch64_compiles_everything_without_a_warning(tmp_path):
    compiler = program("aarch64-linux-gnu-gcc")
    configure(tmp_path, "-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
              f"-DCMAKE_C_COMPILER={compiler}", "-DCMAKE_C_FLAGS_RELEASE=-O1")  # fmt: skip
    run("cmake", "--build", tmp_path, "--target", "nncuda", "--parallel", str(os.cpu_count() or 1))
    header = run(program("readelf"), "-h", (tmp_path / "libnncuda.so").resolve())
    assert "AArch64" in header
