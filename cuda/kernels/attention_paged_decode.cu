/* Decoding over paged caches: a block has a run of a sequence's pages, and a second kernel merges the runs of a row. */
#include "kernels/attention_paged_mma.cuh"

/* The runs of a sequence's pages. */
struct paged_runs {
  int64_t pages, length, count;

  __device__ __forceinline__ explicit paged_runs(const nn_paged_sequence &s)
      : pages(nn_ceil_div(s.length, NN_PAGE_TOKENS)), length(nn_run_length(pages)), count(nn_ceil_div(pages, length)) {}
};

/* A sum that no run has: one of its page numbers is out of range. */
constexpr float BAD_RUN = -1.0f;

/* The rows of a block: at most `most` heads of a group, at the end of their sequence; false where there are none, or no
 * run for the block. */
__device__ __forceinline__ bool heads_of_block(const paged_attention &p, int32_t most, paged_rows &rows,
                                               int32_t &kv_head) {
  kv_head = (int32_t)blockIdx.y % p.kv_heads;
  const int32_t member = (int32_t)blockIdx.y / p.kv_heads * most;
  if (!p.sequences.at(blockIdx.x, rows.sequence)) {
    return false;
  }
  rows.token = rows.sequence.first;
  rows.head = kv_head * p.group + member;
  rows.group = rows.count = p.group - member < most ? p.group - member : most;
  rows.seen = rows.sequence.length;
  return blockIdx.z < paged_runs(rows.sequence).count;
}

/* Where run n of row r is left: its output, maximum and sum. */
__device__ __forceinline__ float *partial_of(const paged_attention &p, const paged_rows &rows, int r, int64_t n) {
  return p.partial + ((rows.sequence.index * p.heads + rows.head + r) * p.most_runs + n) * (p.dim + 2);
}

/* A block has some heads of a group, and every gridDim.z-th run of their sequence. */
// sass: run_kernel<nn_bf16, 64> on sm_90a: at least 4 LDG.128 under way, at most 200 registers
// sass: run_kernel<nn_bf16, 128> on sm_90a: at least 4 LDG.128 under way, at most 208 registers
// sass: run_kernel<nn_q8_0, 128> on sm_90a: at least 16 LDG under way, at most 200 registers
template <class F, int D, int ROWS> __global__ void __launch_bounds__(THREADS, 1) run_kernel(paged_attention p) {
  using L = paged_layout<D, ROWS>;
  NN_SHARED_BYTES(shared);
  const paged_space<D, ROWS> space(shared);
  p.sequences.check();
  paged_rows rows;
  int32_t kv_head;
  if (!heads_of_block(p, ROWS, rows, kv_head)) {
    return;
  }
  const nn_paged_sequence &s = rows.sequence;
  const paged_runs runs(s);
  load_queries(p, rows, space);
  const int column = threadIdx.x % L::ACROSS * 8, line = threadIdx.x / L::ACROSS;
  for (int64_t n = blockIdx.z; n < runs.count; n += gridDim.z) {
    const int64_t first = n * runs.length, end = first + runs.length;
    nn_page_numbers numbers(p.sequences, s.index, first, end < runs.pages ? end : runs.pages);
    float run[L::EACH][8] = {}, peak[L::EACH], sum[L::EACH] = {}; /* each thread keeps its rows' by itself */
#pragma unroll
    for (int j = 0; j < L::EACH; j++) {
      peak[j] = LEAST;
    }
    int64_t page;
    for (int64_t i = first; numbers.next(page); i++) {
      const int64_t at = page * p.page_bytes + kv_head * NN_PAGE_TOKENS * p.row_bytes;
      float part[L::EACH][8];
      __syncthreads();
      page_part<F, D, ROWS>(p, rows, space, p.k + at, p.v + at, i * NN_PAGE_TOKENS, part);
#pragma unroll
      for (int j = 0; j < L::EACH; j++) {
        const int r = line + j * L::LINES;
        if (r < rows.count) {
          const float2 by = nn_merge(peak[j], sum[j], space.part_peak[r], space.part_sum[r]);
#pragma unroll
          for (int e = 0; e < 8; e++) {
            run[j][e] = nn_merged(run[j][e], part[j][e], by);
          }
        }
      }
    }
#pragma unroll
    for (int j = 0; j < L::EACH; j++) {
      const int r = line + j * L::LINES;
      if (r < rows.count) {
        float *const to = partial_of(p, rows, r, n);
#pragma unroll
        for (int e = 0; e < 8; e++) {
          if (column + e < p.dim) {
            to[column + e] = run[j][e];
          }
        }
        if (column == 0) {
          to[p.dim] = peak[j];
          to[p.dim + 1] = numbers.bad ? BAD_RUN : sum[j];
        }
      }
    }
  }
}

