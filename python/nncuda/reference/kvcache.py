"""The cache of keys and values. Shazeer 2019, section 2.3; its pages: Kwon et al. 2023, "PagedAttention"."""

import numpy as np

from nncuda.reference.arithmetic import Array, Outputs
from nncuda.reference.quant import decoded, encoded

__all__ = ["kv_append", "kv_append_paged", "kv_trim", "rows_of_pages"]

ROUNDINGS = {
    **dict.fromkeys(["kv_append", "kv_trim", "kv_append_paged"], 0),
}

PAGE_TOKENS = 128


def kv_append(k: Array, v: Array, starts: Array, k_cache: Array, v_cache: Array) -> Outputs:
    """Rows starts[b] .. starts[b]+len-1 of cache b become the new keys and values."""
    k_out, v_out = k_cache.copy(), v_cache.copy()
    length = len(k) // len(starts)
    for b, start in enumerate(starts):
        new = slice(b * length, (b + 1) * length)
        k_out[b, start : start + length] = k[new]
        v_out[b, start : start + length] = v[new]
    return {"k_cache": k_out, "v_cache": v_out}


def kv_trim(k_cache: Array, v_cache: Array, lengths: Array, keep: int) -> Outputs:
    """The newest ``keep`` rows of each cache move to its front; rows from the new length on are as they were."""
    k_out, v_out, kept = k_cache.copy(), v_cache.copy(), lengths.copy()
    for b, length in enumerate(lengths):
        if length > keep:
            k_out[b, :keep] = k_cache[b, length - keep : length]
            v_out[b, :keep] = v_cache[b, length - keep : length]
            kept[b] = keep
    return {"k_cache": k_out, "v_cache": v_out, "lengths": kept}


def _by_row(pages: Array, kv_heads: int) -> Array:
    """[pages, page_bytes] as [pages, kv_heads, 128, row_bytes]; shares memory."""
    return pages.reshape(len(pages), kv_heads, PAGE_TOKENS, -1)


def rows_of_pages(pages: Array, table: Array, length: int, kv_heads: int, format: int) -> Array:
    """The first ``length`` rows of a sequence whose pages stand in ``table``: [length, kv_heads, head_dim], float32."""
    position = np.arange(length)
    rows = _by_row(pages, kv_heads)[table[position // PAGE_TOKENS], :, position % PAGE_TOKENS]
    return decoded(rows, format)


def kv_append_paged(
    k: Array, v: Array, offsets: Array, lengths: Array, page_table: Array, k_pages: Array, v_pages: Array, format: int
) -> Outputs:
    """Tokens offsets[b] .. offsets[b+1]-1 become the last of the lengths[b] rows of sequence b."""
    out = {"k_pages": k_pages.copy(), "v_pages": v_pages.copy()}
    for b, length in enumerate(lengths):
        new = slice(offsets[b], offsets[b + 1])
        position = np.arange(length - (offsets[b + 1] - offsets[b]), length)
        for name, rows in (("k_pages", k[new]), ("v_pages", v[new])):
            if len(rows):
                place = page_table[b, position // PAGE_TOKENS], slice(None), position % PAGE_TOKENS
                _by_row(out[name], k.shape[1])[place] = encoded(rows, format)
    return out
