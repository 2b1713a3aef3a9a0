/* Ternary weights from their mean magnitude, and the way to their packed form and back (bindings.h, section ternary).
 */
#include "kernels/ternary_workspace.h"

#include "kernels/quant_format.cuh"

/* Done once, when a model is loaded: each kernel reads and writes its numbers once, in order. */
constexpr int THREADS = 256, BLOCKS_PER_SM = 8;

/* ---- from numbers ---- */

/* Columns that are summed apart, by a lane each. */
constexpr int SUMS = 16;

/* A row with a value that is not finite has a total that is not. */
template <class T>
__global__ void __launch_bounds__(THREADS) row_totals_kernel(const T *x, double *totals, int64_t n, int64_t k) {
  constexpr int ROWS = THREADS / SUMS;
  const int lane = threadIdx.x % SUMS;
  /* Whole warps continue together, since their lanes meet. */
  for (int64_t first = (int64_t)blockIdx.x * ROWS; first < n; first += (int64_t)gridDim.x * ROWS) {
    const int64_t row = first + threadIdx.x / SUMS;
    double sum = 0.0;
#pragma unroll 8
    for (int64_t i = row * k + lane, end = row < n ? (row + 1) * k : 0; i < end; i += SUMS) {
      sum += (double)fabsf(nn_to_float(x[i]));
    }
    sum = nn_warp_sum<SUMS>(sum); /* sums j and j + 8, then 4, 2 and 1 apart */
    if (lane == 0 && row < n) {
      totals[row] = sum;
    }
  }
}

/* Reports the first element of a row that is not finite. A whole warp calls it. */
template <class T>
__device__ __forceinline__ void report_first(const T *x, int64_t row, int64_t k, const nn_rule &finite) {
  const int lane = threadIdx.x;
  for (int64_t first = row * k; first < (row + 1) * k; first += NN_WARP) {
    const int64_t i = first + lane;
    const float number = i < (row + 1) * k ? nn_to_float(x[i]) : 0.0f;
    const unsigned bad = __ballot_sync(NN_ALL_LANES, !(fabsf(number) <= 3.402823466e38f));
    if (bad != 0) {
      if (lane == __ffs((int)bad) - 1) {
        finite.broken(i, (double)number);
      }
      return;
    }
  }
}

/* One warp adds the rows' totals in order: 32 are read together, and each lane adds all of them. Rows that are not
 * finite are left out; the first is reported, whatever order the blocks before ran in. */
template <class T>
__global__ void __launch_bounds__(NN_WARP)
    mean_kernel(const T *x, const double *totals, float *scale, int64_t n, int64_t k, nn_rule finite) {
  const int lane = threadIdx.x;
  bool told = false;
  double total = 0.0, next = lane < n ? totals[lane] : 0.0;
  for (int64_t first = 0; first < n; first += NN_WARP) {
    const bool counts = next <= 1.7976931348623157e308;
    const double some = counts ? next : 0.0;
    const int64_t mine = first + NN_WARP + lane;
    next = mine < n ? totals[mine] : 0.0;
    const unsigned bad = __ballot_sync(NN_ALL_LANES, !counts);
    if (bad != 0 && !told) {
      report_first(x, first + __ffs((int)bad) - 1, k, finite);
      told = true;
    }
#pragma unroll
    for (int i = 0; i < NN_WARP; i++) {
      total += __shfl_sync(NN_ALL_LANES, some, i); /* adding 0 after the last changes nothing */
    }
  }
  const float mean = (float)(total / ((double)n * (double)k));
  if (lane == 0) {
    *scale = mean < 1e-5f ? 1e-5f : mean;
  }
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    round_kernel(const T *x, const float *scale, int8_t *codes, int64_t elements) {
  const float inverse = __fdiv_rn(1.0f, *scale);
  const int64_t step = (int64_t)gridDim.x * THREADS;
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < elements; i += step) {
    const float number = __fmul_rn(nn_to_float(x[i]), inverse);
    codes[i] = (int8_t)rintf(fminf(fmaxf(number, -1.0f), 1.0f));
  }
}

