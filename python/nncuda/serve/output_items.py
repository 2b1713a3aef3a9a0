"""What a response has written so far, as items: messages with text, and calls of functions.

Each item is opened, added to and closed, one after the other, and every change is an event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .calling_ids import call_id
from .tool_calls import Arguments, Call, Piece, ToolCallReader, Words

#: An event: its type and what it holds beside its number.
Change = tuple[str, dict[str, Any]]


@dataclass
class _Item:
    """A message, or a call of a function by its `name`."""

    id: str
    name: str = ""
    call_id: str = ""
    texts: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def part(self) -> dict[str, Any]:
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": list(self.logprobs)}

    def shown(self, status: str, begins: bool = False) -> dict[str, Any]:
        """The item as it is."""
        if self.name:
            kind = {"type": "function_call", "id": self.id, "status": status}
            return {**kind, "call_id": self.call_id, "name": self.name, "arguments": self.text}
        kind = {"type": "message", "id": self.id, "status": status, "role": "assistant"}
        return {**kind, "content": [] if begins else [self.part()]}


class OutputItems:
    """The items of one response, whose ids are made of 32 hexadecimal digits. Without a reader of calls, all is one
    message, and begins with it; with one, a message or a call begins where it does, and the log-probabilities of a
    token stand with the text that it completes: those of calls are left out."""

    def __init__(self, digits: str, reader: ToolCallReader | None = None):
        self.done: list[dict[str, Any]] = []
        self._digits = digits
        self._reader = reader
        self._item: _Item | None = None
        self._waiting: list[Any] = []  # log-probabilities

    def begin(self) -> list[Change]:
        return [] if self._reader is not None else self._open(self._message())

    def push(self, text: str, logprobs: list[Any]) -> list[Change]:
        """What a token changes: the text that it adds, and its log-probabilities."""
        self._waiting += logprobs
        if self._reader is not None:
            return self._take(self._reader.push(text))
        return self._add(text) if text or logprobs else []

    def end(self, status: str) -> list[Change]:
        """What is changed when no more text comes; the last item has that status."""
        changes = [] if self._reader is None else self._take(self._reader.end())
        if self._item is None:
            changes += self._open(self._message())
        return changes + self._close(status)

    def _take(self, pieces: list[Piece]) -> list[Change]:
        changes: list[Change] = []
        for piece in pieces:
            match piece:
                case Words():
                    if self._item is None or self._item.name:
                        changes += self._close("completed") + self._open(self._message())
                    changes += self._add(piece.text)
                case Call():
                    changes += self._close("completed")
                    item = _Item(self._id("fc"), piece.name, call_id(self._digits, 0, piece.index))
                    changes += self._open(item)
                    self._waiting.clear()
                case Arguments():
                    changes += self._add(piece.text)
                    self._waiting.clear()
        return changes

    def _message(self) -> _Item:
        return _Item(self._id("msg"))

    def _id(self, prefix: str) -> str:
        """The id of the next item."""
        number = int(self._digits, 16) + len(self.done) + (self._item is not None)
        return f"{prefix}_{number % 16**32:032x}"

    def _open(self, item: _Item) -> list[Change]:
        self._item = item
        shown = item.shown("in_progress", begins=True)
        changes: list[Change] = [("response.output_item.added", {"output_index": len(self.done), "item": shown})]
        if not item.name:
            changes.append(("response.content_part.added", {**self._place(item), "part": item.part()}))
        return changes

    def _add(self, text: str) -> list[Change]:
        item = self._item
        assert item is not None
        item.texts.append(text)
        if item.name:
            return [("response.function_call_arguments.delta", {**self._place(item), "delta": text})]
        added, self._waiting = self._waiting, []
        item.logprobs += added
        return [("response.output_text.delta", {**self._place(item), "delta": text, "logprobs": added})]

    def _close(self, status: str) -> list[Change]:
        item = self._item
        if item is None:
            return []
        place, shown = self._place(item), item.shown(status)
        changes: list[Change]
        if item.name:
            done = {**place, "name": item.name, "arguments": item.text}
            changes = [("response.function_call_arguments.done", done)]
        else:
            changes = [
                ("response.output_text.done", {**place, "text": item.text, "logprobs": list(item.logprobs)}),
                ("response.content_part.done", {**place, "part": item.part()}),
            ]
        changes.append(("response.output_item.done", {"output_index": len(self.done), "item": shown}))
        self.done.append(shown)
        self._item = None
        return changes

    def _place(self, item: _Item) -> dict[str, Any]:
        place: dict[str, Any] = {"item_id": item.id, "output_index": len(self.done)}
        return place if item.name else {**place, "content_index": 0}
