/*
 * ldmatrix, stmatrix and mma.sync. Layouts are tested twice: element by element from the formulas of PTX 9.7.14.5, and
 * as kernels use them, matrices in shared memory through ldmatrix and mma to a product.
 */
#include "check.cuh"

/* ---- ldmatrix alone. Rows of the four matrices lie 24 elements apart, in an order of their own. */
__device__ __forceinline__ int place(int matrix, int row) { return 24 * ((8 * matrix + row) * 5 % 32); }

__global__ void load_matrices(uint32_t *out) {
  __shared__ uint4 memory[96];
  uint16_t *x = (uint16_t *)memory;
  const int lane = (int)threadIdx.x;
  for (int e = lane; e < 256; e += 32) {
    x[place(e / 64, e / 8 % 8) + e % 8] = (uint16_t)(256 * (e / 64) + e % 64);
  }
  __syncthreads();
  const uint32_t row = nn_shared_address(x + place(lane / 8, lane % 8));
  uint32_t r[2][4];
  nn_ldmatrix_x4(r[0], row);
  nn_ldmatrix_x4_transposed(r[1], row);
  for (int i = 0; i < 8; i++) {
    out[32 * i + lane] = r[i / 4][i % 4];
  }
}

/* The way back: what lanes hold by the formula, at the same places. */
__global__ void store_matrices(uint16_t *out) {
  __shared__ uint4 memory[96];
  uint16_t *x = (uint16_t *)memory;
  const int lane = (int)threadIdx.x;
  for (int e = lane; e < 768; e += 32) {
    x[e] = 0xabcd;
  }
  __syncthreads();
  uint32_t r[4];
  for (int m = 0; m < 4; m++) {
    const uint32_t first = (uint32_t)(256 * m + 8 * (lane / 4) + 2 * (lane % 4));
    r[m] = first | (first + 1) << 16;
  }
  nn_stmatrix_x4(nn_shared_address(x + place(lane / 8, lane % 8)), r);
  __syncthreads();
  for (int e = lane; e < 768; e += 32) {
    out[e] = x[e];
  }
}

static void test_store_matrices() {
  array<uint16_t> out(768);
  launch(store_matrices, 1, 32, 0, out.device);
  out.from_device();
  uint16_t expected[768];
  for (uint16_t &e : expected) {
    e = 0xabcd;
  }
  for (int e = 0; e < 256; e++) {
    expected[place(e / 64, e / 8 % 8) + e % 8] = (uint16_t)(256 * (e / 64) + e % 64);
  }
  for (int i = 0; i < 768; i++) {
    CHECK(out[i] == expected[i], "element %d: %x, not %x", i, out[i], expected[i]);
  }
}

static void test_load_matrices() {
  array<uint32_t> out(8 * 32);
  launch(load_matrices, 1, 32, 0, out.device);
  out.from_device();
  for (int i = 0; i < 8; i++) {
    for (int lane = 0; lane < 32; lane++) { /* PTX 9.7.14.5.15: four lanes hold a row, two elements each */
      for (int half = 0; half < 2; half++) {
        const int major = lane / 4, minor = 2 * (lane % 4) + half;
        const int row = i < 4 ? major : minor, column = i < 4 ? minor : major;
        const uint32_t got = out[32 * i + lane] >> 16 * half & 0xffff;
        CHECK(got == (uint32_t)(256 * (i % 4) + 8 * row + column), "register %d, lane %d, half %d: %x", i, lane, half,
              got);
      }
    }
  }
}

/* What `multiply` does to the elements of d, 16 x 8 row by row, that a thread has. */
template <class D, class F> __device__ __forceinline__ void add_product(D *d, F multiply) {
  const int group = (int)threadIdx.x >> 2, in_group = (int)threadIdx.x % 4;
  D rd[4];
  for (int i = 0; i < 4; i++) {
    rd[i] = d[8 * (i < 2 ? group : group + 8) + in_group * 2 + (i & 1)];
  }
  multiply(rd);
  for (int i = 0; i < 4; i++) {
    d[8 * (i < 2 ? group : group + 8) + in_group * 2 + (i & 1)] = rd[i];
  }
}

