/* Appending to paged caches: a warp takes one head's row of a new token, its key or its value. */
#include "abi/generated/kvcache.h"

#include "kernels/paged_append.cuh"

/* By count: the rows of a decoding step are few, those of a prompt are read once. */
constexpr int THREADS = 256, WARPS = THREADS / NN_WARP, BLOCKS_PER_SM = 8;

struct appended {
  nn_paged sequences;
  const void *k, *v;
  uint8_t *k_pages, *v_pages;
  int64_t ld, page_bytes, row_bytes, work; /* work: rows to write, keys and values */
  int32_t kv_heads, dim;
};

template <class F, class T> __global__ void __launch_bounds__(THREADS) append_kernel(appended p) {
  p.sequences.check();
  const int64_t step = (int64_t)gridDim.x * WARPS;
  for (int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / NN_WARP; i < p.work; i += step) {
    const int64_t token = i / (2 * p.kv_heads);
    const int32_t head = (int32_t)(i % p.kv_heads), is_value = (int32_t)(i / p.kv_heads % 2);
    nn_paged_sequence s;
    if (!p.sequences.of_token(token, s)) {
      continue;
    }
    const int64_t row = s.length - s.fresh + token - s.first;
    int64_t page;
    if (!p.sequences.page_at(s.index, row / NN_PAGE_TOKENS, page)) {
      continue;
    }
    const T *const from = static_cast<const T *>(is_value ? p.v : p.k) + token * p.ld + (int64_t)head * p.dim;
    uint8_t *const to = (is_value ? p.v_pages : p.k_pages) + page * p.page_bytes +
                        ((int64_t)head * NN_PAGE_TOKENS + row % NN_PAGE_TOKENS) * p.row_bytes;
    nn_append_row<F>(to, p.dim, [&](int d) { return nn_to_float(from[d]); });
  }
}

NN_KERNEL(kv_append_paged) {
  const appended p = {
      nn_paged_of(ctx, a->offsets, a->lengths, a->page_table, a->tokens, a->batch, a->max_pages, a->pages),
      a->k,
      a->v,
      static_cast<uint8_t *>(a->k_pages),
      static_cast<uint8_t *>(a->v_pages),
      a->ld_kv,
      a->page_bytes,
      a->page_bytes / (a->kv_heads * NN_PAGE_TOKENS),
      a->tokens * a->kv_heads * 2,
      (int32_t)a->kv_heads,
      (int32_t)a->head_dim};
  const unsigned blocks = nn_blocks(ctx, p.work, WARPS, BLOCKS_PER_SM);
  NN_SWITCH_PAGES(a->format, NN_SWITCH_FLOATS(a->dtype, return nn_launch(ctx, append_kernel<F, T>, dim3(blocks),
                                                                         dim3(THREADS), 0, p)));
  return NNCUDA_ERROR_INTERNAL; /* the entry knows no other format */
}
