"""The program that renders chat templates, in the process of a sandbox; loaded as a file, outside the package.

What a template gets besides its values is what transformers gives it: `raise_exception`, `strftime_now`, `tojson`
without escapes, loop controls, and the blocks named `generation`.
"""

from __future__ import annotations

import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """`{% generation %}` marks what the model wrote, for training. Its content stays as it is, and has `marks` around
    it where a request asks for them."""

    tags = frozenset({"generation"})
    marks: tuple[str, str] | None = None

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        if self.marks is not None:
            before, after = (jinja2.nodes.Output([jinja2.nodes.TemplateData(mark)]) for mark in self.marks)
            body = [before, *body, after]
        return jinja2.nodes.Scope(body, lineno=line)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _tojson(value: object, **options: object) -> str:
    allowed = {name: options[name] for name in ("indent", "separators", "sort_keys") if name in options}
    return json.dumps(value, ensure_ascii=False, **allowed)  # type: ignore[arg-type]


def environment() -> jinja2.Environment:
    """What templates are compiled in: names and objects cannot be changed, blocks leave no empty lines."""
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = _tojson
    made.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
    return made


_COMPILER = environment()


def answer(request: dict, _: bytes) -> dict[str, str]:
    """The text of a request, or what was wrong. Its `marks`, if it has any, are around what the model wrote."""
    Generation.marks = tuple(request["marks"]) if "marks" in request else None
    parts, size = [], 0
    for part in _COMPILER.from_string(request["template"]).generate(request["values"]):
        parts.append(part)
        size += len(part)
        if size > request["most"]:
            return {"error": f"it writes more than {request['most']} characters"}
    return {"text": "".join(parts)}
