"""Reads calls of tools in what a model writes: while it is written, and the same however the text is cut.

Models are trained to write calls in forms of their own. Which one a model has, its chat template tells, since that puts
calls of earlier turns in the same form.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto

from ..tokenizer.tokenizer import TextTokenizer
from .api import API
from .json_follower import SPACES, JsonFollower, Part
from .logprobs import TokenNames


@dataclass(frozen=True)
class CallForm:
    """How a model writes calls: an entry of api.json, whose keys it has.

    template_has    of one of these lists, the chat template has all texts
    template_lacks  it has none of these
    begin, end      texts around a call, or around a list of them; no `end` where nothing follows
    listed          calls stand in a JSON list
    bare            `begin` may be missing where a call is the first thing, or follows another one
    arguments       what the object of a call calls its arguments
    """

    name: str
    template_has: list[list[str]]
    template_lacks: list[str]
    begin: str
    end: str
    listed: bool
    bare: bool
    arguments: str


FORMS = tuple(CallForm(**entry) for entry in API["call_forms"])


def call_form(template: str) -> CallForm | None:
    """The form of a chat template; None for one that knows no tools, or has another form."""
    if "tools" not in template:
        return None
    for form in FORMS:
        has = any(all(text in template for text in texts) for texts in form.template_has)
        if has and not any(text in template for text in form.template_lacks):
            return form
    return None


def control_tokens(form: CallForm, tokenizer: TextTokenizer, names: TokenNames) -> dict[str, int]:
    """The ids of those texts of a form that are control tokens, which add nothing to what a model writes."""
    found = {}
    for text in filter(None, (form.begin, form.end)):
        ids = tokenizer.encode(text, special=True)
        if len(ids) == 1 and not names[ids[0]].text:
            found[text] = ids[0]
    return found


@dataclass
class Words:
    """A piece of text that belongs to no call."""

    text: str


@dataclass
class Call:
    """A call begins: the `index`-th of the text, from 0."""

    index: int
    name: str


@dataclass
class Arguments:
    """A piece of the JSON of a call's arguments."""

    index: int
    text: str


Piece = Words | Call | Arguments


class _In(Enum):
    WORDS = auto()
    BEGIN = auto()  # what begins a call
    OPEN = auto()  # behind that
    LIST = auto()  # behind the bracket of a list, or a comma in it
    CALL = auto()
    CLOSE = auto()  # behind a call
    OVER = auto()  # nothing more is read


