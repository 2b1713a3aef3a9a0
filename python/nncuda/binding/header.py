"""The one reader of ``bindings.h``: its constants, its C signatures and the grammar of its documentation.

Everything that is made from the header (the cffi declarations, the kernel functions and their docstrings, the type
stubs, the reference pages, the golden runner, the bad-input tests, the generators of other languages) reads it through
`parse`. No C compiler takes part. The reader is strict: what it does not understand is a `HeaderError` that names the
line, so that a slip in a comment cannot silently change what a binding checks.

The grammar stands at the top of ``bindings.h``.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from . import condition, header_checks
from .header_checks import FIXED_DTYPES, VALUE_DTYPES

__all__ = [
    "FIXED_DTYPES",
    "VALUE_DTYPES",
    "Constant",
    "Dim",
    "Enum",
    "Function",
    "Header",
    "HeaderError",
    "Param",
    "Section",
    "find",
    "parse",
    "parse_text",
]

_BASE_TYPES = ("void", "char", "float", "double", "int32_t", "int64_t")


class HeaderError(ValueError):
    """A line of the header does not fit the grammar. The message starts with ``file:line:``."""


@dataclass(frozen=True)
class Dim:
    """One dimension of a shape: ``coefficient * product of names / divisor + offset``, over size parameters."""

    text: str
    names: tuple[str, ...]
    coefficient: int = 1
    divisor: int = 1
    offset: int = 0

    def value(self, sizes: Mapping[str, int]) -> int:
        """The dimension, given all the sizes it is made of."""
        product = self.coefficient
        for name in self.names:
            product *= sizes[name]
        return product // self.divisor + self.offset

    def solve(self, value: int, sizes: Mapping[str, int]) -> tuple[str, int] | None:
        """The one size that is still unknown, from the dimension's value; None when it does not follow from it."""
        unknown = [name for name in self.names if name not in sizes]
        if len(unknown) != 1:
            return None
        known = self.coefficient
        for name in self.names:
            known *= sizes.get(name, 1)
        product = (value - self.offset) * self.divisor
        if known == 0 or product < 0 or product % known:
            return None
        return unknown[0], product // known


@dataclass(frozen=True)
class Param:
    """A parameter: its C type and what its documentation line says.

    `kind` is "context", "pointer", "handle", "size", "option", "flag" or "dtype". The fields below it are set for the
    kinds that have them and empty for the others.
    """

    name: str
    ctype: str
    kind: str
    text: str
    nullable: bool = False
    # pointers
    direction: str = ""  # in, out, inout, acc
    dtype: str = ""  # one of FIXED_DTYPES, or the name of the dtype parameter that says it
    dims: tuple[Dim, ...] = ()
    ld: str = ""  # the size parameter that is the stride of dims[0]; empty when dense
    swap_flag: str = ""  # the flag that swaps the last two dimensions
    host: bool = False
    alias: tuple[str, ...] = ()
    # scalars
    default: str = ""  # of an option: a number, a constant, or 1/sqrt(SIZE)
    dtypes: tuple[str, ...] = ()  # of a dtype: VALUE_DTYPES, or the name of another dtype parameter ("the same as")
    constants: tuple[str, ...] = ()  # of an option that takes an enum: the names of its values
    taken: tuple[str, ...] = ()  # those of them that the function takes
    condition: condition.Condition | None = None  # of a size or an option: what it must be

    @property
    def reads(self) -> bool:
        return self.direction in ("in", "inout", "acc")

    @property
    def writes(self) -> bool:
        return self.direction in ("out", "inout", "acc")

    @property
    def root_of(self) -> str:
        """The size under the root of a default 1/sqrt(SIZE), else empty."""
        match = re.fullmatch(r"1/sqrt\((\w+)\)", self.default)
        return match[1] if match else ""

    @property
    def shape_text(self) -> str:
        """The shape as in the header, such as ``[tokens:ld_q, heads, head_dim]``."""
        parts = [dim.text for dim in self.dims]
        if self.ld:
            parts[0] += f":{self.ld}"
        return "[" + ", ".join(parts) + "]" + (f"^{self.swap_flag}" if self.swap_flag else "")


