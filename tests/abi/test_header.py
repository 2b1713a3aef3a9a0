"""bindings.h and the library's symbol table say the same, and the header is plain C99 and C++17."""

from __future__ import annotations

import re

import pytest
from raw import HEADER, LIB, PATH, C
from toolchain import ROOT, program, run

import nncuda

PEDANTIC = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-fsyntax-only")


def test_the_library_exports_the_header_and_nothing_else():
    table = run(program("nm"), "-D", "--defined-only", PATH)
    exported = {line.split()[2].split("@")[0] for line in table.splitlines()}
    assert exported == set(HEADER.functions)


def test_the_library_needs_only_libc():
    dynamic = run(program("readelf"), "-d", PATH)
    needed = set(re.findall(r"\(NEEDED\).*\[(.+?)\]", dynamic))
    loader = {name for name in needed if name.startswith("ld-linux")}
    assert needed - loader <= {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2"}


@pytest.mark.parametrize("language", ["-std=c99 -x c", "-std=c17 -x c", "-std=c++17 -x c++"])
@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_the_header_compiles_alone(tmp_path, language, family):
    plus = "c++" in language
    names = {("gcc", False): ("gcc",), ("gcc", True): ("g++",)}.get(
        (family, plus), ("clang++", "clang++-19") if plus else ("clang", "clang-19")
    )
    source = tmp_path / "alone.c"
    source.write_text('#include "bindings.h"\n#include "bindings.h"\nint nothing;\n')
    extra = () if plus else ("-Wstrict-prototypes",)
    run(program(*names), *PEDANTIC, *extra, "-I", ROOT, *language.split(), source)


def test_versions_agree():
    major, minor = HEADER.abi
    assert LIB.nncuda_abi_version() == 1000 * major + minor
    info = LIB.nncuda_build_info().decode()
    assert f"nncuda {nncuda.__version__}, ABI {major}.{minor}" in info
    assert "\n" not in info
    assert "baseline" in info


def test_every_status_has_its_name_and_a_sentence():
    statuses = {name: value for name, value in HEADER.constants.items() if name.startswith("NNCUDA_ERROR_")}
    for name, value in (statuses | {"NNCUDA_SUCCESS": 0}).items():
        assert LIB.nncuda_status_name(value).decode() == name
        assert len(LIB.nncuda_status_string(value).decode()) >= len("success")
    assert len(statuses) > 15
    for value in (-1, 1, 9, 71, 2**31 - 1):
        assert LIB.nncuda_status_name(value) == b"unknown status"
        assert LIB.nncuda_status_string(value) == b"unknown status"


def test_status_numbers_are_grouped_and_unique():
    values = [value for name, value in vars(C).items() if name.startswith("ERROR_")]
    assert len(set(values)) == len(values)
    assert all(10 <= value < 80 for value in values)
