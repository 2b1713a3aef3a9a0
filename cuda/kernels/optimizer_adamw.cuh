/* What the forms of AdamW share, whatever their moments are kept in: the factors of a step, and the update; and the
 * forms that go element by element. */
#ifndef NN_KERNELS_OPTIMIZER_ADAMW_CUH
#define NN_KERNELS_OPTIMIZER_ADAMW_CUH

#include "kernels/number.cuh"
#include "kernels/optimizer_workspace.h"
#include "numbers/moments.h"

/* Blocks a multiprocessor of what goes through a whole arena: by count, as in elementwise.cu. */
constexpr int THREADS = 256, BLOCKS_PER_SM = 8;

/* A product with a sum is fused where cpu/optimizer_adamw.h fuses it and nowhere else, so that both engines make the
 * same step of the same gradients. */

/* What is the same for every parameter, computed once, in f64. */
struct adamw_factors {
  int32_t idle; /* nothing is to be done */
  int32_t step;
  float grad_scale, one_less_beta1, one_less_beta2;
  float m_scale, v_scale; /* the bias corrections 1/(1-beta1^t), 1/(1-beta2^t) */
  float root_scale;       /* the square root of v_scale */
  float lr, decay;        /* decay: what weight decay leaves of a parameter */
};

/* ARGS: those of any form. */
template <class ARGS> __global__ void adamw_factors_kernel(ARGS a, adamw_factors *factors, nn_rule step) {
  adamw_factors f = {};
  const int32_t t = a.step[0];
  f.idle = a.skip != nullptr && a.skip[0] != 0;
  if (!f.idle && t < 1) {
    step.broken_by(0, t);
    f.idle = 1;
  }
  if (!f.idle) {
    const double v_scale = 1.0 / (1.0 - pow((double)a.beta2, (double)t));
    f.step = t;
    f.grad_scale = a.grad_scale == nullptr ? 1.0f : a.grad_scale[0];
    f.one_less_beta1 = (float)(1.0 - (double)a.beta1);
    f.one_less_beta2 = (float)(1.0 - (double)a.beta2);
    f.m_scale = (float)(1.0 / (1.0 - pow((double)a.beta1, (double)t)));
    f.v_scale = (float)v_scale;
    f.root_scale = (float)sqrt(v_scale);
    f.lr = a.lr[0];
    f.decay = (float)(1.0 - (double)a.lr[0] * (double)a.weight_decay);
  }
  *factors = f;
}

/* Computes them on the device, for the kernels that come next. */
template <class ARGS> static int32_t adamw_factors_of(nncuda_ctx *ctx, const ARGS &a, adamw_factors **factors) {
  static_assert(sizeof(adamw_factors) == NN_ADAMW_FACTORS_BYTES);
  *factors = static_cast<adamw_factors *>(nn_adamw_lay_out(nn_workspace_of(ctx)));
  return nn_launch(ctx, adamw_factors_kernel<ARGS>, dim3(1), dim3(1), 0, a, *factors,
                   nn_rule_of(ctx, "step", "at least 1"));
}

template <class ARGS>
__device__ __forceinline__ float adamw_first(const ARGS &a, const adamw_factors &f, float m, float grad) {
  return fmaf(a.beta1, m, __fmul_rn(f.one_less_beta1, grad));
}

template <class ARGS>
__device__ __forceinline__ float adamw_second(const ARGS &a, const adamw_factors &f, float v, float grad) {
  return fmaf(a.beta2, v, __fmul_rn(f.one_less_beta2, __fmul_rn(grad, grad)));
}

/* Parameter i. `root` is what the first moment is divided by: the corrected root of the second, and eps. */
template <class ARGS>
__device__ __forceinline__ float adamw_param(const ARGS &a, const adamw_factors &f, float param, int64_t i, float m,
                                             float root) {
  const float step = __fmul_rn(f.lr, __fmul_rn(m, f.m_scale) / root);
  return __fadd_rn(__fmul_rn(param, i < a.n_decay ? f.decay : 1.0f), -step);
}

/* The word of chance of element i, with the key of its block. */
__device__ __forceinline__ uint32_t word_of(uint32_t key, int64_t i) {
  return nn_moment_mix(key + (uint32_t)(i % NN_MOMENT_BLOCK) * NN_MOMENT_STRIDE);
}

