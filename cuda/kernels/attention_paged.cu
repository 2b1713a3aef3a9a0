/* Attention of prompts over paged caches: a block goes through the pages of its rows and merges them as it goes. */
#include "kernels/attention_paged.cuh"

/* The page that row r met, if it sees any of it, joins its run; one that was whole before joins the runs before. */
template <int D, int ROWS>
__device__ __forceinline__ void merge_page(const paged_rows &rows, const paged_space<D, ROWS> &space, int r,
                                           int64_t page) {
  const int64_t seen = rows.sees(r);
  space.run_factor[r] = -1.0f;
  if (seen <= page * NN_PAGE_TOKENS) {
    space.part_factor[r] = -1.0f;
    return;
  }
  const int32_t length = (int32_t)nn_run_length(nn_ceil_div(seen, NN_PAGE_TOKENS));
  if (page > 0 && (int32_t)page % length == 0) {
    const float2 by = nn_merge(space.peak[r], space.sum[r], space.run_peak[r], space.run_sum[r]);
    space.before_factor[r] = by.x;
    space.run_factor[r] = by.y;
    space.run_peak[r] = LEAST;
    space.run_sum[r] = 0.0f;
  }
  const float2 by = nn_merge(space.run_peak[r], space.run_sum[r], space.part_peak[r], space.part_sum[r]);
  space.old_factor[r] = by.x;
  space.part_factor[r] = by.y;
}

/* One block a multiprocessor is promised, no more: left to itself, ptxas spills a few registers to fit another. */
template <class F, int D, int ROWS> __global__ void __launch_bounds__(THREADS, 1) prompt_kernel(paged_attention p) {
  using L = paged_layout<D, ROWS>;
  NN_SHARED_BYTES(shared);
  const paged_space<D, ROWS> space(shared);
  p.sequences.check();
  paged_rows rows;
  const int32_t kv_head = (int32_t)blockIdx.y % p.kv_heads, member = (int32_t)blockIdx.y / p.kv_heads * ROWS;
  int64_t tile; /* of `each` tokens, in its sequence */
  if (!p.sequences.tile_at(blockIdx.x, p.each, rows.sequence, tile)) {
    return;
  }
  const nn_paged_sequence &s = rows.sequence;
  rows.token = s.first + tile * p.each;
  rows.head = kv_head * p.group + member;
  rows.group = p.group - member < ROWS ? p.group - member : ROWS;
  const int64_t tokens = s.fresh - tile * p.each;
  rows.count = rows.group * (int32_t)(tokens < p.each ? tokens : p.each);
  rows.seen = s.length - s.fresh + tile * p.each + 1;
  load_queries(p, rows, space);
  for (int r = threadIdx.x; r < ROWS; r += THREADS) {
    space.peak[r] = space.run_peak[r] = LEAST;
    space.sum[r] = space.run_sum[r] = 0.0f;
  }
  float out[L::EACH][8] = {}, run[L::EACH][8] = {};
  const int column = threadIdx.x % L::ACROSS * 8, line = threadIdx.x / L::ACROSS;
  nn_page_numbers numbers(p.sequences, s.index, 0, nn_ceil_div(rows.sees(rows.count - 1), NN_PAGE_TOKENS));
  int64_t page;
  for (int64_t i = 0; numbers.next(page); i++) {
    const int64_t at = page * p.page_bytes + kv_head * NN_PAGE_TOKENS * p.row_bytes;
    float part[L::EACH][8];
    __syncthreads();
    page_part<F, D, ROWS>(p, rows, space, p.k + at, p.v + at, i * NN_PAGE_TOKENS, part);
    for (int r = threadIdx.x; r < rows.count; r += THREADS) {
      merge_page<D, ROWS>(rows, space, r, i);
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < L::EACH; j++) {
      const int r = line + j * L::LINES;
      if (r >= rows.count || space.part_factor[r] < 0.0f) {
        continue;
      }
      if (!(space.run_factor[r] < 0.0f)) {
        const float2 by = make_float2(space.before_factor[r], space.run_factor[r]);
#pragma unroll
        for (int e = 0; e < 8; e++) {
          out[j][e] = nn_merged(out[j][e], run[j][e], by);
          run[j][e] = 0.0f;
        }
      }
      const float2 by = make_float2(space.old_factor[r], space.part_factor[r]);
#pragma unroll
      for (int e = 0; e < 8; e++) {
        run[j][e] = nn_merged(run[j][e], part[j][e], by);
      }
    }
  }
  if (numbers.bad) {
    return;
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < L::EACH; j++) {
    const int r = line + j * L::LINES;
    if (r < rows.count) {
      float peak = space.peak[r], sum = space.sum[r];
      const float2 by = nn_merge(peak, sum, space.run_peak[r], space.run_sum[r]);
      const int64_t to = rows.at(r, (int64_t)p.heads * p.dim, p.dim);
#pragma unroll
      for (int e = 0; e < 8; e++) {
        if (column + e < p.dim) {
          nn_put_element(p.out, to + column + e, nn_merged(out[j][e], run[j][e], by) / sum, p.dtype);
        }
      }
    }
  }
}

template <class F, int D> static int32_t prompt(nncuda_ctx *ctx, paged_attention &p) {
  constexpr int ROWS = PREFILL_ROWS<D>;
  p.each = p.group < ROWS ? ROWS / p.group : 1;
  const nn_paged &s = p.sequences;
  const int64_t tiles = s.tokens / p.each + (s.batch < s.tokens ? s.batch : s.tokens);
  return nn_launch(ctx, prompt_kernel<F, D, ROWS>,
                   dim3((unsigned)tiles, (unsigned)(p.kv_heads * nn_ceil_div(p.group, ROWS))), dim3(THREADS),
                   paged_layout<D, ROWS>::bytes, p);
}

NN_KERNEL(flash_attention_paged) {
  paged_attention p = paged_attention_of(ctx, a, a->offsets);
  PAGED_SWITCH(p, a->format, return (prompt<F, D>(ctx, p)));
  return NNCUDA_ERROR_INTERNAL;
}
