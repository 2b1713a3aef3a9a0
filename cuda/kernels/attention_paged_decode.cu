/*
 * Decoding over paged caches, in one launch: a block has a run of a sequence's pages, and the block of a row that ends
 * last merges its runs. In attention_step_paged blocks rotate their queries as they load them, and the block that
 * has the last page of a sequence first writes the new key and value there. Blocks that share a key head all write
 * them, the same bytes, since none waits for another.
 */
#include "kernels/attention_paged_mma.cuh"
#include "kernels/paged_append.cuh"
#include "kernels/rope_element.cuh"
#include "kernels/shared_work.cuh"

/* The runs of a sequence's pages, of those from `first` on that its last row sees. */
struct paged_runs {
  int64_t first, pages, length, count;

  __device__ __forceinline__ paged_runs(const nn_paged_sequence &s, int64_t window)
      : first(s.length > window ? (s.length - window) / NN_PAGE_TOKENS : 0),
        pages(nn_ceil_div(s.length, NN_PAGE_TOKENS)), length(nn_run_length(pages - first)),
        count(nn_ceil_div(pages - first, length)) {}
};

template <bool VARIANT>
__device__ __forceinline__ paged_runs runs_of(const paged_attention &p, const nn_paged_sequence &s) {
  return paged_runs(s, VARIANT ? p.window : INT32_MAX);
}

/* A sum that no run has: one of its page numbers is out of range. */
constexpr float BAD_RUN = -1.0f;

/* What goes before attention in a decoding step. */
struct decode_step {
  const void *k, *v; /* null: keys and values are in their pages, and queries are rotated */
  uint8_t *k_pages, *v_pages;
  const float *cosine, *sine;
  const int32_t *positions;
  int64_t ld_kv;
  nn_range position;
  bool halves;
  unsigned *arrivals; /* of the blocks of each row */

  __device__ __forceinline__ nn_turn turn(const paged_attention &p, int64_t sequence) const {
    const int64_t from = (int64_t)positions[sequence] * (p.dim / 2);
    return {cosine + from, sine + from, p.dim, halves};
  }
};

__device__ __forceinline__ float rounded_to(float x, int32_t dtype) {
  return dtype == NNCUDA_F32 ? x : dtype == NNCUDA_F16 ? nn_rounded<nn_f16>(x) : nn_rounded<nn_bf16>(x);
}

/* Element d of the query that begins at element `at` of q, rotated if it is not yet. */
struct step_query {
  const paged_attention &p;
  const decode_step &step;
  int64_t sequence;

  __device__ __forceinline__ float operator()(int64_t at, int d) const {
    const auto get = [&](int i) { return nn_element_of(p.q, at + i, p.dtype); };
    return step.k == nullptr ? get(d) : rounded_to(step.turn(p, sequence)(d, get), p.dtype);
  }
};

/* The rows of a block: at most `most` heads of a group, at the end of their sequence; false where there are none, or no
 * run for the block. One block has a sequence without pages. */
template <bool VARIANT>
__device__ __forceinline__ bool heads_of_block(const paged_attention &p, const decode_step &step, int32_t most,
                                               paged_rows &rows, int32_t &kv_head) {
  kv_head = (int32_t)blockIdx.y % p.kv_heads;
  const int32_t member = (int32_t)blockIdx.y / p.kv_heads * most;
  const int32_t position = step.k == nullptr ? 0 : step.positions[blockIdx.x];
  if (!p.sequences.at(blockIdx.x, rows.sequence) || (step.k != nullptr && !step.position.holds(blockIdx.x, position))) {
    return false;
  }
  rows.token = rows.sequence.first;
  rows.head = kv_head * p.group + member;
  rows.group = rows.count = p.group - member < most ? p.group - member : most;
  rows.seen = rows.sequence.length;
  return blockIdx.z == 0 || blockIdx.z < runs_of<VARIANT>(p, rows.sequence).count;
}

