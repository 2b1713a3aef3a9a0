/* What today's families have besides: bounds of scores, gates, rows in 8 bits as numbers, and biases of grouped rows.
 * Bound by memory, and a small part of what is moved beside them: a thread has 16 bytes at a time, or an element where
 * rows are not runs of 16. */
#include "abi/generated/activation.h"

#include "kernels/silu.cuh"

constexpr int THREADS = 256, BLOCKS_PER_SM = 8; /* by count, as in elementwise.cu */

/* ---- one or two inputs, rows ld apart ---- */

struct activation_rows {
  const void *x, *up; /* up is null for a form of one input */
  void *y;
  int64_t rows, dim, ld;
  float first, second; /* options of the form */
};

/* In 16 bits too all that f32 has: gates are few beside the products around them. */
struct softcap {
  static __device__ __forceinline__ float of(float x, float, float cap, float) { return cap * tanhf(x / cap); }
};
struct geglu {
  static __device__ __forceinline__ float of(float x, float up, float, float) {
    const float u = 1.59576912f * x * fmaf(x * x, 0.044715f, 1.0f); /* x/2 * (1 + tanh(u/2)) = x * sigmoid(u) */
    return x / (1.0f + expf(-u)) * up;
  }
};
struct swiglu_clipped {
  static __device__ __forceinline__ float of(float gate, float up, float alpha, float limit) {
    const float g = gate > limit ? limit : gate, u = up > limit ? limit : up < -limit ? -limit : up; /* NaN stays */
    return g / (1.0f + expf(-alpha * g)) * (u + 1.0f);
  }
};

template <class FORM, class T, int N> __global__ void __launch_bounds__(THREADS) activation_kernel(activation_rows p) {
  const T *const x = static_cast<const T *>(p.x), *const up = static_cast<const T *>(p.up);
  const int64_t across = p.dim / N, vectors = p.rows * across; /* N divides dim */
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < vectors; i += (int64_t)gridDim.x * THREADS) {
    const int64_t row = i / across, column = i % across * N, at = row * p.ld + column;
    float a[N], b[N] = {};
    nn_load(a, x + at);
    if (up != nullptr) {
      nn_load(b, up + at);
    }
#pragma unroll
    for (int e = 0; e < N; e++) {
      a[e] = FORM::of(a[e], b[e], p.first, p.second);
    }
    nn_store(static_cast<T *>(p.y) + row * p.dim + column, a);
  }
}

template <class FORM, class T>
static int32_t activation_launch(nncuda_ctx *ctx, const activation_rows &p, int32_t dtype) {
  constexpr int N = nn_per_16<T>;
  const bool wide = nn_aligned_16(p.x, p.up, p.y) && nn_rows_16(p.dim, p.ld, dtype);
  const unsigned blocks = nn_blocks(ctx, nn_ceil_div(p.rows * p.dim, wide ? N : 1), THREADS, BLOCKS_PER_SM);
  return nn_launch(ctx, wide ? activation_kernel<FORM, T, N> : activation_kernel<FORM, T, 1>, dim3(blocks),
                   dim3(THREADS), 0, p);
}

template <class FORM> static int32_t activation_of(nncuda_ctx *ctx, const activation_rows &p, int32_t dtype) {
  NN_SWITCH_FLOATS(dtype, return (activation_launch<FORM, T>(ctx, p, dtype)));
}

NN_KERNEL(softcap) { return activation_of<softcap>(ctx, {a->x, nullptr, a->y, 1, a->n, a->n, a->cap, 0.0f}, a->dtype); }

NN_KERNEL(geglu) {
  return activation_of<geglu>(ctx, {a->gate, a->up, a->y, a->rows, a->dim, a->ld, 0.0f, 0.0f}, a->dtype);
}

NN_KERNEL(swiglu_clipped) {
  return activation_of<swiglu_clipped>(ctx, {a->gate, a->up, a->y, a->rows, a->dim, a->ld, a->alpha, a->limit},
                                       a->dtype);
}

/* ---- the backward direction of a gate ---- */

struct gate_gradients {
  const void *dy, *gate, *up;
  void *dgate, *dup; /* perhaps gate and up themselves: a thread reads what it overwrites before it does */
  int64_t rows, dim, ld;
};

template <class T, int N> __global__ void __launch_bounds__(THREADS) relu2_backward_kernel(gate_gradients p) {
  const int64_t across = p.dim / N, vectors = p.rows * across; /* N divides dim */
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < vectors; i += (int64_t)gridDim.x * THREADS) {
    const int64_t row = i / across, column = i % across * N, at = row * p.ld + column;
    float dy[N], gate[N], up[N];
    nn_load(dy, static_cast<const T *>(p.dy) + row * p.dim + column);
    nn_load(gate, static_cast<const T *>(p.gate) + at);
    nn_load(up, static_cast<const T *>(p.up) + at);
#pragma unroll
    for (int e = 0; e < N; e++) {
      const float positive = gate[e] > 0.0f || gate[e] != gate[e] ? gate[e] : 0.0f; /* of NaN it is NaN */
      gate[e] = dy[e] * up[e] * (positive + positive);
      up[e] = dy[e] * (positive * positive);
    }
    nn_store(static_cast<T *>(p.dgate) + at, gate);
    nn_store(static_cast<T *>(p.dup) + at, up);
  }
}

