#include "kernels/embedding_workspace.h"
#include "kernels/number.cuh"
#include "kernels/reduce.cuh"

constexpr int THREADS = 256, UNROLL = 4, BLOCKS_PER_SM = 8; /* by count */

/* ---- embedding: rows are moved in units of 16 bytes, or, where they cannot be, of an element ---- */

/* INDEX is 32 bits wide where the units can be counted so: divisions by 64 bits are slow. */
template <class UNIT, class INDEX>
__global__ void __launch_bounds__(THREADS)
    embedding_kernel(const UNIT *table, const int32_t *ids, UNIT *y, INDEX work, INDEX units, nn_range rows) {
  for (INDEX begin = (INDEX)blockIdx.x * (THREADS * UNROLL); begin < work;
       begin += (INDEX)gridDim.x * THREADS * UNROLL) {
    UNIT some[UNROLL];
    bool right[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const INDEX i = begin + u * THREADS + threadIdx.x, token = i / units;
      right[u] = i < work && rows.holds(token, ids[token]);
      if (right[u]) {
        some[u] = table[(int64_t)ids[token] * (int64_t)units + (int64_t)(i % units)];
      }
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      if (right[u]) {
        y[begin + u * THREADS + threadIdx.x] = some[u];
      }
    }
  }
}

template <class UNIT> static int32_t embedding_launch(nncuda_ctx *ctx, const nn_embedding_args *a, int64_t row_bytes) {
  const int64_t units = row_bytes / (int64_t)sizeof(UNIT), work = a->tokens * units;
  const unsigned blocks = nn_blocks(ctx, work, THREADS * UNROLL, BLOCKS_PER_SM);
  const nn_range rows = nn_range_of(ctx, "ids", 0, a->vocab - 1);
  const auto *table = static_cast<const UNIT *>(a->table);
  auto *y = static_cast<UNIT *>(a->y);
  if (work + (int64_t)blocks * THREADS * UNROLL <= UINT32_MAX) { /* the last step must not wrap */
    return nn_launch(ctx, embedding_kernel<UNIT, uint32_t>, dim3(blocks), dim3(THREADS), 0, table, a->ids, y,
                     (uint32_t)work, (uint32_t)units, rows);
  }
  return nn_launch(ctx, embedding_kernel<UNIT, uint64_t>, dim3(blocks), dim3(THREADS), 0, table, a->ids, y,
                   (uint64_t)work, (uint64_t)units, rows);
}

NN_KERNEL(embedding) {
  const int64_t element = a->dtype == NNCUDA_F32 ? 4 : 2, row_bytes = a->dim * element;
  if (row_bytes % 16 == 0 && nn_aligned_16(a->table, a->y)) {
    return embedding_launch<uint4>(ctx, a, row_bytes);
  }
  return element == 4 ? embedding_launch<uint32_t>(ctx, a, row_bytes) : embedding_launch<uint16_t>(ctx, a, row_bytes);
}

/* ---- scatter_add ---- */

/*
 * The tokens are sorted by id, those of one id in their order; then each id's rows are added up by the warps of its
 * first token. The sort goes by digits from the lowest (Knuth, volume 3, 5.2.5): 2 rounds of 9 bits up to 262 143 ids.
 * A round counts each chunk's digits, and then a block a chunk moves its tokens after those of the chunks before it. A
 * bad id is sorted after all others, and left out.
 */
constexpr int DIGIT_BITS = NN_SORT_DIGIT_BITS, DIGITS = NN_SORT_DIGITS, SORT_WARPS = DIGITS / NN_WARP;

struct tokens_by_id {
  const int32_t *ids;
  uint32_t *keys[2], *order[2];         /* ids and token numbers, before and after a round */
  uint32_t *counts;                     /* [chunks, DIGITS] */
  uint32_t tokens, chunk, chunks, none; /* none: the key of a bad id */
};

/* The key of place i; in the first round places are tokens. */
template <bool FIRST> __device__ __forceinline__ uint32_t key_at(const tokens_by_id &a, uint32_t i) {
  if constexpr (FIRST) {
    const uint32_t id = (uint32_t)a.ids[i]; /* a negative one is large */
    return id < a.none ? id : a.none;
  } else {
    return a.keys[0][i];
  }
}

