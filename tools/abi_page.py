"""The reference of the C ABI, `docs/abi.md`."""

from __future__ import annotations

import re

from nncuda.binding import header

OWNED = ("docs/abi.md",)


def files(contract: header.Header, _source: bytes) -> dict[str, str]:
    """The page, by its path."""
    version = ".".join(map(str, contract.abi))
    others = len(contract.functions) - len(contract.kernels)
    lines = [
        "<!-- Generated from bindings.h by `make generate`. Do not edit. -->",
        "# The C ABI",
        "",
        f"Every function of [`bindings.h`](../bindings.h), ABI version {version}: {len(contract.kernels)} kernels "
        f"(`cuda_*`) and {others} other functions (`nncuda_*`). All of them run on either engine.",
        "",
        *_contents(contract),
        "## Conventions",
        "",
        *_conventions(contract.intro),
        "## Constants",
        "",
    ]
    for enum in contract.enums:
        lines += _enum(enum)
    for section in contract.sections:
        lines += _section(section)
    return {OWNED[0]: "\n".join(lines).rstrip() + "\n"}


def _contents(contract: header.Header) -> list[str]:
    lines = ["| section | functions |", "|---|---|"]
    for section in contract.sections:
        names = " · ".join(f"[{function.name}](#{function.name})" for function in section.functions)
        lines.append(f"| [{section.name}](#section-{section.name}) | {names} |")
    return [*lines, ""]


def _conventions(intro: str) -> list[str]:
    """The list under CONVENTIONS in the header's first comment, as a table."""
    body = intro.split("CONVENTIONS")[1].split("HOW EACH FUNCTION")[0]
    entries: list[list[str]] = []
    for line in body.splitlines():
        if match := re.fullmatch(r"  (\w+)\s+(.*)", line):
            entries.append([match[1], match[2]])
        elif line.strip():
            entries[-1][1] += " " + line.strip()
    return ["| | |", "|---|---|", *(f"| {name} | {_escape(words)} |" for name, words in entries), ""]


def _enum(enum: header.Enum) -> list[str]:
    lines = [_escape(enum.text), "", "| name | number | meaning |", "|---|---:|---|"]
    for constant in enum.constants:
        lines.append(f"| `{constant.name}` | {constant.value} | {_escape(' '.join(constant.text.split()))} |")
    return [*lines, ""]


def _section(section: header.Section) -> list[str]:
    lines = [f"## Section: {section.name}", ""]
    if section.text:
        lines += [_escape(" ".join(section.text.split())), ""]
    for function in section.functions:
        lines += _function(function)
    return lines


def _function(function: header.Function) -> list[str]:
    lines = [f"### {function.name}", "", _escape(" ".join(function.doc.split())), "", "```c"]
    lines += [*_wrap(function.declaration), "```", ""]
    params = [param for param in function.params if param.kind != "context"]
    if params:
        lines += ["| parameter | what | shape | |", "|---|---|---|---|"]
        for param in params:
            shape = f"`{param.shape_text}`" if param.kind == "pointer" else ""
            lines.append(f"| `{param.name}` | {_what(param)} | {shape} | {_escape(param.text)} |")
        lines.append("")
    return lines


def _what(param: header.Param) -> str:
    """Direction, dtype and the rest of what a pointer is; the kind of a scalar."""
    if param.kind != "pointer":
        words = [param.kind] + ["or null"] * param.nullable
        if param.default:
            words.append(f"(default {param.default})")
        return " ".join(words)
    words = [param.direction, param.dtype]
    words += ["on the host"] * param.host + ["or null"] * param.nullable
    if param.alias:
        words.append(f"(may be {' or '.join(f'`{name}`' for name in param.alias)})")
    return " ".join(words)


def _wrap(declaration: str, width: int = 100) -> list[str]:
    """A declaration on lines of at most `width` characters, its arguments aligned."""
    start = declaration.index("(") + 1
    lines, line = [], declaration[:start]
    arguments = declaration[start:].split(", ")
    for index, argument in enumerate(arguments):
        piece = argument + (", " if index + 1 < len(arguments) else "")
        if len(line) > start and len(line + piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = " " * start
        line += piece
    return [*lines, line]


def _escape(words: str) -> str:
    """Text as Markdown shows it: formulas use characters that Markdown would take for itself. `code` stays code."""
    parts = re.split(r"(`[^`]*`)", words)
    return "".join(part if part.startswith("`") else re.sub(r"([\\*\[\]<>|])", r"\\\1", part) for part in parts)