@dataclass(frozen=True)
class Function:
    """A function: `doc` is the text before the parameters, `summary` its first sentence, `source` its citation."""

    name: str
    section: str
    summary: str
    doc: str
    source: str
    returns: str  # "int32_t" (a status, or the ABI version) or "const char *"
    params: tuple[Param, ...]
    line: int
    declaration: str  # on one line, without NNCUDA_API

    @property
    def is_kernel(self) -> bool:
        return self.name.startswith("cuda_")

    @property
    def kernel(self) -> str:
        """The name without ``cuda_``; empty when the function is not a kernel."""
        return self.name[len("cuda_") :] if self.is_kernel else ""

    @functools.cached_property
    def by_name(self) -> dict[str, Param]:
        return {param.name: param for param in self.params}

    def of_kind(self, kind: str) -> tuple[Param, ...]:
        return tuple(param for param in self.params if param.kind == kind)

    @property
    def pointers(self) -> tuple[Param, ...]:
        return self.of_kind("pointer")


@dataclass(frozen=True)
class Constant:
    name: str
    value: int
    text: str


@dataclass(frozen=True)
class Enum:
    text: str
    constants: tuple[Constant, ...]


@dataclass(frozen=True)
class Section:
    name: str
    text: str
    functions: tuple[Function, ...]


@dataclass(frozen=True)
class Header:
    path: str
    intro: str
    macros: dict[str, int]
    enums: tuple[Enum, ...]
    handles: tuple[str, ...]
    sections: tuple[Section, ...]
    cdef: str  # the declarations alone, for cffi

    @functools.cached_property
    def functions(self) -> dict[str, Function]:
        return {function.name: function for section in self.sections for function in section.functions}

    @functools.cached_property
    def kernels(self) -> dict[str, Function]:
        """The kernels, by their name without ``cuda_``."""
        return {function.kernel: function for function in self.functions.values() if function.is_kernel}

    @functools.cached_property
    def constants(self) -> dict[str, int]:
        return {constant.name: constant.value for enum in self.enums for constant in enum.constants}

    @property
    def abi(self) -> tuple[int, int]:
        """Major and minor version of the contract."""
        return self.macros["NNCUDA_ABI_MAJOR"], self.macros["NNCUDA_ABI_MINOR"]


def find() -> Path:
    """Where ``bindings.h`` is: in the installed package, else in the root of the source tree."""
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "bindings.h", package.parent.parent / "bindings.h"):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(
        f"bindings.h is neither in {package} nor in {package.parent.parent}; the installation is incomplete: "
        "install nncuda again"
    )


@functools.lru_cache(maxsize=4)
def _parse_file(path: str, _modified: int) -> Header:
    return parse_text(Path(path).read_text(encoding="utf-8"), path)


def parse(path: str | os.PathLike[str] | None = None) -> Header:
    """Reads a header file; without a path, the one of this installation. The result is kept while the file stays."""
    file = Path(path) if path is not None else find()
    return _parse_file(str(file), file.stat().st_mtime_ns)


