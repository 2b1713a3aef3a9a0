"""What goes between host and device in a loop of decoding, beside the kernels of the next step or in front of them."""

from __future__ import annotations

import numpy as np

from ..device import Context, HostCopy, Tensor

#: Steps whose results can be on their way at once: that which was computed, and that which is.
_STEPS = 2


class Waiting:
    """Nothing is computed while the host and the device talk: a step's results are read when it has ended.

    `ids` i32 [rows] is where a step puts the drawn ids, `table` i32 [rows, pages] the page table that it reads.
    """

    def __init__(self, ids: Tensor, table: Tensor):
        self._read = HostCopy(ids).read
        self._table = table

    def page(self, row: int, column: int, page: int) -> None:
        """Puts a page into the table: one that no step under way reads."""
        self._table.narrow(0, row, 1).narrow(1, column, 1).copy_(np.array([[page]], np.int32))

    def begin(self) -> None:
        """A step begins: it must see what was put into the table."""

    def end(self) -> None:
        """All of a step was given to the device: its results are wanted."""

    def ids(self) -> np.ndarray:
        """The results of the oldest step whose results were not read, i32 [rows]; valid until the next are."""
        return self._read()


class Beside:
    """As `Waiting`, while the device computes the next step: each direction has a stream of its own.

    A step overwrites the ids of the one before, so these are put aside on the device, in the order of the kernels,
    before they travel. What is put into the table is in places that no step under way looks at.
    """

    def __init__(self, ctx: Context, ids: Tensor, table: Tensor):
        self._ctx, self._ids, self._table = ctx, ids, table
        self._in, self._out = ctx.stream(), ctx.stream()
        self._aside = [ctx.zeros(ids.shape, "i32") for _ in range(_STEPS)]
        self._here = [ctx.host_array(ids.shape, "i32") for _ in range(_STEPS)]
        self._drawn = [ctx.event() for _ in range(_STEPS)]
        self._arrived = [ctx.event() for _ in range(_STEPS)]
        self._pages = ctx.host_array(table.shape, "i32")
        self._put = ctx.event()
        self._new_pages = False
        self._ended = self._taken = 0  # steps

    def page(self, row: int, column: int, page: int) -> None:
        # The place of `_pages` was last used for a step whose results have been read since.
        source = self._pages[row : row + 1, column : column + 1]
        source[0, 0] = page
        self._in.copy(self._table.narrow(0, row, 1).narrow(1, column, 1).view(1, 1), source)
        self._new_pages = True

    def begin(self) -> None:
        if self._new_pages:
            self._put.record(self._in)
            self._ctx.wait(self._put)
            self._new_pages = False

    def end(self) -> None:
        slot = self._ended % _STEPS
        self._aside[slot].copy_(self._ids)
        self._drawn[slot].record()
        self._out.wait(self._drawn[slot])
        self._out.copy(self._here[slot], self._aside[slot])
        self._arrived[slot].record(self._out)
        self._ended += 1

    def ids(self) -> np.ndarray:
        slot = self._taken % _STEPS
        self._arrived[slot].synchronize()
        self._taken += 1
        return self._here[slot]
