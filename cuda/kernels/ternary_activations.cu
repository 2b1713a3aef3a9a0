/* Activations in 8 bits, alone and after RMSNorm: what products with ternary weights multiply (bindings.h, ternary).
 */
#include "abi/ternary.h"

/* after the ABI's */
#include "kernels/norm_row.cuh"
#include "kernels/ternary_unit.cuh"

struct activations {
  const void *x, *weight; /* no weight: no norm */
  int8_t *codes;
  float *scale;
  int64_t rows, cols;
  float eps;
};

/* Elements at .. at+N-1 of a row as codes. */
template <bool WIDE, int N>
__device__ __forceinline__ void put_codes(int8_t *row, int64_t at, int64_t end, const float (&x)[N],
                                          const ternary_unit &unit) {
  nn_vector<uint32_t, N / 4> words = {};
#pragma unroll
  for (int e = 0; e < N; e++) {
    words.x[e / 4] |= unit.code(x[e]) << (8 * (e % 4));
  }
  if constexpr (WIDE) {
    if (at < end) {
      *reinterpret_cast<nn_vector<uint32_t, N / 4> *>(row + at) = words;
    }
  } else {
#pragma unroll
    for (int e = 0; e < N; e++) {
      if (at + e < end) {
        row[at + e] = (int8_t)(words.x[e / 4] >> (8 * (e % 4)));
      }
    }
  }
}

/* A row that fits registers is read once. Of a longer one each pass reads it again, and norms it again. */
template <class T, class SHAPE, bool WIDE, bool NORM>
__global__ void __launch_bounds__(SHAPE::THREADS) codes_kernel(activations a) {
  constexpr int N = SHAPE::N, LANES = SHAPE::LANES, VECTORS = SHAPE::VECTORS;
  constexpr bool LONG = SHAPE::form == NN_ROW_LONG;
  __shared__ float shared[2][NN_WARP]; /* in turn, so that one reduction need not wait for the one before */
  const int lane = threadIdx.x % LANES;
  nn_let_next_start();
  nn_wait_for_kernels();
  int turn = 0;
  for (int64_t first = (int64_t)blockIdx.x * SHAPE::ROWS; first < a.rows; first += (int64_t)gridDim.x * SHAPE::ROWS) {
    const int64_t row = first + threadIdx.x / LANES, end = row < a.rows ? a.cols : 0;
    const T *const x = static_cast<const T *>(a.x) + row * a.cols;
    float values[VECTORS][N], squares = 0.0f, most = 0.0f, rstd = 0.0f;
    const auto load = [&](int64_t at) {
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
        nn_row_load<WIDE>(values[v], x, at + (v * LANES + lane) * N, end, 0.0f);
      }
    };
    const auto norm = [&](int64_t at) {
      if constexpr (NORM) {
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
          float gain[N];
          nn_row_load<WIDE>(gain, static_cast<const T *>(a.weight), at + (v * LANES + lane) * N, end, 0.0f);
          nn_rms_apply(values[v], rstd, gain);
#pragma unroll
          for (int e = 0; e < N; e++) { /* as cuda_rmsnorm would store it */
            values[v][e] = nn_rounded<T>(values[v][e]);
          }
        }
      }
    };
    const auto largest = [&] {
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
#pragma unroll
        for (int e = 0; e < N; e++) {
          most = nn_larger::of(fabsf(values[v][e]), most); /* NaN stays */
        }
      }
    };
    const auto put = [&](int64_t at, const ternary_unit &unit) {
#pragma unroll
      for (int v = 0; v < VECTORS; v++) {
        put_codes<WIDE>(a.codes + row * a.cols, at + (v * LANES + lane) * N, end, values[v], unit);
      }
    };
    if constexpr (!LONG) {
      load(0);
    }
    if constexpr (NORM) {
      if constexpr (LONG) {
        for (int64_t at = 0; at < end; at += LANES * VECTORS * N) {
          load(at);
          nn_rms_square(squares, values);
        }
      } else {
        nn_rms_square(squares, values);
      }
      rstd = nn_rms_rstd<LANES>(squares, a.cols, a.eps, shared[turn]);
      turn ^= 1;
    }
    if constexpr (LONG) {
      for (int64_t at = 0; at < end; at += LANES * VECTORS * N) {
        load(at);
        norm(at);
        largest();
      }
    } else {
      norm(0);
      largest();
    }
    most = nn_row_max<LANES>(most, shared[turn]);
    turn ^= 1;
    const ternary_unit unit(most);
    if constexpr (LONG) {
      for (int64_t at = 0; at < end; at += LANES * VECTORS * N) {
        load(at);
        norm(at);
        put(at, unit);
      }
    } else {
      put(0, unit);
    }
    if (lane == 0 && end > 0) {
      a.scale[row] = unit.scale();
    }
  }
}

template <bool NORM, class T> static int32_t launch(nncuda_ctx *ctx, const activations &a, int32_t dtype) {
  const bool wide = nn_aligned_16(a.x, a.weight, a.codes) && nn_rows_16(a.cols, a.cols, dtype);
  NN_SWITCH_ROWS(a.cols, dtype, wide,
                 return nn_launch_ahead(ctx, codes_kernel<T, SHAPE, WIDE, NORM>,
                                        dim3(nn_row_blocks(a.rows, SHAPE::ROWS)), dim3(SHAPE::THREADS), 0, a));
}

NN_KERNEL(act_quant_i8) {
  const activations all = {a->x, nullptr, a->codes, a->scale, a->rows, a->cols, 0.0f};
  NN_SWITCH_FLOATS(a->dtype, return (launch<false, T>(ctx, all, a->dtype)));
}

NN_KERNEL(rmsnorm_quant_i8) {
  const activations all = {a->x, a->weight, a->codes, a->scale, a->rows, a->cols, a->eps};
  NN_SWITCH_FLOATS(a->dtype, return (launch<true, T>(ctx, all, a->dtype)));
}
