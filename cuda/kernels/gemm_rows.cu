/*
 * Products of few rows with a weight [out, in]: decoding. There the weight is read once and used little, so this is
 * bound by memory: a block takes a few rows of the weight, of which every thread has one 16-byte load each under way,
 * and the rows of A come from the caches.
 */
#include "kernels/gemm.cuh"

/* 4 rows of the weight in a block of 4 warps have 8 KiB under way, and 16 such blocks a multiprocessor; 8 rows where
 * more rows of A would else be read again too often. By count, not measured on a GPU yet. */
constexpr int THREADS = 128, WARPS = THREADS / NN_WARP;
template <int M> constexpr int COLUMNS = M >= 4 ? 8 : 4;

/* The first `valid` of the elements at `from`, as f32, and zeros. */
template <int N, class T> __device__ __forceinline__ void load_part(float (&to)[N], const T *from, int64_t valid) {
  if (valid >= N) {
    nn_load(to, from);
    return;
  }
#pragma unroll
  for (int i = 0; i < N; i++) {
    to[i] = i < valid ? nn_to_float(from[i]) : 0.0f;
  }
}

/* M: rows, rounded up; those that are not there repeat the last one and are not stored. */
template <class T, int M> __global__ void __launch_bounds__(THREADS) gemm_rows_kernel(gemm_problem p) {
  constexpr int N = nn_per_16<T>, C = COLUMNS<M>;
  __shared__ float sums[WARPS][M * C];
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  const int64_t across = nn_ceil_div(p.n, C);
  for (int64_t work = blockIdx.x; work < across * p.count; work += gridDim.x) {
    const int64_t product = work / across, column = (work - product * across) * C;
    const T *const a = static_cast<const T *>(p.a) + product * p.a_step;
    const T *const b = static_cast<const T *>(p.b) + product * p.b_step;
    float sum[M][C] = {};
    for (int64_t k = threadIdx.x * N; k < p.k; k += THREADS * N) {
      float w[C][N];
#pragma unroll
      for (int c = 0; c < C; c++) {
        const int64_t row = column + c < p.n ? column + c : p.n - 1;
        load_part(w[c], b + row * p.ldb + k, p.k - k);
      }
#pragma unroll
      for (int r = 0; r < M; r++) {
        float x[N];
        load_part(x, a + (r < p.m ? r : p.m - 1) * p.lda + k, p.k - k);
#pragma unroll
        for (int c = 0; c < C; c++) {
#pragma unroll
          for (int e = 0; e < N; e++) {
            sum[r][c] = fmaf(x[e], w[c][e], sum[r][c]);
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < M; r++) {
#pragma unroll
      for (int c = 0; c < C; c++) {
        const float whole = nn_warp_sum(sum[r][c]);
        if (lane == 0) {
          sums[warp][r * C + c] = whole;
        }
      }
    }
    __syncthreads();
    const int r = threadIdx.x / C;
    const int64_t here = column + threadIdx.x % C;
    if (threadIdx.x < M * C && r < p.m && here < p.n) {
      float x[1] = {sums[0][threadIdx.x]};
#pragma unroll
      for (int i = 1; i < WARPS; i++) {
        x[0] += sums[i][threadIdx.x];
      }
      const int64_t at = product * p.c_step + r * p.ldc + here;
      if (sizeof(T) == 2 && !p.c_f32) {
        gemm_finish<T, 1>(p, at, here, x, 1);
      } else {
        gemm_finish<float, 1>(p, at, here, x, 1);
      }
    }
    __syncthreads();
  }
}

template <class T> static int32_t run_rows(nncuda_ctx *ctx, const gemm_problem &p) {
  const auto kernel = p.m == 1   ? gemm_rows_kernel<T, 1>
                      : p.m == 2 ? gemm_rows_kernel<T, 2>
                      : p.m <= 4 ? gemm_rows_kernel<T, 4>
                                 : gemm_rows_kernel<T, 8>;
  const int64_t most = 0x7fffffff, columns = p.m <= 2 ? COLUMNS<1> : COLUMNS<8>;
  const int64_t blocks = nn_ceil_div(p.n, columns) * p.count;
  return nn_launch(ctx, kernel, dim3((unsigned)(blocks < most ? blocks : most)), dim3(THREADS), 0, p);
}

int32_t gemm_run_rows(nncuda_ctx *ctx, const gemm_problem &p, int32_t dtype) {
  NN_SWITCH_FLOATS(dtype, return run_rows<T>(ctx, p));
}
