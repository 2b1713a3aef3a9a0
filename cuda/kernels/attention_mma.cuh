/*
 * Tiles of 16-bit elements in shared memory, and products of 16-row pieces of them by one warp (mma.sync).
 *
 * A tile has rows of D elements, D a multiple of 64; the 16-byte units of row r are XORed with r % 8 among eight, so
 * that eight rows at the same column meet all banks. The places of a lane in ldmatrix (instructions_mma.cuh) are the
 * same for every piece of a tile but for constants: they are computed once.
 */
#ifndef NN_KERNELS_ATTENTION_MMA_CUH
#define NN_KERNELS_ATTENTION_MMA_CUH

#include "kernels/attention_starts.cuh"

/* Whether the kernels by mma.sync can do it: f16 from sm_75, bf16 from sm_80, and keys are counted in 32 bits. */
template <class T> inline bool nn_mma_serves(nncuda_ctx *ctx, const nn_attention_sizes &s) {
  return nn_gpu_arch(ctx) >= (nn_mma_type<T>::is_f16 ? 75 : 80) && s.kv_len <= 1 << 30;
}

template <int D> struct nn_mma_tile {
  static constexpr int ROW = 2 * D; /* bytes */

  __host__ __device__ static constexpr int bytes(int rows) { return rows * ROW; }
  /* Offset of a 16-byte unit. */
  __device__ static __forceinline__ int at(int row, int unit) { return row * ROW + ((unit ^ (row & 7)) << 4); }
};

/* Places of this lane, to be added to the address of a tile of rows of D elements. */
template <int D> struct nn_mma_lane {
  uint32_t row_a, row_b, unit_a, unit_b;

  __device__ __forceinline__ explicit nn_mma_lane(uint32_t thread = threadIdx.x) {
    const uint32_t lane = thread % NN_WARP;
    row_a = lane % 16 * nn_mma_tile<D>::ROW;
    unit_a = (lane / 16 ^ lane % 8) << 4;
    row_b = (lane % 8 + lane / 16 * 8) * nn_mma_tile<D>::ROW;
    unit_b = (lane / 8 % 2 ^ lane % 8) << 4;
  }
  /* `pairs` of units further. Units stay among eight, so what is beyond is a constant offset of the instruction. */
  static __device__ __forceinline__ uint32_t along(uint32_t unit, int pairs) {
    return (unit ^ (uint32_t)(pairs % 4) << 5) + pairs / 4 * 128;
  }
  /* A's 16 rows from `row` on and elements 16k to 16k + 15 along them. */
  __device__ __forceinline__ void load_a(uint32_t (&a)[4], uint32_t tile, int row, int k) const {
    nn_ldmatrix_x4(a, tile + row * nn_mma_tile<D>::ROW + row_a + along(unit_a, k));
  }
  /* B's columns `column` to column + 15, which are rows of the tile, and elements 16k to 16k + 15 along them. */
  __device__ __forceinline__ void load_b(uint32_t (&b)[4], uint32_t tile, int column, int k) const {
    nn_ldmatrix_x4(b, tile + column * nn_mma_tile<D>::ROW + row_b + along(unit_b, k));
  }
  /* B's rows `row` to row + 15, which are rows of the tile, and its columns 16n to 16n + 15. */
  __device__ __forceinline__ void load_b_rows(uint32_t (&b)[4], uint32_t tile, int row, int n) const {
    nn_ldmatrix_x4_transposed(b, tile + row * nn_mma_tile<D>::ROW + row_a + along(unit_a, n));
  }
};

/* Sums of rows x 16 as the A operand of a next product: two neighbouring pieces of 8 columns. */
template <class T>
__device__ __forceinline__ void nn_sums_to_a(uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
  a[0] = nn_pair<T>(left[0], left[1]);
  a[1] = nn_pair<T>(left[2], left[3]);
  a[2] = nn_pair<T>(right[0], right[1]);
  a[3] = nn_pair<T>(right[2], right[3]);
}

