/* AdamW with moments of 16 and of 8 bits. */
#include "kernels/optimizer_adamw.cuh"
#include "kernels/reduce.cuh"

NN_KERNEL(adamw_step_bf16) { return adamw<nn_bf16>(ctx, a); }

/* ---- f8: a warp a block of moments, eight elements a lane, which stay in registers until the scales are known ---- */

constexpr int VECTORS = NN_MOMENT_BLOCK / (NN_WARP * N);

struct nn_largest {
  static __device__ __forceinline__ uint32_t of(uint32_t a, uint32_t b) { return a > b ? a : b; }
};

template <bool WIDE>
__device__ __forceinline__ void load_codes(uint8_t (&to)[N], const uint8_t *from, int64_t i, int64_t n) {
  if (WIDE && i + N <= n) {
    const nn_vector<uint8_t, N> v = *reinterpret_cast<const nn_vector<uint8_t, N> *>(from + i);
#pragma unroll
    for (int e = 0; e < N; e++) {
      to[e] = v.x[e];
    }
  } else {
#pragma unroll
    for (int e = 0; e < N; e++) {
      to[e] = i + e < n ? from[i + e] : 0;
    }
  }
}

template <bool WIDE>
__device__ __forceinline__ void store_codes(uint8_t *to, const uint8_t (&from)[N], int64_t i, int64_t n) {
  if (WIDE && i + N <= n) {
    nn_vector<uint8_t, N> v;
#pragma unroll
    for (int e = 0; e < N; e++) {
      v.x[e] = from[e];
    }
    *reinterpret_cast<nn_vector<uint8_t, N> *>(to + i) = v;
  } else {
#pragma unroll
    for (int e = 0; e < N; e++) {
      if (i + e < n) {
        to[i + e] = from[e];
      }
    }
  }
}

/* The number of a code without sign, of BITS bits of mantissa. Where the exponent is 0 the numbers are evenly spaced:
 * they are read as those of the binade of 2^-14, which is then taken off. */
template <int BITS> __device__ __forceinline__ float decoded(uint32_t code) {
  const bool even = code < 1u << BITS;
  const float x = __uint_as_float((code << (23 - BITS)) + NN_MOMENT_EVEN - (even ? 0u : 0x800000u));
  return even ? __fadd_rn(x, -__uint_as_float(NN_MOMENT_EVEN)) : x;
}

/* The code, without sign, of x in 0 .. 1; `chance` has 16 bits. */
template <int BITS> __device__ __forceinline__ uint32_t encoded(float x, uint32_t chance) {
  const bool even = __float_as_uint(x) < NN_MOMENT_EVEN;
  const float y = even ? __fadd_rn(x, __uint_as_float(NN_MOMENT_EVEN)) : x;
  const uint32_t pattern = __float_as_uint(y) + (chance << (7 - BITS));
  return (pattern - (NN_MOMENT_EVEN - (even ? 0u : 0x800000u))) >> (23 - BITS);
}

/* Zero, an infinity or a NaN: nothing can be a share of it, and the codes are 0. */
__device__ __forceinline__ bool without_codes(float scale) { return !(scale > 0.0f) || isinf(scale); }