template <class T> static int32_t quantize(nncuda_ctx *ctx, const nn_ternary_quantize_args *a) {
  double *const totals = nn_ternary_lay_out(a, nn_workspace_of(ctx));
  const T *const x = static_cast<const T *>(a->x);
  const int64_t elements = a->n * a->k;
  int32_t status = nn_launch(ctx, row_totals_kernel<T>, dim3(nn_blocks(ctx, a->n, THREADS / SUMS, BLOCKS_PER_SM)),
                             dim3(THREADS), 0, x, totals, a->n, a->k);
  if (status == NNCUDA_SUCCESS) {
    status = nn_launch(ctx, mean_kernel<T>, dim3(1), dim3(NN_WARP), 0, x, static_cast<const double *>(totals), a->scale,
                       a->n, a->k, nn_rule_of(ctx, "x", "finite"));
  }
  if (status == NNCUDA_SUCCESS) {
    status = nn_launch(ctx, round_kernel<T>, dim3(nn_blocks(ctx, elements, THREADS, BLOCKS_PER_SM)), dim3(THREADS), 0,
                       x, static_cast<const float *>(a->scale), a->codes, elements);
  }
  return status;
}

NN_KERNEL(ternary_quantize) { NN_SWITCH_FLOATS(a->dtype, return quantize<T>(ctx, a)); }

/* ---- the packed form ---- */

/* Where word i of packed weights has its codes. */
struct packed_place {
  int64_t row, column;

  __device__ __forceinline__ packed_place(int64_t i, int64_t across)
      : row(i / NN_TERNARY_ROWS / across * NN_TERNARY_ROWS + i % NN_TERNARY_ROWS),
        column(i / NN_TERNARY_ROWS % across * NN_TERNARY_COLUMNS) {}
};

/* Of byte j of a word, bits 2i: column j + 4i. */
__device__ __forceinline__ int shift_of(int column) { return 8 * (column % 4) + 2 * (column / 4); }

__global__ void __launch_bounds__(THREADS)
    pack_kernel(const int8_t *codes, uint8_t *w, int64_t words, int64_t across, int64_t n, int64_t k, nn_range range) {
  const int64_t step = (int64_t)gridDim.x * THREADS;
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < words; i += step) {
    const packed_place place(i, across);
    uint32_t word = 0;
    for (int c = 0; c < NN_TERNARY_COLUMNS; c++) {
      int code = 0;
      if (place.row < n && place.column + c < k) {
        const int64_t at = place.row * k + place.column + c;
        code = range.holds(at, codes[at]) ? codes[at] : 0;
      }
      word |= (uint32_t)(code + 1) << shift_of(c);
    }
    nn_put_u16(w + 4 * i, (uint16_t)word);
    nn_put_u16(w + 4 * i + 2, (uint16_t)(word >> 16));
  }
}

__global__ void __launch_bounds__(THREADS) unpack_kernel(const uint8_t *w, int8_t *codes, int64_t words, int64_t across,
                                                         int64_t n, int64_t k, nn_range range) {
  const int64_t step = (int64_t)gridDim.x * THREADS;
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < words; i += step) {
    const packed_place place(i, across);
    uint32_t word[1];
    nn_bytes_at<4>(word, w + 4 * i);
    for (int c = 0; c < NN_TERNARY_COLUMNS && place.row < n && place.column + c < k; c++) {
      const int64_t at = place.row * k + place.column + c;
      const int code = (int)(word[0] >> shift_of(c) & 3u) - 1;
      if (range.holds(at, code)) {
        codes[at] = (int8_t)code;
      }
    }
  }
}

NN_KERNEL(ternary_pack) {
  const int64_t across = a->row_bytes / 4, words = a->stored * across;
  return nn_launch(ctx, pack_kernel, dim3(nn_blocks(ctx, words, THREADS, BLOCKS_PER_SM)), dim3(THREADS), 0, a->codes,
                   static_cast<uint8_t *>(a->w), words, across, a->n, a->k, nn_range_of(ctx, "codes", -1, 1));
}

NN_KERNEL(ternary_unpack) {
  const int64_t across = a->row_bytes / 4, words = a->stored * across;
  return nn_launch(ctx, unpack_kernel, dim3(nn_blocks(ctx, words, THREADS, BLOCKS_PER_SM)), dim3(THREADS), 0,
                   static_cast<const uint8_t *>(a->w), a->codes, words, across, a->n, a->k,
                   nn_range_of(ctx, "codes", -1, 1));
}