class ToolCallReader:
    """Reads one text. `names` are those of the functions that may be called.

    A call has begun when its name and the brace before its arguments are there. From then on its arguments are given as
    they are written. What looked like a call but is none is text, up to the character that shows it.
    """

    def __init__(self, form: CallForm, names: Collection[str], parallel: bool = True):
        self._form = form
        self._names = names
        self._parallel = parallel
        self._in = _In.WORDS
        self._held: list[str] = []  # what is either text or a part of a call
        self._fits = 0  # characters of `begin` or `end` that are there
        self._fresh = True  # whether no text came yet, or none since the last call
        self._call = _Call(form, names)
        self._count = 0
        self._pieces: list[Piece] = []
        self._last: list[str] = []  # text of the last piece

    @property
    def count(self) -> int:
        """Calls that have begun."""
        return self._count

    def push(self, text: str) -> list[Piece]:
        """What the next piece of the text makes certain."""
        for sign in text:
            self._take(sign)
        return self._taken()

    def end(self) -> list[Piece]:
        """What was held back, when no more text comes."""
        held = self._take_held()
        in_call = self._in is _In.CLOSE or (self._in is _In.CALL and self._call.begun)
        after_call = self._count and self._fresh and not held.strip(SPACES)
        if held and not in_call and not after_call:
            self._write(held)
        self._in = _In.OVER
        return self._taken()

    def _taken(self) -> list[Piece]:
        self._end_piece()
        pieces, self._pieces = self._pieces, []
        return pieces

    def _end_piece(self) -> None:
        """Gives the last piece its text."""
        if self._last:
            last = self._pieces[-1]
            assert not isinstance(last, Call)
            last.text = "".join(self._last)
            self._last.clear()

    def _take_held(self) -> str:
        held = "".join(self._held)
        self._held.clear()
        return held

    def _take(self, sign: str) -> None:
        match self._in:
            case _In.WORDS:
                self._words(sign)
            case _In.BEGIN:
                self._begin(sign)
            case _In.OPEN | _In.LIST:
                self._open(sign)
            case _In.CALL:
                self._in_call(sign)
            case _In.CLOSE:
                self._close(sign)

    def _words(self, sign: str) -> None:
        form = self._form
        if sign in SPACES or (form.bare and self._fresh and self._count and sign == ";"):
            self._held.append(sign)
        elif form.bare and self._fresh and sign == "{":
            self._start_call(sign)
        elif sign == form.begin[0]:
            self._held.append(sign)
            self._in, self._fits = _In.BEGIN, 1
        else:
            self._write(self._take_held() + sign)

    def _begin(self, sign: str) -> None:
        begin = self._form.begin
        if sign != begin[self._fits]:
            self._fail(sign)
            return
        self._held.append(sign)
        self._fits += 1
        if self._fits == len(begin):
            self._in = _In.OPEN

    def _open(self, sign: str) -> None:
        if sign in SPACES:
            self._held.append(sign)
        elif sign == "[" and self._form.listed and self._in is _In.OPEN:
            self._held.append(sign)
            self._in = _In.LIST
        elif sign == "{" and self._form.listed == (self._in is _In.LIST):
            self._start_call(sign)
        else:
            self._fail(sign)

    def _start_call(self, sign: str) -> None:
        self._call = _Call(self._form, self._names)
        self._in = _In.CALL
        self._in_call(sign)

    def _in_call(self, sign: str) -> None:
        call = self._call
        begun = call.begun
        if not call.push(sign):
            self._fail(sign)
            return
        if not call.begun:
            self._held.append(sign)
            return
        if not begun:
            self._end_piece()
            self._pieces.append(Call(self._count, call.name))
            self._count += 1
            self._held.clear()
            self._fresh = True
        if call.new:
            self._argue(call.new)
        else:
            self._held.append(sign)
        if call.done:
            self._held.clear()
            self._fits = 0
            if self._form.end and self._parallel:
                self._in = _In.CLOSE
            else:
                self._go_on("")

    def _close(self, sign: str) -> None:
        end = self._form.end
        if not self._fits and sign in SPACES:
            self._held.append(sign)
        elif not self._fits and sign == "," and self._form.listed:
            self._held.append(sign)
            self._in = _In.LIST
        elif sign == end[self._fits]:
            self._held.append(sign)
            self._fits += 1
            if self._fits == len(end):
                self._held.clear()
                self._in = _In.WORDS
        else:  # it is missing
            held = self._take_held()
            rest = held.lstrip(SPACES)
            self._held.append(held.removesuffix(rest))
            self._go_on(rest + sign)

    def _fail(self, sign: str) -> None:
        """What is held is text; the character may begin something else."""
        held = self._take_held()
        if held:
            self._write(held)
        self._fresh = False
        self._go_on(sign)

    def _go_on(self, signs: str) -> None:
        """What comes is text, or begins a call."""
        self._in = _In.WORDS if self._parallel or not self._count else _In.OVER
        for sign in signs:
            self._take(sign)

    def _write(self, text: str) -> None:
        self._fresh = False
        if not self._pieces or not isinstance(self._pieces[-1], Words):
            self._end_piece()
            self._pieces.append(Words(""))
        self._last.append(text)

    def _argue(self, text: str) -> None:
        if not self._pieces or not isinstance(self._pieces[-1], Arguments):
            self._end_piece()
            self._pieces.append(Arguments(self._count - 1, ""))
        self._last.append(text)


class _Call:
    """The object of a call on its way. `new` is what the last character added to its arguments."""

    def __init__(self, form: CallForm, names: Collection[str]):
        self._names = names
        self._keys = ("name", form.arguments, "id", "type")
        self._json = JsonFollower()
        self._key: list[str] = []
        self._value = ""  # the key of the value that is being written
        self._name: list[str] = []
        self._written: list[str] = []  # arguments that came before the name
        self._named = self._argued = False
        self.new = ""

    @property
    def begun(self) -> bool:
        return self._named and self._argued

    @property
    def name(self) -> str:
        return "".join(self._name)

    @property
    def done(self) -> bool:
        return self._json.part is Part.DONE

    def push(self, sign: str) -> bool:
        """Takes the next character. False when this is no call."""
        before, self.new = self._json.part, ""
        if not self._json.push(sign):
            return False
        part = self._json.part
        if part is Part.KEY:
            if before is Part.KEY:
                self._key.append(sign)
            else:
                self._key.clear()
        elif part is Part.VALUE and before is not Part.VALUE:
            return self._value_begins(sign)
        elif Part.VALUE in (part, before):
            return self._value_goes_on(sign, part)
        return part is not Part.DONE or self.begun

    def _value_begins(self, sign: str) -> bool:
        key = "".join(self._key)
        if key not in self._keys:
            return False
        self._value = key
        if key not in ("name", self._keys[1]):
            return sign == '"'
        if key == "name":
            return sign == '"' and not self._named
        if self._argued or sign != "{":
            return False
        self._argued = True
        self._arguments(sign)
        return True

    def _value_goes_on(self, sign: str, part: Part) -> bool:
        if self._value == self._keys[1]:
            self._arguments(sign)
        elif self._value == "name":
            if part is Part.VALUE:
                self._name.append(sign)
            else:
                self._named = self.name in self._names
                self.new = "".join(self._written)
                return self._named
        return True

    def _arguments(self, sign: str) -> None:
        if self._named:
            self.new = sign
        else:
            self._written.append(sign)