/* ---- mma.sync from the formulas: a is 16 x K row by row, b is K x 8 row by row, d is 16 x 8 row by row. */
static constexpr int K = 16;

template <class T> __global__ void multiply_fragments(const uint16_t *a, const uint16_t *b, float *d) {
  const int group = (int)threadIdx.x >> 2, in_group = (int)threadIdx.x % 4;
  uint32_t ra[K / 4] = {}, rb[K / 8] = {};
  for (int i = 0; i < K / 2; i++) {
    const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
    const int column = i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8;
    ra[i / 2] |= (uint32_t)a[K * row + column] << 16 * (i & 1);
  }
  for (int i = 0; i < K / 4; i++) {
    const int row = i < 2 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8;
    rb[i / 2] |= (uint32_t)b[8 * row + group] << 16 * (i & 1);
  }
  add_product(d, [&](float(&rd)[4]) { nn_mma_m16n8k16<T>(rd, ra, rb[0], rb[1]); });
}

static void check_product(const char *what, const int *a, const int *b, array<float> &d, int m, int n, int k,
                          bool b_by_rows_of_k, float start) {
  d.from_device();
  for (int i = 0; i < m; i++) {
    for (int j = 0; j < n; j++) {
      int sum = 0;
      for (int l = 0; l < k; l++) {
        sum += a[k * i + l] * (b_by_rows_of_k ? b[n * l + j] : b[k * j + l]);
      }
      const float expected = start * (float)(n * i + j) + (float)sum;
      CHECK(d[n * i + j] == expected, "%s: (%d, %d) is %g, not %g", what, i, j, (double)expected, (double)d[n * i + j]);
    }
  }
}

template <class T> static void test_multiply_fragments(const char *what) {
  array<uint16_t> a(16 * K), b(K * 8);
  array<float> d(16 * 8);
  int a_values[16 * K], b_values[K * 8];
  fill_small<T>(a, a_values, 11);
  fill_small<T>(b, b_values, 12);
  for (int i = 0; i < 16 * 8; i++) {
    d[i] = (float)i;
  }
  launch(multiply_fragments<T>, 1, 32, 0, a.to_device(), b.to_device(), d.to_device());
  check_product(what, a_values, b_values, d, 16, 8, K, true, 1);
}

__global__ void multiply_tf32(const float *a, const float *b, float *d) {
  const int group = (int)threadIdx.x >> 2, in_group = (int)threadIdx.x % 4;
  uint32_t ra[4], rb[2];
  for (int i = 0; i < 4; i++) {
    const int row = i == 0 || i == 2 ? group : group + 8, column = i < 2 ? in_group : in_group + 4;
    ra[i] = nn_f32_to_tf32(a[8 * row + column]);
  }
  for (int i = 0; i < 2; i++) {
    rb[i] = nn_f32_to_tf32(b[8 * (i == 0 ? in_group : in_group + 4) + group]);
  }
  add_product(d, [&](float(&rd)[4]) { nn_mma_m16n8k8_tf32(rd, ra, rb[0], rb[1]); });
}

static void test_multiply_tf32() {
  array<float> a(16 * 8), b(8 * 8), d(16 * 8);
  int a_values[16 * 8], b_values[8 * 8];
  uint64_t state = 13;
  for (int i = 0; i < 16 * 8; i++) {
    a[i] = (float)(a_values[i] = (int)(random_bits(&state) % 1001) - 500);
    d[i] = (float)i;
  }
  for (int i = 0; i < 8 * 8; i++) {
    b[i] = (float)(b_values[i] = (int)(random_bits(&state) % 1001) - 500);
  }
  launch(multiply_tf32, 1, 32, 0, a.to_device(), b.to_device(), d.to_device());
  check_product("tf32", a_values, b_values, d, 16, 8, 8, true, 1);
}

