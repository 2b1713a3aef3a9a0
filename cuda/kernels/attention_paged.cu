/* Attention of prompts over paged caches: a block goes through the pages of its rows and merges them as it goes. */
#include "kernels/attention_paged_mma.cuh"

/* The rows of a block of at most `most`; false where there are none. `kv_head`: the one that they read. */
__device__ __forceinline__ bool rows_of_block(const paged_attention &p, int32_t most, paged_rows &rows,
                                              int32_t &kv_head) {
  kv_head = (int32_t)blockIdx.y % p.kv_heads;
  const int32_t member = (int32_t)blockIdx.y / p.kv_heads * most;
  int64_t tile; /* of `each` tokens, in its sequence */
  if (!p.sequences.tile_at(blockIdx.x, p.each, rows.sequence, tile)) {
    return false;
  }
  const nn_paged_sequence &s = rows.sequence;
  rows.token = s.first + tile * p.each;
  rows.head = kv_head * p.group + member;
  rows.group = p.group - member < most ? p.group - member : most;
  const int64_t tokens = s.fresh - tile * p.each;
  rows.count = rows.group * (int32_t)(tokens < p.each ? tokens : p.each);
  rows.seen = s.length - s.fresh + tile * p.each + 1;
  return true;
}

/* The page that row r met, if it sees any of it, joins its run; one that was whole before joins the runs before. */
template <bool VARIANT, int D, int ROWS>
__device__ __forceinline__ void merge_page(const paged_attention &p, const paged_rows &rows,
                                           const paged_space<D, ROWS> &space, int r, int64_t page) {
  const int64_t seen = rows.sees(r), before = VARIANT ? rows.from(r, p.window) / NN_PAGE_TOKENS : 0; /* pages */
  space.run_factor[r] = -1.0f;
  if (seen <= page * NN_PAGE_TOKENS || page < before) {
    space.part_factor[r] = -1.0f;
    return;
  }
  const int32_t length = (int32_t)nn_run_length(nn_ceil_div(seen, NN_PAGE_TOKENS) - before);
  if (page > before && (int32_t)(page - before) % length == 0) {
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

// spills: prompt_kernel: with a window, a cap or sinks, pages in e4m3 and heads of 128 elements, 17 numbers wait in
// memory, once a page
/* One block a multiprocessor is promised, no more: left to itself, ptxas spills a few registers to fit another. */
template <class F, int D, int ROWS, bool VARIANT>
__global__ void __launch_bounds__(THREADS, 1) prompt_kernel(paged_attention p) {
  using L = paged_layout<D, ROWS>;
  NN_SHARED_BYTES(shared);
  const paged_space<D, ROWS> space(shared);
  p.sequences.check();
  paged_rows rows;
  int32_t kv_head;
  if (!rows_of_block(p, ROWS, rows, kv_head)) {
    return;
  }
  load_queries(p, rows, plain_query{p}, space);
  for (int r = threadIdx.x; r < ROWS; r += THREADS) {
    space.peak[r] = space.run_peak[r] = LEAST;
    space.sum[r] = space.run_sum[r] = 0.0f;
  }
  float out[L::EACH][8] = {}, run[L::EACH][8] = {};
  const int column = threadIdx.x % L::ACROSS * 8, line = threadIdx.x / L::ACROSS;
  const int64_t first = VARIANT ? rows.from(0, p.window) / NN_PAGE_TOKENS : 0;
  nn_page_numbers numbers(p.sequences, rows.sequence.index, first,
                          nn_ceil_div(rows.sees(rows.count - 1), NN_PAGE_TOKENS));
  int64_t page;
  for (int64_t i = first; numbers.next(page); i++) {
    const int64_t at = page * p.page_bytes + kv_head * NN_PAGE_TOKENS * p.row_bytes;
    float part[L::EACH][8];
    __syncthreads();
    page_part<VARIANT, F, D, ROWS>(p, rows, space, p.k + at, p.v + at, i * NN_PAGE_TOKENS, part);
    for (int r = threadIdx.x; r < rows.count; r += THREADS) {
      merge_page<VARIANT, D, ROWS>(p, rows, space, r, i);
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
      if (VARIANT) {
        sum += sink_of(p, rows, r, peak);
      }
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

/* A run of half `half` is whole, the first one or a later: it joins the runs before. */
template <class L>
__device__ __forceinline__ void fold_run(const paged_attention &p, const paged_pages<L> &pages, int half, bool first,
                                         float &peak, float &sum, float (&run)[L::SUMS][4]) {
  float2 &before = pages.before(half);
  if (first) {
    before = make_float2(LEAST, 0.0f);
  }
  const float2 by = nn_merge(before.x, before.y, peak, sum);
  float *const to = p.before + pages.out_at(half);
  const int column_0 = pages.column();
#pragma unroll
  for (int n = 0; n < L::SUMS; n++) {
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int column = pages.column(column_0, n) + e;
      if (column < p.dim) {
        to[column] = nn_merged(first ? 0.0f : to[column], run[n][2 * half + e], by);
      }
      run[n][2 * half + e] = 0.0f;
    }
  }
  peak = LEAST;
  sum = 0.0f;
}

// sass: prompt_mma_kernel on sm_90a: at least 192 HMMA in loops
/*
 * The same on tensor cores. While a row has no more pages than runs, each page is a run, and its merge into the runs
 * before is the merge into nothing and then that one: there is one sum. Of a longer row the runs before are one sum,
 * too, which waits in memory for the end of each run.
 */
// spills: prompt_mma_kernel: heads of 128 elements take nearly all registers: with bf16, 11 to 15 numbers wait in
// memory once a page while its powers are split in three, with f16 and e4m3 one; the code for sm_75 runs nowhere
template <class L> __global__ void __launch_bounds__(L::THREADS, 2) prompt_mma_kernel(paged_attention p) {
  NN_SHARED_BYTES(shared);
  p.sequences.check();
  paged_rows rows;
  int32_t kv_head;
  if (!rows_of_block(p, L::ROWS, rows, kv_head)) {
    return;
  }
  begin_block<L>(p, rows, kv_head, plain_query{p}, shared);
  const int end = (int)nn_ceil_div(rows.sees(rows.count - 1), NN_PAGE_TOKENS);
  if (bad_pages<L>(p, shared, 0, end)) {
    return;
  }
  paged_loader<L> loader(p, shared, 0, end);
  paged_pages<L> pages(p, shared, loader);
  float run[L::SUMS][4] = {}, peak[2] = {LEAST, LEAST}, sum[2] = {};
  for (int i = 0; i < end; i++) {
    pages.begin(i);
    float2 factor[2] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
      if (pages.seen[half] > 0) {
        const int length = pages.run_length(half);
        if (length > 1 && i >= length && i % length == 0) {
          fold_run<L>(p, pages, half, i == length, peak[half], sum[half], run);
        }
        factor[half] = nn_merge(peak[half], sum[half], pages.peak[half], pages.sum[half]);
      }
    }
    pages.finish(i, factor, run);
  }
  nn_copy_async_wait<0>();
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (pages.sees[half] > 0) {
      const int64_t at = pages.out_at(half);
      const bool longer = pages.run_length(half) > 1;
      float2 &before = pages.before(half);
      const float2 by = longer ? nn_merge(before.x, before.y, peak[half], sum[half]) : make_float2(0.0f, 0.0f);
      const int column_0 = pages.column();
      const float total = longer ? before.y : sum[half];
#pragma unroll
      for (int n = 0; n < L::SUMS; n++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int column = pages.column(column_0, n) + e;
          if (column < p.dim) {
            const float x = run[n][2 * half + e];
            nn_put_element(p.out, at + column, (longer ? nn_merged(p.before[at + column], x, by) : x) / total, p.dtype);
          }
        }
      }
    }
  }
}

/* Blocks of ROWS rows of a key head, and tokens of each. */
template <int ROWS> static dim3 prompt_grid(paged_attention &p) {
  p.each = p.group < ROWS ? ROWS / p.group : 1;
  const nn_paged &s = p.sequences;
  const int64_t tiles = s.tokens / p.each + (s.batch < s.tokens ? s.batch : s.tokens);
  return dim3((unsigned)tiles, (unsigned)(p.kv_heads * nn_ceil_div(p.group, ROWS)));
}

template <class F, int D> static int32_t prompt(nncuda_ctx *ctx, paged_attention &p) {
  if constexpr (paged_operand<F>::PARTS > 0 && D <= NN_PAGED_MMA_DIM) {
    if (nn_paged_uses_mma(nn_gpu_arch(ctx), p.format, p.dim, p.variant)) {
      using L = paged_mma_layout<F, D, paged_prompt_tile<paged_operand<F>::PARTS>>;
      const dim3 grid = prompt_grid<L::ROWS>(p);
      return nn_launch(ctx, prompt_mma_kernel<L>, grid, dim3(L::THREADS), L::bytes, p);
    }
  }
  constexpr int ROWS = PREFILL_ROWS<D>;
  const dim3 grid = prompt_grid<ROWS>(p);
  return nn_launch(ctx, p.variant ? prompt_kernel<F, D, ROWS, true> : prompt_kernel<F, D, ROWS, false>, grid,
                   dim3(THREADS), paged_layout<D, ROWS>::bytes, p);
}

NN_KERNEL(flash_attention_paged) {
  paged_attention p = paged_attention_of(ctx, a, a->offsets);
  float *const before = nn_flash_paged_lay_out(a, nn_workspace_of(ctx));
  p.before = a->dtype == NNCUDA_F32 ? static_cast<float *>(a->out) : before;
  PAGED_SWITCH(p, a->format, return (prompt<F, D>(ctx, p)));
  return NNCUDA_ERROR_INTERNAL;
}
