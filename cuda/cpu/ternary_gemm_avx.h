/* The backend of products with ternary weights that has vectors alone: AVX2, AVX-512 and NEON. */
#ifndef NN_CPU_TERNARY_GEMM_AVX_H
#define NN_CPU_TERNARY_GEMM_AVX_H

#include "ternary_gemm_vector.h"

NN_PLAIN NN_INLINE ternary_form ternary_form_of(int64_t m) {
  (void)m;
  return (ternary_form){.rows = 1, .columns = TERNARY_STEP, .bytes = 1};
}

NN_PLAIN NN_INLINE int64_t ternary_work_bytes(void) { return 0; }

NN_INLINE void ternary_pack_row(const ternary_activations *acts, int64_t r, const int8_t *codes, int64_t k) {
  vector_pack_row(acts, r, codes, k);
}

NN_INLINE void ternary_product(const ternary_piece *t) { vector_product(t); }

#endif
