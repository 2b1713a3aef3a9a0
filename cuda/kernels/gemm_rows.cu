/*
 * Products of few rows with a weight [out, in]: decoding. There the weight is read once and used little, so this is
 * bound by memory: a block takes a few rows of the weight, of which every thread has one 16-byte load each under way,
 * and the rows of A come from the caches.
 */
#include "kernels/gemm.cuh"

/* A block of 4 warps has 4 rows of the weight under way, 8 KiB, and a multiprocessor 7 such blocks; 8 rows where more
 * rows of A would else be read again too often, and 3 or 2 blocks, as registers allow. By count. */
constexpr int THREADS = 128, WARPS = THREADS / NN_WARP;
template <int M> constexpr int COLUMNS = M >= 4 ? 8 : 4;
template <int M> constexpr int BLOCKS = M > 4 ? 2 : M > 2 ? 3 : 7;

/* Element `k`, or the vector that begins there, of COUNT rows from `row` on; those that are not there repeat the last.
 */
template <class V, int COUNT, class T>
__device__ __forceinline__ void load_rows(V (&to)[COUNT], const T *matrix, int64_t ld, int64_t row, int64_t rows,
                                          int64_t k) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) {
    to[i] = *reinterpret_cast<const V *>(matrix + (row + i < rows ? row + i : rows - 1) * ld + k);
  }
}

/* M: rows, rounded up; those that are not there repeat the last one and are not stored. */
// sass: gemm_rows_kernel<nn_bf16, 1> on sm_90a: at least 4 LDG.128 under way
// sass: gemm_rows_kernel<nn_bf16, 8> on sm_90a: at least 10 LDG.128 under way
template <class T, int M> __global__ void __launch_bounds__(THREADS, BLOCKS<M>) gemm_rows_kernel(gemm_problem p) {
  constexpr int N = nn_per_16<T>, C = COLUMNS<M>;
  __shared__ float sums[WARPS][M * C];
  const int lane = threadIdx.x % NN_WARP, warp = threadIdx.x / NN_WARP;
  const int64_t across = nn_ceil_div(p.n, C);
  for (int64_t work = blockIdx.x; work < across * p.count; work += gridDim.x) {
    const int64_t product = work / across, column = (work - product * across) * C;
    const T *const a = static_cast<const T *>(p.a) + product * p.a_step;
    const T *const b = static_cast<const T *>(p.b) + product * p.b_step;
    float sum[M][C] = {};
    int64_t k = threadIdx.x * N;
    for (; k + N <= p.k; k += THREADS * N) {
      /* All loads, then all conversions: with a branch around each load, one alone would be under way. */
      nn_vector<T, N> w[C], x[M];
      load_rows(w, b, p.ldb, column, p.n, k);
      load_rows(x, a, p.lda, 0, p.m, k);
#pragma unroll
      for (int r = 0; r < M; r++) {
#pragma unroll
        for (int c = 0; c < C; c++) {
#pragma unroll
          for (int e = 0; e < N; e++) {
            sum[r][c] = fmaf(nn_to_float(x[r].x[e]), nn_to_float(w[c].x[e]), sum[r][c]);
          }
        }
      }
    }
    if (k < p.k) { /* less than a vector, as if zeros followed: those make +0 of a sum of -0 */
#pragma unroll 1
      for (; k < p.k; k++) {
        T w[C], x[M];
        load_rows(w, b, p.ldb, column, p.n, k);
        load_rows(x, a, p.lda, 0, p.m, k);
#pragma unroll
        for (int r = 0; r < M; r++) {
#pragma unroll
          for (int c = 0; c < C; c++) {
            sum[r][c] = fmaf(nn_to_float(x[r]), nn_to_float(w[c]), sum[r][c]);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < M; r++) {
#pragma unroll
        for (int c = 0; c < C; c++) {
          sum[r][c] += 0.0f;
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
