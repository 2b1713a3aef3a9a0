"""No symbol of the ABI changes without a new version, and the rule that says so finds what is planted."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path

import pytest

from nncuda.binding import header
from tools import symbols
from tools.symbols import Symbols

LISTS = symbols.committed()
CURRENT = symbols.of_header(header.parse(symbols.ROOT / "bindings.h"))
SILU = "int32_t cuda_silu(nncuda_ctx *ctx, const void *x, void *y, int64_t n, int32_t dtype)"
BEFORE = Symbols((1, 4), "0.2.0", {"cuda_silu": SILU, "NNCUDA_F32": "NNCUDA_F32 = 0"})


def now(major: int, minor: int, release: str = "", **lines: str) -> Symbols:
    """A version of the symbols above with other lines; an empty one is a removal."""
    changed = {name: line for name, line in {**BEFORE.lines, **lines}.items() if line}
    return Symbols((major, minor), release, changed)


RELU = {"cuda_relu": SILU.replace("silu", "relu")}
F64 = {"NNCUDA_F64": "NNCUDA_F64 = 9"}
PARAMETER = {"cuda_silu": SILU.replace("int64_t n", "int32_t n")}


def test_the_header_is_that_of_its_list() -> None:
    assert not symbols.problem(LISTS, CURRENT)


@pytest.mark.parametrize("major", {listed.version[0] for listed in LISTS})
def test_a_list_is_as_the_tool_writes_it(major: int) -> None:
    versions = [listed for listed in LISTS if listed.version[0] == major]
    assert symbols.path_of(major).read_text(encoding="utf-8") == symbols.text(versions)


def test_lists_name_the_releases_of_the_changelog() -> None:
    changelog = (symbols.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## \[(\d\S*)\]\n\nABI (\d+)\.(\d+)\.", changelog, re.M)
    newest = {listed.release: listed.version for listed in LISTS if listed.release}
    assert newest == {release: (int(major), int(minor)) for release, major, minor in releases}


@pytest.mark.parametrize(
    ("changes", "needed", "words"),
    [
        ({}, (1, 4), ""),
        (RELU, (1, 5), "cuda_relu was added: that needs NNCUDA_ABI_MINOR 5"),
        (F64, (1, 5), "NNCUDA_F64 was added: that needs NNCUDA_ABI_MINOR 5"),
        (PARAMETER, (2, 0), "cuda_silu was changed: that needs NNCUDA_ABI_MAJOR 2, NNCUDA_ABI_MINOR 0"),
        ({"cuda_silu": ""}, (2, 0), "cuda_silu was removed: that needs NNCUDA_ABI_MAJOR 2"),
        ({"NNCUDA_F32": "NNCUDA_F32 = 1"}, (2, 0), "NNCUDA_F32 was changed: that needs NNCUDA_ABI_MAJOR 2"),
        ({**RELU, "cuda_silu": ""}, (2, 0), "cuda_silu was removed: that needs NNCUDA_ABI_MAJOR 2"),
    ],
)
@pytest.mark.parametrize("version", [(1, 4), (1, 5), (2, 0)])
def test_what_needs_which_version(
    version: tuple[int, int], changes: dict[str, str], needed: tuple[int, int], words: str
) -> None:
    said = symbols.missing_bump(BEFORE, now(*version, **changes))
    assert bool(said) == (version < needed)
    assert not said or words in said


@pytest.mark.parametrize("version", [(1, 3), (1, 6), (2, 1), (3, 0), (0, 4)])
def test_versions_follow_each_other(version: tuple[int, int]) -> None:
    assert "does not follow ABI 1.4" in symbols.missing_bump(BEFORE, now(*version))


def test_history_keeps_the_rule() -> None:
    """Each minor version of the first contract added something and changed nothing."""
    first = [listed for listed in LISTS if listed.version[0] == 1]
    assert [listed.version[1] for listed in first] == [0, 1, 2, 3, 4]
    for old, new in itertools.pairwise(first):
        added, broken = symbols.difference(old, new)
        assert added and not broken
        assert "NNCUDA_ABI_MINOR" in symbols.missing_bump(old, dataclasses.replace(new, version=old.version))
        assert "NNCUDA_ABI_MAJOR" in symbols.missing_bump(new, dataclasses.replace(old, version=new.version))


@pytest.mark.parametrize(
    ("lists", "current", "words"),
    [
        ([BEFORE], now(1, 4), ""),
        ([BEFORE], now(1, 4, **RELU), "after ABI 1.4, cuda_relu was added: that needs NNCUDA_ABI_MINOR 5"),
        ([BEFORE], now(1, 5, **RELU), "ABI 1.5 has no list: run `make abi`"),
        (
            [BEFORE, now(1, 5)],
            now(1, 5, **RELU),
            "in bindings.h, cuda_relu was added: if that is meant, run `make abi`",
        ),
        ([BEFORE, now(1, 5, **RELU)], now(1, 5, **RELU), ""),
        ([BEFORE, now(1, 5)], now(1, 5, **PARAMETER), "cuda_silu was changed: that needs NNCUDA_ABI_MAJOR 2"),
        ([BEFORE, now(1, 5)], now(2, 0, **PARAMETER), "ABI 2.0 has no list: run `make abi`"),
        ([BEFORE, now(1, 5)], now(1, 4), "ABI 1.5 has a list, but bindings.h is of ABI 1.4: run `make abi`"),
        ([BEFORE, now(1, 5)], now(1, 6), "ABI 1.6 does not follow ABI 1.4"),
        ([BEFORE, now(1, 5, "0.3.0", **PARAMETER)], now(1, 5, **PARAMETER), "after ABI 1.4, cuda_silu was changed"),
    ],
)
def test_what_is_said(lists: list[Symbols], current: Symbols, words: str) -> None:
    said = symbols.problem(lists, current)
    assert words in said and bool(words) == bool(said)


def test_only_an_unreleased_list_is_written(tmp_path: Path) -> None:
    """And the one of a version that came to nothing goes."""
    path = symbols.path_of(1, tmp_path)
    path.write_text(symbols.text([BEFORE]))
    with pytest.raises(ValueError, match=r"cuda_relu was added: that needs NNCUDA_ABI_MINOR 5"):
        symbols.update(tmp_path, now(1, 4, **RELU))
    assert [*tmp_path.iterdir()] == [path] and path.read_text() == symbols.text([BEFORE])
    for current in (now(1, 5, **RELU), now(1, 5, **F64), now(2, 0, **PARAMETER)):
        symbols.update(tmp_path, current)
        assert symbols.committed(tmp_path) == [BEFORE, current]
    symbols.update(tmp_path, now(1, 4))
    assert symbols.committed(tmp_path) == [BEFORE]


def test_a_list_without_its_version_is_refused(tmp_path: Path) -> None:
    symbols.path_of(1, tmp_path).write_text(f"{symbols.text([BEFORE])}# ABI 1.1\n")
    with pytest.raises(ValueError, match=r"not '# ABI 1\.1'"):
        symbols.committed(tmp_path)