/* What rounding to 16 bits drops of two numbers, itself rounded to 16 bits; `pair` is nn_pair of them. */
template <class T> __device__ __forceinline__ uint32_t nn_dropped(float low, float high, uint32_t pair) {
  const float2 kept = nn_mma_type<T>::is_f16 ? nn_f16x2_to_f32x2(pair) : nn_bf16x2_to_f32x2(pair);
  return nn_pair<T>(low - kept.x, high - kept.y);
}

/* The same as two operands: the sums rounded to 16 bits, and what that drops. */
template <class T>
__device__ __forceinline__ void nn_sums_to_a(uint32_t (&a)[4], uint32_t (&dropped)[4], const float (&left)[4],
                                             const float (&right)[4]) {
  nn_sums_to_a<T>(a, left, right);
  dropped[0] = nn_dropped<T>(left[0], left[1], a[0]);
  dropped[1] = nn_dropped<T>(left[2], left[3], a[1]);
  dropped[2] = nn_dropped<T>(right[0], right[1], a[2]);
  dropped[3] = nn_dropped<T>(right[2], right[3], a[3]);
}

/* sums += A B^T for PARTS * 16 rows of one tile and COUNT * 8 of another. */
template <class T, int D, int PARTS, int COUNT>
__device__ __forceinline__ void nn_mma_scores(float (&sums)[PARTS][COUNT][4], const nn_mma_lane<D> &place,
                                              uint32_t a_tile, int row, uint32_t b_tile) {
#pragma unroll
  for (int d = 0; d < D / 16; d++) {
    uint32_t a[PARTS][4];
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
      place.load_a(a[part], a_tile, row + 16 * part, d);
    }
#pragma unroll
    for (int n = 0; n < COUNT / 2; n++) {
      uint32_t b[4];
      place.load_b(b, b_tile, 16 * n, d);
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
        nn_mma_m16n8k16<T>(sums[part][2 * n], a[part], b[0], b[1]);
        nn_mma_m16n8k16<T>(sums[part][2 * n + 1], a[part], b[2], b[3]);
      }
    }
  }
}

/* `hidden` where a row does not see a key: x is of PARTS * 16 rows from `first_row` of the tile on, and of COUNT * 8
 * keys from `key` on. */
template <int PARTS, int COUNT>
__device__ __forceinline__ void nn_hide_from_rows(float (&x)[PARTS][COUNT][4], const nn_attention_sizes &s,
                                                  const int32_t *starts, const nn_query_rows &rows, int first_row,
                                                  int key, float hidden) {
  const int lane = threadIdx.x % NN_WARP;
#pragma unroll
  for (int part = 0; part < PARTS; part++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int r = first_row + 16 * part + 8 * half + lane / 4;
      const int on = rows.further(r < rows.count ? r : 0), own = key + 2 * (lane % 4);
      const int seen = (int)nn_keys_seen(s, rows.query + rows.further(r)) - own;
      const int start = nn_first_key(starts, rows.sequence_query + on) - own;
#pragma unroll
      for (int n = 0; n < COUNT; n++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          if (8 * n + e >= seen || 8 * n + e < start) {
            x[part][n][2 * half + e] = hidden;
          }
        }
      }
    }
  }
}

/* Starts to copy a unit of a tile, or zeros unless `inside` (nn_copy_async); without `wide` it is copied by itself,
 * element by element. */
template <class T>
__device__ __forceinline__ void nn_mma_load_unit(unsigned char *to, const T *from, bool inside, bool wide) {
  if (wide) {
    nn_copy_async<16>(nn_shared_address(to), from, inside ? 16 : 0);
  } else {
    nn_vector<T, 8> x = {};
#pragma unroll
    for (int e = 0; e < 8; e++) {
      if (inside) {
        x.x[e] = from[e];
      }
    }
    *reinterpret_cast<nn_vector<T, 8> *>(to) = x;
  }
}

/*
 * Starts to copy ROWS rows of a tile; the caller commits and waits. Zeros beyond `dim` and for rows from `count` on.
 * at(r) is the offset of row r, `thread` this one's number among THREADS.
 */
