"""`Layout`: shape, stride and dtype of a tensor, which is what checks look at; and `Buffer`, a piece of memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex, TypeAlias, Union

from .. import dtypes
from ..dtypes import DTypeName

if TYPE_CHECKING:
    from .context import Context

#: What a shape may be given as; that of a tensor is always a tuple of ints.
Shape: TypeAlias = Union[SupportsIndex, Sequence[SupportsIndex]]  # noqa: UP007


def shape_of(shape: Any, allow_rest: bool = False) -> tuple[int, ...]:
    """A shape as a tuple of ints that are not negative (-1 too where the rest may be left to the tensor)."""
    try:
        sizes = (shape.__index__(),) if hasattr(shape, "__index__") else tuple(size.__index__() for size in shape)
    except (AttributeError, TypeError):
        raise TypeError(f"a shape is an int or a sequence of ints, not {shape!r}") from None
    if any(size < (-1 if allow_rest else 0) for size in sizes):
        raise ValueError(f"a shape has no negative sizes: {sizes}")
    return sizes


class Layout:
    """Shape, stride, dtype and whether the memory may be written. Equal layouts are one object, so that a kernel call
    can look up its sizes by the identity of its tensors' layouts instead of computing them again."""

    __slots__ = ("dense", "dtype", "inner", "itemsize", "ld", "nbytes", "numel", "readonly", "shape")

    _known: ClassVar[dict[tuple[Any, ...], Layout]] = {}

    def __init__(self, shape: tuple[int, ...], dtype: DTypeName, ld: int, readonly: bool) -> None:
        self.shape = shape
        self.dtype = dtype
        self.ld = ld
        self.readonly = readonly
        self.itemsize = dtypes.DTYPES[dtype].itemsize
        self.inner = math.prod(shape[1:])  # elements of one entry of the first dimension
        self.numel = math.prod(shape)
        self.dense = ld == self.inner or self.numel == 0 or shape[0] == 1
        # The last row ends after its own elements: a narrowed tensor must not claim what lies after them.
        self.nbytes = 0 if self.numel == 0 else ((shape[0] - 1) * ld + self.inner if shape else 1) * self.itemsize

    @classmethod
    def of(cls, shape: tuple[int, ...], dtype: DTypeName, ld: int | None = None, readonly: bool = False) -> Layout:
        """The layout; `ld` defaults to dense. `shape` holds ints, `dtype` is a name of `dtypes.DTYPES`."""
        key = (shape, dtype, ld, readonly)
        layout = cls._known.get(key)
        if layout is None:
            inner = math.prod(shape[1:])
            if ld is None or ld == inner:
                # Dense is one object, however it was asked for.
                layout = cls._known.get((shape, dtype, inner, readonly)) or cls(shape, dtype, inner, readonly)
                cls._known[(shape, dtype, inner, readonly)] = layout
            else:
                layout = cls(shape, dtype, ld, readonly)
            if len(cls._known) > 100_000:  # a program of ever new shapes must not grow for ever
                cls._known.clear()
            cls._known[key] = layout
        return layout

    def __repr__(self) -> str:
        stride = "" if self.dense else f", ld={self.ld}"
        return f"Layout({self.shape}, {self.dtype}{stride}{', readonly' if self.readonly else ''})"


#: The bytes of a buffer whose memory another tensor of as many bytes could not use.
NOT_REUSED = -1


class Buffer:
    """A piece of memory, freed when the last tensor over it is gone.

    `owner` is what keeps foreign memory alive (a DLPack import); it is None for memory of the context's pool.
    """

    __slots__ = ("__weakref__", "captured", "ctx", "nbytes", "owner", "pointer")

    def __init__(self, ctx: Context, pointer: Any, nbytes: int, owner: Any = None) -> None:
        self.ctx = ctx
        self.pointer = pointer
        self.nbytes = nbytes
        self.owner = owner
        self.captured: Any = None  # the graph capture that this memory belongs to

    def __del__(self) -> None:
        if self.owner is None and self.pointer:
            self.ctx._release(self)