/* The new key and value of the block's key head into their page, if the block reads it; a warp takes each. */
template <bool VARIANT, class F>
__device__ __forceinline__ void append(const paged_attention &p, const decode_step &step, const paged_rows &rows,
                                       int32_t kv_head) {
  const nn_paged_sequence &s = rows.sequence;
  const int warp = threadIdx.x / NN_WARP;
  if (step.k == nullptr || warp >= 2 || (runs_of<VARIANT>(p, s).count - 1) % gridDim.z != blockIdx.z) {
    return;
  }
  const int64_t row = s.length - 1;
  int64_t page;
  if (!p.sequences.page_at(s.index, row / NN_PAGE_TOKENS, page)) {
    return;
  }
  const int64_t from = s.index * step.ld_kv + (int64_t)kv_head * p.dim;
  const auto key = [&](int d) { return nn_element_of(step.k, from + d, p.dtype); };
  const auto value = [&](int d) { return nn_element_of(step.v, from + d, p.dtype); };
  uint8_t *const to = (warp == 0 ? step.k_pages : step.v_pages) + page * p.page_bytes +
                      ((int64_t)kv_head * NN_PAGE_TOKENS + row % NN_PAGE_TOKENS) * p.row_bytes;
  const nn_turn turn = step.turn(p, s.index);
  nn_append_row<F>(to, p.dim, [&](int d) { return warp == 0 ? rounded_to(turn(d, key), p.dtype) : value(d); });
}

/* Where run n of row r is left: its output, maximum and sum. */
__device__ __forceinline__ float *partial_of(const paged_attention &p, const paged_rows &rows, int r, int64_t n) {
  return p.partial + ((rows.sequence.index * p.heads + rows.head + r) * p.most_runs + n) * (p.dim + 2);
}

/* ---- the merge of the runs ---- */

static_assert(NN_DECODE_RUNS == 2 * NN_WARP, "two runs a lane");

/* What merges multiply by, in shared memory: of each row, and of each run. */
struct merge_space {
  float before[NN_DECODE_RUNS], own[NN_DECODE_RUNS], sums[NN_DECODE_RUNS];
  float sink; /* what the sum of all runs is larger by */
  int bad;    /* a run has no result */
};

/* Two neighbouring numbers, or one, that other blocks wrote. */
template <int N> __device__ __forceinline__ void from_others(float (&to)[N], const float *from) {
  static_assert(N <= 2);
  if constexpr (N == 2) {
    const unsigned long long both = nn_from_others(reinterpret_cast<const unsigned long long *>(from));
    to[0] = __uint_as_float((unsigned)both);
    to[1] = __uint_as_float((unsigned)(both >> 32));
  } else {
    to[0] = nn_from_others(from);
  }
}

/* A thread has N neighbouring columns of a row at a time. */
template <bool VARIANT, int N>
__device__ __forceinline__ void merge_columns(const paged_attention &p, const paged_rows &rows, int threads,
                                              const merge_space *spaces, int runs) {
  constexpr int AHEAD = 16; /* runs whose loads are under way together. By count. */
#pragma unroll 1
  for (int i = threadIdx.x * N; i < rows.count * p.dim; i += threads * N) {
    const int r = i / p.dim, d = i % p.dim;
    const merge_space &space = spaces[r];
    if (space.bad != 0) {
      continue;
    }
    const float *const from = partial_of(p, rows, r, 0) + d;
    float sum = 0.0f, out[N] = {};
#pragma unroll 1
    for (int first = 0; first < runs; first += AHEAD) {
      float part[AHEAD][N];
#pragma unroll
      for (int j = 0; j < AHEAD; j++) {
        const int n = first + j < runs ? first + j : runs - 1; /* so that no load waits for a condition */
        from_others(part[j], from + n * (p.dim + 2));
      }
#pragma unroll
      for (int j = 0; j < AHEAD; j++) {
        if (first + j < runs) {
          const float2 by = make_float2(space.before[first + j], space.own[first + j]);
          sum = fmaf(sum, by.x, space.sums[first + j]);
#pragma unroll
          for (int e = 0; e < N; e++) {
            out[e] = nn_merged(out[e], part[j][e], by);
          }
        }
      }
    }
    const int64_t to = (rows.sequence.index * p.heads + rows.head + r) * (int64_t)p.dim + d;
#pragma unroll
    for (int e = 0; e < N; e++) {
      nn_put_element(p.out, to + e, out[e] / (runs == 0 ? 1.0f : VARIANT ? sum + space.sink : sum), p.dtype);
    }
  }
}

/*
 * The last block of some rows merges their runs; `shared` is free, with room for a merge_space a row. The maximum after
 * each run is a running maximum, exact in whatever order it is taken, so what each merge multiplies by is computed for
 * all runs at once, by a warp a row. What remains in their order is two multiplications and an addition a run, of which
 * a thread does those of a column.
 */
