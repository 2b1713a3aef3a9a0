#include "abi/elementwise.h"

#include "kernels/silu.cuh"

/*
 * Bound by memory: each thread moves 16 bytes at a time and has several loads under way before it computes. What is not
 * aligned to 16 bytes, or has rows that are not whole runs of 16, goes element by element.
 *
 * THREADS * UNROLL * 16 bytes is what a block has under way an input: with eight blocks a multiprocessor, 128 KiB
 * there, several times what latency times bandwidth asks for. By count.
 */
constexpr int THREADS = 256, UNROLL = 4, BLOCKS_PER_SM = 8;

/* ---- formulas; E is the type whose precision the result needs ---- */

struct silu {
  static constexpr int inputs = 1;
  template <class E> static __device__ __forceinline__ float of(float x, float, float) { return silu_of<E>(x); }
};
struct silu_backward {
  static constexpr int inputs = 2;
  template <class E> static __device__ __forceinline__ float of(float dy, float x, float) {
    return dy * silu_slope(x, sigmoid<E>(x));
  }
};
struct add {
  static constexpr int inputs = 2;
  template <class E> static __device__ __forceinline__ float of(float a, float b, float) { return a + b; }
};
struct mul {
  static constexpr int inputs = 2;
  template <class E> static __device__ __forceinline__ float of(float a, float b, float) { return a * b; }
};
struct scale {
  static constexpr int inputs = 1;
  template <class E> static __device__ __forceinline__ float of(float x, float, float alpha) { return x * alpha; }
};
struct identity {
  static constexpr int inputs = 1;
  template <class E> static __device__ __forceinline__ float of(float x, float, float) { return x; }
};
template <class T> struct round_to {
  static constexpr int inputs = 1;
  template <class E> static __device__ __forceinline__ float of(float x, float, float) { return nn_rounded<T>(x); }
};

/* ---- one or two inputs and one output, all of n elements ---- */

