/*
 * The two products of attention on their own, with the scores in memory between them: tiles of 64 x 64 in f32
 * arithmetic. flash_attention is what to call for speed.
 */
#include "kernels/attention.cuh"

/* By count of registers (16 sums a thread) and shared memory. */
constexpr int THREADS = 256, SIDE = 64, DEPTH = 32;
constexpr int LD = DEPTH + 4, LD_V = SIDE + 4; /* four more, so that columns of 16 bytes meet all banks */

struct products {
  const void *a, *b; /* q and k, or probs and v */
  void *c;
  int64_t q_len, kv_len, across, down; /* tiles of a head's result */
  int32_t heads, kv_heads, dim;
  float scale;
  int32_t causal;
  bool wide_a, wide_b;
};

/* Where a block is. */
struct place {
  int64_t head, sequence, row, column; /* head counts over sequences */
  int32_t own_head, kv_head;
  __device__ __forceinline__ explicit place(const products &p) {
    column = blockIdx.x % p.across * SIDE;
    row = blockIdx.x / p.across % p.down * SIDE;
    head = blockIdx.x / p.across / p.down;
    sequence = head / p.heads;
    own_head = (int32_t)(head - sequence * p.heads);
    kv_head = own_head / (p.heads / p.kv_heads);
  }
};

__device__ __forceinline__ int within(int64_t left, int most) { return left < most ? (int)left : most; }

/* Columns `first` to first + DEPTH - 1 of SIDE rows as f32; zeros beyond `count` rows and `width` columns. */
template <class T>
__device__ __forceinline__ void load_rows(float *to, const T *from, int64_t ld, int count, int64_t first, int64_t width,
                                          bool wide) {
  constexpr int E = nn_per_16<T>;
  for (int i = threadIdx.x; i < SIDE * DEPTH / E; i += THREADS) {
    const int r = i / (DEPTH / E), d = i % (DEPTH / E) * E;
    float x[E] = {};
    if (r < count && first + d < width) {
      const T *const at = from + r * ld + first + d;
      if (wide) {
        nn_load(x, at);
      } else {
#pragma unroll
        for (int e = 0; e < E; e++) {
          x[e] = first + d + e < width ? nn_to_float(at[e]) : 0.0f;
        }
      }
    }
#pragma unroll
    for (int e = 0; e < E; e++) {
      to[r * LD + d + e] = x[e];
    }
  }
}

