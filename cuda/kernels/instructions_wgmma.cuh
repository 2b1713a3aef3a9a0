/*
 * Products on the tensor cores by a warpgroup (wgmma; sm_90a): 4 consecutive warps, the first one's index divisible by
 * 4, which must all call together. They run asynchronously:
 *
 *   nn_wgmma_hold(d); nn_wgmma_fence();
 *   for each 16 of k: nn_wgmma<nn_bf16>(d, a, b, accumulate);
 *   nn_wgmma_commit();
 *   nn_wgmma_wait<0>(); nn_wgmma_hold(d);      before d is read, or the operands' memory is written
 *
 * Everything here but the descriptors (kernels/wgmma_descriptor.cuh) traps where there is no wgmma.
 */
#ifndef NN_INSTRUCTIONS_WGMMA_CUH
#define NN_INSTRUCTIONS_WGMMA_CUH

#include "kernels/instructions_absent.cuh"
#include "kernels/instructions_mma.cuh"
#include "kernels/wgmma_descriptor.cuh"
#include <cuda_runtime.h>
#include <stdint.h>

/* Orders what was done to accumulators and to A's registers before the products that follow. Also needed before the
 * first product. wgmma.fence, PTX 9.7.15.7.1. */
__device__ __forceinline__ void nn_wgmma_fence() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
  nn_absent();
#endif
}

/* Closes the group of the products since the last group. wgmma.commit_group, PTX 9.7.15.7.2. */
__device__ __forceinline__ void nn_wgmma_commit() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  nn_absent();
#endif
}

/* Waits until at most PENDING of the newest groups are unfinished. wgmma.wait_group, PTX 9.7.15.7.3. */
template <int PENDING> __device__ __forceinline__ void nn_wgmma_wait() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
#else
  nn_absent();
#endif
}

/* No instruction: keeps the compiler from moving accesses to these registers across this place. It does not know that
 * a product changes them until the wait. */
template <class T, int COUNT> __device__ __forceinline__ void nn_wgmma_hold(T (&registers)[COUNT]) {
  static_assert(sizeof(T) == 4, "float or uint32_t");
#pragma unroll
  for (int i = 0; i < COUNT; i++) {
    if constexpr (T(0.5f) == T(0)) {
      asm volatile("" : "+r"(registers[i])::"memory");
    } else {
      asm volatile("" : "+f"(registers[i])::"memory");
    }
  }
}

/* Keeps what computes a and b, neither of them negative, above a wait that follows: ptxas moves a wait up past
 * arithmetic that it does not have to follow, although that was to run while the products do. It moves none past an
 * instruction that may sleep; this one never does. nanosleep, PTX 9.7.19.2. */
__device__ __forceinline__ void nn_wgmma_wait_after(float a, float b) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("{\n"
               ".reg .pred negative;\n"
               ".reg .f32 both;\n"
               "add.f32 both, %0, %1;\n"
               "setp.lt.f32 negative, both, 0f00000000;\n"
               "@negative nanosleep.u32 0;\n"
               "}" ::"f"(a),
               "f"(b)
               : "memory");
#else
  nn_absent(a, b);
#endif
}

/* The operands of d, 32 at a time: their places in the instruction, and their constraints. */
#define NN_WGMMA_PLACES_0                                                                                              \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                             \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NN_WGMMA_PLACES_1                                                                                              \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                   \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NN_WGMMA_PLACES_2                                                                                              \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                                   \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NN_WGMMA_PLACES_3                                                                                              \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "                       \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define NN_WGMMA_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define NN_WGMMA_D16(i) NN_WGMMA_D4(i), NN_WGMMA_D4(i + 4), NN_WGMMA_D4(i + 8), NN_WGMMA_D4(i + 12)
#define NN_WGMMA_PLACES_N64 NN_WGMMA_PLACES_0
#define NN_WGMMA_D_N64 NN_WGMMA_D16(0), NN_WGMMA_D16(16)
#define NN_WGMMA_PLACES_N128 NN_WGMMA_PLACES_N64 ", " NN_WGMMA_PLACES_1
#define NN_WGMMA_D_N128 NN_WGMMA_D_N64, NN_WGMMA_D16(32), NN_WGMMA_D16(48)
#define NN_WGMMA_PLACES_N192 NN_WGMMA_PLACES_N128 ", " NN_WGMMA_PLACES_2
#define NN_WGMMA_D_N192 NN_WGMMA_D_N128, NN_WGMMA_D16(64), NN_WGMMA_D16(80)
#define NN_WGMMA_PLACES_N256 NN_WGMMA_PLACES_N192 ", " NN_WGMMA_PLACES_3
#define NN_WGMMA_D_N256 NN_WGMMA_D_N192, NN_WGMMA_D16(96), NN_WGMMA_D16(112)

