"""The cache of keys and values, one block of ``capacity`` rows a sequence. Shazeer 2019, section 2.3."""

from nncuda.reference.arithmetic import Array, Outputs

__all__ = ["kv_append", "kv_trim"]


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