template <class T> static int32_t relu2_backward_launch(nncuda_ctx *ctx, const gate_gradients &p, int32_t dtype) {
  constexpr int N = nn_per_16<T>;
  const bool wide = nn_aligned_16(p.dy, p.gate, p.up, p.dgate, p.dup) && nn_rows_16(p.dim, p.ld, dtype);
  const unsigned blocks = nn_blocks(ctx, nn_ceil_div(p.rows * p.dim, wide ? N : 1), THREADS, BLOCKS_PER_SM);
  return nn_launch(ctx, wide ? relu2_backward_kernel<T, N> : relu2_backward_kernel<T, 1>, dim3(blocks), dim3(THREADS),
                   0, p);
}

NN_KERNEL(relu2_gate_backward) {
  const gate_gradients p = {a->dy, a->gate, a->up, a->dgate, a->dup, a->rows, a->dim, a->ld};
  NN_SWITCH_FLOATS(a->dtype, return (relu2_backward_launch<T>(ctx, p, a->dtype)));
}

/* ---- rows in 8 bits ---- */

/* A block has one row at a time. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    act_dequant_kernel(const int8_t *codes, const float *scale, T *x, int64_t rows, int64_t cols) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float factor = scale[row];
    for (int64_t i = threadIdx.x; i < cols; i += THREADS) {
      x[row * cols + i] = nn_from_float<T>((float)codes[row * cols + i] * factor);
    }
  }
}

NN_KERNEL(act_dequant_i8) {
  const unsigned blocks = nn_blocks(ctx, a->rows, 1, BLOCKS_PER_SM);
  NN_SWITCH_FLOATS(a->dtype, return nn_launch(ctx, act_dequant_kernel<T>, dim3(blocks), dim3(THREADS), 0,
                                              static_cast<const int8_t *>(a->codes), a->scale, static_cast<T *>(a->x),
                                              a->rows, a->cols));
}

/* ---- biases ---- */

struct bias_rows {
  const void *x, *bias;
  const int32_t *offsets;
  void *y;
  int64_t rows, dim, groups;
  nn_rule first_offset;
  nn_range other_offsets;

  /* offsets[0] = 0, never falling, the last at most `rows`. The first block reports the first that is bad. */
  __device__ __forceinline__ void check() const {
    if (blockIdx.x != 0) {
      return;
    }
    for (int64_t g = threadIdx.x; g < groups; g += THREADS) {
      if (g == 0 && offsets[0] != 0) {
        first_offset.broken_by(0, offsets[0]);
      }
      nn_range range = other_offsets;
      range.low = offsets[g];
      if (range.low >= 0 && range.low <= range.high) { /* else that one is the bad one */
        range.holds(g + 1, offsets[g + 1]);
      }
    }
  }
};

// spills: bias_kernel: two numbers wait in memory while the first block looks at the offsets
/* A block has one row at a time. Its group is found by halving: whatever the offsets are, it is one of the groups. */
template <class T> __global__ void __launch_bounds__(THREADS) bias_kernel(bias_rows p) {
  for (int64_t row = blockIdx.x; row < p.rows && row < p.offsets[p.groups]; row += gridDim.x) {
    int64_t low = 0, high = p.groups; /* offsets[low] <= row < offsets[high] */
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (p.offsets[middle] <= row ? low : high) = middle;
    }
    const T *const x = static_cast<const T *>(p.x) + row * p.dim, *const bias =
                                                                      static_cast<const T *>(p.bias) + low * p.dim;
    T *const y = static_cast<T *>(p.y) + row * p.dim;
    for (int64_t i = threadIdx.x; i < p.dim; i += THREADS) {
      y[i] = nn_from_float<T>(nn_to_float(x[i]) + nn_to_float(bias[i]));
    }
  }
  p.check();
}

NN_KERNEL(grouped_bias) {
  const bias_rows p = {a->x,
                       a->bias,
                       a->offsets,
                       a->y,
                       a->rows,
                       a->dim,
                       a->groups,
                       nn_rule_of(ctx, "offsets", "0"),
                       nn_range_of(ctx, "offsets", 0, a->rows).noted("the number of rows")};
  const unsigned blocks = nn_blocks(ctx, a->rows, 1, BLOCKS_PER_SM);
  NN_SWITCH_FLOATS(a->dtype, return nn_launch(ctx, bias_kernel<T>, dim3(blocks), dim3(THREADS), 0, p));
}
