"""The tables of the pages about serving, from what the servers accept, refuse and count: `go/serve/api.json`.

They stand between lines that name them; the rest of a page is written by hand. So is the page that the servers show,
but for the hashes of the script and the style that it allows itself.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from nncuda.binding.header import Header

ROOT = Path(__file__).resolve().parents[1]
PAGE, RUNNING, TABLE = "docs/serving.md", "docs/serving-running.md", "go/serve/api.json"
CHAT = "go/serve/page.html"
OWNED = (PAGE, RUNNING, CHAT)

_ROUTES = {
    "completions": "`/v1/completions`",
    "chat": "`/v1/chat/completions`",
    "responses": "`/v1/responses`",
    "embeddings": "`/v1/embeddings`",
    "tokenize": "`/tokenize`",
    "detokenize": "`/detokenize`",
}
_LIMITS = {
    "body_bytes": "bytes of a body",
    "body_seconds": "seconds for a body to come whole",
    "header_bytes": "bytes of a request's head",
    "headers": "headers of a request",
    "header_seconds": "seconds for a head to come whole",
    "keep_alive_seconds": "seconds that a connection may wait for its next request",
    "linger_seconds": "seconds that a client may go on sending after an answer that did not need its body",
    "write_seconds": "seconds that a client may leave an answer unread",
    "connections": "connections at once",
    "shown_characters": "characters of a value that an error quotes",
}


def files(contract: Header, source: bytes) -> dict[str, str]:
    """All pages, with what is made as it must be. The header has no part in it."""
    api = json.loads((ROOT / TABLE).read_text(encoding="utf-8"))
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in OWNED}
    return {**{name: filled(texts[name], name, api) for name in _TABLES}, CHAT: hashed(texts[CHAT])}


def hashed(chat: str) -> str:
    """The chat's page, whose security policy names its one script and its one style."""
    for tag in ("script", "style"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", chat, re.DOTALL)
        name = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        chat, count = re.subn(f"{tag}-src 'sha256-[^']*'", f"{tag}-src 'sha256-{name}'", chat)
        assert count == 1, tag
    return chat


def filled(page: str, of: str, api: dict[str, Any]) -> str:
    """The page `of` with its tables of an API between their marks. ValueError when a table has no place."""
    for name, table in _TABLES[of].items():
        begin, end = f"<!-- {name}: made from {TABLE} -->\n", f"<!-- end of {name} -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        text = begin + "\n" + "\n".join(table(api)) + "\n\n" + end
        page, count = pattern.subn(text.replace("\\", r"\\"), page)
        if count != 1:
            raise ValueError(f"{of} has {count} places for the table of {name}; it must have one")
    return page


def _fields(api: dict[str, Any]) -> Iterable[str]:
    yield "| field | routes | takes | default | |"
    yield "|---|---|---|---|---|"
    for entry in api["fields"]:
        if entry["kind"] != "unsupported":
            default = "required" if entry.get("required") else entry.get("shown_default") or _default(entry)
            must = entry["must"].replace("|", "\\|")
            yield f"| `{entry['name']}` | {_routes(entry)} | {must} | {default} | {entry['about']} |"


def _unsupported(api: dict[str, Any]) -> Iterable[str]:
    yield "| field | routes | may be, besides null | why |"
    yield "|---|---|---|---|"
    for entry in api["fields"]:
        if entry["kind"] == "unsupported":
            allowed = ", ".join(f"`{json.dumps(value)}`" for value in entry["allowed"])
            yield f"| `{entry['name']}` | {_routes(entry)} | {allowed} | {entry['why']} |"


def _errors(api: dict[str, Any]) -> Iterable[str]:
    yield "| status | `code` | `type` | `message` |"
    yield "|---|---|---|---|"
    for code, (status, kind, sentence) in api["errors"].items():
        words = re.sub(r"{(.*?)}", r"*\1*", sentence)
        yield f"| {status} | `{code}` | `{kind}` | {words} |"


def _limits(api: dict[str, Any]) -> Iterable[str]:
    yield "| limit | |"
    yield "|---|---|"
    for name, value in api["limits"].items():
        yield f"| {value} | {_LIMITS[name]} |"


def _metrics(api: dict[str, Any]) -> Iterable[str]:
    yield "| metric | kind | also as | |"
    yield "|---|---|---|---|"
    for entry in api["metrics"]:
        end = "_total" if entry["kind"] == "counter" else ""
        aliases = ", ".join(f"`{alias}{end}`" for alias in entry["aliases"])
        labels = "".join(f", by `{label}`" for label in entry.get("labels", ()))
        yield f"| `{entry['name']}{end}` | {entry['kind']}{labels} | {aliases} | {entry['about'].rstrip('.')} |"


def _routes(entry: dict[str, Any]) -> str:
    return ", ".join(_ROUTES[route] for route in entry["routes"])


def _default(entry: dict[str, Any]) -> str:
    return "" if entry["default"] is None else f"`{json.dumps(entry['default'])}`"


#: Of each page.
_TABLES: dict[str, dict[str, Callable[[dict[str, Any]], Iterable[str]]]] = {
    PAGE: {"fields": _fields, "unsupported": _unsupported, "errors": _errors, "limits": _limits},
    RUNNING: {"metrics": _metrics},
}
