/*
 * Stored rows to numbers and back. A warp has 32 parts of 32 elements, a lane each: numbers pass through shared memory,
 * so that they come and go in order, wherever a part's lane is.
 */
#include "abi/quant.h"

#include "kernels/quant_encode.cuh"
#include "kernels/quant_search.cuh"

/* By count: 17 KiB of shared memory a block leave room for eight of them. */
constexpr int WARPS = 4, THREADS = WARPS * NN_WARP, BLOCKS_PER_SM = 8;

/* Rows of 33, so that neither rows nor columns meet one bank. */
constexpr int LD = NN_PART + 1;
using part_numbers = float[NN_WARP][LD];

struct stored_rows {
  const uint8_t *stored;
  const int32_t *ids; /* rows to take, or null for all in order */
  int64_t rows, k, row_bytes;
  nn_range range;

  __device__ __forceinline__ const uint8_t *row(int64_t i) const {
    if (ids == nullptr) {
      return stored + i * row_bytes;
    }
    const int64_t id = ids[i];
    return range.holds(i, id) ? stored + id * row_bytes : nullptr;
  }
};

/* ---- to numbers ---- */

template <int FORMAT, class T> __global__ void __launch_bounds__(THREADS) decode_kernel(stored_rows p, T *y) {
  __shared__ part_numbers all[WARPS];
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  part_numbers &numbers = all[warp];
  const int64_t across = p.k / NN_PART, parts = p.rows * across, step = (int64_t)gridDim.x * THREADS;
  for (int64_t first = (int64_t)blockIdx.x * THREADS + warp * NN_WARP; first < parts; first += step) {
    const int64_t mine = first + lane;
    const uint8_t *const row = mine < parts ? p.row(mine / across) : nullptr;
    if (row != nullptr) {
      nn_part part;
      nn_load_part<FORMAT>(part, row, mine % across);
#pragma unroll
      for (int e = 0; e < NN_PART; e++) {
        numbers[lane][e] = nn_part_number<FORMAT>(part, e);
      }
    }
    unsigned there = __ballot_sync(NN_ALL_LANES, row != nullptr);
    __syncwarp();
    for (; there != 0; there &= there - 1) {
      const int i = __ffs((int)there) - 1;
      y[(first + i) * NN_PART + lane] = nn_from_float<T>(numbers[i][lane]);
    }
    __syncwarp();
  }
}

/* ---- formats that are dtypes ---- */

template <class F, class T> __global__ void __launch_bounds__(THREADS) widen_kernel(stored_rows p, T *y) {
  const int64_t elements = p.rows * p.k, step = (int64_t)gridDim.x * THREADS;
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < elements; i += step) {
    const uint8_t *const row = p.row(i / p.k);
    if (row != nullptr) {
      y[i] = nn_from_float<T>(nn_number_at<F>(row + i % p.k * (int64_t)sizeof(F)));
    }
  }
}

template <class F, class T>
__global__ void __launch_bounds__(THREADS) narrow_kernel(const T *x, uint8_t *y, int64_t elements) {
  const int64_t step = (int64_t)gridDim.x * THREADS;
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < elements; i += step) {
    nn_put_number<F>(y + i * (int64_t)sizeof(F), nn_to_float(x[i]));
  }
}

template <class T> static int32_t decode(nncuda_ctx *ctx, const stored_rows &p, int32_t format, T *y) {
  if (nn_is_dtype(format)) {
    const auto kernel = format == NNCUDA_FORMAT_F32   ? widen_kernel<float, T>
                        : format == NNCUDA_FORMAT_F16 ? widen_kernel<nn_f16, T>
                                                      : widen_kernel<nn_bf16, T>;
    return nn_launch(ctx, kernel, dim3(nn_blocks(ctx, p.rows * p.k, THREADS, BLOCKS_PER_SM)), dim3(THREADS), 0, p, y);
  }
  const unsigned blocks = nn_blocks(ctx, p.rows * (p.k / NN_PART), THREADS, BLOCKS_PER_SM);
  NN_SWITCH_BLOCKS(format, return nn_launch(ctx, decode_kernel<FORMAT, T>, dim3(blocks), dim3(THREADS), 0, p, y));
  return NNCUDA_ERROR_INTERNAL; /* the entry knows no other format */
}

NN_KERNEL(dequantize) {
  const stored_rows p = {static_cast<const uint8_t *>(a->x), nullptr, a->rows, a->k, a->row_bytes, {}};
  NN_SWITCH_FLOATS(a->dtype, return decode(ctx, p, a->format, static_cast<T *>(a->y)));
}

NN_KERNEL(embedding_quant) {
  const stored_rows p = {static_cast<const uint8_t *>(a->table),  a->ids, a->tokens, a->dim, a->row_bytes,
                         nn_range_of(ctx, "ids", 0, a->vocab - 1)};
  NN_SWITCH_FLOATS(a->dtype, return decode(ctx, p, a->format, static_cast<T *>(a->y)));
}

/* ---- from numbers ---- */

/* The warp's bytes leave together, in words where `to` allows them. */
__device__ __forceinline__ void copy_out(uint8_t *to, const uint8_t *from, int bytes) {
  const int lane = threadIdx.x % NN_WARP;
  int done = 0;
  if ((reinterpret_cast<uintptr_t>(to) & 3) == 0) {
    for (int i = lane; i < bytes / 4; i += NN_WARP) {
      reinterpret_cast<uint32_t *>(to)[i] = reinterpret_cast<const uint32_t *>(from)[i];
    }
    done = bytes / 4 * 4;
  }
  for (int i = done + lane; i < bytes; i += NN_WARP) {
    to[i] = from[i];
  }
}

