"""The pages: every link of the repository's Markdown leads somewhere, and every page is in the site's navigation."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
from pathlib import Path
from urllib.parse import unquote

import fenced
import pytest

ROOT = Path(__file__).resolve().parents[2]
#: What is made or installed here, and text of others.
NOT_OURS = {"build", "dist", "runs", "target", "node_modules"}

_spec = importlib.util.spec_from_file_location("links", ROOT / "web/links.py")
assert _spec and _spec.loader
links = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(links)


def pages() -> list[str]:
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in NOT_OURS and not name.startswith(".")]
        found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in files if name.endswith(".md")]
    return sorted(found)


def wrong(page: Path, text: str) -> list[str]:
    """The relative links of a page that lead nowhere."""
    found = []
    for target in links.targets(text):
        if not links.is_relative(target):
            continue
        path, _, anchor = unquote(target).partition("#")
        file = page.parent / path if path else page
        if not file.exists():
            found.append(f"{target}: there is no such file")
        elif anchor and (file.suffix != ".md" or anchor not in links.anchors(file.read_text(encoding="utf-8"))):
            found.append(f"{target}: there is no such heading")
    return found


def test_there_are_pages() -> None:
    assert {"README.md", "CHANGELOG.md", "docs/index.md", "rust/README.md", "tests/fuzz/README.md"} <= set(pages())


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: str) -> None:
    assert not wrong(ROOT / page, (ROOT / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize("link", ["missing.md", "#no-such-heading", "index.md#no-such-heading", "../cuda#what"])
def test_a_link_that_leads_nowhere_is_found(link: str) -> None:
    here = ROOT / "docs/index.md"
    assert wrong(here, f"# A heading\n\na [link]({link})\n")
    assert not wrong(here, f"`a [link]({link})`\n\n```md\n[link]({link})\n```\n")


def test_anchors_are_those_of_code_hosting_sites() -> None:
    text = "# `nncuda plan`: what it takes\n## A_b, c & d\n## [Link](x.md#y)\n## Twice\n## Twice\n"
    text += "```sh\n# no heading\n```\n"
    assert links.anchors(text) == {"nncuda-plan-what-it-takes", "a_b-c--d", "link", "twice", "twice-1"}


def navigation() -> list[str]:
    """The pages that the site's navigation names; the file is read by its lines, so that YAML is no requirement."""
    _, _, nav = (ROOT / "web/mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")
    return re.findall(r"^ +- (?:[^:]+: )?([\w./-]+\.md)$", nav, re.MULTILINE)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = navigation()
    assert len(listed) == len(set(listed))
    made = {"changelog.md", "contributing.md"}  # from the root; those in reference/ are made of the sources
    committed = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in listed if not page.startswith("reference/")} == committed | made


def test_every_page_is_in_the_readme() -> None:
    readme = links.targets((ROOT / "README.md").read_text(encoding="utf-8"))
    for path in (ROOT / "docs").glob("*.md"):
        if path.name != "index.md":
            assert f"docs/{path.name}" in readme, path.name


def test_first_look_on_the_landing_page(capsys: pytest.CaptureFixture[str]) -> None:
    """In Python; tests/packages runs those of Go and Rust."""
    (code,) = fenced.blocks("docs/index.md", "python")
    exec(compile(code, "docs/index.md", "exec"), {})
    assert capsys.readouterr().out == "[0.576 0.212 0.212 0.212 0.576 0.212]\n"


def test_the_parts_of_a_step_are_where_the_page_says() -> None:
    """The table of docs/architecture.md; a file without a folder is in that of the file before it."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = text[text.index("| part |") : text.index("The types have the same names")]
    cells = [cell for line in table.strip().splitlines()[2:] for cell in line.split("|")[3:6]]
    found = []
    for base, cell in zip(itertools.cycle(["python/nncuda", "go", "rust/nn-core/src"]), cells, strict=False):
        folder = ""
        for name in re.findall(r"`([\w/]+\.(?:py|go|rs))`", cell):
            folder = os.path.dirname(name) or folder
            found.append(f"{base}/{folder}/{os.path.basename(name)}")
    assert len(found) >= 30
    assert not [path for path in found if not (ROOT / path).is_file()]
