"""The packages of python/nncuda import each other one way: a room knows those below it and none above."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "python" / "nncuda"

#: From the bottom up. Kernels are made of the header over tensors, and a tensor computes by kernels: they are one.
ROOMS = (
    {"errors"},
    {"dtypes"},
    {"extras"},
    {"binding", "device", "kernels"},
    {"token_ids"},
    {"formats"},
    {"nearest"},
    {"tokenizer"},
    {"layers"},
    {"models"},
    {"reference"},
    {"convert"},
    {"infer"},
    {"golden"},
    {"report"},
    {"train"},
    {"doctor"},
    {"serve"},
    {"records"},
    {"cli"},
    {"bench"},
    {"__init__", "__main__"},
)
HEIGHTS = {room: height for height, rooms in enumerate(ROOMS) for room in rooms}


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(file: Path) -> Iterator[str]:
    """The rooms that a file imports from, for its types alone too."""
    above = ("nncuda", *file.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            paths = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = [*above[: len(above) + 1 - node.level]] if node.level else []
            base += (node.module or "").split(".") if node.module else []
            paths = [[*base, alias.name] for alias in node.names]
        else:
            continue
        for path in paths:
            if path[0] == "nncuda" and len(path) > 1 and not path[1].startswith("__"):
                yield path[1]


@pytest.mark.parametrize("room", sorted(HEIGHTS))
def test_a_room_knows_only_those_below(room: str) -> None:
    for file in (path for path in PACKAGE.rglob("*.py") if room_of(path) == room):
        wrong = {other for other in imported(file) if HEIGHTS[other] > HEIGHTS[room]}
        assert not wrong, f"{file.relative_to(PACKAGE)} imports {sorted(wrong)}, which stand above {room}"


def test_every_room_has_a_height() -> None:
    found = {room_of(path) for path in PACKAGE.rglob("*.py")}
    assert found == set(HEIGHTS)