template <class T, bool WIDE>
__global__ void __launch_bounds__(THREADS) f8_kernel(nn_adamw_step_f8_args a, const adamw_factors *factors) {
  const adamw_factors f = *factors;
  if (f.idle) {
    return;
  }
  uint8_t *first = static_cast<uint8_t *>(a.m), *second = static_cast<uint8_t *>(a.r);
  T *copy = static_cast<T *>(a.param_copy);
  const int lane = threadIdx.x % NN_WARP;
  const int64_t blocks = nn_moment_blocks(a.n), stride = (int64_t)gridDim.x * (THREADS / NN_WARP);
  for (int64_t block = (int64_t)blockIdx.x * (THREADS / NN_WARP) + threadIdx.x / NN_WARP; block < blocks;
       block += stride) {
    const uint32_t key = nn_moment_key(f.step, a.first / NN_MOMENT_BLOCK + block);
    const float m_old = a.m_scale[block], r_old = a.r_scale[block];
    float grad[VECTORS][N], param[VECTORS][N], m[VECTORS][N], r[VECTORS][N];
    uint8_t m_code[VECTORS][N], r_code[VECTORS][N];
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
      const int64_t i = block * NN_MOMENT_BLOCK + (j * NN_WARP + lane) * N;
      nn_load_at<WIDE>(grad[j], a.grad, i, a.n);
      nn_load_at<WIDE>(param[j], a.param, i, a.n);
      load_codes<WIDE>(m_code[j], first, i, a.n);
      load_codes<WIDE>(r_code[j], second, i, a.n);
    }
    uint32_t m_most = 0, r_most = 0; /* bit patterns of magnitudes, in the order of the numbers, NaN last */
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
      const int64_t i = block * NN_MOMENT_BLOCK + (j * NN_WARP + lane) * N;
#pragma unroll
      for (int e = 0; e < N; e++) {
        const uint32_t sign = (m_code[j][e] & 0x80u) << 24;
        const float m_size = __fmul_rn(decoded<NN_MOMENT_M_BITS>(m_code[j][e] & 0x7fu), m_old);
        const float root_before = __fmul_rn(decoded<NN_MOMENT_R_BITS>(r_code[j][e]), r_old);
        const float g = __fmul_rn(grad[j][e], f.grad_scale);
        m[j][e] = adamw_first(a, f, __uint_as_float(__float_as_uint(m_size) ^ sign), g);
        r[j][e] = sqrtf(adamw_second(a, f, __fmul_rn(root_before, root_before), g));
        const float root = __fadd_rn(__fmul_rn(r[j][e], f.root_scale), a.eps);
        param[j][e] = adamw_param(a, f, param[j][e], i + e, m[j][e], root);
        if (i + e < a.n) {
          m_most = nn_largest::of(m_most, __float_as_uint(m[j][e]) & 0x7fffffffu);
          r_most = nn_largest::of(r_most, __float_as_uint(r[j][e]) & 0x7fffffffu);
        }
      }
      nn_store_at<WIDE>(a.param, param[j], i, a.n);
      if (copy != nullptr) {
        nn_store_at<WIDE>(copy, param[j], i, a.n);
      }
    }
    const float m_scale = __uint_as_float(nn_warp_reduce<nn_largest>(m_most));
    const float r_scale = __uint_as_float(nn_warp_reduce<nn_largest>(r_most));
    if (lane == 0) {
      a.m_scale[block] = m_scale;
      a.r_scale[block] = r_scale;
    }
    const bool m_none = without_codes(m_scale), r_none = without_codes(r_scale);
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
      const int64_t i = block * NN_MOMENT_BLOCK + (j * NN_WARP + lane) * N;
#pragma unroll
      for (int e = 0; e < N; e++) {
        const uint32_t w = word_of(key, i + e);
        const uint32_t m_size = m_none ? 0 : encoded<NN_MOMENT_M_BITS>(fabsf(m[j][e]) / m_scale, w & 0xffffu);
        const uint32_t r_size = r_none ? 0 : encoded<NN_MOMENT_R_BITS>(r[j][e] / r_scale, w >> 16);
        const uint32_t sign = m_none ? 0 : __float_as_uint(m[j][e]) >> 31 << 7;
        m_code[j][e] = (uint8_t)(m_size | sign);
        r_code[j][e] = (uint8_t)(r_size == 0 && r[j][e] > 0.0f && !r_none ? 1 : r_size);
      }
      store_codes<WIDE>(first, m_code[j], i, a.n);
      store_codes<WIDE>(second, r_code[j], i, a.n);
    }
  }
}

template <class T>
static int32_t f8_launch(nncuda_ctx *ctx, const nn_adamw_step_f8_args *a, const adamw_factors *factors) {
  const uintptr_t codes = reinterpret_cast<uintptr_t>(a->m) | reinterpret_cast<uintptr_t>(a->r);
  const bool wide = nn_aligned_16(a->grad, a->param) && codes % N == 0 &&
                    reinterpret_cast<uintptr_t>(a->param_copy) % (N * sizeof(T)) == 0;
  const unsigned blocks = nn_blocks(ctx, nn_moment_blocks(a->n), THREADS / NN_WARP, BLOCKS_PER_SM);
  return nn_launch(ctx, wide ? f8_kernel<T, true> : f8_kernel<T, false>, dim3(blocks), dim3(THREADS), 0, *a, factors);
}

NN_KERNEL(adamw_step_f8) {
  adamw_factors *factors;
  const int32_t status = adamw_factors_of(ctx, *a, &factors);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  NN_SWITCH_FLOATS(a->dtype, return f8_launch<T>(ctx, a, factors));
}