template <int D, int ROWS, int THREADS, class T, class AT>
__device__ __forceinline__ void nn_mma_load(unsigned char *tile, const T *from, int count, int dim, bool wide, AT at,
                                            int thread = threadIdx.x) {
  constexpr int ACROSS = D / 8, STEP = THREADS / ACROSS;
  static_assert(THREADS % ACROSS == 0 && ROWS % STEP == 0, "every thread copies as much, in one column");
  const int unit = thread % ACROSS;
#if __CUDA_ARCH__ >= 800
#pragma unroll 4
#else /* where copies go through registers there are none left for more than one at a time */
#pragma unroll 1
#endif
  for (int r = thread / ACROSS; r < ROWS; r += STEP) {
    const bool inside = r < count && unit * 8 < dim;
    nn_mma_load_unit(tile + nn_mma_tile<D>::at(r, unit), inside ? from + at(r) + unit * 8 : from, inside, wide);
  }
}

/* The same for rows that are ld apart: no thread keeps more than one address. */
template <int D, int ROWS, int THREADS, class T>
__device__ __forceinline__ void nn_mma_load_rows(unsigned char *tile, const T *from, int64_t ld, int count, int dim,
                                                 bool wide) {
  constexpr int ACROSS = D / 8, STEP = THREADS / ACROSS;
  static_assert(THREADS % ACROSS == 0 && ROWS % STEP == 0, "every thread copies as much, in one column");
  const int unit = threadIdx.x % ACROSS, first = threadIdx.x / ACROSS;
  const T *source = from + first * ld + unit * 8;
#if __CUDA_ARCH__ >= 800
#pragma unroll
#else /* where copies go through registers there are none left for more than one at a time */
#pragma unroll 1
#endif
  for (int i = 0; i < ROWS / STEP; i++) {
    const bool inside = first + i * STEP < count && unit * 8 < dim;
    nn_mma_load_unit(tile + nn_mma_tile<D>::at(first + i * STEP, unit), inside ? source : from, inside, wide);
    source += STEP * ld;
  }
}

/* Stores 16 rows of sums, `factor[0]` and `factor[1]` times what they are (the lane's rows g and g + 8), into a tile,
 * from its unit `unit` on. */
template <class T, int D, int COUNT>
__device__ __forceinline__ void nn_sums_to_tile(unsigned char *tile, int row, int unit, const float (&sums)[COUNT][4],
                                                const float (&factor)[2]) {
  const int lane = threadIdx.x % NN_WARP, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < COUNT; n++) {
    unsigned char *const to = tile + nn_mma_tile<D>::at(row + g, unit + n) + 4 * t;
    *reinterpret_cast<uint32_t *>(to) = nn_pair<T>(sums[n][0] * factor[0], sums[n][1] * factor[0]);
    *reinterpret_cast<uint32_t *>(to + 8 * nn_mma_tile<D>::ROW) =
        nn_pair<T>(sums[n][2] * factor[1], sums[n][3] * factor[1]);
  }
}

/* By one warp: rows `row` to row + ROWS - 1 of a tile, those below `count`, to at(r) in global memory; of each, COLUMNS
 * elements from unit `first` on. */
template <int D, int ROWS, int COLUMNS, class T, class AT>
__device__ __forceinline__ void nn_tile_to_rows(T *to, const unsigned char *tile, int row, int first, int count,
                                                int dim, bool wide, AT at) {
  constexpr int ACROSS = COLUMNS / 8, STEP = NN_WARP / ACROSS;
  static_assert(STEP > 0, "a row has at most 32 units");
  const int lane = threadIdx.x % NN_WARP, unit = first + lane % ACROSS;
#pragma unroll 4
  for (int i = 0; i < ROWS; i += STEP) {
    const int r = row + i + lane / ACROSS;
    if (r < count && unit * 8 < dim) {
      T *const place = to + at(r) + unit * 8;
      const nn_vector<T, 8> x = *reinterpret_cast<const nn_vector<T, 8> *>(tile + nn_mma_tile<D>::at(r, unit));
      if (wide) {
        *reinterpret_cast<nn_vector<T, 8> *>(place) = x;
      } else {
#pragma unroll
        for (int e = 0; e < 8; e++) {
          place[e] = x.x[e];
        }
      }
    }
  }
}

#endif