/* x with the lower half of its bits 0: up when they and `chance` carry. Infinities and NaN stay, the latter quiet. */
__device__ __forceinline__ float rounded_to_bf16(float x, uint32_t chance) {
  const uint32_t bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu;
  const uint32_t special = bits | (magnitude > 0x7f800000u ? 0x400000u : 0u);
  return __uint_as_float((magnitude >= 0x7f800000u ? special : bits + chance) & 0xffff0000u);
}

/* Elements of a thread's vector: 16 bytes of f32. */
constexpr int N = 4;

/* Moments of type M: f32, or bf16 that are rounded by chance. */
template <class ARGS, class M, class T, bool WIDE>
__global__ void __launch_bounds__(THREADS) adamw_kernel(ARGS a, const adamw_factors *factors) {
  constexpr bool BY_CHANCE = sizeof(M) == 2;
  const adamw_factors f = *factors;
  if (f.idle) {
    return;
  }
  M *first = static_cast<M *>(a.m), *second = static_cast<M *>(a.v);
  T *copy = static_cast<T *>(a.param_copy);
  const int64_t vectors = nn_ceil_div(a.n, N);
  for (int64_t j = (int64_t)blockIdx.x * THREADS + threadIdx.x; j < vectors; j += (int64_t)gridDim.x * THREADS) {
    const int64_t i = j * N;
    uint32_t key = 0;
    if constexpr (BY_CHANCE) {
      key = nn_moment_key(f.step, (a.first + i) / NN_MOMENT_BLOCK);
    }
    float grad[N], m[N], v[N], param[N];
    nn_load_at<WIDE>(grad, a.grad, i, a.n);
    nn_load_at<WIDE>(m, first, i, a.n);
    nn_load_at<WIDE>(v, second, i, a.n);
    nn_load_at<WIDE>(param, a.param, i, a.n);
#pragma unroll
    for (int e = 0; e < N; e++) {
      const uint32_t w = BY_CHANCE ? word_of(key, i + e) : 0;
      const float g = __fmul_rn(grad[e], f.grad_scale);
      m[e] = adamw_first(a, f, m[e], g);
      v[e] = adamw_second(a, f, v[e], g);
      const float root = __fadd_rn(sqrtf(__fmul_rn(v[e], f.v_scale)), a.eps);
      param[e] = adamw_param(a, f, param[e], i + e, m[e], root);
      if (BY_CHANCE) {
        m[e] = rounded_to_bf16(m[e], w & 0xffffu);
        v[e] = rounded_to_bf16(v[e], w >> 16);
      }
    }
    nn_store_at<WIDE>(first, m, i, a.n);
    nn_store_at<WIDE>(second, v, i, a.n);
    nn_store_at<WIDE>(a.param, param, i, a.n);
    if (copy != nullptr) {
      nn_store_at<WIDE>(copy, param, i, a.n);
    }
  }
}

template <class M, class T, class ARGS>
static int32_t adamw_launch(nncuda_ctx *ctx, const ARGS *a, const adamw_factors *factors) {
  const uintptr_t moments = reinterpret_cast<uintptr_t>(a->m) | reinterpret_cast<uintptr_t>(a->v);
  const bool wide = nn_aligned_16(a->grad, a->param) && moments % (N * sizeof(M)) == 0 &&
                    reinterpret_cast<uintptr_t>(a->param_copy) % (N * sizeof(T)) == 0;
  const unsigned blocks = nn_blocks(ctx, nn_ceil_div(a->n, N), THREADS, BLOCKS_PER_SM);
  return nn_launch(ctx, wide ? adamw_kernel<ARGS, M, T, true> : adamw_kernel<ARGS, M, T, false>, dim3(blocks),
                   dim3(THREADS), 0, *a, factors);
}

/* A step with moments of type M. */
template <class M, class ARGS> static int32_t adamw(nncuda_ctx *ctx, const ARGS *a) {
  adamw_factors *factors;
  const int32_t status = adamw_factors_of(ctx, *a, &factors);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  NN_SWITCH_FLOATS(a->dtype, return (adamw_launch<M, T>(ctx, a, factors)));
}

#endif