/* The same on tensor cores. */
// sass: run_mma_kernel on sm_90a: at least 64 HMMA in loops, no LDL, no CALL in loops
template <class L> __global__ void __launch_bounds__(L::THREADS, 2) run_mma_kernel(paged_attention p) {
  NN_SHARED_BYTES(shared);
  p.sequences.check();
  paged_rows rows;
  int32_t kv_head;
  if (!heads_of_block(p, L::ROWS, rows, kv_head)) {
    return;
  }
  const paged_runs runs(rows.sequence);
  begin_block<L>(p, rows, kv_head, shared);
  for (int64_t n = blockIdx.z; n < runs.count; n += gridDim.z) {
    const int first = (int)(n * runs.length), pages_left = (int)(runs.pages - first);
    const int end = first + (pages_left < runs.length ? pages_left : (int)runs.length);
    if (bad_pages<L>(p, shared, first, end)) {
      for (int r = threadIdx.x; r < rows.count; r += L::THREADS) {
        partial_of(p, rows, r, n)[p.dim + 1] = BAD_RUN;
      }
      continue;
    }
    paged_loader<L> loader(p, shared, first, end);
    paged_pages<L> pages(p, shared, loader);
    float run[L::SUMS][4] = {}, peak[2] = {LEAST, LEAST}, sum[2] = {};
    for (int i = first; i < end; i++) {
      pages.begin(i);
      float2 factor[2] = {};
#pragma unroll
      for (int half = 0; half < 2; half++) {
        if (pages.seen[half] > 0) {
          factor[half] = nn_merge(peak[half], sum[half], pages.peak[half], pages.sum[half]);
        }
      }
      pages.finish(i, factor, run);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      if (pages.sees[half] > 0) {
        float *const to = partial_of(p, pages.block.rows, pages.row(half), n);
        const int column_0 = pages.column();
#pragma unroll
        for (int eight = 0; eight < L::SUMS; eight++) {
#pragma unroll
          for (int e = 0; e < 2; e++) {
            const int column = pages.column(column_0, eight) + e;
            if (column < p.dim) {
              to[column] = run[eight][2 * half + e];
            }
          }
        }
        if (pages.across == 0 && pages.pair == 0) {
          to[p.dim] = peak[half];
          to[p.dim + 1] = sum[half];
        }
      }
    }
    nn_copy_async_wait<0>();
    __syncthreads(); /* the ring is free */
  }
}

/* The merge of a row's runs. */
constexpr int MERGE_THREADS = 128;
static_assert(NN_DECODE_RUNS == 2 * NN_WARP, "two runs a lane");

/*
 * A block has one row, a thread the same columns of each run. The maximum after each run is a running maximum, exact in
 * whatever order it is taken, so what each merge multiplies by is computed for all runs at once; what remains in their
 * order is two multiplications and an addition a run.
 */
