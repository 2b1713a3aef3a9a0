"""What belongs to a device cannot be copied or pickled; this says so, before Python makes half an object."""

from __future__ import annotations

from typing import ClassVar, NoReturn, SupportsIndex


class DeviceBound:
    """Base of such classes; `_instead` says what to do instead of a copy."""

    __slots__ = ()

    _instead: ClassVar[str] = ""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:  # called by copy, deepcopy and pickle
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled, since it belongs to a device: {self._instead}"
        )
