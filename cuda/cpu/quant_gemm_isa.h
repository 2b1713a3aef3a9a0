/*
 * What the products with stored weights need of an instruction set with vectors: quant_gemm_avx512.h with
 * quant_gemm_vnni.h or quant_gemm_pairs.h, quant_gemm_avx2.h or quant_gemm_neon.h. All give the same:
 *
 *   QUANT_ROWS_AT_ONCE        rows of the activations that are taken together, without unpacking for more (1, 2 or 4)
 *   si, si_load .. si_sub     a vector of words, one of each of VF rows of weights
 *   si_pairs, si_sub_pairs, si_dot_pairs
 *                             numbers of 16 bits, two a lane
 *   quant_gather              words at VF offsets
 *   quant_low_f16, quant_high_f16
 *                             the f16 in the lower, or upper, half of each lane
 *   quant_dot                 sum + products of bytes of weights and of signed bytes, four a lane
 *   quant_signed              signed bytes of weights as quant_dot takes them: 2^QUANT_SIGNED_OFFSET is added, or,
 *                             with -1, nothing. For these `format` is one with nn_format_is_signed; others have no
 *                             sign and at most 6 bits
 *   quant_table, quant_looked_up
 *                             sixteen bytes, repeated; of a vector of 0 .. 15 what they number in such a table
 *   quant_upper               the upper halves of bytes of weights as quant_dot takes them
 *   quant_upper_sums          sums of products with those, as products with 0 .. 15 give them
 *   quant_fifths              words of 4-bit codes with their fifth bits (q5_0, q5_1)
 *   quant_round_block         codes of 32 activations
 */
#ifndef NN_CPU_QUANT_GEMM_ISA_H
#define NN_CPU_QUANT_GEMM_ISA_H

#include "quant_gemm_job.h"

#if NN_SIMD_NEON
#include "quant_gemm_neon.h"
#elif !NN_SIMD_AVX512
#include "quant_gemm_avx2.h"
#elif defined(__AVX512VNNI__)
#include "quant_gemm_vnni.h"
#else
#include "quant_gemm_pairs.h"
#endif

/* What is subtracted from the bytes of quant_codes: 2^quant_offset, or nothing (-1). */
NN_INLINE int32_t quant_offset(int32_t format) {
  switch (format) {
  case NNCUDA_FORMAT_Q4_0:
    return 3;
  case NNCUDA_FORMAT_Q5_0:
    return 4;
  case NNCUDA_FORMAT_Q3_K:
    return 2;
  case NNCUDA_FORMAT_Q6_K:
    return 5;
  default:
    return nn_format_is_signed(format) ? QUANT_SIGNED_OFFSET : -1;
  }
}

#endif