// sass: merge_kernel on sm_90a: at least 8 LDG under way
__global__ void __launch_bounds__(MERGE_THREADS) merge_kernel(paged_attention p) {
  nn_paged_sequence s;
  const int64_t row = blockIdx.x;
  if (!p.sequences.at(row / p.heads, s)) {
    return;
  }
  const int runs = (int)paged_runs(s).count;
  __shared__ float before[NN_DECODE_RUNS], own[NN_DECODE_RUNS], sums[NN_DECODE_RUNS];
  __shared__ bool bad;
  const float *const partial = p.partial + row * p.most_runs * (p.dim + 2);
  if (threadIdx.x < NN_WARP) {
    const int lane = threadIdx.x;
    float carried = LEAST;
    bool some = false;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int i = lane + half * NN_WARP;
      const float *const part = partial + i * (p.dim + 2) + p.dim;
      const float peak = i < runs ? part[0] : LEAST, sum = i < runs ? part[1] : 0.0f;
      float top = nn_larger::of(peak, carried);
#pragma unroll
      for (int step = 1; step < NN_WARP; step *= 2) {
        const float other = __shfl_up_sync(NN_ALL_LANES, top, step);
        top = lane >= step ? nn_larger::of(top, other) : top;
      }
      const float left = __shfl_up_sync(NN_ALL_LANES, top, 1), old = lane == 0 ? carried : left;
      carried = __shfl_sync(NN_ALL_LANES, top, NN_WARP - 1);
      before[i] = nn_exp2_approx(old - top);
      own[i] = nn_exp2_approx(peak - top);
      sums[i] = __fmul_rn(sum, own[i]);
      some |= __ballot_sync(NN_ALL_LANES, sum < 0.0f) != 0;
    }
    if (lane == 0) {
      bad = some;
    }
  }
  __syncthreads();
  if (bad) {
    return;
  }
  for (int d = threadIdx.x; d < p.dim; d += MERGE_THREADS) {
    float sum = 0.0f, out = 0.0f;
    constexpr int AHEAD = 16;
    for (int first = 0; first < runs; first += AHEAD) {
      float part[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; i++) {
        const int n = first + i < runs ? first + i : runs - 1; /* so that no load waits for a condition */
        part[i] = partial[n * (p.dim + 2) + d];
      }
#pragma unroll
      for (int i = 0; i < AHEAD; i++) {
        if (first + i < runs) {
          sum = fmaf(sum, before[first + i], sums[first + i]);
          out = nn_merged(out, part[i], make_float2(before[first + i], own[first + i]));
        }
      }
    }
    nn_put_element(p.out, row * p.dim + d, out / (runs == 0 ? 1.0f : sum), p.dtype);
  }
}

/* Blocks of ROWS heads of a key head, and of runs. */
template <int ROWS> static dim3 decode_grid(nncuda_ctx *ctx, const paged_attention &p) {
  const int64_t across = p.kv_heads * nn_ceil_div(p.group, ROWS), batch = p.sequences.batch;
  return dim3((unsigned)batch, (unsigned)across, nn_run_blocks(ctx, p.most_runs, batch * across));
}

template <class F, int D> static int32_t decode(nncuda_ctx *ctx, paged_attention &p) {
  if constexpr (paged_operand<F>::PARTS > 0 && D <= NN_PAGED_MMA_DIM) {
    if (nn_paged_uses_mma(nn_gpu_arch(ctx), p.format, p.dim)) {
      using L = paged_mma_layout<F, D, paged_decode_tile>;
      return nn_launch(ctx, run_mma_kernel<L>, decode_grid<L::ROWS>(ctx, p), dim3(L::THREADS), L::bytes, p);
    }
  }
  return nn_launch(ctx, run_kernel<F, D, DECODE_ROWS>, decode_grid<DECODE_ROWS>(ctx, p), dim3(THREADS),
                   paged_layout<D, DECODE_ROWS>::bytes, p);
}

NN_KERNEL_OF(attention_decode_paged, nn_flash_attention_paged_args) {
  paged_attention p = paged_attention_of(ctx, a, nullptr);
  p.partial = nn_decode_paged_lay_out(a, nn_workspace_of(ctx));
  p.most_runs = nn_most_runs(a->max_pages);
  int32_t status = NNCUDA_ERROR_INTERNAL;
  PAGED_SWITCH(p, a->format, status = (decode<F, D>(ctx, p)));
  return status != NNCUDA_SUCCESS
             ? status
             : nn_launch(ctx, merge_kernel, dim3((unsigned)(a->batch * a->heads)), dim3(MERGE_THREADS), 0, p);
}
