"""Small mistakes that somebody could have made: every place in a source where one can be planted.

mutmut and cosmic-ray know Python alone, and neither draws a sample that a seed makes again.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: What is mutated, by the suffix of the file. Nothing is promised of the benchmarks.
SOURCES = {"c": ("cuda/*/*.[ch]",), "python": ("python/nncuda/**/*.py",)}
LEFT_OUT = re.compile(r"python/nncuda/(bench/|__main__)")

_SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "+", "/": "*",
    "//": "*", "%": "*", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "+=": "-=", "-=": "+=", "*=": "+=", "&&": "||",
    "||": "&&", "and": "or", "or": "and", "in": "not in", "not in": "in", "is": "is not", "is not": "is",
}  # fmt: skip


@dataclass(frozen=True)
class Mutation:
    """The bytes start .. end-1 of a file become `new`."""

    path: str
    start: int
    end: int
    new: bytes
    kind: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.new + source[self.end :]

    def line(self, source: bytes) -> int:
        return source.count(b"\n", 0, self.start) + 1

    def diff(self, source: bytes) -> str:
        before, after = (text.decode().splitlines(keepends=True) for text in (source, self.apply(source)))
        return "".join(difflib.unified_diff(before, after, f"a/{self.path}", f"b/{self.path}", n=1))


def of_file(path: str, source: bytes) -> list[Mutation]:
    """All mutations of a source, in the order of its text."""
    found = _of_python(source) if path.endswith(".py") else _of_c(source)
    unique = {Mutation(path, *place): None for place in found}
    return sorted(unique, key=lambda m: (m.start, m.end, m.new))


def paths(root: Path, language: str) -> list[str]:
    """The sources of a language."""
    found = {path.relative_to(root).as_posix() for glob in SOURCES[language] for path in root.glob(glob)}
    return sorted(path for path in found if not LEFT_OUT.match(path))


def draw(root: Path, language: str, seed: int, pattern: str = "") -> list[Mutation]:
    """All mutations of the sources of a language whose path has `pattern`, in an order that the seed alone decides."""
    chosen = [path for path in paths(root, language) if re.search(pattern, path)]
    found = [mutation for path in chosen for mutation in of_file(path, (root / path).read_bytes())]
    random.Random(f"{seed} {language}").shuffle(found)
    return found


Place = tuple[int, int, bytes, str]


def _number(text: str) -> str:
    """Another number: twice a fraction, one more than a whole number."""
    digits = re.fullmatch(r"(0[xX][0-9a-fA-F]+|[\d.]+(?:[eE][-+]?\d+)?)(\w*)", text.replace("_", ""))
    if digits is None:
        return text
    value, suffix = digits.groups()
    if re.search(r"[.eE]", value) and not value[:2].lower() == "0x":
        return repr(float(value) * 2 or 1.0) + suffix
    return (hex if value[:2].lower() == "0x" else str)(int(value, 0) + 1) + suffix


# ---- Python ----


def _of_python(source: bytes) -> Iterator[Place]:
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def span(node: ast.AST) -> tuple[int, int]:
        return lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset

    for node in _executed(ast.parse(source)):
        yield from _of_node(node, source, span)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """What computes: no annotations, no texts, no wording of errors, nothing for type checkers alone."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return
    if isinstance(node, ast.FunctionDef) and node.name == "__repr__":
        return
    yield node
    if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr, ast.ImportFrom, ast.Import)):
        return
    for name, field in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list", "type_comment"):
            for child in field if isinstance(field, list) else [field]:
                if isinstance(child, ast.AST):
                    yield from _executed(child)


