"""Links and anchors of Markdown pages, as code-hosting sites read them: for the site's build and for the tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_FENCE = re.compile(r"^ *(```+|~~~+)")
_CODE = re.compile(r"(`+)(?:(?!\1).)+?\1")
_TARGET = re.compile(r"(\]\()([^()\s]+(?:\([^()\s]*\)[^()\s]*)*)(\))")
_HEADING = re.compile(r"^#{1,6} +(.*?)(?: +#+)? *$")
_ANCHOR = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")


def _prose(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is outside of blocks of code."""
    fence = ""
    for line in text.splitlines(keepends=True):
        opened = _FENCE.match(line)
        if opened and not fence:
            fence = opened[1]
            yield line, False
        elif fence:
            if opened and opened[1].startswith(fence):
                fence = ""
            yield line, False
        else:
            yield line, True


def rewritten(text: str, change: Callable[[str], str]) -> str:
    """The page with each link's target changed; code stays as it is."""

    def of_line(line: str) -> str:
        code = [match.span() for match in _CODE.finditer(line)]

        def of_link(match: re.Match[str]) -> str:
            inside = any(begin < match.start() < end for begin, end in code)
            return match[0] if inside else match[1] + change(match[2]) + match[3]

        return _TARGET.sub(of_link, line)

    return "".join(of_line(line) if prose else line for line, prose in _prose(text))


def targets(text: str) -> list[str]:
    """Where a page's links and images lead."""
    found: list[str] = []

    def note(target: str) -> str:
        found.append(target)
        return target

    rewritten(text, note)
    return found


def is_relative(target: str) -> bool:
    """Whether it leads to another place of the same tree, or of the same page."""
    return not re.match(r"[a-z][a-z0-9+.-]*:|/", target, re.IGNORECASE)


def anchors(text: str) -> set[str]:
    """The anchors of a page: its headings', and those that it sets."""
    found: set[str] = set()
    for line, prose in _prose(text):
        heading = _HEADING.match(line) if prose else None
        if heading:
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
            slug = re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-")
            again = 0
            while (slug if not again else f"{slug}-{again}") in found:
                again += 1
            found.add(slug if not again else f"{slug}-{again}")
        if prose:
            found |= set(_ANCHOR.findall(line))
    return found
