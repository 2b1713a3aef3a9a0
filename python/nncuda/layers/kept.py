"""What a forward call leaves for one backward call."""

from __future__ import annotations

from typing import Generic, TypeVar

from ..errors import StateError

T = TypeVar("T")


class Kept(Generic[T]):
    """Values that `backward` takes, once: then it alone holds them, and frees each as soon as it is done with it.

    Its caller may continue holding this object, as the interpreter does during the call.
    """

    __slots__ = ("_values",)

    def __init__(self, values: T):
        self._values: T | None = values

    def take(self) -> T:
        """The values. StateError when another backward took them."""
        values, self._values = self._values, None
        if values is None:
            raise StateError(51, "backward has taken what this forward call kept; run forward again")
        return values
