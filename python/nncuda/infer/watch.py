"""Whoever watches a forward pass is shown what its steps make."""

from __future__ import annotations

from collections.abc import Callable

from ..device import Tensor

#: Called with the name of a step and its result [tokens, ...], which the next step may overwrite. Steps that take some
#: of the tokens at a time call it as often.
Watch = Callable[[str, Tensor], None]


def within(watch: Watch | None, prefix: str) -> Watch | None:
    """The same, of a part whose steps have names of their own."""
    return None if watch is None else lambda name, tensor: watch(prefix + name, tensor)