template <bool FIRST> __global__ void __launch_bounds__(DIGITS) count_kernel(tokens_by_id a, int shift, nn_range rows) {
  __shared__ uint32_t counts[DIGITS];
  counts[threadIdx.x] = 0;
  __syncthreads();
  const uint32_t begin = blockIdx.x * a.chunk, end = a.tokens - begin < a.chunk ? a.tokens : begin + a.chunk;
  for (uint32_t i = begin + threadIdx.x; i < end; i += DIGITS) {
    if constexpr (FIRST) {
      rows.holds(i, a.ids[i]);
    }
    atomicAdd(&counts[key_at<FIRST>(a, i) >> shift & (DIGITS - 1)], 1u);
  }
  __syncthreads();
  a.counts[blockIdx.x * DIGITS + threadIdx.x] = counts[threadIdx.x];
}

/* The sum over the threads before this one, of a block of DIGITS. */
__device__ __forceinline__ uint32_t sum_before(uint32_t x, uint32_t *shared) {
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  uint32_t sum = nn_warp_scan(x);
  if (lane == NN_WARP - 1) {
    shared[warp] = sum;
  }
  __syncthreads();
  for (int i = 0; i < warp; i++) {
    sum += shared[i];
  }
  return sum - x;
}

template <bool FIRST> __global__ void __launch_bounds__(DIGITS) sort_kernel(tokens_by_id a, int shift) {
  __shared__ uint32_t place[SORT_WARPS][DIGITS]; /* counts of a tile's warps, then where their tokens go */
  __shared__ uint32_t shared[SORT_WARPS];
  const int digit_of_thread = threadIdx.x, lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  uint32_t before = 0, total = 0;
  for (uint32_t c = 0; c < a.chunks; c++) {
    const uint32_t count = a.counts[c * DIGITS + digit_of_thread];
    before += c < blockIdx.x ? count : 0;
    total += count;
  }
  uint32_t next = sum_before(total, shared) + before; /* where this thread's digit continues */
  const uint32_t begin = blockIdx.x * a.chunk, end = a.tokens - begin < a.chunk ? a.tokens : begin + a.chunk;
  for (uint32_t tile = begin; tile < end; tile += DIGITS) {
    const uint32_t i = tile + threadIdx.x;
    const bool there = i < end;
    const uint32_t key = there ? key_at<FIRST>(a, i) : 0, token = FIRST || !there ? i : a.order[0][i];
    const uint32_t digit = there ? key >> shift & (DIGITS - 1) : DIGITS; /* DIGITS: none */
    const unsigned alike = __match_any_sync(NN_ALL_LANES, digit);
    const uint32_t rank = (uint32_t)__popc(alike & ((1u << lane) - 1));
#pragma unroll
    for (int w = 0; w < SORT_WARPS; w++) {
      place[w][digit_of_thread] = 0;
    }
    __syncthreads();
    if (there && rank == 0) {
      place[warp][digit] = (uint32_t)__popc(alike);
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < SORT_WARPS; w++) {
      const uint32_t count = place[w][digit_of_thread];
      place[w][digit_of_thread] = next;
      next += count;
    }
    __syncthreads();
    if (there) {
      const uint32_t to = place[warp][digit] + rank;
      a.keys[1][to] = key;
      a.order[1][to] = token;
    }
    __syncthreads();
  }
}

/* A warp's share of an id: 4 columns a lane. Rows of x under way at once; by count. */
constexpr int SUM_THREADS = 128, COLUMNS = 4, SUM_UNROLL = 8;

