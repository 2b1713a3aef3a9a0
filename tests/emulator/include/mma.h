/*
 * Stands in for CUDA's header of this name: products of 16 x 16 x 16 tiles by a warp (wmma), with 16-bit factors and
 * f32 or 16-bit sums, as sm_70 has them. Which lane holds which element is unspecified in CUDA too: here every lane of
 * the sums has half a row, and of the factors a row, which two lanes have.
 */
#ifndef NN_EMULATOR_MMA_H
#define NN_EMULATOR_MMA_H

#include "cuda_fp16.h"

namespace nvcuda {
namespace wmma {

struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
  static_assert(M == 16 && N == 16 && K == 16, "the only shape that is emulated");
  static constexpr int num_elements = std::is_same<Use, accumulator>::value ? 8 : 16;
  T x[num_elements];

  /* The place of element i of the calling lane. */
  static int row(int) {
    const int lane = (int)nn_emulated_lane();
    return num_elements == 8 ? lane / 2 : lane % 16;
  }
  static int column(int i) { return num_elements == 8 ? (int)nn_emulated_lane() % 2 * 8 + i : i; }
};

inline float nn_to_float(float x) { return x; }
inline float nn_to_float(__half x) { return __half2float(x); }
inline void nn_from_float(float &x, float value) { x = value; }
inline void nn_from_float(__half &x, float value) { x = __float2half_rn(value); }

/* What the instructions ask of addresses: 32 bytes, and rows that are a multiple of 16 bytes. */
template <class T> void nn_check_tile(const T *p, unsigned ld, const nn_site &site) {
  if ((uintptr_t)p % 32 || ld * sizeof(T) % 16) {
    nn_emulated_fail("wmma: address %p and leading dimension %u must be multiples of 32 and 16 bytes, %s:%d",
                     (const void *)p, ld, site.file, site.line);
  }
}

template <class Use, class T, class Layout>
void fill_fragment(fragment<Use, 16, 16, 16, T, Layout> &f, const T &value) {
  for (T &x : f.x) {
    x = value;
  }
}

template <class Use, class T, class Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout> &f, const T *p, unsigned ld,
                      nn_site site = nn_site::here()) {
  static_assert(!std::is_same<Use, accumulator>::value, "accumulators are loaded with a layout");
  nn_check_tile(p, ld, site);
  __syncwarp(~0u, site.in("wmma::load_matrix_sync"));
  for (int i = 0; i < f.num_elements; i++) {
    const int row = f.row(i), column = f.column(i);
    f.x[i] = std::is_same<Layout, row_major>::value ? p[(size_t)row * ld + column] : p[(size_t)column * ld + row];
  }
}

template <class T>
void load_matrix_sync(fragment<accumulator, 16, 16, 16, T> &f, const T *p, unsigned ld, layout_t layout,
                      nn_site site = nn_site::here()) {
  nn_check_tile(p, ld, site);
  __syncwarp(~0u, site.in("wmma::load_matrix_sync"));
  for (int i = 0; i < f.num_elements; i++) {
    const int row = f.row(i), column = f.column(i);
    f.x[i] = layout == mem_row_major ? p[(size_t)row * ld + column] : p[(size_t)column * ld + row];
  }
}

template <class T>
void store_matrix_sync(T *p, const fragment<accumulator, 16, 16, 16, T> &f, unsigned ld, layout_t layout,
                       nn_site site = nn_site::here()) {
  nn_check_tile(p, ld, site);
  __syncwarp(~0u, site.in("wmma::store_matrix_sync"));
  for (int i = 0; i < f.num_elements; i++) {
    const int row = f.row(i), column = f.column(i);
    (layout == mem_row_major ? p[(size_t)row * ld + column] : p[(size_t)column * ld + row]) = f.x[i];
  }
}

/* d = a b + c, every product exact, summed in f32 along k. */
template <class A, class B, class D, class C>
void mma_sync(fragment<accumulator, 16, 16, 16, D> &d, const fragment<matrix_a, 16, 16, 16, __half, A> &a,
              const fragment<matrix_b, 16, 16, 16, __half, B> &b, const fragment<accumulator, 16, 16, 16, C> &c,
              nn_site site = nn_site::here()) {
  struct factors {
    float a[16], b[16];
  } mine;
  for (int i = 0; i < 16; i++) {
    mine.a[i] = __half2float(a.x[i]);
    mine.b[i] = __half2float(b.x[i]);
  }
  const factors *all = nn_emulated_gather(~0u, mine, site.in("wmma::mma_sync"));
  const int row = d.row(0), column = d.column(0);
  float sums[8];
  for (int i = 0; i < 8; i++) {
    sums[i] = nn_to_float(c.x[i]);
  }
  for (int k = 0; k < 16; k++) {
    for (int i = 0; i < 8; i++) {
      sums[i] += all[row].a[k] * all[k].b[column + i];
    }
  }
  for (int i = 0; i < 8; i++) {
    nn_from_float(d.x[i], sums[i]);
  }
}

} // namespace wmma
} // namespace nvcuda

#endif