/* From the formulas of PTX 9.7.14.5.9 (K = 16) and 9.7.14.5.10 (32); b is K x 8 row by row. */
template <int K> __global__ void multiply_s8(const int8_t *a, const int8_t *b, int32_t *d) {
  const int group = (int)threadIdx.x >> 2, in_group = (int)threadIdx.x % 4;
  uint32_t ra[4] = {}, rb[2] = {};
  for (int i = 0; i < K / 2; i++) {
    const int row = i < 4 || (i >= 8 && i < 12) ? group : group + 8;
    const int column = in_group * 4 + (i & 3) + (i < 8 ? 0 : 16);
    ra[i / 4] |= (uint32_t)(uint8_t)a[K * row + column] << 8 * (i & 3);
  }
  for (int i = 0; i < K / 4; i++) {
    const int row = in_group * 4 + (i & 3) + (i < 4 ? 0 : 16);
    rb[i / 4] |= (uint32_t)(uint8_t)b[8 * row + group] << 8 * (i & 3);
  }
  add_product(d, [&](int32_t(&rd)[4]) {
    if constexpr (K == 32) {
      nn_mma_m16n8k32_s8(rd, ra, rb[0], rb[1]);
    } else {
      nn_mma_m16n8k16_s8(rd, ra[0], ra[1], rb[0]);
    }
  });
}

template <int K> static void test_multiply_s8() {
  array<int8_t> a(16 * K), b(K * 8);
  array<int32_t> d(16 * 8);
  uint64_t state = 14;
  for (int i = 0; i < 16 * K; i++) {
    a[i] = (int8_t)(random_bits(&state) % 256);
  }
  for (int i = 0; i < K * 8; i++) {
    b[i] = (int8_t)(random_bits(&state) % 256);
  }
  for (int i = 0; i < 16 * 8; i++) {
    d[i] = 1000 * i;
  }
  launch(multiply_s8<K>, 1, 32, 0, a.to_device(), b.to_device(), d.to_device());
  d.from_device();
  for (int i = 0; i < 16; i++) {
    for (int j = 0; j < 8; j++) {
      int32_t sum = 1000 * (8 * i + j);
      for (int k = 0; k < K; k++) {
        sum += a[K * i + k] * b[8 * k + j];
      }
      CHECK(d[8 * i + j] == sum, "m16n8k%d of s8: (%d, %d) is %d, not %d", K, i, j, sum, d[8 * i + j]);
    }
  }
}

/* Where s8 has its elements, from the formulas of PTX 9.7.14.5.10; all products of small numbers and sums are exact. */
__global__ void multiply_e4m3(const uint8_t *a, const uint8_t *b, float *d) {
  const int group = (int)threadIdx.x >> 2, in_group = (int)threadIdx.x % 4;
  uint32_t ra[4] = {}, rb[2] = {};
  for (int i = 0; i < 16; i++) {
    const int row = i < 4 || (i >= 8 && i < 12) ? group : group + 8;
    const int column = in_group * 4 + (i & 3) + (i < 8 ? 0 : 16);
    ra[i / 4] |= (uint32_t)a[32 * row + column] << 8 * (i & 3);
  }
  for (int i = 0; i < 8; i++) {
    const int row = in_group * 4 + (i & 3) + (i < 4 ? 0 : 16);
    rb[i / 4] |= (uint32_t)b[8 * row + group] << 8 * (i & 3);
  }
  add_product(d, [&](float(&rd)[4]) { nn_mma_m16n8k32_e4m3(rd, ra, rb[0], rb[1]); });
}

static void test_multiply_e4m3() {
  array<uint8_t> a(16 * 32), b(32 * 8);
  array<float> d(16 * 8);
  int a_values[16 * 32], b_values[32 * 8];
  uint64_t state = 15;
  for (int i = 0; i < 16 * 32; i++) {
    a[i] = nn_e4m3_encoded((float)(a_values[i] = (int)(random_bits(&state) % 31) - 15));
  }
  for (int i = 0; i < 32 * 8; i++) {
    b[i] = nn_e4m3_encoded((float)(b_values[i] = (int)(random_bits(&state) % 31) - 15));
  }
  for (int i = 0; i < 16 * 8; i++) {
    d[i] = (float)i;
  }
  launch(multiply_e4m3, 1, 32, 0, a.to_device(), b.to_device(), d.to_device());
  check_product("m16n8k32 of e4m3", a_values, b_values, d, 16, 8, 32, true, 1);
}