/* y may be a or b, so nothing is __restrict__; each thread reads what it overwrites before it does. */
// sass: flat_kernel<add, nn_bf16, nn_bf16, 8> on sm_90: at least 7 LDG.128 under way
template <class FORMULA, class X, class Y, int N>
__global__ void __launch_bounds__(THREADS) flat_kernel(const X *a, const X *b, Y *y, int64_t n, float alpha) {
  const int64_t vectors = n / N, step = (int64_t)gridDim.x * THREADS * UNROLL;
  for (int64_t first = (int64_t)blockIdx.x * THREADS * UNROLL + threadIdx.x; first < vectors; first += step) {
    nn_vector<X, N> p[UNROLL], q[UNROLL];
#pragma unroll
    for (int j = 0; j < UNROLL; j++) {
      const int64_t i = first + j * THREADS;
      if (i < vectors) {
        p[j] = nn_load_raw<N>(a + i * N);
        if (FORMULA::inputs == 2) {
          q[j] = nn_load_raw<N>(b + i * N);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < UNROLL; j++) {
      const int64_t i = first + j * THREADS;
      if (i < vectors) {
        float u[N], v[N] = {};
        nn_widen(u, p[j]);
        if (FORMULA::inputs == 2) {
          nn_widen(v, q[j]);
        }
#pragma unroll
        for (int e = 0; e < N; e++) {
          u[e] = FORMULA::template of<X>(u[e], v[e], alpha);
        }
        nn_store(y + i * N, u);
      }
    }
  }
  const int64_t rest = vectors * N + threadIdx.x;
  if (blockIdx.x == 0 && rest < n) {
    const float second = FORMULA::inputs == 2 ? nn_to_float(b[rest]) : 0.0f;
    y[rest] = nn_from_float<Y>(FORMULA::template of<X>(nn_to_float(a[rest]), second, alpha));
  }
}

template <class FORMULA, class X, class Y, int N>
static int32_t flat_launch(nncuda_ctx *ctx, const void *a, const void *b, void *y, int64_t n, float alpha) {
  const unsigned blocks = nn_blocks(ctx, nn_ceil_div(n, N), THREADS * UNROLL, BLOCKS_PER_SM);
  return nn_launch(ctx, flat_kernel<FORMULA, X, Y, N>, dim3(blocks), dim3(THREADS), 0, static_cast<const X *>(a),
                   static_cast<const X *>(b), static_cast<Y *>(y), n, alpha);
}

/* The wider type of the two fills 16 bytes. */
template <class FORMULA, class X, class Y>
static int32_t flat_by_alignment(nncuda_ctx *ctx, const void *a, const void *b, void *y, int64_t n, float alpha) {
  constexpr int N = nn_per_16<X> < nn_per_16<Y> ? nn_per_16<X> : nn_per_16<Y>;
  return nn_aligned_16(a, b, y) ? flat_launch<FORMULA, X, Y, N>(ctx, a, b, y, n, alpha)
                                : flat_launch<FORMULA, X, Y, 1>(ctx, a, b, y, n, alpha);
}

template <class FORMULA>
static int32_t flat_of(nncuda_ctx *ctx, const void *a, const void *b, void *y, int64_t n, float alpha, int32_t dtype) {
  NN_SWITCH_FLOATS(dtype, return (flat_by_alignment<FORMULA, T, T>(ctx, a, b, y, n, alpha)));
}

NN_KERNEL(silu) { return flat_of<silu>(ctx, a->x, nullptr, a->y, a->n, 0, a->dtype); }

NN_KERNEL(silu_backward) { return flat_of<silu_backward>(ctx, a->dy, a->x, a->dx, a->n, 0, a->dtype); }

NN_KERNEL(add) { return flat_of<add>(ctx, a->a, a->b, a->y, a->n, 0, a->dtype); }

NN_KERNEL(mul) { return flat_of<mul>(ctx, a->a, a->b, a->y, a->n, 0, a->dtype); }

NN_KERNEL(scale) { return flat_of<scale>(ctx, a->x, nullptr, a->y, a->n, a->alpha, a->dtype); }

template <class X> static int32_t cast_from(nncuda_ctx *ctx, const nn_cast_args *a) {
  NN_SWITCH_FLOATS(a->dtype_y, return (flat_by_alignment<identity, X, T>(ctx, a->x, nullptr, a->y, a->n, 0)));
}

NN_KERNEL(cast) { NN_SWITCH_FLOATS(a->dtype_x, return cast_from<T>(ctx, a)); }

NN_KERNEL(round) {
  return a->dtype == NNCUDA_F16 ? flat_by_alignment<round_to<nn_f16>, float, float>(ctx, a->x, nullptr, a->y, a->n, 0)
                                : flat_by_alignment<round_to<nn_bf16>, float, float>(ctx, a->x, nullptr, a->y, a->n, 0);
}

/* ---- gates: rows of `gate` and `up`, ld apart ---- */

struct gate_rows {
  const void *gate, *up, *dy;
  void *y, *dup; /* y is dgate in the backward direction */
  int64_t rows, dim, ld, ld_y;
  const int32_t *used; /* how many of the rows there are; null for all */
  nn_range uses;
};

struct swiglu {
  static constexpr bool backward = false;
  template <class E> static __device__ __forceinline__ float of(float gate, float up) { return silu_of<E>(gate) * up; }
};
struct relu2_gate {
  static constexpr bool backward = false;
  template <class E> static __device__ __forceinline__ float of(float gate, float up) {
    const float positive = gate > 0.0f || gate != gate ? gate : 0.0f; /* of NaN it is NaN */
    return positive * positive * up;
  }
};
struct swiglu_backward {
  static constexpr bool backward = true;
};

template <class FORM, class T, int N> __global__ void __launch_bounds__(THREADS) gate_kernel(gate_rows p) {
  const T *gate = static_cast<const T *>(p.gate), *up = static_cast<const T *>(p.up);
  const int64_t rows = p.used == nullptr ? p.rows : *p.used;
  if (p.used != nullptr && !p.uses.holds(0, rows)) {
    return;
  }
  const int64_t across = p.dim / N, vectors = rows * across; /* N divides dim */
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < vectors; i += (int64_t)gridDim.x * THREADS) {
    const int64_t row = i / across, column = i % across * N, at = row * p.ld + column;
    float g[N], u[N], y[N];
    nn_load(g, gate + at);
    nn_load(u, up + at);
    if constexpr (FORM::backward) {
      float dy[N], dup[N];
      nn_load(dy, static_cast<const T *>(p.dy) + row * p.dim + column);
#pragma unroll
      for (int e = 0; e < N; e++) {
        y[e] = dy[e];
        swiglu_slopes<T>(y[e], dup[e], g[e], u[e]);
      }
      nn_store(static_cast<T *>(p.dup) + at, dup);
    } else {
#pragma unroll
      for (int e = 0; e < N; e++) {
        y[e] = FORM::template of<T>(g[e], u[e]);
      }
    }
    nn_store(static_cast<T *>(p.y) + row * p.ld_y + column, y);
  }
}

template <class FORM, class T> static int32_t gate_launch(nncuda_ctx *ctx, const gate_rows &p, int32_t dtype) {
  constexpr int N = nn_per_16<T>;
  const bool wide = nn_aligned_16(p.gate, p.up, p.dy, p.y, p.dup) && nn_rows_16(p.dim, p.ld, dtype);
  const unsigned blocks = nn_blocks(ctx, nn_ceil_div(p.rows * p.dim, wide ? N : 1), THREADS, BLOCKS_PER_SM);
  return nn_launch(ctx, wide ? gate_kernel<FORM, T, N> : gate_kernel<FORM, T, 1>, dim3(blocks), dim3(THREADS), 0, p);
}

template <class FORM> static int32_t gate_of(nncuda_ctx *ctx, gate_rows p, int32_t dtype) {
  p.uses = nn_range_of(ctx, "used", 0, p.rows).noted("the number of rows");
  if (p.ld == p.dim && p.used == nullptr) { /* dense: one long row */
    p.dim *= p.rows;
    p.ld = p.ld_y = p.dim;
    p.rows = 1;
  }
  NN_SWITCH_FLOATS(dtype, return (gate_launch<FORM, T>(ctx, p, dtype)));
}

NN_KERNEL(swiglu) {
  return gate_of<swiglu>(ctx, {a->gate, a->up, nullptr, a->y, nullptr, a->rows, a->dim, a->ld, a->dim, a->used, {}},
                         a->dtype);
}

NN_KERNEL(relu2_gate) {
  return gate_of<relu2_gate>(ctx, {a->gate, a->up, nullptr, a->y, nullptr, a->rows, a->dim, a->ld, a->dim, nullptr, {}},
                             a->dtype);
}

NN_KERNEL(swiglu_backward) {
  return gate_of<swiglu_backward>(
      ctx, {a->gate, a->up, a->dy, a->dgate, a->dup, a->rows, a->dim, a->ld, a->ld, a->used, {}}, a->dtype);
}

/* ---- fill ---- */

/* The value in four bytes: one element, or as many as fit. */
__device__ __forceinline__ unsigned fill_word(float value, int32_t dtype) {
  switch (dtype) {
  case NNCUDA_F32:
    return __float_as_uint(value);
  case NNCUDA_I32:
    return (unsigned)(int32_t)value;
  case NNCUDA_I8:
    return (unsigned char)(signed char)value * 0x01010101u;
  case NNCUDA_F16:
    return nn_f32_to_f16(value) * 0x00010001u;
  default:
    return nn_f32_to_bf16(value) * 0x00010001u;
  }
}

/* y is aligned to its elements, so the pattern keeps its phase wherever a run of 16 bytes begins. What lies before the
 * first and after the last goes byte by byte. */
__global__ void __launch_bounds__(THREADS) fill_kernel(unsigned char *y, int64_t bytes, float value, int32_t dtype) {
  const unsigned word = fill_word(value, dtype);
  const int64_t before = (int64_t)((0 - reinterpret_cast<uintptr_t>(y)) % 16), head = before < bytes ? before : bytes;
  const int64_t vectors = (bytes - head) / 16, tail = head + vectors * 16;
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < vectors; i += (int64_t)gridDim.x * THREADS) {
    reinterpret_cast<uint4 *>(y + head)[i] = make_uint4(word, word, word, word);
  }
  if (blockIdx.x == 0 && threadIdx.x < 16) {
    const int64_t i = threadIdx.x, phase = reinterpret_cast<uintptr_t>(y) % 4;
    if (i < head) {
      y[i] = (unsigned char)(word >> (i + phase) % 4 * 8);
    }
    if (tail + i < bytes) {
      y[tail + i] = (unsigned char)(word >> (tail + i + phase) % 4 * 8);
    }
  }
}