template <bool VARIANT>
__device__ __forceinline__ void merge(const paged_attention &p, const decode_step &step, const paged_rows &rows,
                                      int threads, unsigned char *shared) {
  const int runs = (int)runs_of<VARIANT>(p, rows.sequence).count;
  const int blocks = runs < (int)gridDim.z ? runs : (int)gridDim.z;
  if (!nn_is_last_block(step.arrivals + (blockIdx.x * gridDim.y + blockIdx.y), blocks,
                        reinterpret_cast<int *>(shared))) {
    return;
  }
  merge_space *const spaces = reinterpret_cast<merge_space *>(shared);
  const int lane = threadIdx.x % NN_WARP;
  for (int r = threadIdx.x / NN_WARP; r < rows.count; r += threads / NN_WARP) {
    merge_space &space = spaces[r];
    float carried = LEAST;
    bool bad = false;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int i = lane + half * NN_WARP;
      const float *const part = partial_of(p, rows, r, i) + p.dim;
      const float peak = i < runs ? nn_from_others(part) : LEAST, sum = i < runs ? nn_from_others(part + 1) : 0.0f;
      float top = nn_larger::of(peak, carried);
#pragma unroll
      for (int step_of = 1; step_of < NN_WARP; step_of *= 2) {
        const float other = __shfl_up_sync(NN_ALL_LANES, top, step_of);
        top = lane >= step_of ? nn_larger::of(top, other) : top;
      }
      const float left = __shfl_up_sync(NN_ALL_LANES, top, 1), old = lane == 0 ? carried : left;
      carried = __shfl_sync(NN_ALL_LANES, top, NN_WARP - 1);
      space.before[i] = nn_exp2_approx(old - top);
      space.own[i] = nn_exp2_approx(peak - top);
      space.sums[i] = __fmul_rn(sum, space.own[i]);
      bad |= __ballot_sync(NN_ALL_LANES, sum < 0.0f) != 0;
    }
    if (lane == 0) {
      space.bad = bad;
      space.sink = VARIANT ? sink_of(p, rows, r, carried) : 0.0f;
    }
  }
  __syncthreads();
  if (p.dim % 2 == 0) { /* then partial results begin at multiples of 8 bytes */
    merge_columns<VARIANT, 2>(p, rows, threads, spaces, runs);
  } else {
    merge_columns<VARIANT, 1>(p, rows, threads, spaces, runs);
  }
}

/* ---- the runs ---- */