/* ---- as kernels do it: 2 warps, each 16 rows of a 32 x 16 product over k = 32. B comes as [n][k] or as [k][n]. */
template <class T, bool B_BY_ROWS_OF_K> __global__ void multiply_tiles(const uint16_t *a, const uint16_t *b, float *d) {
  static constexpr int M = 32, N = 16, K = 32, LD_A = K + 8, LD_B = B_BY_ROWS_OF_K ? N + 8 : K + 8;
  __shared__ uint4 memory_a[M * LD_A / 8], memory_b[(B_BY_ROWS_OF_K ? K : N) * LD_B / 8];
  uint16_t *sa = (uint16_t *)memory_a, *sb = (uint16_t *)memory_b;
  for (int i = (int)threadIdx.x; i < M * K; i += 64) {
    sa[i / K * LD_A + i % K] = a[i];
  }
  const int columns = B_BY_ROWS_OF_K ? N : K;
  for (int i = (int)threadIdx.x; i < N * K; i += 64) {
    sb[i / columns * LD_B + i % columns] = b[i];
  }
  __syncthreads();
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
  float sums[2][4] = {};
  for (int k = 0; k < K; k += 16) {
    uint32_t ra[4], rb[4];
    nn_ldmatrix_x4(ra, nn_shared_address(sa + (16 * warp + lane % 16) * LD_A + k + 8 * (lane / 16)));
    if (B_BY_ROWS_OF_K) {
      nn_ldmatrix_x4_transposed(rb, nn_shared_address(sb + (k + lane % 16) * LD_B + 8 * (lane / 16)));
    } else {
      nn_ldmatrix_x4(rb, nn_shared_address(sb + (lane % 8 + 8 * (lane / 16)) * LD_B + k + 8 * (lane / 8 % 2)));
    }
    nn_mma_m16n8k16<T>(sums[0], ra, rb[0], rb[1]);
    nn_mma_m16n8k16<T>(sums[1], ra, rb[2], rb[3]);
  }
  for (int j = 0; j < 2; j++) {
    for (int i = 0; i < 4; i++) {
      d[N * (16 * warp + lane / 4 + 8 * (i / 2)) + 8 * j + 2 * (lane % 4) + i % 2] = sums[j][i];
    }
  }
}

template <class T, bool B_BY_ROWS_OF_K> static void test_multiply_tiles(const char *what) {
  array<uint16_t> a(32 * 32), b(16 * 32);
  array<float> d(32 * 16);
  int a_values[32 * 32], b_values[16 * 32];
  fill_small<T>(a, a_values, 21);
  fill_small<T>(b, b_values, 22);
  launch(multiply_tiles<T, B_BY_ROWS_OF_K>, 1, 64, 0, a.to_device(), b.to_device(), d.device);
  check_product(what, a_values, b_values, d, 32, 16, 32, B_BY_ROWS_OF_K, 0);
}

int main() {
  const int arch = device_arch();
  if (arch >= 75) {
    test_load_matrices();
    test_multiply_s8<32>();
    test_multiply_fragments<nn_f16>("m16n8k16 of f16");
    test_multiply_tiles<nn_f16, false>("tiles of f16, B as [n][k]");
    test_multiply_tiles<nn_f16, true>("tiles of f16, B as [k][n]");
  }
  if (arch >= 80) {
    test_multiply_s8<16>();
    test_multiply_fragments<nn_bf16>("m16n8k16 of bf16");
    test_multiply_tf32();
    test_multiply_tiles<nn_bf16, false>("tiles of bf16, B as [n][k]");
    test_multiply_tiles<nn_bf16, true>("tiles of bf16, B as [k][n]");
  }
  if (arch >= 89) {
    test_multiply_e4m3();
  }
  if (arch >= 90) {
    test_store_matrices();
  }
  puts("mma: passed");
}
