"""Cases of the cache of keys and values."""

import numpy as np

from nncuda.reference import kvcache as reference

from .case import FLOATS, case

PAGE_TOKENS = 128
#: Formats of pages; bytes and elements of their blocks.
STORAGE = {"f32": 0, "f16": 1, "bf16": 2, "q8_0": 14, "e4m3": 20}
BLOCKS = {"f32": (4, 1), "f16": (2, 1), "bf16": (2, 1), "q8_0": (34, 32), "e4m3": (1, 1)}


def cases():
    for dtype in FLOATS:
        for starts, length, capacity, kv_heads, head_dim, extra in (
            ([0], 1, 1, 1, 1, 0),
            ([0, 6, 3], 2, 8, 1, 8, 0),
            ([5, 0], 4, 9, 2, 5, 3),
            ([0], 7, 7, 3, 6, 1),
        ):
            yield case(
                "kv_append",
                f"batch{len(starts)}-len{length}-capacity{capacity}-heads{kv_heads}-dim{head_dim}-ld{extra}",
                append,
                dtype,
                *(starts, length, capacity, kv_heads, head_dim, kv_heads * head_dim + extra),
            )
        for lengths, capacity, keep in (([0, 3, 8, 5], 8, 3), ([7, 2], 9, 0), ([9, 8, 1], 9, 7), ([4], 4, 4)):
            label = f"batch{len(lengths)}-capacity{capacity}-keep{keep}"
            yield case("kv_trim", label, trim, dtype, lengths, capacity, 2, 5, keep)
        for storage, lengths, fresh, kv_heads, head_dim, extra, spare in (
            ("f32", [1], [1], 1, 5, 0, 0),
            ("f16", [131, 0, 9, 128], [5, 0, 9, 1], 2, 6, 3, 2),
            ("bf16", [3, 20], [2, 0], 1, 9, 0, 0),
            ("q8_0", [130], [3], 1, 32, 5, 1),
            ("e4m3", [131], [3], 1, 11, 1, 1),
        ):
            yield case(
                "kv_append_paged",
                f"{storage}-batch{len(lengths)}-heads{kv_heads}-dim{head_dim}-ld{extra}-spare{spare}",
                append_paged,
                dtype,
                *(storage, lengths, fresh, kv_heads, head_dim, extra, spare),
            )


def append(d, starts, length, capacity, kv_heads, head_dim, ld_kv):
    k, v = (d.bell(len(starts) * length, kv_heads, head_dim) for _ in "kv")
    k_cache, v_cache = (d.bell(len(starts), capacity, kv_heads, head_dim) for _ in "kv")
    rows = {"k": k, "v": v, "k_cache": k_cache, "v_cache": v_cache, "len": length}
    return {**rows, "starts": np.array(starts, np.int32), "ld_kv": ld_kv}


def trim(d, lengths, capacity, kv_heads, head_dim, keep):
    k_cache, v_cache = (d.bell(len(lengths), capacity, kv_heads, head_dim) for _ in "kv")
    return {"k_cache": k_cache, "v_cache": v_cache, "lengths": np.array(lengths, np.int32), "keep": keep}


def page_bytes(storage, kv_heads, head_dim):
    size, elements = BLOCKS[storage]
    return kv_heads * PAGE_TOKENS * head_dim // elements * size


def page_table(d, lengths, room=0):
    """A table whose pages lie in any order, -1 where a sequence has none, ``room`` wider than the longest needs,
    and the number of pages: one is unused."""
    needed = [-(-length // PAGE_TOKENS) for length in lengths]
    order = d.permutation(sum(needed) + 1)
    table = np.full((len(lengths), max(needed) + room), -1, np.int32)
    for b, count in enumerate(needed):
        table[b, :count], order = order[:count], order[count:]
    return table, sum(needed) + 1


def filled(d, storage, lengths, table, pages, kv_heads, head_dim):
    """Pages that hold the rows of all sequences, and NaN where no row is."""
    blank = np.full((pages, page_bytes(storage, kv_heads, head_dim)), 0xFF, np.uint8)
    rows = d.bell(sum(lengths), kv_heads, head_dim)
    offsets = np.array([0, *np.cumsum(lengths)], np.int32)
    return reference.kv_append_paged(rows, rows, offsets, lengths, table, blank, blank, STORAGE[storage])["k_pages"]


def append_paged(d, storage, lengths, fresh, kv_heads, head_dim, extra, spare):
    table, pages = page_table(d, lengths)
    blank = np.full((pages, page_bytes(storage, kv_heads, head_dim)), 0xA5, np.uint8)
    k, v = (d.bell(sum(fresh) + spare, kv_heads, head_dim) for _ in "kv")
    k[0, 0] = 0  # a block of zeros has no scale
    if storage == "e4m3":  # from what becomes 0 to what is beyond the largest
        k[1:] *= 2.0 ** d.integers(*k[1:].shape, low=-12, high=10)
    return {
        "k": k,
        "v": v,
        "offsets": np.array([0, *np.cumsum(fresh)], np.int32),
        "lengths": np.array(lengths, np.int32),
        "page_table": table,
        "k_pages": blank,
        "v_pages": blank,
        "ld_kv": kv_heads * head_dim + extra,
        "format": STORAGE[storage],
    }
