#include "abi/generated/kvcache.h"

#include "kernels/number.cuh"

/*
 * Copies of rows, 16 bytes at a time where pointers and rows allow it, else element by element. Bound by memory.
 *
 * By count: an append has APPEND_THREADS * BLOCKS_PER_SM * 2 * 16 bytes under way on each multiprocessor; a trim, whose
 * blocks are few, TRIM_THREADS * TRIM_UNROLL * 16 bytes in each.
 */
constexpr int APPEND_THREADS = 256, BLOCKS_PER_SM = 8, TRIM_THREADS = 512, TRIM_UNROLL = 8;

/* Units of 16 bytes, or of one element, that a block of a trim takes of each row: 128 bytes are what memory moves. */
constexpr int TRIM_ACROSS = 8;

struct append_rows {
  const void *k, *v;
  const int32_t *starts;
  void *k_cache, *v_cache;
  int64_t rows, len, capacity, across, ld; /* rows of all sequences; units in a row, between rows of k and v */
  nn_range range;
};

template <class UNIT> __global__ void __launch_bounds__(APPEND_THREADS) append_kernel(append_rows p) {
  const UNIT *k = static_cast<const UNIT *>(p.k), *v = static_cast<const UNIT *>(p.v);
  UNIT *k_cache = static_cast<UNIT *>(p.k_cache), *v_cache = static_cast<UNIT *>(p.v_cache);
  const int64_t units = p.rows * p.across, step = (int64_t)gridDim.x * APPEND_THREADS;
  for (int64_t i = (int64_t)blockIdx.x * APPEND_THREADS + threadIdx.x; i < units; i += step) {
    const int64_t row = i / p.across, column = i % p.across, sequence = row / p.len;
    const int64_t start = p.starts[sequence];
    if (p.range.holds(sequence, start)) {
      const int64_t from = row * p.ld + column;
      const int64_t to = (sequence * p.capacity + start + row % p.len) * p.across + column;
      const UNIT key = k[from], value = v[from];
      k_cache[to] = key;
      v_cache[to] = value;
    }
  }
}

template <class UNIT> static int32_t append_launch(nncuda_ctx *ctx, const append_rows &p) {
  const unsigned blocks = nn_blocks(ctx, p.rows * p.across, APPEND_THREADS, BLOCKS_PER_SM);
  return nn_launch(ctx, append_kernel<UNIT>, dim3(blocks), dim3(APPEND_THREADS), 0, p);
}

NN_KERNEL(kv_append) {
  const int64_t dim = a->kv_heads * a->head_dim;
  append_rows p = {a->k,
                   a->v,
                   a->starts,
                   a->k_cache,
                   a->v_cache,
                   a->batch * a->len,
                   a->len,
                   a->capacity,
                   dim,
                   a->ld_kv,
                   nn_range_of(ctx, "starts", 0, a->capacity - a->len).noted("capacity - len")};
  if (nn_aligned_16(a->k, a->v, a->k_cache, a->v_cache) && nn_rows_16(dim, a->ld_kv, a->dtype)) {
    const int64_t each = a->dtype == NNCUDA_F32 ? 4 : 8;
    p.across /= each;
    p.ld /= each;
    return append_launch<uint4>(ctx, p);
  }
  return a->dtype == NNCUDA_F32 ? append_launch<uint32_t>(ctx, p) : append_launch<uint16_t>(ctx, p);
}

struct trim_rows {
  void *k_cache, *v_cache;
  const int32_t *lengths;
  int64_t capacity, keep, across, slices; /* units in a row; blocks that share a row */
  nn_range range;
};

/*
 * A block moves TRIM_ACROSS columns of one sequence's keys or values: no other block touches what it reads or writes,
 * however the rows overlap. It takes rows in rising order, in steps: loads, a barrier, stores. What a step stores lies
 * before all that later steps load, since rows only move forwards, and the barrier keeps it after what this and
 * earlier steps load.
 */
template <class UNIT> __global__ void __launch_bounds__(TRIM_THREADS) trim_kernel(trim_rows p) {
  const int64_t slice = blockIdx.x % p.slices, side = blockIdx.x / p.slices % 2, sequence = blockIdx.x / p.slices / 2;
  const int64_t length = p.lengths[sequence];
  if (!p.range.holds(sequence, length) || length <= p.keep) {
    return;
  }
  UNIT *cache = static_cast<UNIT *>(side ? p.v_cache : p.k_cache) + sequence * p.capacity * p.across;
  const int64_t column = slice * TRIM_ACROSS + threadIdx.x % TRIM_ACROSS, shift = (length - p.keep) * p.across;
  constexpr int ROWS = TRIM_THREADS / TRIM_ACROSS; /* at once; TRIM_UNROLL times as many a step */
  for (int64_t first = 0; first < p.keep; first += ROWS * TRIM_UNROLL) {
    const int64_t row = first + threadIdx.x / TRIM_ACROSS;
    UNIT moved[TRIM_UNROLL];
#pragma unroll
    for (int j = 0; j < TRIM_UNROLL; j++) {
      if (row + j * ROWS < p.keep && column < p.across) {
        moved[j] = cache[(row + j * ROWS) * p.across + column + shift];
      }
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < TRIM_UNROLL; j++) {
      if (row + j * ROWS < p.keep && column < p.across) {
        cache[(row + j * ROWS) * p.across + column] = moved[j];
      }
    }
  }
}

/* After all blocks of trim_kernel have read them. */
__global__ void __launch_bounds__(APPEND_THREADS)
    trim_lengths_kernel(int32_t *lengths, int64_t batch, int64_t keep, int64_t capacity) {
  const int64_t i = (int64_t)blockIdx.x * APPEND_THREADS + threadIdx.x;
  if (i < batch && lengths[i] > keep && lengths[i] <= capacity) {
    lengths[i] = (int32_t)keep;
  }
}

template <class UNIT> static int32_t trim_launch(nncuda_ctx *ctx, trim_rows p, int64_t batch) {
  p.slices = nn_ceil_div(p.across, TRIM_ACROSS);
  return nn_launch(ctx, trim_kernel<UNIT>, dim3((unsigned)(batch * 2 * p.slices)), dim3(TRIM_THREADS), 0, p);
}

NN_KERNEL(kv_trim) {
  const int64_t dim = a->kv_heads * a->head_dim;
  trim_rows p = {a->k_cache, a->v_cache, a->lengths, a->capacity,
                 a->keep,    dim,        1,          nn_range_of(ctx, "lengths", 0, a->capacity).noted("the capacity")};
  int32_t status;
  if (nn_aligned_16(a->k_cache, a->v_cache) && nn_rows_16(dim, dim, a->dtype)) {
    p.across /= a->dtype == NNCUDA_F32 ? 4 : 8;
    status = trim_launch<uint4>(ctx, p, a->batch);
  } else {
    status = a->dtype == NNCUDA_F32 ? trim_launch<uint32_t>(ctx, p, a->batch) : trim_launch<uint16_t>(ctx, p, a->batch);
  }
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  return nn_launch(ctx, trim_lengths_kernel, dim3((unsigned)nn_ceil_div(a->batch, APPEND_THREADS)),
                   dim3(APPEND_THREADS), 0, a->lengths, a->batch, a->keep, a->capacity);
}