/* Blocks have no place for what is not finite. */
__device__ __forceinline__ float finite_or_zero(float x, int64_t i, const nn_rule &finite) {
  if (nn_beyond(x)) {
    finite.broken(i, (double)x);
    return 0.0f;
  }
  return x;
}

template <int FORMAT, class T>
__global__ void __launch_bounds__(THREADS) encode_kernel(const T *x, uint8_t *y, int64_t parts, nn_rule finite) {
  constexpr int BYTES = nn_stored<FORMAT>::BYTES;
  __shared__ part_numbers all[WARPS];
  __shared__ __align__(16) uint8_t all_stored[WARPS][nn_round_up(NN_WARP * BYTES, 16)];
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  part_numbers &numbers = all[warp];
  uint8_t *const stored = all_stored[warp];
  const int64_t step = (int64_t)gridDim.x * THREADS;
  for (int64_t first = (int64_t)blockIdx.x * THREADS + warp * NN_WARP; first < parts; first += step) {
    const int count = (int)(parts - first < NN_WARP ? parts - first : NN_WARP);
    for (int i = 0; i < count; i++) {
      const int64_t at = (first + i) * NN_PART + lane;
      numbers[i][lane] = finite_or_zero(nn_to_float(x[at]), at, finite);
    }
    __syncwarp();
    if (lane < count) {
      float mine[NN_PART];
#pragma unroll
      for (int e = 0; e < NN_PART; e++) {
        mine[e] = numbers[lane][e];
      }
      nn_encode<FORMAT>(mine, stored + lane * BYTES);
    }
    __syncwarp();
    copy_out(y + first * BYTES, stored, count * BYTES);
    __syncwarp();
  }
}

/* Blocks of 256: a lane has a part of 32 elements (q2_k, q3_k, q6_k: of 16), a warp four blocks (two). */
template <int FORMAT>
__global__ void __launch_bounds__(THREADS)
    search_kernel(const void *x, int32_t dtype, uint8_t *y, int64_t blocks, nn_rule finite) {
  using S = nn_searched<FORMAT>;
  constexpr int BYTES = nn_stored<FORMAT>::BYTES, BLOCKS = NN_WARP / S::PARTS;
  __shared__ __align__(16) uint8_t all_stored[WARPS][nn_round_up(BLOCKS * BYTES, 16)];
  __shared__ uint8_t all_quants[WARPS][NN_WARP * S::N];
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  uint8_t *const stored = all_stored[warp], *const quants = all_quants[warp];
  const int64_t step = (int64_t)gridDim.x * WARPS * BLOCKS;
  for (int64_t first = ((int64_t)blockIdx.x * WARPS + warp) * BLOCKS; first < blocks; first += step) {
    const int count = (int)(blocks - first < BLOCKS ? blocks - first : BLOCKS), mine = lane / S::PARTS;
    nn_search<FORMAT> search;
    const int64_t from = (first * S::PARTS + lane) * S::N;
#pragma unroll
    for (int i = 0; i < S::N; i++) {
      const float number = mine < count ? nn_element_of(x, from + i, dtype) : 0.0f;
      search.x[i] = finite_or_zero(number, from + i, finite);
    }
    search.choose(quants + lane * S::N);
    __syncwarp();
    nn_put_block<FORMAT>(stored + mine * BYTES, search, quants + mine * 256, lane % S::PARTS);
    __syncwarp();
    copy_out(y + first * BYTES, stored, count * BYTES);
    __syncwarp();
  }
}

template <class T> static int32_t encode(nncuda_ctx *ctx, const nn_quantize_args *a) {
  const T *const x = static_cast<const T *>(a->x);
  uint8_t *const y = static_cast<uint8_t *>(a->y);
  if (nn_is_dtype(a->format)) {
    const int64_t elements = a->rows * a->k;
    const auto kernel = a->format == NNCUDA_FORMAT_F32   ? narrow_kernel<float, T>
                        : a->format == NNCUDA_FORMAT_F16 ? narrow_kernel<nn_f16, T>
                                                         : narrow_kernel<nn_bf16, T>;
    return nn_launch(ctx, kernel, dim3(nn_blocks(ctx, elements, THREADS, BLOCKS_PER_SM)), dim3(THREADS), 0, x, y,
                     elements);
  }
  const int64_t parts = a->rows * (a->k / NN_PART);
  const nn_rule finite = nn_rule_of(ctx, "x", "finite");
  const dim3 grid(nn_blocks(ctx, parts, THREADS, BLOCKS_PER_SM));
  NN_SWITCH_BLOCKS(a->format, {
    constexpr bool SEARCHES = nn_stored<FORMAT>::BLOCK == 256;
    if constexpr (nn_quants_are_signed<FORMAT> && FORMAT != NNCUDA_FORMAT_Q8_0) {
      break; /* which are read alone: the entry knows them */
    } else if constexpr (SEARCHES) {
      return nn_launch(ctx, search_kernel<FORMAT>, grid, dim3(THREADS), 0, x, a->dtype, y, parts / 8, finite);
    } else {
      return nn_launch(ctx, encode_kernel<FORMAT, T>, grid, dim3(THREADS), 0, x, y, parts, finite);
    }
  });
  return NNCUDA_ERROR_INTERNAL; /* the entry knows no other format */
}

NN_KERNEL(quantize) { NN_SWITCH_FLOATS(a->dtype, return encode<T>(ctx, a)); }