template <class T, bool WIDE>
__global__ void __launch_bounds__(SUM_THREADS)
    scatter_kernel(const T *x, const uint32_t *keys, const uint32_t *order, float *table, uint32_t tokens, int64_t dim,
                   int64_t slices, uint32_t none) {
  constexpr int WARPS = SUM_THREADS / NN_WARP;
  const int lane = threadIdx.x % NN_WARP;
  for (int64_t work = (int64_t)blockIdx.x * WARPS + threadIdx.x / NN_WARP; work < tokens * slices;
       work += (int64_t)gridDim.x * WARPS) {
    const uint32_t first = (uint32_t)(work / slices), key = keys[first];
    const int64_t column = (work % slices * NN_WARP + lane) * COLUMNS;
    if (key == none || (first > 0 && keys[first - 1] == key)) {
      continue;
    }
    float *row = table + (int64_t)key * dim;
    float sum[COLUMNS];
    nn_load_at<WIDE>(sum, row, column, dim);
    for (int64_t begin = first;; begin += NN_WARP) {
      const bool mine = begin + lane < tokens && keys[begin + lane] == key;
      const uint32_t token = mine ? order[begin + lane] : 0;
      const unsigned run = __ballot_sync(NN_ALL_LANES, mine);
      const int length = __popc(run); /* sorted: the run has no gaps */
      for (int j = 0; j < length; j += SUM_UNROLL) {
        float some[SUM_UNROLL][COLUMNS];
#pragma unroll
        for (int u = 0; u < SUM_UNROLL; u++) {
          const int64_t from = __shfl_sync(NN_ALL_LANES, token, (j + u) % NN_WARP);
          if (j + u < length) {
            nn_load_at<WIDE>(some[u], x + from * dim, column, dim);
          }
        }
#pragma unroll
        for (int u = 0; u < SUM_UNROLL; u++) {
#pragma unroll
          for (int e = 0; e < COLUMNS; e++) {
            sum[e] = j + u < length ? sum[e] + some[u][e] : sum[e];
          }
        }
      }
      if (length < NN_WARP) {
        break;
      }
    }
    nn_store_at<WIDE>(row, sum, column, dim);
  }
}

template <class T>
static int32_t scatter_launch(nncuda_ctx *ctx, const nn_scatter_add_args *a, const tokens_by_id &sorted) {
  const bool wide = a->dim % COLUMNS == 0 && nn_aligned_16(a->table) &&
                    reinterpret_cast<uintptr_t>(a->x) % (COLUMNS * sizeof(T)) == 0;
  const int64_t slices = nn_ceil_div(a->dim, COLUMNS * NN_WARP);
  const int64_t blocks = nn_ceil_div(a->tokens * slices, SUM_THREADS / NN_WARP);
  return nn_launch(ctx, wide ? scatter_kernel<T, true> : scatter_kernel<T, false>,
                   dim3((unsigned)(blocks < INT32_MAX ? blocks : INT32_MAX)), dim3(SUM_THREADS), 0,
                   static_cast<const T *>(a->x), static_cast<const uint32_t *>(sorted.keys[0]),
                   static_cast<const uint32_t *>(sorted.order[0]), a->table, sorted.tokens, a->dim, slices,
                   sorted.none);
}

NN_KERNEL(scatter_add) {
  if (a->tokens > INT32_MAX) {
    return nn_fail(ctx, NNCUDA_ERROR_UNSUPPORTED, "tokens is %lld; on a GPU it must be at most %d",
                   (long long)a->tokens, INT32_MAX);
  }
  const nn_sort_space space = nn_scatter_lay_out(a, nn_workspace_of(ctx));
  const int64_t most_ids = (int64_t)INT32_MAX + 1;
  tokens_by_id t = {a->ids,
                    {space.keys[0], space.keys[1]},
                    {space.order[0], space.order[1]},
                    space.counts,
                    (uint32_t)a->tokens,
                    (uint32_t)space.chunk,
                    (uint32_t)space.chunks,
                    (uint32_t)(a->vocab < most_ids ? a->vocab : most_ids)};
  const nn_range rows = nn_range_of(ctx, "ids", 0, a->vocab - 1);
  for (int shift = 0; shift == 0 || (shift < 32 && t.none >> shift != 0); shift += DIGIT_BITS) {
    const dim3 grid((unsigned)space.chunks), block(DIGITS);
    int32_t status =
        nn_launch(ctx, shift == 0 ? count_kernel<true> : count_kernel<false>, grid, block, 0, t, shift, rows);
    if (status == NNCUDA_SUCCESS) {
      status = nn_launch(ctx, shift == 0 ? sort_kernel<true> : sort_kernel<false>, grid, block, 0, t, shift);
    }
    if (status != NNCUDA_SUCCESS) {
      return status;
    }
    uint32_t *const keys = t.keys[0], *const order = t.order[0];
    t.keys[0] = t.keys[1], t.order[0] = t.order[1];
    t.keys[1] = keys, t.order[1] = order;
  }
  NN_SWITCH_FLOATS(a->dtype, return scatter_launch<T>(ctx, a, t));
}