template <class T> __global__ void __launch_bounds__(THREADS, 2) scores_kernel(products p) {
  __shared__ __align__(16) float q[SIDE * LD], k[SIDE * LD];
  const place at(p);
  const int rows = within(p.q_len - at.row, SIDE), keys = within(p.kv_len - at.column, SIDE);
  const int64_t ld_q = (int64_t)p.heads * p.dim, ld_kv = (int64_t)p.kv_heads * p.dim;
  const int64_t seen = at.row + p.kv_len - p.q_len + 1; /* keys that the first row sees */
  const T *const from_q = static_cast<const T *>(p.a) + (at.sequence * p.q_len + at.row) * ld_q + at.own_head * p.dim;
  const T *const from_k =
      static_cast<const T *>(p.b) + (at.sequence * p.kv_len + at.column) * ld_kv + at.kv_head * p.dim;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  float sum[4][4] = {};
  const bool hidden = p.causal && seen + rows - 1 <= at.column;
  for (int d = 0; d < p.dim && !hidden; d += DEPTH) {
    __syncthreads();
    load_rows(q, from_q, ld_q, rows, d, p.dim, p.wide_a);
    load_rows(k, from_k, ld_kv, keys, d, p.dim, p.wide_b);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < DEPTH; i += 4) {
      float a[4][4], b[4][4];
#pragma unroll
      for (int r = 0; r < 4; r++) {
        nn_load_4(a[r], q + (4 * y + r) * LD + i);
        nn_load_4(b[r], k + (x + 16 * r) * LD + i);
      }
#pragma unroll
      for (int r = 0; r < 4; r++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
#pragma unroll
          for (int e = 0; e < 4; e++) {
            sum[r][c] = fmaf(a[r][e], b[c][e], sum[r][c]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 4; r++) {
    const int row = 4 * y + r;
    T *const to = static_cast<T *>(p.c) + (at.head * p.q_len + at.row + row) * p.kv_len + at.column;
#pragma unroll
    for (int c = 0; c < 4; c++) {
      const int key = x + 16 * c;
      if (row < rows && key < keys) {
        const bool visible = !p.causal || at.column + key < seen + row;
        to[key] = nn_from_float<T>(visible ? sum[r][c] * p.scale : nn_lowest());
      }
    }
  }
}

template <class T> __global__ void __launch_bounds__(THREADS, 2) output_kernel(products p) {
  constexpr int E = nn_per_16<T>;
  __shared__ __align__(16) float probs[SIDE * LD], v[DEPTH * LD_V];
  const place at(p);
  const int rows = within(p.q_len - at.row, SIDE);
  const int64_t ld_kv = (int64_t)p.kv_heads * p.dim;
  const T *const from_p = static_cast<const T *>(p.a) + (at.head * p.q_len + at.row) * p.kv_len;
  const T *const from_v = static_cast<const T *>(p.b) + at.sequence * p.kv_len * ld_kv + at.kv_head * p.dim + at.column;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  float sum[4][4] = {};
  for (int64_t key = 0; key < p.kv_len; key += DEPTH) {
    __syncthreads();
    load_rows(probs, from_p, p.kv_len, rows, key, p.kv_len, p.wide_a);
    for (int i = threadIdx.x; i < DEPTH * SIDE / E; i += THREADS) {
      const int r = i / (SIDE / E), d = i % (SIDE / E) * E;
      float value[E] = {};
      if (key + r < p.kv_len && at.column + d < p.dim) {
        nn_load_row(value, from_v + (key + r) * ld_kv + d, p.wide_b);
      }
#pragma unroll
      for (int e = 0; e < E; e++) {
        v[r * LD_V + d + e] = value[e];
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < DEPTH; i += 4) {
      float a[4][4];
#pragma unroll
      for (int r = 0; r < 4; r++) {
        nn_load_4(a[r], probs + (4 * y + r) * LD + i);
      }
#pragma unroll
      for (int e = 0; e < 4; e++) {
        float b[4];
        nn_load_4(b, v + (i + e) * LD_V + 4 * x);
#pragma unroll
        for (int r = 0; r < 4; r++) {
#pragma unroll
          for (int c = 0; c < 4; c++) {
            sum[r][c] = fmaf(a[r][e], b[c], sum[r][c]);
          }
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 4; r++) {
    const int row = 4 * y + r;
    T *const to = static_cast<T *>(p.c) + (at.sequence * p.q_len + at.row + row) * p.heads * p.dim +
                  (int64_t)at.own_head * p.dim + at.column;
#pragma unroll
    for (int c = 0; c < 4; c++) {
      if (row < rows && at.column + 4 * x + c < p.dim) {
        to[4 * x + c] = nn_from_float<T>(sum[r][c]);
      }
    }
  }
}

static products products_of(const void *a, const void *b, void *c, const nn_attention_shape &s) {
  products p = {};
  p.a = a;
  p.b = b;
  p.c = c;
  p.q_len = s.q_len;
  p.kv_len = s.kv_len;
  p.heads = (int32_t)s.heads;
  p.kv_heads = (int32_t)s.kv_heads;
  p.dim = (int32_t)s.head_dim;
  p.down = nn_ceil_div(s.q_len, SIDE);
  return p;
}

NN_KERNEL(attention_scores) {
  products p = products_of(a->q, a->k, a->scores, a->shape);
  p.across = nn_ceil_div(p.kv_len, SIDE);
  p.scale = a->scale;
  p.causal = a->causal;
  p.wide_a = nn_aligned_16(a->q);
  p.wide_b = nn_aligned_16(a->k);
  const dim3 grid((unsigned)(p.across * p.down * a->shape.batch * a->shape.heads));
  NN_SWITCH_FLOATS(a->dtype, return nn_launch(ctx, scores_kernel<T>, grid, dim3(THREADS), 0, p));
}

NN_KERNEL(attention_output) {
  products p = products_of(a->probs, a->v, a->out, a->shape);
  p.across = nn_ceil_div(p.dim, SIDE);
  p.wide_a = nn_aligned_16(a->probs) && nn_rows_16(p.kv_len, p.kv_len, a->dtype);
  p.wide_b = nn_aligned_16(a->v);
  const dim3 grid((unsigned)(p.across * p.down * a->shape.batch * a->shape.heads));
  NN_SWITCH_FLOATS(a->dtype, return nn_launch(ctx, output_kernel<T>, grid, dim3(THREADS), 0, p));
}
