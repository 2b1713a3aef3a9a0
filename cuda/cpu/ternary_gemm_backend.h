/*
 * The products of ternary_gemm.c, by what the processor has for them: ternary_gemm_amx.h, ternary_gemm_avx.h or
 * ternary_gemm_plain.h. Each gives the same functions:
 *
 *   ternary_form_of      how the activations of a call with m rows are packed
 *   ternary_pack_row     packs row r of the activations: `k` codes, zeros after them, and their sum
 *   ternary_product      the integers of a task's part of the product
 *   ternary_work_bytes   scratch memory that ternary_product needs
 */
#ifndef NN_CPU_TERNARY_GEMM_BACKEND_H
#define NN_CPU_TERNARY_GEMM_BACKEND_H

#include "ternary_gemm_job.h"

#if defined(__AMX_INT8__)
#include "ternary_gemm_amx.h"
#elif NN_SIMD_AVX512 || NN_SIMD_AVX2 || NN_SIMD_NEON
#include "ternary_gemm_avx.h"
#else
#include "ternary_gemm_plain.h"
#endif

#endif