/* A block has some heads of a group, and every gridDim.z-th run of their sequence. */
// sass: run_kernel<nn_bf16, 64> on sm_90a: at least 4 LDG.128 under way, at most 200 registers
// sass: run_kernel<nn_bf16, 128> on sm_90a: at least 4 LDG.128 under way, at most 208 registers
// sass: run_kernel<nn_q8_0, 128> on sm_90a: at least 16 LDG under way, at most 200 registers
template <class F, int D, int ROWS, bool VARIANT>
__global__ void __launch_bounds__(THREADS, 1) run_kernel(paged_attention p, decode_step step) {
  static_assert(ROWS * sizeof(merge_space) <= paged_layout<D, ROWS>::bytes, "what merges is there as well");
  using L = paged_layout<D, ROWS>;
  NN_SHARED_BYTES(shared);
  const paged_space<D, ROWS> space(shared);
  nn_let_next_start();
  nn_wait_for_kernels();
  p.sequences.check();
  paged_rows rows;
  int32_t kv_head;
  if (!heads_of_block<VARIANT>(p, step, ROWS, rows, kv_head)) {
    return;
  }
  const nn_paged_sequence &s = rows.sequence;
  const paged_runs runs = runs_of<VARIANT>(p, s);
  append<VARIANT, F>(p, step, rows, kv_head);
  load_queries(p, rows, step_query{p, step, s.index}, space);
  const int column = threadIdx.x % L::ACROSS * 8, line = threadIdx.x / L::ACROSS;
  for (int64_t n = blockIdx.z; n < runs.count; n += gridDim.z) {
    const int64_t first = runs.first + n * runs.length, end = first + runs.length;
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
      page_part<VARIANT, F, D, ROWS>(p, rows, space, p.k + at, p.v + at, i * NN_PAGE_TOKENS, part);
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
  merge<VARIANT>(p, step, rows, THREADS, shared);
}

/* The same on tensor cores. Calls are divisions: one where runs are merged, two where blocks are appended, 16 to 18
 * where a row has one run, once. */
// sass: run_mma_kernel on sm_90a: at least 64 HMMA in loops, no LDL, at most 21 CALL in loops
template <class L>
__global__ void __launch_bounds__(L::THREADS, 2) run_mma_kernel(paged_attention p, decode_step step) {
  static_assert(L::ROWS * sizeof(merge_space) <= L::bytes, "what merges is there as well");
  NN_SHARED_BYTES(shared);
  nn_let_next_start();
  nn_wait_for_kernels();
  paged_rows rows;
  int32_t kv_head;
  if (!heads_of_block<false>(p, step, L::ROWS, rows, kv_head)) {
    p.sequences.check();
    return;
  }
  const paged_runs runs = runs_of<false>(p, rows.sequence);
  append<false, typename L::F>(p, step, rows, kv_head);
  describe_block<L>(p, rows, kv_head, shared);
  bool has_queries = false;
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
    if (!has_queries) { /* while the first pages come; the first stage waits for all threads */
      split_queries<L>(p, rows, step_query{p, step, rows.sequence.index}, shared);
      has_queries = true;
    }
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
      if (pages.sees[half] > 0 && runs.count == 1) { /* merged into nothing it stays as it is */
        const int64_t to = pages.out_at(half);
        const int column_0 = pages.column();
#pragma unroll
        for (int eight = 0; eight < L::SUMS; eight++) {
#pragma unroll
          for (int e = 0; e < 2; e++) {
            const int column = pages.column(column_0, eight) + e;
            if (column < p.dim) {
              nn_put_element(p.out, to + column, (run[eight][2 * half + e] + 0.0f) / sum[half], p.dtype);
            }
          }
        }
      } else if (pages.sees[half] > 0) {
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
  p.sequences.check(); /* late: nothing waits for it */
  if (runs.count != 1) {
    merge<false>(p, step, rows, L::THREADS, shared);
  }
}

/* ---- the launch ---- */

/* Blocks of ROWS heads of a key head, and of runs. Where there are more rows than places to count at, a block has all
 * runs of its rows. */
template <int ROWS> static dim3 decode_grid(nncuda_ctx *ctx, const paged_attention &p) {
  const int64_t across = p.kv_heads * nn_ceil_div(p.group, ROWS), batch = p.sequences.batch;
  const unsigned runs = batch * across > NN_ARRIVALS ? 1 : nn_run_blocks(ctx, p.most_runs, batch * across);
  return dim3((unsigned)batch, (unsigned)across, runs);
}

template <class F, int D> static int32_t decode(nncuda_ctx *ctx, paged_attention &p, const decode_step &step) {
  if constexpr (paged_operand<F>::PARTS > 0 && D <= NN_PAGED_MMA_DIM) {
    if (nn_paged_uses_mma(nn_gpu_arch(ctx), p.format, p.dim, p.variant)) {
      using L = paged_mma_layout<F, D, paged_decode_tile>;
      return nn_launch_ahead(ctx, run_mma_kernel<L>, decode_grid<L::ROWS>(ctx, p), dim3(L::THREADS), L::bytes, p, step);
    }
  }
  return nn_launch_ahead(ctx, p.variant ? run_kernel<F, D, DECODE_ROWS, true> : run_kernel<F, D, DECODE_ROWS, false>,
                         decode_grid<DECODE_ROWS>(ctx, p), dim3(THREADS), paged_layout<D, DECODE_ROWS>::bytes, p, step);
}

static int32_t launch(nncuda_ctx *ctx, const nn_flash_attention_paged_args *a, decode_step &step) {
  paged_attention p = paged_attention_of(ctx, a, nullptr);
  p.partial = nn_decode_paged_lay_out(a->batch, a->heads, a->max_pages, a->head_dim, nn_workspace_of(ctx));
  p.most_runs = nn_most_runs(a->max_pages);
  p.sequences.least_length = step.k == nullptr ? 0 : 1;
  step.arrivals = nn_gpu_arrivals(ctx);
  int32_t status = NNCUDA_ERROR_INTERNAL; /* the entry knows no other format */
  PAGED_SWITCH(p, a->format, status = (decode<F, D>(ctx, p, step)));
  return status;
}

NN_KERNEL_OF(attention_decode_paged, nn_flash_attention_paged_args) {
  decode_step step = {};
  return launch(ctx, a, step);
}

NN_KERNEL(attention_step_paged) {
  decode_step step = {a->k,
                      a->v,
                      static_cast<uint8_t *>(a->k_pages),
                      static_cast<uint8_t *>(a->v_pages),
                      a->cosine,
                      a->sine,
                      a->positions,
                      a->ld_kv,
                      nn_range_of(ctx, "positions", 0, a->max_position - 1),
                      a->layout == NNCUDA_ROPE_HALF,
                      nullptr};
  const nn_flash_attention_paged_args attention = {
      a->q,          a->k_pages, a->v_pages,   nullptr,    a->lengths, a->page_table, a->sinks,    a->out,
      a->batch,      a->batch,   a->max_pages, a->pages,   a->heads,   a->kv_heads,   a->head_dim, a->ld_q,
      a->page_bytes, a->scale,   a->window,    a->softcap, a->format,  a->dtype};
  return launch(ctx, &attention, step);
}
