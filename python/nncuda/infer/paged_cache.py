"""The paged cache of keys and values: who owns which page, and which pages hold text that may be met again.

A page holds the keys and values of 128 consecutive tokens of one sequence, in every layer under the same number. Pages
belong to sequences; a page is also known by its text, so that a sequence which begins alike uses it too instead of
computing it again. Full pages are shared as they are, since they are not written to again; of a page that begins as
wanted and then differs, or ends, a sequence takes a copy of its own.
(Kwon et al. 2023, "PagedAttention", sections 4.2 and 4.4)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from collections.abc import Sequence as Ids

import numpy as np

from ..device import Context
from ..formats.block_formats import E4M3, FORMATS

#: Tokens of a page, as `kv_append_paged` has it.
PAGE = 128

#: Tokens from which on a page is copied rather than run: copying one costs about as much as a token or two.
LEAST_COPIED = 16

#: Formats of keys and values, by name.
CACHE_FORMATS = {name: FORMATS[name] for name in ("f16", "f32", "bf16", "q8_0")} | {E4M3.name: E4M3}


class CacheFullError(MemoryError):
    """The cache has no page left. It stays usable: pages come back when sequences are closed."""


def common_prefix(ids: np.ndarray, others: np.ndarray) -> int:
    """How many ids two texts begin with alike."""
    shorter = min(len(ids), len(others))
    differ = np.flatnonzero(ids[:shorter] != others[:shorter])
    return int(differ[0]) if len(differ) else shorter


class _Text:
    """What a page holds: `ids` after the text of `parent`, the number of the page's forerunner. A first page has none:
    its parent is 0 or less, -n for texts that adapter n computes, whose keys and values are not those of any other.

    Numbers are never used twice, so equal parents and equal ids mean equal texts from the first token on.
    """

    __slots__ = ("ids", "number", "page", "parent", "users")

    def __init__(self, number: int, parent: int, ids: bytes, page: int, users: int):
        self.number = number
        self.parent = parent
        self.ids = ids  # i32; fewer than PAGE in a page that a sequence left incomplete
        self.page = page
        self.users = users

    @property
    def full(self) -> bool:
        return len(self.ids) == 4 * PAGE


class CachedSequence:
    """A sequence's place in a cache.

    length      rows in the cache: tokens that the next one sees
    position    tokens so far, the place of the next one; more than `length` when the oldest pages were dropped
    pages       the pages of the rows, in order
    shared      rows that it found when it was opened
    adapter     the number of the adapter that computes it, 0 without a name
    """

    __slots__ = (
        "_parent", "_pending", "_reserved", "_texts", "adapter", "closed", "length", "pages", "position", "shared"
    )  # fmt: skip

    def __init__(self, adapter: int = 0) -> None:
        self.adapter = adapter
        self.length = 0
        self.position = 0
        self.pages: list[int] = []
        self.shared = 0
        self.closed = False
        self._texts: list[_Text | None] = []  # of each full page, None for one that no other sequence will find
        self._pending: list[int] = []  # ids of the last page, while it is not full
        # The number of the last full page's text; None when its text is not its own.
        self._parent: int | None = -adapter
        self._reserved = 0


class PagedCache:
    """Pages for the keys and values of `layers` layers, in one allocation.

    `pages` is how many there are, `context` the most rows of a sequence. `format` is one of `CACHE_FORMATS`. Each new
    page is one that was never used, or one whose text has waited longest for somebody to share it.
    """

    def __init__(
        self,
        ctx: Context,
        *,
        layers: int,
        kv_heads: int,
        head_dim: int,
        pages: int,
        context: int,
        format: str = "f16",
    ):
        if format not in CACHE_FORMATS:
            raise ValueError(f"cache_format is {format!r}; it must be one of {', '.join(CACHE_FORMATS)}")
        self.format = CACHE_FORMATS[format]
        if head_dim % self.format.elements:
            raise ValueError(
                f"cache_format is {format}, whose blocks of {self.format.elements} do not divide heads of "
                f"{head_dim} elements; choose f16"
            )
        if pages < 1 or context < 1:
            raise ValueError(f"the cache would have {pages} pages for sequences of {context} tokens; at least 1 each")
        self.context = context
        self.num_pages = pages
        self.max_pages = -(-context // PAGE)
        self.page_bytes = kv_heads * PAGE * self.format.row_bytes(head_dim)
        self._memory = ctx.empty((layers * 2, pages * self.page_bytes), "u8")
        views = [self._memory.narrow(0, at, 1).view(pages, self.page_bytes) for at in range(layers * 2)]
        self.keys, self.values = views[0::2], views[1::2]
        self._free = list(reversed(range(pages)))
        self._idle: OrderedDict[int, _Text] = OrderedDict()  # by page, whose text is unused now; oldest first
        self._full: dict[tuple[int, bytes], _Text] = {}  # full pages by parent and ids
        self._behind: dict[int, list[_Text]] = {}  # all pages by parent
        self._last_number = 0
        self._reserved = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all pages."""
        return self._memory.nbytes

    @property
    def available(self) -> int:
        """Pages that a new sequence could have: never used, or kept for their text alone, and not reserved."""
        return len(self._free) + len(self._idle) - self._reserved

    @property
    def used(self) -> int:
        """Pages of open sequences."""
        return self.num_pages - len(self._free) - len(self._idle)

    def open(
        self,
        ids: Ids[int] | np.ndarray = (),
        rows: int = 0,
        beside: Iterable[CachedSequence] = (),
        adapter: int = 0,
    ) -> CachedSequence:
        """A new sequence that will run `ids`, with the pages that hold their beginning already, and with a promise of
        pages for `rows` rows in all. Of the open sequences `beside`, the pages that are not full yet count as well.
        Only pages that the same adapter computed count.

        Its `length` is how many ids are there; the last one is never, since somebody wants what follows from it. One of
        more than `context` rows will drop its oldest pages, for which it gets new ones only if they are not shared: it
        neither looks for pages nor lets others find its own. Raises CacheFullError, with nothing changed, when so many
        pages are not available.
        """
        sequence = CachedSequence(adapter)
        array = np.ascontiguousarray(ids, np.int32)
        if rows > self.context:
            sequence._parent = None
        else:
            self._find(sequence, array)
        needed = max(0, -(-min(rows, self.context) // PAGE) - len(sequence.pages))
        if needed > self.available:
            available = self.available
            self.close(sequence)
            raise CacheFullError(
                f"a sequence of {min(rows, self.context)} tokens needs {needed} pages of {PAGE} tokens beside those it "
                f"shares, and {available} of the cache's {self.num_pages} are available; close a sequence, write fewer "
                f"tokens, or make the cache larger (cache_tokens is {self.num_pages * PAGE})"
            )
        sequence._reserved = needed
        self._reserved += needed
        if sequence._parent is not None and (needed or self.available):
            self._copy_part(sequence, sequence._parent, array[sequence.length : self._most(array)], beside)
        sequence.position = sequence.shared = sequence.length
        return sequence

    def extend(self, sequence: CachedSequence, rows: int) -> bool:
        """Gives a sequence the pages for that many more rows; whether it got any.

        Raises CacheFullError when there is none left, ValueError when it would have more than `context` rows.
        """
        if sequence.closed:
            raise ValueError("the sequence is closed")
        length = sequence.length + rows
        if length > self.context:
            raise ValueError(f"the sequence would have {length} tokens; the context has room for {self.context}")
        before = len(sequence.pages)
        while len(sequence.pages) * PAGE < length:
            if sequence._reserved:
                sequence._reserved -= 1
                self._reserved -= 1
            elif self.available < 1:
                raise CacheFullError(
                    f"a sequence of {sequence.length} tokens needs a further page, and all {self.num_pages} of the "
                    f"cache are in use or promised; close a sequence, or make the cache larger (cache_tokens is "
                    f"{self.num_pages * PAGE})"
                )
            sequence.pages.append(self._new_page())
            sequence._texts.append(None)
        return len(sequence.pages) != before

    def advance(self, sequence: CachedSequence, ids: Ids[int]) -> None:
        """Counts tokens whose keys and values were written after the sequence's rows. Full pages become known."""
        sequence.length += len(ids)
        sequence.position += len(ids)
        pending = sequence._pending
        pending.extend(ids)
        while len(pending) >= PAGE:
            at = sequence.length // PAGE - len(pending) // PAGE
            if sequence._parent is not None:
                self._know_full(sequence, at, np.array(pending[:PAGE], np.int32).tobytes())
            del pending[:PAGE]

    def make_room(self, sequence: CachedSequence) -> bool:
        """Drops the oldest page of a sequence that has no room for one more row; whether it did.

        Its later rows stay where they are and keep their positions.
        """
        if sequence.length < self.context or self.context < PAGE:
            return False
        page, text = sequence.pages.pop(0), sequence._texts.pop(0)
        sequence.length -= PAGE
        # What later pages hold was computed with the page that is gone, or will be without it: no other may share it.
        sequence._parent = None
        if self._release(page, text):
            sequence._reserved += 1  # a page for a page, so that it cannot fail to get the next one
            self._reserved += 1
        return True

    def close(self, sequence: CachedSequence) -> None:
        """Gives the sequence's pages back. Closing twice is fine. Their text can be shared until they are needed."""
        if sequence.closed:
            return
        sequence.closed = True
        self._reserved -= sequence._reserved
        sequence._reserved = 0
        # Later pages first: they are of use only while those before them are there, and so are needed again earlier.
        full = len(sequence.pages) if not sequence.length % PAGE else sequence.length // PAGE
        for at in reversed(range(len(sequence.pages))):
            page, text = sequence.pages[at], sequence._texts[at]
            if at == full and sequence._pending and sequence._parent is not None:
                text = self._know(sequence._parent, np.array(sequence._pending, np.int32).tobytes(), page)
            self._release(page, text)
        sequence.pages.clear()
        sequence._texts.clear()

    def forget(self) -> None:
        """Forgets the texts of unused pages, so that later sequences share nothing with earlier ones."""
        for text in list(self._idle.values()):
            self._lose(text)
            self._free.append(text.page)
        self._idle.clear()

    def table_row(self, sequence: CachedSequence) -> np.ndarray:
        """The sequence's row of a page table, i32 [max_pages]."""
        row = np.zeros(self.max_pages, np.int32)
        row[: len(sequence.pages)] = sequence.pages
        return row

    # Pages

    def _new_page(self) -> int:
        if self._free:
            return self._free.pop()
        page, text = self._idle.popitem(last=False)
        self._lose(text)
        return page

    def _release(self, page: int, text: _Text | None) -> bool:
        """Ends one use of a page; returns whether it is unused now."""
        if text is None:
            self._free.append(page)
            return True
        text.users -= 1
        if text.users == 0:
            self._idle[page] = text
        return text.users == 0

    # Texts

    def _most(self, ids: np.ndarray) -> int:
        """How many of its ids a new sequence may find: not the last."""
        return max(0, min(len(ids) - 1, self.context))

    def _find(self, sequence: CachedSequence, ids: np.ndarray) -> None:
        """Gives a new sequence the full pages that hold the beginning of its ids."""
        parent = -sequence.adapter
        for start in range(0, self._most(ids) - PAGE + 1, PAGE):
            text = self._full.get((parent, ids[start : start + PAGE].tobytes()))
            if text is None:
                break
            if text.users == 0:
                del self._idle[text.page]
            text.users += 1
            sequence.pages.append(text.page)
            sequence._texts.append(text)
            sequence.length += PAGE
            parent = text.number
        sequence._parent = parent

    def _copy_part(
        self, sequence: CachedSequence, parent: int, rest: np.ndarray, beside: Iterable[CachedSequence]
    ) -> None:
        """Behind its full pages, gives a sequence a copy of the page that has most of the rest's beginning."""
        held = [(np.frombuffer(text.ids, np.int32), text.page) for text in self._behind.get(parent, ())]
        for other in beside:
            if other._parent == parent and other._pending:
                held.append((np.array(other._pending, np.int32), other.pages[other.length // PAGE]))
        best, most = None, LEAST_COPIED - 1
        for ids, page in held:
            common = common_prefix(ids, rest)
            if common > most:
                best, most = page, common
        if best is None:
            return
        self.extend(sequence, most)
        page = sequence.pages[-1]
        if page != best:  # it is, when no other was left than that which waited longest
            for pool in (*self.keys, *self.values):
                pool.narrow(0, page, 1).copy_(pool.narrow(0, best, 1))
        sequence._pending = rest[:most].tolist()
        sequence.length += most

    def _know(self, parent: int, ids: bytes, page: int) -> _Text:
        """Makes the text of a page findable."""
        self._last_number += 1
        text = _Text(self._last_number, parent, ids, page, 1)
        self._behind.setdefault(parent, []).append(text)
        if text.full:
            self._full[parent, ids] = text
        return text

    def _know_full(self, sequence: CachedSequence, at: int, ids: bytes) -> None:
        """Makes a full page findable, unless another one with the same text is: then that one stays the known one."""
        assert sequence._parent is not None
        text = self._full.get((sequence._parent, ids))
        if text is None:
            text = sequence._texts[at] = self._know(sequence._parent, ids, sequence.pages[at])
        sequence._parent = text.number

    def _lose(self, text: _Text) -> None:
        """Forgets the text of an unused page."""
        if text.full:
            del self._full[text.parent, text.ids]
        siblings = self._behind[text.parent]
        siblings.remove(text)
        if not siblings:
            del self._behind[text.parent]