_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<doc>/\*\*(?!/).*?\*/)
    | (?P<comment>/\*.*?\*/)
    | (?P<directive>\#[^\n]*)
    | (?P<function>NNCUDA_API\b[^;]*;)
    | (?P<enum>enum\s*\{(?:/\*(?:[^*]|\*(?!/))*\*/|/(?!\*)|[^}/])*\}\s*;)  # one way to read it, so never a long search
    | (?P<handle>typedef\s+struct\s+\w+\s+\w+\s*;)
    | (?P<linkage>extern\s+"C"\s*\{|\})
    """,
    re.VERBOSE | re.DOTALL,
)
_SECTION = re.compile(r"=+\s*section: (?P<name>[a-z]+)\n(?P<text>.*?)\n?\s*=+\s*", re.DOTALL)
_MACRO = re.compile(r"#define (NNCUDA_[A-Z_]+) (\d+)")
_CONSTANT = re.compile(r"\s*(?P<name>NNCUDA_[A-Z0-9_]+) = (?P<value>\d+)(?P<comma>,)?[ \t]*(?:/\*(?P<text>.*?)\*/)?",
                       re.DOTALL)  # fmt: skip
_FUNCTION = re.compile(r"NNCUDA_API (?P<returns>int32_t |const char \*)(?P<name>\w+)\((?P<args>.*)\);", re.DOTALL)
_ARGUMENT = re.compile(r"(?P<type>(?:const )?\w+ \*{0,2})(?P<name>[a-z]\w*)")
_POINTER = re.compile(
    r"(?P<name>[a-z]\w*) (?P<direction>inout|in|out|acc)(?P<null>\?)? (?P<dtype>\w+) \[(?P<dims>[^\]]*)\]"
    r"(?:\^(?P<swap>\w+))?(?P<host> host)?(?: alias (?P<alias>\w+(?:,\w+)*))? : (?P<text>\S.*)"
)
_HANDLE = re.compile(r"(?P<name>[a-z]\w*) handle(?P<null>\?)? : (?P<text>\S.*)")
_SCALAR = re.compile(
    r"(?P<name>[a-z]\w*) (?P<kind>size|option|flag|dtype)(?: default (?P<default>\S+))? : (?P<text>\S.*)"
)
_ENUM = re.compile(r"(?P<prefix>NNCUDA_[A-Z]+_)\*(?:: (?P<some>[A-Z0-9_]+(?:, [A-Z0-9_]+)*(?: or [A-Z0-9_]+)?))?")
_DIM = re.compile(r"(?P<product>\w+(?:\*\w+)*)(?:/(?P<divisor>[1-9]\d*))?(?:\+(?P<offset>\d+))?")
_SENTENCE_END = re.compile(r"(?<=[^\s.])\.(?=\s|$)")
_CITATION = re.compile(r"\((?P<source>[^()]*\b(?:19|20)\d\d\b[^()]*)\)")
_DEFAULT = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?|NNCUDA_[A-Z0-9_]+|1/sqrt\((?P<size>\w+)\)")


def parse_text(text: str, path: str = "bindings.h") -> Header:
    """Reads a header from a string; `path` is the name that errors give."""
    return _Parser(text, path).header()


class _Parser:
    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self.path = path
        self.macros: dict[str, int] = {}
        self.enums: list[Enum] = []
        self.handles: list[str] = []
        self.sections: list[tuple[str, str, list[Function]]] = []
        self.cdef: list[str] = []

    def fail(self, position: int, message: str) -> HeaderError:
        line = self.text.count("\n", 0, position) + 1
        return HeaderError(f"{self.path}:{line}: {message}")

    def header(self) -> Header:
        intro = ""
        comment: str | None = None  # the plain comment just before, which is the text of an enum
        doc: tuple[str, int] | None = None  # the documentation comment just before, which is that of a function
        position = 0
        while position < len(self.text):
            match = _TOKEN.match(self.text, position)
            if match is None:
                word = self.text[position : position + 40].split("\n")[0]
                raise self.fail(position, f"not part of the header's grammar: {word!r}")
            kind, token = match.lastgroup, match.group()
            if doc is not None and kind not in ("space", "function"):
                raise self.fail(doc[1], "a documentation comment must stand right before a function")
            if kind == "doc":
                doc = token, position
            elif kind == "function":
                if doc is None:
                    raise self.fail(position, "a function without a documentation comment (/** ... */)")
                self.function(token, position, *doc)
                doc = None
            elif kind == "comment":
                comment = _plain(token)
                section = _SECTION.fullmatch(comment)
                if section is not None:
                    text = "\n".join(line.strip() for line in section["text"].split("\n")).strip()
                    self.sections.append((section["name"], text, []))
                elif "section:" in comment and "===" in comment:
                    raise self.fail(position, "a section comment must read '=== / section: NAME / text / ==='")
                intro = intro or comment
            elif kind == "enum":
                self.enum(token, position, comment or "")
            elif kind == "handle":
                self.handle(token, position)
            elif kind == "directive":
                macro = _MACRO.fullmatch(token.split("/*")[0].rstrip())
                if macro is not None:
                    self.macros[macro[1]] = int(macro[2])
            position = match.end()
        if doc is not None:
            raise self.fail(doc[1], "a documentation comment must stand right before a function")
        for macro_name in ("NNCUDA_ABI_MAJOR", "NNCUDA_ABI_MINOR"):
            if macro_name not in self.macros:
                raise self.fail(position, f"{macro_name} is not defined")
        sections = tuple(Section(name, text, tuple(functions)) for name, text, functions in self.sections)
        header = Header(self.path, intro, self.macros, tuple(self.enums), tuple(self.handles), sections,
                        "\n".join(self.cdef) + "\n")  # fmt: skip
        if not header.functions:
            raise self.fail(position, "no function found")
        return header

    def enum(self, token: str, start: int, text: str) -> None:
        body_start = token.index("{") + 1
        body = token[body_start : token.rindex("}")]
        constants = []
        known = {constant.name for enum in self.enums for constant in enum.constants}
        position = 0
        while body[position:].strip():
            match = _CONSTANT.match(body, position)
            if match is None or (match["comma"] is None and body[match.end() :].strip()):
                raise self.fail(start + body_start + position, "an enum value must read 'NNCUDA_NAME = NUMBER,'")
            if match["name"] in known:
                raise self.fail(start + body_start + position, f"{match['name']} is defined twice")
            known.add(match["name"])
            constants.append(Constant(match["name"], int(match["value"]), (match["text"] or "").strip()))
            position = match.end()
        self.enums.append(Enum(" ".join(text.split()), tuple(constants)))
        self.cdef.append("enum { " + ", ".join(f"{c.name} = {c.value}" for c in constants) + " };")

    def handle(self, token: str, position: int) -> None:
        match = re.fullmatch(r"typedef struct (nncuda_[a-z]+) (nncuda_[a-z]+);", token)
        if match is None or match[1] != match[2]:
            raise self.fail(position, "a handle must read 'typedef struct nncuda_NAME nncuda_NAME;'")
        self.handles.append(match[1])
        self.cdef.append(token)

    def function(self, token: str, position: int, doc: str, doc_position: int) -> None:
        match = _FUNCTION.fullmatch(token)
        if match is None:
            raise self.fail(position, "a function must read 'NNCUDA_API int32_t name(...);' (or const char *)")
        if not self.sections:
            raise self.fail(position, "a function outside every section")
        name, returns = match["name"], match["returns"].strip()
        if re.fullmatch(r"(cuda|nncuda)_[a-z0-9_]+", name) is None:
            raise self.fail(position, f"{name}: a function is named cuda_<kernel> or nncuda_<noun>_<verb>")
        if any(function.name == name for _, _, functions in self.sections for function in functions):
            raise self.fail(position, f"{name} is declared twice")
        args = self.arguments(name, match["args"], position)
        text, lines = self.doc_lines(doc, doc_position)
        params = self.match_lines(name, args, lines, position)
        known = frozenset(constant.name for enum in self.enums for constant in enum.constants)
        for name_at_fault, problem in header_checks.problems(params, frozenset(self.handles), known):
            at = {line_name: at for line_name, _, at in lines}.get(name_at_fault, position)
            raise self.fail(at, f"{name}: {name_at_fault} {problem}")
        end = _SENTENCE_END.search(text)
        summary = " ".join((text[: end.end()] if end else text).split())
        citations = [" ".join(c["source"].split()) for c in _CITATION.finditer(text)]
        declaration = " ".join(token[len("NNCUDA_API ") :].split())
        line = self.text.count("\n", 0, position) + 1
        section, _, functions = self.sections[-1]
        source = "; ".join(citations)
        functions.append(Function(name, section, summary, text, source, returns, params, line, declaration))
        self.cdef.append(declaration)

    def arguments(self, function: str, args: str, position: int) -> list[tuple[str, str]]:
        """Name and C type of each argument."""
        args = " ".join(args.split())
        if args == "void":
            return []
        result: list[tuple[str, str]] = []
        for arg in args.split(", "):
            match = _ARGUMENT.fullmatch(arg)
            base = match["type"].removeprefix("const ").strip(" *") if match else ""
            if match is None or (base not in _BASE_TYPES and base not in self.handles):
                raise self.fail(position, f"{function}: an argument of a type that the ABI does not use: {arg!r}")
            if any(name == match["name"] for name, _ in result):
                raise self.fail(position, f"{function}: two arguments are named {match['name']}")
            result.append((match["name"], match["type"].strip()))
        return result

    def doc_lines(self, doc: str, position: int) -> tuple[str, list[tuple[str, str, int]]]:
        """The text of a documentation comment, and (name, line, position) of each @param."""
        body = doc[3:-2]
        marks = [mark.start() for mark in re.finditer(r"@", body)]
        lines = []
        for start, end in zip(marks, [*marks, len(body)][1:], strict=True):
            line = " ".join(_plain("/*" + body[start:end] + "*/").split())
            at = position + 3 + start
            if not line.startswith("@param "):
                raise self.fail(at, f"only @param may start with an @: {line.split()[0]!r}")
            lines.append((line.split()[1], line[len("@param ") :], at))
        text = _plain("/*" + body[: marks[0] if marks else len(body)] + "*/").strip()
        if not text:
            raise self.fail(position, "a documentation comment must start with a line of purpose")
        return text, lines

    def match_lines(
        self, function: str, args: list[tuple[str, str]], lines: list[tuple[str, str, int]], position: int
    ) -> tuple[Param, ...]:
        """Reads the @param lines against the arguments, which must be the same, in the same order."""
        params: list[Param] = []
        if args and args[0] == ("ctx", "nncuda_ctx *"):
            params.append(Param("ctx", "nncuda_ctx *", "context", "the context"))
            args = args[1:]
        for index, (name, ctype) in enumerate(args):
            if index == len(lines):
                raise self.fail(position, f"{function}: {name} has no @param line")
            line_name, line, at = lines[index]
            if line_name != name:
                raise self.fail(at, f"{function}: the line of {line_name} stands where that of {name} belongs")
            params.append(self.param(function, ctype, line, at))
        if len(lines) > len(args):
            raise self.fail(lines[len(args)][2], f"{function} has no parameter {lines[len(args)][0]}")
        return tuple(params)

    def param(self, function: str, ctype: str, line: str, position: int) -> Param:
        if match := _POINTER.fullmatch(line):
            dims, ld = self.dims(match["dims"], position)
            return Param(
                match["name"],
                ctype,
                "pointer",
                match["text"],
                match["null"] is not None,
                match["direction"],
                match["dtype"],
                dims,
                ld,
                match["swap"] or "",
                match["host"] is not None,
                tuple(match["alias"].split(",")) if match["alias"] else (),
            )
        if match := _HANDLE.fullmatch(line):
            return Param(match["name"], ctype, "handle", match["text"], match["null"] is not None)
        if match := _SCALAR.fullmatch(line):
            kind, text, default = match["kind"], match["text"], match["default"] or ""
            if default and (kind != "option" or _DEFAULT.fullmatch(default) is None):
                raise self.fail(position, f"{function}: only an option has a default: NUMBER, CONSTANT or 1/sqrt(SIZE)")
            constants, taken = self.constants(text, position) if kind == "option" else ((), ())
            dtypes = tuple(re.split(r", | or ", text.split(";")[0])) if kind == "dtype" else ()
            dtypes = VALUE_DTYPES if dtypes == ("any",) else dtypes
            _, must_be, words = text.rpartition("; must be ")
            must = condition.parse(words) if must_be else None
            if must_be and (must is None or kind not in ("size", "option")):
                raise self.fail(position, f"{function}: no condition of a size or an option: {words!r}")
            return Param(match["name"], ctype, kind, text, default=default, dtypes=dtypes, constants=constants,
                         taken=taken, condition=must)  # fmt: skip
        raise self.fail(position, f"{function}: the line does not fit the grammar: @param {line}")

    def dims(self, text: str, position: int) -> tuple[tuple[Dim, ...], str]:
        dims = []
        ld = ""
        for index, part in enumerate(text.split(", ")):
            expression, colon, stride = part.partition(":")
            if colon and (index or not stride.isidentifier()):
                raise self.fail(position, f"only the first dimension has a stride, and it is a parameter: [{text}]")
            ld = ld or stride
            match = _DIM.fullmatch(expression)
            if match is None:
                raise self.fail(position, f"a dimension reads NAME*NAME/NUMBER+NUMBER, not {part!r}")
            factors = match["product"].split("*")
            coefficient = math.prod(int(factor) for factor in factors if factor.isdigit())
            names = tuple(factor for factor in factors if not factor.isdigit())
            dims.append(Dim(expression, names, coefficient, int(match["divisor"] or 1), int(match["offset"] or 0)))
        return tuple(dims), ld

    def constants(self, text: str, position: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names after ``NNCUDA_ROPE_*`` at the start of an option's text, and those that are listed after it."""
        match = _ENUM.match(text)
        if match is None:
            return (), ()
        for enum in self.enums:
            names = tuple(constant.name for constant in enum.constants)
            if all(name.startswith(match["prefix"]) for name in names):
                listed = tuple(match["prefix"] + word for word in re.split(r", | or ", match["some"] or "") if word)
                if not set(listed) <= set(names):
                    raise self.fail(position, f"{match[0]!r} lists what is no value of that enum")
                return names, listed or names
        raise self.fail(position, f"no enum has values named {match['prefix']}*")


def _plain(comment: str) -> str:
    """The text of a comment without its frame of stars."""
    lines = [re.sub(r"^\s*\* ?", "", line) if index else line for index, line in enumerate(comment[2:-2].split("\n"))]
    return "\n".join(line.rstrip() for line in lines).strip()