NN_KERNEL(fill) {
  const bool byte = a->dtype == NNCUDA_I8, half = a->dtype == NNCUDA_F16 || a->dtype == NNCUDA_BF16;
  const int64_t bytes = a->n * (byte ? 1 : half ? 2 : 4);
  const unsigned blocks = nn_blocks(ctx, nn_ceil_div(bytes, 16), THREADS, BLOCKS_PER_SM);
  return nn_launch(ctx, fill_kernel, dim3(blocks), dim3(THREADS), 0, static_cast<unsigned char *>(a->y), bytes,
                   a->value, a->dtype);
}

/* ---- increment ---- */

/* For short arrays, a counter a sequence: a warp's accesses are whole lines whatever the alignment. */
__global__ void __launch_bounds__(THREADS) increment_kernel(int32_t *x, int64_t n, int32_t by, nn_range range) {
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
    const int32_t value = x[i];
    if (range.holds(i, value)) {
      x[i] = value + by;
    }
  }
}

NN_KERNEL(increment) {
  const nn_range range = nn_range_of(ctx, "x", nn_increment_low(a->by), nn_increment_high(a->by));
  return nn_launch(ctx, increment_kernel, dim3(nn_blocks(ctx, a->n, THREADS, BLOCKS_PER_SM)), dim3(THREADS), 0, a->x,
                   a->n, a->by, range.noted("so that x + by is an i32"));
}
