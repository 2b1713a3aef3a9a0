#include "abi/generated/random.h"
#include "numbers/philox.h"

#include "kernels/number.cuh"

/*
 * A thread makes the numbers of one store of 16 bytes: one block of the generator for 32-bit numbers, two for 16-bit
 * ones. No product is fused with a sum and nothing is approximated; square root and division are exactly rounded. So
 * the bits are those of the CPU engine (cpu/random.c, which says why the series are as long as they are), and a model
 * that is made on a GPU is the same as one made on a CPU.
 */
constexpr int THREADS = 256, BLOCKS_PER_SM = 8; /* by count */

struct sequence {
  void *y;
  int64_t n;
  uint64_t seed, stream, offset;
  float shift, scale; /* low and high - low, or mean and std */
};

__device__ __forceinline__ float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }

/* sqrt(-2 log u) for u = v * 2^-24, v in 1 .. 2^24. u = m * 2^e with m in [sqrt(1/2), sqrt(2)), and
 * log m = 2 artanh(s), s = (m - 1) / (m + 1). ln 2 is cut into a part whose product with e is exact, and the rest. */
__device__ __forceinline__ float radius(uint32_t v) {
  const int32_t u = __float_as_int(times((float)v, 0x1p-24f));
  const int32_t e = (u - 0x3f3504f3) >> 23; /* 0x3f3504f3 is sqrt(1/2) */
  const float m = __int_as_float((int32_t)((uint32_t)u - ((uint32_t)e << 23))), exponent = (float)e;
  const float s = plus(m, -1.0f) / plus(m, 1.0f), z = times(s, s);
  float p = plus(times(z, 1.0f / 9.0f), 1.0f / 7.0f);
  p = plus(times(p, z), 1.0f / 5.0f);
  p = plus(times(p, z), 1.0f / 3.0f);
  p = plus(times(times(p, z), s), s); /* artanh(s) */
  const float low = plus(times(p, -4.0f), -times(exponent, 2.0f * 0x1.7f7d1cp-20f));
  return sqrtf(fmaxf(0.0f, plus(low, -times(exponent, 2.0f * 0x1.62e4p-1f))));
}

/* Cosine and sine of 2 pi w for w = v * 2^-24, v in 0 .. 2^24-1: the nearest quarter turn is taken off exactly, and
 * turns swap and negate the two. */
__device__ __forceinline__ void circle(uint32_t v, float *cosine, float *sine) {
  const uint32_t quarter = (v + (1u << 21)) >> 22;
  const float t = times((float)(int32_t)(v - (quarter << 22)), 0x1p-24f);
  const float x = times(t, 6.28318530717958647692f), z = times(x, x);
  float s = plus(times(z, 1.0f / 362880.0f), -(1.0f / 5040.0f));
  s = plus(times(s, z), 1.0f / 120.0f);
  s = plus(times(s, z), -(1.0f / 6.0f));
  s = plus(times(times(s, z), x), x);
  float c = plus(times(z, -1.0f / 3628800.0f), 1.0f / 40320.0f);
  c = plus(times(c, z), -(1.0f / 720.0f));
  c = plus(times(c, z), 1.0f / 24.0f);
  c = plus(times(c, z), -0.5f);
  c = plus(times(c, z), 1.0f);
  const uint32_t swapped = (__float_as_uint(s) ^ __float_as_uint(c)) & (0u - (quarter & 1u));
  *cosine = __uint_as_float(__float_as_uint(c) ^ swapped ^ ((quarter + 1u) & 2u) << 30);
  *sine = __uint_as_float(__float_as_uint(s) ^ swapped ^ (quarter & 2u) << 30);
}

/* What is made of the four words of a block. */
struct bits {
  static __device__ __forceinline__ void of(const sequence &, const nn_philox_words &word, float (&y)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      y[i] = __uint_as_float(word.w[i]); /* moved, never computed with */
    }
  }
};

struct uniform {
  static __device__ __forceinline__ void of(const sequence &q, const nn_philox_words &word, float (&y)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      y[i] = plus(q.shift, times(q.scale, times((float)(word.w[i] >> 8), 0x1p-24f)));
    }
  }
};

struct normal {
  static __device__ __forceinline__ void of(const sequence &q, const nn_philox_words &word, float (&y)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const float r = radius((word.w[i] >> 8) + 1u);
      float cosine, sine;
      circle(word.w[i + 1] >> 8, &cosine, &sine);
      y[i] = plus(q.shift, times(q.scale, times(cosine, r)));
      y[i + 1] = plus(q.shift, times(q.scale, times(sine, r)));
    }
  }
};

template <class KIND, class T, bool WIDE> __global__ void __launch_bounds__(THREADS) sequence_kernel(sequence q) {
  constexpr int N = nn_per_16<T>;
  T *y = static_cast<T *>(q.y);
  const int64_t vectors = nn_ceil_div(q.n, N);
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < vectors; i += (int64_t)gridDim.x * THREADS) {
    float made[N];
#pragma unroll
    for (int j = 0; j < N; j += 4) {
      float four[4];
      KIND::of(q, nn_philox(q.seed, q.offset + (uint64_t)(i * N + j) / 4, q.stream), four);
#pragma unroll
      for (int e = 0; e < 4; e++) {
        made[j + e] = four[e];
      }
    }
    nn_store_at<WIDE>(y, made, i * N, q.n);
  }
}

template <class KIND, class T> static int32_t sequence_launch(nncuda_ctx *ctx, const sequence &q) {
  const unsigned blocks = nn_blocks(ctx, nn_ceil_div(q.n, nn_per_16<T>), THREADS, BLOCKS_PER_SM);
  return nn_launch(ctx, nn_aligned_16(q.y) ? sequence_kernel<KIND, T, true> : sequence_kernel<KIND, T, false>,
                   dim3(blocks), dim3(THREADS), 0, q);
}

NN_KERNEL(random_bits) {
  return sequence_launch<bits, float>(ctx,
                                      {a->y, a->n, (uint64_t)a->seed, (uint64_t)a->stream, (uint64_t)a->offset, 0, 0});
}

NN_KERNEL(uniform) {
  const sequence q = {
      a->y, a->n, (uint64_t)a->seed, (uint64_t)a->stream, (uint64_t)a->offset, a->low, a->high - a->low};
  NN_SWITCH_FLOATS(a->dtype, return (sequence_launch<uniform, T>(ctx, q)));
}

NN_KERNEL(normal) {
  const sequence q = {a->y, a->n, (uint64_t)a->seed, (uint64_t)a->stream, (uint64_t)a->offset, a->mean, a->std};
  NN_SWITCH_FLOATS(a->dtype, return (sequence_launch<normal, T>(ctx, q)));
}
