"""One version of the release in all packages, and a section of the changelog about it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Where the version stands, and how.
PLACES = {
    "CMakeLists.txt": r"project\(nncuda VERSION (\S+)",
    "python/nncuda/__init__.py": r'^__version__ = "(.*)"$',
    "go/train/record.go": r'^const Version = "(.*)"$',
    "rust/Cargo.toml": r'^version = "(.*)"$',
    "rust/nn-py/pyproject.toml": r'^version = "(.*)"$',
}


def stated(place: str, pattern: str) -> str:
    found = re.findall(pattern, (ROOT / place).read_text(encoding="utf-8"), re.MULTILINE)
    assert len(found) == 1, f"{place}: {pattern}"
    return str(found[0])


RELEASE = stated("pyproject.toml", r'^version = "(.*)"$')


@pytest.mark.parametrize("place", PLACES)
def test_the_packages_have_one_version(place: str) -> None:
    assert stated(place, PLACES[place]) == RELEASE


def test_the_changelog_knows_it_and_is_in_order() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## \[(.*?)\]", text, re.MULTILINE)
    assert sections[0] == "Unreleased" and RELEASE in sections
    numbers = [tuple(map(int, section.split("."))) for section in sections[1:]]
    assert numbers == sorted(numbers, reverse=True)


def test_the_page_about_versions_names_every_place() -> None:
    page = (ROOT / "docs/versioning.md").read_text(encoding="utf-8")
    for place in [*PLACES, "pyproject.toml"]:
        assert f"`{place}`" in page
