"""The version of the release: a section of the changelog, the places that the page about versions names.

That these places agree is tests/python/test_installed_package.py's to say.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def release() -> str:
    text = (ROOT / "python/nncuda/__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    return str(version)


def test_the_changelog_knows_it_and_is_in_order() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## \[(.*?)\]", text, re.MULTILINE)
    assert sections[0] == "Unreleased" and release() in sections
    numbers = [tuple(map(int, section.split("."))) for section in sections[1:]]
    assert numbers == sorted(numbers, reverse=True)


def test_the_page_about_versions_names_every_place() -> None:
    page = (ROOT / "docs/versioning.md").read_text(encoding="utf-8")
    for place in (
        "python/nncuda/__init__.py",
        "go/train/record.go",
        "rust/Cargo.toml",
        "pyproject.toml",
        "CMakeLists.txt",
    ):
        assert f"`{place}`" in page
