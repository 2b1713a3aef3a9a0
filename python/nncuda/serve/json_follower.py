"""Follows the JSON of an object while it is written, character by character."""

from __future__ import annotations

from enum import Enum, auto

#: Levels that an object may have; deeper ones are none.
DEEPEST = 256

SPACES = " \t\n\r"


class Part(Enum):
    """What of the outermost object is being written."""

    BETWEEN = auto()  # its braces, commas, colons and spaces
    KEY = auto()
    VALUE = auto()  # of a key
    DONE = auto()  # it has its last brace


class _At(Enum):
    VALUE = auto()
    ELEMENT = auto()  # a value, or the end of an empty list
    FIRST_KEY = auto()  # a key, or the end of an empty object
    KEY = auto()
    COLON = auto()
    AFTER = auto()  # a value
    STRING = auto()
    ESCAPE = auto()
    HEX = auto()
    WORD = auto()
    MINUS = auto()
    ZERO = auto()
    WHOLE = auto()
    POINT = auto()
    FRACTION = auto()
    EXPONENT = auto()
    SIGNED = auto()  # an exponent with its sign
    POWER = auto()
    END = auto()


_WORDS = {"t": "rue", "f": "alse", "n": "ull"}
_DIGITS = frozenset("0123456789")
_HEX = frozenset("0123456789abcdefABCDEF")

#: Inside a number: the kinds of characters that may come next, and what it is then. The second says where it may end.
_NUMBERS: dict[_At, dict[str, _At]] = {
    _At.MINUS: {"0": _At.ZERO, **dict.fromkeys("123456789", _At.WHOLE)},
    _At.ZERO: {".": _At.POINT, "e": _At.EXPONENT, "E": _At.EXPONENT},
    _At.WHOLE: {**dict.fromkeys(_DIGITS, _At.WHOLE), ".": _At.POINT, "e": _At.EXPONENT, "E": _At.EXPONENT},
    _At.POINT: dict.fromkeys(_DIGITS, _At.FRACTION),
    _At.FRACTION: {**dict.fromkeys(_DIGITS, _At.FRACTION), "e": _At.EXPONENT, "E": _At.EXPONENT},
    _At.EXPONENT: {**dict.fromkeys(_DIGITS, _At.POWER), "+": _At.SIGNED, "-": _At.SIGNED},
    _At.SIGNED: dict.fromkeys(_DIGITS, _At.POWER),
    _At.POWER: dict.fromkeys(_DIGITS, _At.POWER),
}
_WHOLE_NUMBERS = (_At.ZERO, _At.WHOLE, _At.FRACTION, _At.POWER)


class JsonFollower:
    """Takes an object from its first brace to its last one. `part` is what was written last."""

    def __init__(self) -> None:
        self.part = Part.BETWEEN
        self._at = _At.VALUE
        self._open: list[str] = []  # brackets
        self._left = ""  # of a word such as true
        self._hex = 0  # digits that an escape still needs
        self._is_key = False  # whether the string is one

    def push(self, sign: str) -> bool:
        """Takes the next character. False when no object goes on so; then this is of no further use."""
        at = self._at
        if at is _At.STRING:
            return self._string(sign)
        if at in _NUMBERS:
            after = _NUMBERS[at].get(sign)
            if after is not None:
                self._at = after
                return True
            if at not in _WHOLE_NUMBERS:
                return False
            self._value_ends()
            at = self._at
        elif at is _At.ESCAPE:
            if sign == "u":
                self._hex, self._at = 4, _At.HEX
                return True
            self._at = _At.STRING
            return sign in '"\\/bfnrt'
        elif at is _At.HEX:
            self._hex -= 1
            if not self._hex:
                self._at = _At.STRING
            return sign in _HEX
        elif at is _At.WORD:
            fits, self._left = sign == self._left[0], self._left[1:]
            if not self._left:
                self._value_ends()
            return fits
        if sign in SPACES:
            return bool(self._open) and at is not _At.END
        return self._between(at, sign)

    def _between(self, at: _At, sign: str) -> bool:
        """A character that is neither in a string, a word or a number nor a space."""
        if at is _At.COLON:
            self._at = _At.VALUE
            return sign == ":"
        if at is _At.AFTER:
            if sign == ",":
                self._at = _At.KEY if self._open[-1] == "{" else _At.VALUE
                return True
            return self._closes(sign)
        if at in (_At.KEY, _At.FIRST_KEY):
            if sign != '"':
                return at is _At.FIRST_KEY and self._closes(sign)
            if len(self._open) == 1:
                self.part = Part.KEY
            self._at, self._is_key = _At.STRING, True
            return True
        if at is _At.ELEMENT and sign == "]":
            return self._closes(sign)
        return at in (_At.VALUE, _At.ELEMENT) and self._value_begins(sign)

    def _value_begins(self, sign: str) -> bool:
        if not self._open and sign != "{":
            return False
        if len(self._open) == 1:
            self.part = Part.VALUE
        if sign == '"':
            self._at, self._is_key = _At.STRING, False
        elif sign in "{[":
            if len(self._open) == DEEPEST:
                return False
            self._open.append(sign)
            self._at = _At.FIRST_KEY if sign == "{" else _At.ELEMENT
        elif sign in _WORDS:
            self._at, self._left = _At.WORD, _WORDS[sign]
        elif sign == "-":
            self._at = _At.MINUS
        elif sign in _DIGITS:
            self._at = _At.ZERO if sign == "0" else _At.WHOLE
        else:
            return False
        return True

    def _value_ends(self) -> None:
        self._at = _At.AFTER
        if len(self._open) == 1:
            self.part = Part.BETWEEN
        elif not self._open:
            self._at, self.part = _At.END, Part.DONE

    def _closes(self, sign: str) -> bool:
        if sign != ("}" if self._open[-1] == "{" else "]"):
            return False
        self._open.pop()
        self._value_ends()
        return True

    def _string(self, sign: str) -> bool:
        if sign == '"':
            if self._is_key:
                self._at = _At.COLON
                if len(self._open) == 1:
                    self.part = Part.BETWEEN
            else:
                self._value_ends()
        elif sign == "\\":
            self._at = _At.ESCAPE
        return sign >= " "
