"""What the server accepts and refuses, from `api.json`, which the servers of all languages read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .wire import json_text

API: dict[str, Any] = json.loads(Path(__file__).with_name("api.json").read_text(encoding="utf-8"))

LIMITS: dict[str, int] = API["limits"]

#: What errors say of parts of fields.
WORDS: dict[str, str] = API["words"]


class ApiError(Exception):
    """A request that is refused: one of the errors of api.json, with the words that its sentence leaves open.

    `param` is the field that was wrong, None where there is none. `headers` go with the response.
    """

    def __init__(self, code: str, param: str | None = None, *, headers: dict[str, str] | None = None, **words: object):
        self.code = code
        self.param = param
        self.headers = headers or {}
        self.status: int
        self.status, self.kind, sentence = API["errors"][code]
        self.sentence: str = sentence.format(**words)
        super().__init__(self.sentence)

    def body(self) -> bytes:
        """The response's body, in the form of OpenAI's errors."""
        error = {"message": self.sentence, "type": self.kind, "param": self.param, "code": self.code}
        return json_text({"error": error}).encode()


def quoted(value: object) -> str:
    """A value of a request as errors quote it: its JSON, cut off where it is long."""
    # Numbers of requests are f64, and written as Python does.
    text, most = json.dumps(value, ensure_ascii=False, separators=(",", ":")), LIMITS["shown_characters"]
    return text if len(text) <= most else text[:most] + "…"


@dataclass(frozen=True)
class Field:
    """A field of a route: an entry of api.json, whose keys it has."""

    name: str
    kind: str
    must: str = ""
    required: bool = False
    default: Any = None
    least: float | None = None
    above: float | None = None
    most: float | None = None
    longest: int = 0
    allowed: tuple[Any, ...] = ()
    why: str = ""

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Field:
        known = {key: value for key, value in entry.items() if key in cls.__dataclass_fields__}
        return cls(**{**known, "allowed": tuple(entry.get("allowed", ()))})


def fields_of(route: str) -> dict[str, Field]:
    """The fields of a route of api.json by name, in their order."""
    return {entry["name"]: Field.of(entry) for entry in API["fields"] if route in entry["routes"]}
