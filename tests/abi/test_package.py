"""The installed package serves C programs, and the sources compile without warnings elsewhere than here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from raw import PATH
from toolchain import HERE, ROOT, configure, link, program, run

pytestmark = pytest.mark.skipif(not (ROOT / "CMakeLists.txt").is_file(), reason="needs the source tree")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory) -> Path:
    """An installation. The library under test takes the place of a second build of the same sources."""
    build, prefix = tmp_path_factory.mktemp("build"), tmp_path_factory.mktemp("prefix")
    configure(build, f"-DCMAKE_INSTALL_PREFIX={prefix}", "-DCMAKE_INSTALL_LIBDIR=lib", "-DBUILD_TESTING=OFF")
    soname = build / "libnncuda.so.1"
    shutil.copy(Path(PATH).resolve(), soname)
    (build / "libnncuda.so").symlink_to(soname.name)
    run(program("cmake"), "-P", build / "cmake_install.cmake")
    return prefix


def check(binary: Path, prefix: Path) -> None:
    assert run(binary, environment={"LD_LIBRARY_PATH": str(prefix / "lib")}) == "-2 0 4\n"


def test_what_is_installed(prefix):
    found = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    assert found == {
        "include/nncuda/bindings.h",
        "lib/libnncuda.so",
        "lib/libnncuda.so.1",
        "lib/pkgconfig/nncuda.pc",
        "lib/cmake/nncuda/nncuda-config.cmake",
        "lib/cmake/nncuda/nncuda-config-version.cmake",
        "lib/cmake/nncuda/nncuda-targets.cmake",
        "lib/cmake/nncuda/nncuda-targets-release.cmake",
    }


@pytest.mark.parametrize("moved", [False, True])
def test_a_program_built_with_pkg_config(prefix, tmp_path, moved):
    """Also after the whole tree was moved to another place."""
    if moved:
        prefix = Path(shutil.copytree(prefix, tmp_path / "elsewhere", symlinks=True))
    path = {"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    flags = run(program("pkg-config", "pkgconf"), "--cflags", "--libs", "nncuda", environment=path).split()
    binary = tmp_path / "consumer"
    run(program("cc", "gcc", "clang"), "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", HERE / "consumer.c",
        *flags, "-o", binary)  # fmt: skip
    check(binary, prefix)


def test_a_program_built_with_find_package(prefix, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(consumer C)\nfind_package(nncuda 0.1 REQUIRED)\n"
        f"add_executable(consumer {HERE}/consumer.c)\ntarget_link_libraries(consumer PRIVATE nncuda::nncuda)\n"
    )
    run(program("cmake"), "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "build")
    check(tmp_path / "build" / "consumer", prefix)


def test_a_c_program_linked_to_the_library_itself(tmp_path):
    assert run(link(HERE / "consumer.c", tmp_path / "consumer")) == "-2 0 4\n"


def test_clang_compiles_everything_without_a_warning(tmp_path):
    """And links the same exports; at -O1, since it is the diagnostics that count here."""
    compiler = program("clang", "clang-19", "clang-18", "clang-17", "clang-16")
    if "clang" in os.environ.get("CC", "") or b"clang" in Path(PATH).read_bytes():
        pytest.skip("the library under test was compiled by clang itself")
    configure(tmp_path, f"-DCMAKE_C_COMPILER={compiler}", "-DCMAKE_C_FLAGS_RELEASE=-O1")
    run("cmake", "--build", tmp_path, "--target", "nncuda", "--parallel", str(os.cpu_count() or 1))


def test_aarch64_compiles_everything_without_a_warning(tmp_path):
    compiler = program("aarch64-linux-gnu-gcc")
    configure(tmp_path, "-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
              f"-DCMAKE_C_COMPILER={compiler}", "-DCMAKE_C_FLAGS_RELEASE=-O1")  # fmt: skip
    run("cmake", "--build", tmp_path, "--target", "nncuda", "--parallel", str(os.cpu_count() or 1))
    header = run(program("readelf"), "-h", (tmp_path / "libnncuda.so").resolve())
    assert "AArch64" in header
