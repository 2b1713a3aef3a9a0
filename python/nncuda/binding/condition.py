"""What a scalar of bindings.h must be: the words after ``; must be`` at the end of its documentation line.

The C library checks them, in the same words, in code made from here; the tests of bad input spoil them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_BOUND = r"(-?\d+|[a-z]\w*)"
_TERM = re.compile(
    rf"(?P<plain>finite|even)|(?P<side>at least|above|at most|below|a multiple of) {_BOUND}|{_BOUND} to {_BOUND}"
)
_BETWEEN = re.compile(r" and |, ")
_EXCEPTION = re.compile(r", or (?P<value>-?\d+) for [a-z ]+$")

#: In C, of a value and a bound.
_OPERATORS = {"at least": ">=", "above": ">", "at most": "<=", "below": "<"}


@dataclass(frozen=True)
class Term:
    """One of the things that a value must be: `kind` is finite, even, a multiple of, or a side with its `bound`."""

    kind: str
    bound: str = ""  # a number, or the name of another scalar

    @property
    def name(self) -> str:
        return self.bound if self.bound[:1].isalpha() else ""


@dataclass(frozen=True)
class Condition:
    """`terms` must all hold, unless the value is `exception`."""

    text: str
    terms: tuple[Term, ...]
    exception: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The other scalars in it, in the order of the text."""
        return tuple(term.name for term in self.terms if term.name)

    def fits(self, ctype: str) -> bool:
        """Whether a value of this C type can be asked for it: whole numbers are always finite, others never even."""
        whole = {"finite"} if ctype.startswith("int") else {"even", "a multiple of"}
        return not whole & {term.kind for term in self.terms}

    def in_c(self, value: str) -> str:
        """The condition as an expression of C."""
        parts = [_in_c(term, value) for term in self.terms]
        every = " && ".join(parts)
        return f"{value} == {self.exception} || ({every})" if self.exception else every

    def nearest_outside(self, whole: bool, values: Mapping[str, int | float | None]) -> Iterator[int | float]:
        """Values that are forbidden, the nearest ones on each side; `values` has those of the names."""
        for term in self.terms:
            bound = 0 if not term.bound else int(term.bound) if not term.name else values[term.name]
            assert bound is not None
            step = {"at least": -1, "at most": 1}.get(term.kind, 0)
            if term.kind in ("even", "a multiple of"):
                yield 1 if term.kind == "even" else bound + 1
            elif term.kind == "finite":
                yield float("inf")
            elif self.exception and bound + step == int(self.exception):
                yield bound + 2 * step
            else:
                yield bound + step
        if not whole:
            yield float("nan")


def parse(words: str) -> Condition | None:
    """Reads the words after ``must be``; None when they do not fit."""
    exception = _EXCEPTION.search(words)
    terms: list[Term] = []
    for part in _BETWEEN.split(words[: exception.start()] if exception else words):
        match = _TERM.fullmatch(part)
        if match is None:
            return None
        _, _, bound, low, high = match.groups()
        if low:
            terms += [Term("at least", low), Term("at most", high)]
        else:
            terms.append(Term(match["plain"] or match["side"], bound or ""))
    return Condition(words, tuple(terms), exception["value"] if exception else "")


def _in_c(term: Term, value: str) -> str:
    if term.kind == "finite":
        return f"isfinite({value})"
    if term.kind == "even":
        return f"{value} % 2 == 0"
    if term.kind == "a multiple of":
        remainder = f"{value} % {term.bound} == 0"
        return f"({term.bound} <= 0 || {remainder})" if term.name else remainder
    return f"{value} {_OPERATORS[term.kind]} {term.bound}"
