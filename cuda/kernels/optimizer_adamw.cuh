/* What the forms of AdamW share, whatever their moments are kept in: the factors of a step, and the update. */
#ifndef NN_KERNELS_OPTIMIZER_ADAMW_CUH
#define NN_KERNELS_OPTIMIZER_ADAMW_CUH

#include "kernels/number.cuh"
#include "kernels/optimizer_workspace.h"

/* Blocks a multiprocessor of what goes through a whole arena: by count, as in elementwise.cu, not measured on a GPU
 * yet. */
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
  float lr, keep;         /* keep: what weight decay leaves of a parameter */
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
    f.keep = (float)(1.0 - (double)a.lr[0] * (double)a.weight_decay);
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
  return __fadd_rn(__fmul_rn(param, i < a.n_decay ? f.keep : 1.0f), -step);
}

#endif
