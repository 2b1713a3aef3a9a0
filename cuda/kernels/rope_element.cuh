/* The rotary embedding of one element of a head: the bits of rope.cu, for kernels that rotate what they load. */
#ifndef NN_KERNELS_ROPE_ELEMENT_CUH
#define NN_KERNELS_ROPE_ELEMENT_CUH

#include "kernels/kernel.cuh"

struct nn_turn {
  const float *cosine, *sine; /* of the token's position */
  int32_t dim;
  bool halves; /* NNCUDA_ROPE_HALF: elements d and d + dim / 2 are a pair; else 2i and 2i + 1 */

  /* Element d of the head whose elements are get(0), get(1), ... */
  template <class GET> __device__ __forceinline__ float operator()(int d, const GET &get) const {
    const int half = dim / 2;
    const bool first = halves ? d < half : d % 2 == 0;
    const int pair = !halves ? d / 2 : first ? d : d - half, step = halves ? half : 1;
    const float c = cosine[pair], s = sine[pair], other = __fmul_rn(get(first ? d + step : d - step), s);
    return fmaf(get(d), c, first ? -other : other);
  }
};

#endif
