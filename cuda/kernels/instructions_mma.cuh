/*
 * Products on the tensor cores by one warp (mma.sync), the loads that put its operands in place (ldmatrix), and the
 * stores that take sums away (stmatrix). All 32 lanes must call together.
 *
 * In the comments g = lane / 4 and t = lane % 4 ("groupID" and "threadID_in_group" in PTX 9.7.14.5). A pair is two
 * 16-bit elements in one register, the one of the lower k in the lower half.
 */
#ifndef NN_INSTRUCTIONS_MMA_CUH
#define NN_INSTRUCTIONS_MMA_CUH

#include "kernels/instructions_absent.cuh"
#include "kernels/instructions_convert.cuh"
#include <cuda_runtime.h>
#include <stdint.h>

/*
 * ldmatrix, sm_75+, PTX 9.7.14.5.15: loads 4 matrices of 8 rows of 8 16-bit elements. Lane 8m + r gives the address
 * of row r of matrix m (16 bytes, 16-byte aligned). Register m of each lane gets elements (row g, columns 2t and 2t +
 * 1) of matrix m; with _transposed, elements (rows 2t and 2t + 1, column g).
 *
 * For a 16 x 16 tile of A stored with rows along k, lane l passes row (l % 16), column 8 * (l / 16): the registers are
 * then nn_mma_m16n8k16's a. For B stored as [n][k] (k contiguous), lane l passes row n = l % 8 + 8 * (l / 16), column
 * k = 8 * (l / 8 % 2): registers 0, 1 are b0, b1 of columns n = 0-7, registers 2, 3 those of 8-15. For B stored as
 * [k][n], _transposed with row k = l % 16, column n = 8 * (l / 16) gives the same.
 */
__device__ __forceinline__ void nn_ldmatrix_x4(uint32_t (&r)[4], uint32_t row) {
#if __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
#else
  nn_absent(r, row);
#endif
}

__device__ __forceinline__ void nn_ldmatrix_x4_transposed(uint32_t (&r)[4], uint32_t row) {
#if __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
#else
  nn_absent(r, row);
#endif
}

/* The way back, of 4 matrices: lane 8m + r gives the address of row r of matrix m, and register m of each lane is
 * stored as elements (row g, columns 2t and 2t + 1). stmatrix, sm_90+, PTX 9.7.14.5.16. */
__device__ __forceinline__ void nn_stmatrix_x4(uint32_t row, const uint32_t (&r)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
#else
  nn_absent(row, r);
#endif
}

/* The types that 16-bit products take. */
template <class T> struct nn_mma_type;
template <> struct nn_mma_type<nn_f16> {
  static constexpr bool is_f16 = true;
};
template <> struct nn_mma_type<nn_bf16> {
  static constexpr bool is_f16 = false;
};

/*
 * d += a * b, f32 sums of 16-bit products: a 16 x 16 (m x k), b 16 x 8 (k x n), d 16 x 8. PTX 9.7.14.5.8:
 *   a[0]: row g, k = 2t, 2t + 1           a[1]: row g + 8, the same k
 *   a[2]: row g, k = 2t + 8, 2t + 9       a[3]: row g + 8, the same k
 *   b0: k = 2t, 2t + 1, column g          b1: k = 2t + 8, 2t + 9, column g
 *   d[0], d[1]: row g, columns 2t, 2t + 1     d[2], d[3]: row g + 8, the same columns
 * nn_f16 from sm_75 (there as two of k = 8, PTX 9.7.14.5.7), nn_bf16 from sm_80.
 */
#define NN_MMA_M16N8K16(TYPE)                                                                                          \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "      \
               "{%8, %9}, {%0, %1, %2, %3};"                                                                           \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                        \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
template <class T>
__device__ __forceinline__ void nn_mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  if constexpr (nn_mma_type<T>::is_f16) {
    NN_MMA_M16N8K16("f16");
  } else {
    NN_MMA_M16N8K16("bf16");
  }
#elif __CUDA_ARCH__ >= 750
  if constexpr (nn_mma_type<T>::is_f16) {
#pragma unroll
    for (int k = 0; k < 2; k++) {
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[2 * k]), "r"(a[2 * k + 1]), "r"(k == 0 ? b0 : b1));
    }
  } else {
    nn_absent(d, a, b0, b1);
  }
#else
  nn_absent(d, a, b0, b1);
#endif
}
#undef NN_MMA_M16N8K16

/*
 * d += a * b for tf32 (nn_f32_to_tf32): a 16 x 8, b 8 x 8, d 16 x 8 in f32. sm_80+. PTX 9.7.14.5.7:
 *   a[0]: row g, k = t     a[1]: row g + 8, k = t     a[2]: row g, k = t + 4     a[3]: row g + 8, k = t + 4
 *   b0: k = t, column g    b1: k = t + 4, column g    d as above
 */
__device__ __forceinline__ void nn_mma_m16n8k8_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  nn_absent(d, a, b0, b1);
#endif
}

/*
 * d += a * b for whole numbers: a 16 x 32 and b 32 x 8 of signed bytes, four in a register with the lowest k in the
 * lowest byte, d 16 x 8 in 32 bits. Exact. PTX 9.7.14.5.10:
 *   a[0]: row g, k = 4t .. 4t + 3            a[1]: row g + 8, the same k
 *   a[2]: row g, k = 4t + 16 .. 4t + 19      a[3]: row g + 8, the same k
 *   b0: k = 4t .. 4t + 3, column g           b1: k = 4t + 16 .. 4t + 19, column g           d as above
 * sm_75+; before sm_80 as four of 8 x 8 x 16 (PTX 9.7.14.5.3), whose d are columns 2t and 2t + 1 of row g.
 */
__device__ __forceinline__ void nn_mma_m16n8k32_s8(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif __CUDA_ARCH__ >= 750
#pragma unroll
  for (int half = 0; half < 2; half++) {
#pragma unroll
    for (int k = 0; k < 2; k++) {
      asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                   : "+r"(d[2 * half]), "+r"(d[2 * half + 1])
                   : "r"(a[2 * k + half]), "r"(k == 0 ? b0 : b1));
    }
  }
#else
  nn_absent(d, a, b0, b1);
#endif
}

/*
 * d += a * b, f32 sums of products of E4M3: a 16 x 32, b 32 x 8, d 16 x 8, laid out as those of signed bytes above. The
 * products are exact; how many bits of the sum are kept is not documented. sm_89+. PTX 9.7.14.5.10.
 */
__device__ __forceinline__ void nn_mma_m16n8k32_e4m3(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 890
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  nn_absent(d, a, b0, b1);
#endif
}

/*
 * The half of that of signed bytes, k = 16, from sm_80 on: a 16 x 16 and b 16 x 8. PTX 9.7.14.5.9:
 *   a[0]: row g, k = 4t .. 4t + 3     a[1]: row g + 8, the same k     b: k = 4t .. 4t + 3, column g     d as above
 */
__device__ __forceinline__ void nn_mma_m16n8k16_s8(int32_t (&d)[4], uint32_t a0, uint32_t a1, uint32_t b) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a0), "r"(a1), "r"(b));
#else
  nn_absent(d, a0, a1, b);
#endif
}

#endif
