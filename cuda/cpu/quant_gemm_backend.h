/*
 * The products of quant_gemm.c, by what the processor has for them: quant_gemm_amx.h, quant_gemm_avx.h or
 * quant_gemm_plain.h. Each gives the same functions:
 *
 *   quant_order           QUANT_BY_*: how a panel of that many rows has its codes in a form of block formats
 *   quant_round_block     codes of 32 activations
 *   quant_round_values    a row of the activations, rounded for weights in f32, f16 or bf16
 *   half_columns, block_columns, interleaved_columns
 *                         a piece's sums with weights in f16 or bf16, in a block format, in an _R16 format of that one
 *   quant_work_bytes      scratch memory that those need
 *
 * and, for weights in f32, float_columns of quant_gemm_float.h.
 */
#ifndef NN_CPU_QUANT_GEMM_BACKEND_H
#define NN_CPU_QUANT_GEMM_BACKEND_H

#include "quant_gemm_job.h"

#if defined(__AMX_INT8__) && defined(__AMX_BF16__)
#include "quant_gemm_amx.h"
#elif NN_SIMD_AVX512 || NN_SIMD_AVX2 || NN_SIMD_NEON
#include "quant_gemm_avx.h"
#else
#include "quant_gemm_plain.h"
#endif

#endif
