"""The reference of the ABI, as it is made from the header."""

from __future__ import annotations

import re
from pathlib import Path

from nncuda.binding import header
from tools import abi_page

ROOT = Path(__file__).resolve().parents[2]


def test_reference_names_everything() -> None:
    contract = header.parse(ROOT / "bindings.h")
    page = abi_page.files(contract, b"")["docs/abi.md"]
    for function in contract.functions.values():
        assert f"\n### {function.name}\n" in page
    for constant in contract.constants:
        assert f"| `{constant}` |" in page
    for anchor in re.findall(r"\]\(#([^)]+)\)", page):
        headings = {
            re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in re.findall(r"^#+ (.*)", page, re.M)
        }
        assert anchor in headings
