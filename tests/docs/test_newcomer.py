"""What `make newcomer` runs is what the pages say: each page with commands is in its list, each change changes one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/newcomer"))
import walk  # noqa: E402


@pytest.mark.parametrize("page", walk.pages(), ids=lambda page: page.path)
def test_the_changes_are_of_commands_that_the_page_has(page: walk.Page) -> None:
    assert walk.script(page, walk.blocks(ROOT / page.path, page.path)).count(">&3") > 0


def test_every_page_with_commands_is_walked_or_says_why_not() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"), *ROOT.glob("examples/*/*.md")]
    names = [page.relative_to(ROOT).as_posix() for page in pages]
    commands = {name for name in names if any(block.language == "sh" for block in walk.blocks(ROOT / name, name))}
    assert commands <= {page.path for page in walk.pages()} | set(walk.left_out())


def test_a_change_that_no_command_needs_is_an_error() -> None:
    page = walk.Page("page.md", change=[{"find": "make all", "why": "it takes long"}])
    block = walk.Block("page.md", 3, "sh", "make one  # a comment\nmake \\\n  two\n")
    assert block.commands() == [(3, "make one"), (4, "make two")]
    with pytest.raises(walk.WalkError, match="make all"):
        walk.script(page, [block])


def test_a_command_that_fails_is_named_with_what_it_printed(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "page.md").write_text("```sh\necho one\nsh -c 'echo gone >&2; exit 7'\necho never\n```\n")
    with pytest.raises(walk.WalkError, match=r"(?s)page.md:3: sh -c .* ended with 7:.*gone"):
        walk.walk(walk.Page("page.md"), copy)
