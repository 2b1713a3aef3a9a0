/* Writing a row of a paged cache: the lanes of a warp have it, `get(d)` is its element d. */
#ifndef NN_KERNELS_PAGED_APPEND_CUH
#define NN_KERNELS_PAGED_APPEND_CUH

#include "kernels/paged.cuh"
#include "kernels/quant_encode.cuh"

/* Blocks are as nn_encode_q8_0 makes them, NaN where a number of theirs is not finite. */
template <class F, class GET> __device__ __forceinline__ void nn_append_row(uint8_t *to, int dim, const GET &get) {
  const int lane = threadIdx.x % NN_WARP;
  if constexpr (nn_in_blocks<F>) {
    constexpr int BYTES = nn_stored<NNCUDA_FORMAT_Q8_0>::BYTES;
    for (int d = lane; d < dim; d += NN_WARP, to += BYTES) {
      const float x = get(d);
      const bool strange = !(fabsf(x) <= 3.402823466e38f);
      const float most = nn_warp_max(strange ? __int_as_float(0x7f800000) : fabsf(x));
      const bool finite = most <= 3.402823466e38f;
      const nn_step step = nn_q8_0_step(finite ? most : 0.0f);
      to[2 + lane] = finite ? (uint8_t)nn_q8_0_quant(x, step) : 0;
      if (lane == 0) {
        nn_put_f16(to, finite ? step.scale : __int_as_float(0x7fffffff));
      }
    }
  } else {
    for (int d = lane; d < dim; d += NN_WARP) {
      nn_put_number<F>(to + d * (int)sizeof(F), get(d));
    }
  }
}

#endif
