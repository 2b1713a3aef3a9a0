"""Options of a model's files by name, each checked for its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats.errors import shown
from .config import check_count, is_finite


class Values:
    """Options of a file by name, each checked for its type; those without a default must be there."""

    def __init__(self, values: Mapping[str, Any], prefix: str = ""):
        self._values, self._prefix = values, prefix

    def _get(self, name: str, default: Any) -> Any:
        value = self._values.get(self._prefix + name)
        if value is None:
            if default is None:
                raise ValueError(f"{self._prefix}{name} is missing")
            return default
        if isinstance(value, np.ndarray) and value.size and (value == value[0]).all():
            return value[0].item()  # one number a layer, the same in all
        return value

    def whole(self, name: str, default: int | None = None) -> int:
        value = self._get(name, default)
        check_count(self._prefix + name, value, 0 if default == 0 else 1)
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._get(name, default)
        if not is_finite(value):
            raise ValueError(f"{self._prefix}{name} is {shown(value)}; it must be a finite number")
        return float(value)

    def numbers(self, name: str, most: int) -> tuple[float, ...]:
        """A list of finite numbers that must be there, rounded to f32; at most so many."""
        values = self._get(name, None)
        if not isinstance(values, list) or not 0 < len(values) <= most or not all(map(is_finite, values)):
            raise ValueError(f"{self._prefix}{name} is {shown(values)}; it must be a list of at most {most} numbers")
        with np.errstate(over="ignore"):
            return tuple(float(np.float32(value)) for value in values)

    def flag(self, name: str, default: bool) -> bool:
        value = self._get(name, default)
        if type(value) is not bool:
            raise ValueError(f"{self._prefix}{name} is {shown(value)}; it must be true or false")
        return value