/* PLACE_...: the places of the operands after d's. */
#define NN_WGMMA_SHARED(N, TYPE, PLACE_A, PLACE_B, PLACE_SCALE, PLACE_MAJOR_A, PLACE_MAJOR_B)                          \
  asm volatile("{\n.reg .pred scale;\nsetp.ne.b32 scale, " PLACE_SCALE ", 0;\n"                                        \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NN_WGMMA_PLACES_N##N               \
               "}, " PLACE_A ", " PLACE_B ", scale, 1, 1, " PLACE_MAJOR_A ", " PLACE_MAJOR_B ";\n}"                    \
               : NN_WGMMA_D_N##N                                                                                       \
               : "l"(a_descriptor), "l"(b_descriptor), "r"((int)accumulate), "n"((int)A_MN_MAJOR),                     \
                 "n"((int)B_MN_MAJOR))
#define NN_WGMMA_SHARED_OF(TYPE)                                                                                       \
  if constexpr (N == 64) {                                                                                             \
    NN_WGMMA_SHARED(64, TYPE, "%32", "%33", "%34", "%35", "%36");                                                      \
  } else if constexpr (N == 128) {                                                                                     \
    NN_WGMMA_SHARED(128, TYPE, "%64", "%65", "%66", "%67", "%68");                                                     \
  } else if constexpr (N == 192) {                                                                                     \
    NN_WGMMA_SHARED(192, TYPE, "%96", "%97", "%98", "%99", "%100");                                                    \
  } else {                                                                                                             \
    NN_WGMMA_SHARED(256, TYPE, "%128", "%129", "%130", "%131", "%132");                                                \
  }
#define NN_WGMMA_REGISTERS(N, TYPE, PLACES_A, PLACE_B, PLACE_SCALE, PLACE_MAJOR_B)                                     \
  asm volatile("{\n.reg .pred scale;\nsetp.ne.b32 scale, " PLACE_SCALE ", 0;\n"                                        \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NN_WGMMA_PLACES_N##N               \
               "}, {" PLACES_A "}, " PLACE_B ", scale, 1, 1, " PLACE_MAJOR_B ";\n}"                                    \
               : NN_WGMMA_D_N##N                                                                                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_descriptor), "r"((int)accumulate),                  \
                 "n"((int)B_MN_MAJOR))
#define NN_WGMMA_REGISTERS_OF(TYPE)                                                                                    \
  if constexpr (N == 64) {                                                                                             \
    NN_WGMMA_REGISTERS(64, TYPE, "%32, %33, %34, %35", "%36", "%37", "%38");                                           \
  } else if constexpr (N == 128) {                                                                                     \
    NN_WGMMA_REGISTERS(128, TYPE, "%64, %65, %66, %67", "%68", "%69", "%70");                                          \
  } else {                                                                                                             \
    NN_WGMMA_REGISTERS(256, TYPE, "%128, %129, %130, %131", "%132", "%133", "%134");                                   \
  }

/*
 * d = a * b, plus d if `accumulate`: a 64 x 16, b 16 x N, d 64 x N in f32, for N = 64, 128, 192 and 256. a and b lie in
 * shared memory as their descriptors say; *_MN_MAJOR: the rows of a (columns of b) are the contiguous direction, else
 * k. d has N / 2 elements a thread. With w = warp % 4, g = lane / 4, t = lane % 4 (PTX 9.7.15.5.1.1.1, figure 149):
 *   d[4j], d[4j + 1]: row 16w + g, columns 8j + 2t, 8j + 2t + 1     d[4j + 2], d[4j + 3]: row 16w + g + 8, the same
 * wgmma.mma_async, PTX 9.7.15.5.2.
 */
template <class T, bool A_MN_MAJOR = false, bool B_MN_MAJOR = false, int COUNT>
__device__ __forceinline__ void nn_wgmma(float (&d)[COUNT], uint64_t a_descriptor, uint64_t b_descriptor,
                                         bool accumulate) {
  constexpr int N = 2 * COUNT;
  static_assert(N == 64 || N == 128 || N == 192 || N == 256, "no such N here");
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (nn_mma_type<T>::is_f16) {
    NN_WGMMA_SHARED_OF("f16");
  } else {
    NN_WGMMA_SHARED_OF("bf16");
  }
#else
  nn_absent(d, a_descriptor, b_descriptor, accumulate);
#endif
}

/*
 * The same with a in registers. The 4 registers hold what nn_mma_m16n8k16's a holds, of the 16 rows 16w to 16w + 15
 * (figure 148); so two neighbouring groups of 4 of d, rounded to pairs, are the a of a next product.
 */
template <class T, bool B_MN_MAJOR = false, int COUNT>
__device__ __forceinline__ void nn_wgmma(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b_descriptor,
                                         bool accumulate) {
  constexpr int N = 2 * COUNT;
  static_assert(N == 64 || N == 128 || N == 256, "no such N here");
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (nn_mma_type<T>::is_f16) {
    NN_WGMMA_REGISTERS_OF("f16");
  } else {
    NN_WGMMA_REGISTERS_OF("bf16");
  }
#else
  nn_absent(d, a, b_descriptor, accumulate);
#endif
}

#endif
