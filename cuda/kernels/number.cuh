/* Numbers of the three floating-point dtypes, and of caches in 8 bits, one by one and as vectors of up to 16 bytes.
 * Arithmetic is in f32. */
#ifndef NN_KERNELS_NUMBER_CUH
#define NN_KERNELS_NUMBER_CUH

#include "kernels/kernel.cuh"
/* after kernel.cuh */
#include "kernels/instructions.cuh"

__device__ __forceinline__ float nn_to_float(float x) { return x; }
__device__ __forceinline__ float nn_to_float(nn_f16 x) { return nn_f16_to_f32(x.bits); }
__device__ __forceinline__ float nn_to_float(nn_bf16 x) { return nn_bf16_to_f32(x.bits); }
__device__ __forceinline__ float nn_to_float(nn_e4m3 x) { return nn_e4m3_to_f32(x.bits); }

/* Rounds to nearest even. */
template <class T> __device__ __forceinline__ T nn_from_float(float x);
template <> __device__ __forceinline__ float nn_from_float<float>(float x) { return x; }
template <> __device__ __forceinline__ nn_f16 nn_from_float<nn_f16>(float x) { return nn_f16{nn_f32_to_f16(x)}; }
template <> __device__ __forceinline__ nn_bf16 nn_from_float<nn_bf16>(float x) { return nn_bf16{nn_f32_to_bf16(x)}; }
template <> __device__ __forceinline__ nn_e4m3 nn_from_float<nn_e4m3>(float x) { return nn_e4m3{nn_f32_to_e4m3(x)}; }

/* What is stored and read again rounds as it is stored. */
template <class T> __device__ __forceinline__ float nn_rounded(float x) { return nn_to_float(nn_from_float<T>(x)); }

/* Two numbers as a pair of 16-bit elements, f16 or bf16, each rounded. */
template <class T> __device__ __forceinline__ uint32_t nn_pair(float low, float high) {
  return nn_mma_type<T>::is_f16 ? nn_f32x2_to_f16x2(low, high) : nn_f32x2_to_bf16x2(low, high);
}

/* N elements that are loaded and stored at once; their address is a multiple of their size together. */
template <class T, int N> struct alignas(sizeof(T) * N) nn_vector {
  T x[N];
};

/* Elements of T in 16 bytes. */
template <class T> constexpr int nn_per_16 = 16 / (int)sizeof(T);

/* N elements as they lie in memory. Where several loads are to be under way at once, all of them come before the first
 * conversion: in a branch of its own, or before a store that may meet it, each would be waited for. */
template <int N, class T> __device__ __forceinline__ nn_vector<T, N> nn_load_raw(const T *from) {
  return *reinterpret_cast<const nn_vector<T, N> *>(from);
}

template <int N, class T> __device__ __forceinline__ void nn_widen(float (&to)[N], const nn_vector<T, N> &from) {
#pragma unroll
  for (int i = 0; i < N; i++) {
    to[i] = nn_to_float(from.x[i]);
  }
}

/* N elements that are only moved. */
template <int BYTES> struct nn_moved_bytes;
template <> struct nn_moved_bytes<2> {
  using type = uint16_t;
};
template <> struct nn_moved_bytes<4> {
  using type = uint32_t;
};
template <> struct nn_moved_bytes<16> {
  using type = uint4;
};
template <class T, int N> using nn_moved = typename nn_moved_bytes<(int)sizeof(T) * N>::type;

template <int N, class T> __device__ __forceinline__ void nn_move(T *to, const nn_moved<T, N> &from) {
  if constexpr (sizeof(T) * N == 16) {
    const uint32_t words[4] = {from.x, from.y, from.z, from.w};
    nn_store_global(to, words);
  } else {
    *reinterpret_cast<nn_moved<T, N> *>(to) = from;
  }
}

/* N elements as f32. Data that is read once goes past the first cache. */
template <int N, class T> __device__ __forceinline__ void nn_load(float (&to)[N], const T *from) {
  nn_widen(to, nn_load_raw<N>(from));
}

/* N elements of T, each rounded, as the words of 32 bits that they lie in. */
template <class T, int N>
__device__ __forceinline__ void nn_pack(uint32_t (&words)[N * sizeof(T) / 4], const float (&from)[N]) {
#pragma unroll
  for (int i = 0; i < N * (int)sizeof(T) / 4; i++) {
    if constexpr (sizeof(T) == 2) {
      words[i] = nn_pair<T>(from[2 * i], from[2 * i + 1]);
    } else {
      words[i] = __float_as_uint(from[i]);
    }
  }
}

/* To global memory, 16 bytes at a time where there are as many. */
template <int N, class T> __device__ __forceinline__ void nn_store(T *to, const float (&from)[N]) {
  constexpr int EACH = N < nn_per_16<T> ? N : nn_per_16<T>;
  if constexpr (N * sizeof(T) >= 4) {
#pragma unroll
    for (int first = 0; first < N; first += EACH) {
      float some[EACH];
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        some[i] = from[first + i];
      }
      uint32_t words[EACH * sizeof(T) / 4];
      nn_pack<T>(words, some);
      nn_store_global(to + first, words);
    }
  } else {
    *to = nn_from_float<T>(from[0]);
  }
}

/* Elements i .. i+N-1 of the n at `from`, those past the end as 0. WIDE: i is a multiple of N and `from` aligned to N
 * elements. */
template <bool WIDE, int N, class T>
__device__ __forceinline__ void nn_load_at(float (&to)[N], const T *from, int64_t i, int64_t n) {
  if (WIDE && i + N <= n) {
    nn_load(to, from + i);
  } else {
#pragma unroll
    for (int e = 0; e < N; e++) {
      to[e] = i + e < n ? nn_to_float(from[i + e]) : 0.0f;
    }
  }
}

template <bool WIDE, int N, class T>
__device__ __forceinline__ void nn_store_at(T *to, const float (&from)[N], int64_t i, int64_t n) {
  if (WIDE && i + N <= n) {
    nn_store(to + i, from);
  } else {
#pragma unroll
    for (int e = 0; e < N; e++) {
      if (i + e < n) {
        to[i + e] = nn_from_float<T>(from[e]);
      }
    }
  }
}

/* Whether all pointers allow accesses of 16 bytes. Null pointers do. */
template <class... P> inline bool nn_aligned_16(const P *...pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) | ... | (uintptr_t)0) & 15) == 0;
}

/* Whether rows of `ld` elements, of which `cols` are used, are whole runs of 16 bytes. */
inline bool nn_rows_16(int64_t cols, int64_t ld, int32_t dtype) {
  const int64_t each = dtype == NNCUDA_F32 ? 4 : 8;
  return cols % each == 0 && ld % each == 0;
}

#endif