def _of_node(node: ast.AST, source: bytes, span) -> Iterator[Place]:
    between: list[tuple[ast.AST, ast.AST]] = []
    if isinstance(node, ast.Compare):
        between = list(itertools.pairwise([node.left, *node.comparators]))
    elif isinstance(node, ast.BinOp) and not any(map(_is_text, (node.left, node.right))):
        between = [(node.left, node.right)]
    elif isinstance(node, ast.BoolOp):
        between = list(itertools.pairwise(node.values))
    for left, right in between:
        start, end = span(left)[1], span(right)[0]
        if operator := re.fullmatch(rb"[\s)]*([^\s()]+(?: not| in)?)[\s(]*", source[start:end]):
            if new := _SWAPS.get(operator[1].decode()):
                yield start + operator.start(1), start + operator.end(1), new.encode(), "operator"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield *(span(node)[0], span(node.operand)[0]), b"", "operator"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield *span(node), str(not node.value).encode(), "constant"
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        start, end = span(node)
        yield start, end, _number(source[start:end].decode()).encode(), "constant"
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        start, end = span(node.test)
        yield start, end, b"not (" + source[start:end] + b")", "condition"
    elif isinstance(node, ast.Call):
        for one, other in itertools.pairwise(node.args):
            (a, b), (c, d) = span(one), span(other)
            if not isinstance(one, ast.Starred) and not isinstance(other, ast.Starred) and source[a:b] != source[c:d]:
                yield a, d, source[c:d] + source[b:c] + source[a:b], "arguments"
    elif _is_step(node):
        yield *span(node), b"pass", "statement"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))


def _is_step(node: ast.AST) -> bool:
    """A statement without which the next ones still find their names."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
    return isinstance(node, (ast.AugAssign, ast.Raise, ast.Break, ast.Continue))


# ---- C ----

_TOKENS = re.compile(
    rb"(?P<skip>/\*.*?\*/|//[^\n]*|^[^\n]*fetch[^\n]*"
    rb"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')"
    rb"|(?P<number>\b(?:0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][-+]?\d+)?)[a-zA-Z]*\b)"
    # Formatted, a binary operator has a blank on both sides, which tells a product from a pointer.
    rb"|(?<= )(?P<operator><<|>>|<=|>=|==|!=|&&|\|\||\+=|-=|\*=|[-+*/%<>&|])(?=[ \n])"
    rb"|(?P<call>\b[a-zA-Z_]\w*\((?=[^()\s]))",
    re.S | re.M,
)
_STEP = re.compile(
    rb"^ +(?![^\n]*fetch|return|const|enum|goto|static|else|\}|case|default)"
    rb"(?P<step>(?:[\w.\[\]]|->)+(?: [-+*/|&]?= [^;{}]*|\([^;{}]*\)|\+\+|--);|break;|continue;)$",
    re.M,
)
_LONGEST_CALL = 400
# What is fetched ahead changes no result, so lines that say "fetch" are left alone.


def _of_c(source: bytes) -> Iterator[Place]:
    bodies = _bodies(source)
    for token in _TOKENS.finditer(source):
        text, inside = token[0].decode(), token.start() in bodies
        if token.lastgroup == "number":
            yield *token.span(), _number(text).encode(), "constant"
        elif token.lastgroup == "operator" and inside and text in _SWAPS:
            yield *token.span(), _SWAPS[text].encode(), "operator"
        elif token.lastgroup == "call" and inside:
            yield from _swapped(source, token.end())
    for step in _STEP.finditer(source):
        if step.start("step") in bodies:
            yield *step.span("step"), b";", "statement"


def _bodies(source: bytes) -> set[int]:
    """The places inside functions, as clang-format lays them out: up to a brace that begins a line, or on one line."""
    found: set[int] = set()
    for body in re.finditer(rb"^\w(?!um |truct |ypedef )[^;{}#]*\) \{(?P<rest>.*?)^\}", source, re.S | re.M):
        found.update(range(*body.span("rest")))
    for body in re.finditer(rb"^\w[^;{}#\n]*\) \{(?P<rest>[^\n]+)\}$", source, re.M):
        found.update(range(*body.span("rest")))
    return found


def _swapped(source: bytes, start: int) -> Iterator[Place]:
    """Neighbours among the arguments that begin at `start`."""
    depth, begin, spans = 0, start, []
    for at in range(start, min(len(source), start + _LONGEST_CALL)):
        byte = source[at : at + 1]
        if byte in b"{};\"'#/":
            return
        if (byte == b"," and depth == 0) or (byte in b")]" and depth == 0):
            spans.append((begin, at))
            begin = at + 1
            if byte != b",":
                break
        depth += (byte in b"([") - (byte in b")]")
    else:
        return
    for (a, b), (c, d) in itertools.pairwise(spans):
        one, other = source[a:b].strip(), source[c:d].strip()
        if one != other:
            yield a, d, source[a:b].replace(one, other) + b"," + source[c:d].replace(other, one), "arguments"
