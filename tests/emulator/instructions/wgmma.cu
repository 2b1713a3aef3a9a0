/*
 * wgmma. Layouts in shared memory are tested twice: as images written element by element from the words of PTX
 * 9.7.15.5.1.2 about the two strides, with unusual strides; and as kernels use them, boxes that the copy engine
 * swizzled.
 */
#include "check.cuh"

#include "interface.h"
#include "kernels/tensormap.cu" /* so that a test is one program */
#include <vector>

/* Element i of a thread's d: its row and column of the 64 x N product (PTX 9.7.15.5.1.1.1, figure 149). */
__device__ __forceinline__ int d_place(int n, int i) {
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
  return (16 * warp + lane / 4 + 8 * (i / 2 % 2)) * n + 8 * (i / 4) + 2 * (lane % 4) + i % 2;
}

/* How the operand lies, and how to step through k. */
struct operand {
  uint32_t start; /* in shared memory */
  nn_swizzle swizzle;
  uint32_t leading, stride;         /* bytes */
  uint32_t box, step, steps_in_box; /* bytes between boxes, and between products in a box */
};

__device__ __forceinline__ uint64_t descriptor_at(const operand &o, uint32_t shared, int product) {
  const uint32_t p = (uint32_t)product;
  return nn_wgmma_step(nn_wgmma_descriptor(shared + o.start, o.swizzle, o.leading, o.stride),
                       p / o.steps_in_box * o.box + p % o.steps_in_box * o.step);
}

/* `products` times 16 of k; `a_rows` (64 x 16 * products, row by row) instead of shared memory for A in registers. */
template <class T, int N, bool A_MN, bool B_MN, bool A_REGISTERS>
__device__ __forceinline__ void multiply(uint32_t shared, const operand &a, const operand &b, const uint16_t *a_rows,
                                         int products, float *out) {
  float d[N / 2];
  for (int i = 0; i < N / 2; i++) {
    d[i] = 1e30f;
  }
  const int warp = (int)threadIdx.x / 32, group = (int)threadIdx.x % 32 / 4, in_group = (int)threadIdx.x % 4;
  for (int p = 0; p < products; p++) {
    if constexpr (A_REGISTERS) {
      uint32_t r[4] = {}; /* figure 148: element i is in row group (+ 8), column 2 * in_group + i % 2 (+ 8) */
      for (int i = 0; i < 8; i++) {
        const int row = 16 * warp + group + 8 * (i / 2 % 2), column = 16 * p + 2 * in_group + i % 2 + 8 * (i / 4);
        r[i / 2] |= (uint32_t)a_rows[row * 16 * products + column] << 16 * (i % 2);
      }
      nn_wgmma_hold(r);
      nn_wgmma_hold(d);
      nn_wgmma_fence();
      nn_wgmma<T, B_MN>(d, r, descriptor_at(b, shared, p), p > 0);
      nn_wgmma_commit();
      nn_wgmma_wait_after(0.0f, (float)threadIdx.x);
      nn_wgmma_wait<0>();
      nn_wgmma_hold(r);
    } else {
      nn_wgmma_hold(d);
      nn_wgmma_fence();
      nn_wgmma<T, A_MN, B_MN>(d, descriptor_at(a, shared, p), descriptor_at(b, shared, p), p > 0);
      nn_wgmma_commit();
    }
  }
  nn_wgmma_wait<0>();
  nn_wgmma_hold(d);
  for (int i = 0; i < N / 2; i++) {
    out[d_place(N, i)] = d[i];
  }
}

/* ---- images of shared memory */
template <bool A_MN, bool B_MN>
__global__ void multiply_images(const uint4 *image, int bytes, operand a, operand b, float *out) {
  SHARED_BYTES(memory);
  for (int i = (int)threadIdx.x; i < bytes / 16; i += 128) {
    ((uint4 *)memory)[i] = image[i];
  }
  nn_fence_async_shared();
  __syncthreads();
  multiply<nn_bf16, 64, A_MN, B_MN, false>(nn_shared_address(memory), a, b, nullptr, 1, out);
}

/* Where the manual puts element (mn, k) of an operand of 64 by 16. It speaks of units of 16 bytes (8 elements). */
static uint32_t image_place(bool mn_major, nn_swizzle swizzle, uint32_t leading, uint32_t stride, int mn, int k) {
  const int row_bytes = swizzle == NN_SWIZZLE_128 ? 128 : swizzle == NN_SWIZZLE_64 ? 64 : 32, units = row_bytes / 16;
  uint32_t line_and_byte;
  if (swizzle == NN_SWIZZLE_NONE) {
    /* Blocks of 8 rows of 16 bytes. K-major: a row of a block is a row of the matrix; leading: from the first column of
     * units to the second; stride: from the first 8 rows to the next. MN-major: a row of a block is one k; leading:
     * from the first 8 columns to the next 8; stride: from the first (unit) row to the next. */
    return mn_major
               ? (uint32_t)(k / 8) * leading + (uint32_t)(mn / 8) * stride + (uint32_t)(16 * (k % 8) + 2 * (mn % 8))
               : (uint32_t)(k / 8) * leading + (uint32_t)(mn / 8) * stride + (uint32_t)(16 * (mn % 8) + 2 * (k % 8));
  }
  if (mn_major) { /* blocks of 8 k, each a row of row_bytes along mn. Stride: from the first 8 columns to the next;
                     leading: from the first (row_bytes / 16) unit rows to the next */
    const int unit = mn / 8;
    line_and_byte = (uint32_t)(unit / units) * leading + (uint32_t)(k / 8) * stride +
                    (uint32_t)(row_bytes * (k % 8) + 16 * (unit % units) + 2 * (mn % 8));
  } else { /* blocks of 8 rows of row_bytes along k; stride: from the first 8 rows to the next */
    line_and_byte = (uint32_t)(mn / 8) * stride + (uint32_t)(row_bytes * (mn % 8) + 2 * k);
  }
  /* PTX 5.5.7: in 128-byte lines, unit u of line l goes to u with the low bits of l exchanged into it. */
  const uint32_t line = line_and_byte / 128, unit = line_and_byte / 16 % 8;
  return 128 * line + 16 * (unit ^ line % (uint32_t)units) + line_and_byte % 16;
}

struct layout {
  bool mn_major;
  nn_swizzle swizzle;
  uint32_t leading, stride;
};

static void test_images() {
  /* Strides that leave gaps between the blocks; those of swizzled blocks keep patterns whole. */
  const layout layouts[8] = {
      {false, NN_SWIZZLE_NONE, 144, 320}, {false, NN_SWIZZLE_32, 16, 512},    {false, NN_SWIZZLE_64, 16, 1536},
      {false, NN_SWIZZLE_128, 16, 3072},  {true, NN_SWIZZLE_NONE, 176, 400},  {true, NN_SWIZZLE_32, 768, 256},
      {true, NN_SWIZZLE_64, 1536, 5120},  {true, NN_SWIZZLE_128, 1024, 3072},
  };
  const int half = 32768;
  array<float> out(64 * 64);
  for (const layout &a : layouts) {
    for (const layout &b : layouts) {
      array<uint4> image(2 * half / 16);
      memset(image.host, 0xff, 2 * half); /* NaN wherever nothing belongs */
      array<uint16_t> x(64 * 16), y(64 * 16);
      int x_values[64 * 16], y_values[64 * 16];
      fill_small<nn_bf16>(x, x_values, 31);
      fill_small<nn_bf16>(y, y_values, 32);
      for (int mn = 0; mn < 64; mn++) {
        for (int k = 0; k < 16; k++) {
          const uint32_t in_a = image_place(a.mn_major, a.swizzle, a.leading, a.stride, mn, k);
          const uint32_t in_b = image_place(b.mn_major, b.swizzle, b.leading, b.stride, mn, k);
          CHECK(in_a < (uint32_t)half && in_b < (uint32_t)half, "the image is too small");
          memcpy((char *)image.host + in_a, &x[16 * mn + k], 2);
          memcpy((char *)image.host + half + in_b, &y[16 * mn + k], 2);
        }
      }
      const operand oa = {0, a.swizzle, a.leading, a.stride, 0, 0, 1};
      const operand ob = {(uint32_t)half, b.swizzle, b.leading, b.stride, 0, 0, 1};
      auto kernel = a.mn_major   ? b.mn_major ? multiply_images<true, true> : multiply_images<true, false>
                      : b.mn_major ? multiply_images<false, true>
                                 : multiply_images<false, false>;
      launch(kernel, 1, 128, 2 * half, image.to_device(), 2 * half, oa, ob, out.device);
      out.from_device();
      for (int i = 0; i < 64; i++) {
        for (int j = 0; j < 64; j++) {
          int sum = 0;
          for (int k = 0; k < 16; k++) {
            sum += x_values[16 * i + k] * y_values[16 * j + k];
          }
          CHECK(out[64 * i + j] == (float)sum, "A %d/%d, B %d/%d: (%d, %d) is %d, not %g", a.mn_major, a.swizzle,
                b.mn_major, b.swizzle, i, j, sum, (double)out[64 * i + j]);
        }
      }
    }
  }
}

/* ---- boxes, k = 64 */
static constexpr int K = 64;

/* Loads an operand of `rows` by 64 as boxes that are one swizzled row wide, and says how it lies then. */
__device__ __forceinline__ operand load_operand(const CUtensorMap *map, uint32_t shared, uint32_t start,
                                                uint32_t barrier, bool mn_major, nn_swizzle swizzle, int rows) {
  const uint32_t width = nn_swizzle_bytes(swizzle), wide = width / 2; /* of a box, in elements */
  const uint32_t tall = mn_major ? K : (uint32_t)rows, along = mn_major ? (uint32_t)rows : K, box = tall * width;
  if (threadIdx.x == 0) {
    const uint32_t boxes = (along + wide - 1) / wide;
    nn_mbarrier_arrive_expect(barrier, boxes * box);
    for (uint32_t i = 0; i < boxes; i++) {
      nn_tensor_load(shared + start + i * box, map, barrier, nn_l2_evict_normal(), (int32_t)(i * wide), 0);
    }
  }
  if (swizzle == NN_SWIZZLE_NONE) {
    return mn_major ? operand{start, swizzle, 128, box, 0, 256, K / 16}
                    : operand{start, swizzle, box, 128, 2 * box, 0, 1};
  }
  return mn_major ? operand{start, swizzle, box, 8 * width, 0, 16 * width, K / 16}
                  : operand{start, swizzle, 16, 8 * width, box, 32, width / 32};
}

template <class T, int N, bool A_MN, bool B_MN, bool A_REGISTERS>
__global__ void multiply_boxes(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                               nn_swizzle swizzle_a, nn_swizzle swizzle_b, const uint16_t *a_rows, float *out) {
  SHARED_BYTES(memory);
  __shared__ uint64_t full;
  const uint32_t shared = nn_shared_address(memory), barrier = nn_shared_address(&full);
  if (threadIdx.x == 0) {
    nn_mbarrier_init(barrier, 2); /* an arrival an operand */
    nn_fence_mbarrier_init();
  }
  __syncthreads();
  const operand a = load_operand(&map_a, shared, 0, barrier, A_MN, swizzle_a, 64);
  const operand b = load_operand(&map_b, shared, 16384, barrier, B_MN, swizzle_b, N);
  nn_mbarrier_wait(barrier, 0);
  multiply<T, N, A_MN, B_MN, A_REGISTERS>(shared, a, b, a_rows, K / 16, out);
}

/* The matrix as [k][mn] or as [mn][k]. */
static bool map_operand(CUtensorMap *map, array<uint16_t> &x, const std::vector<uint16_t> &by_rows, bool mn_major,
                        nn_swizzle swizzle, int32_t dtype) {
  const int rows = (int)by_rows.size() / K;
  for (int mn = 0; mn < rows; mn++) {
    for (int k = 0; k < K; k++) {
      x[mn_major ? k * rows + mn : mn * K + k] = by_rows[(size_t)(mn * K + k)];
    }
  }
  const int64_t dims[2] = {mn_major ? rows : K, mn_major ? K : rows}, strides[1] = {mn_major ? rows : K};
  const int32_t box[2] = {(int32_t)nn_swizzle_bytes(swizzle) / 2, mn_major ? K : rows};
  return nn_tensor_map(map, dtype, 2, x.to_device(), dims, strides, box, swizzle);
}

template <class T, int N, bool A_MN, bool B_MN, bool A_REGISTERS>
static void test_boxes(nn_swizzle swizzle_a, nn_swizzle swizzle_b) {
  const int32_t dtype = nn_mma_type<T>::is_f16 ? NNCUDA_F16 : NNCUDA_BF16;
  array<uint16_t> a_rows(64 * K), b_rows(N * K), a(64 * K), b(N * K);
  std::vector<int> a_values(64 * K), b_values(N * K);
  fill_small<T>(a_rows, a_values.data(), 41);
  fill_small<T>(b_rows, b_values.data(), 42);
  array<float> out(64 * N);
  CUtensorMap map_a, map_b;
  CHECK(map_operand(&map_a, a, {a_rows.host, a_rows.host + 64 * K}, A_MN, swizzle_a, dtype), "map of A");
  CHECK(map_operand(&map_b, b, {b_rows.host, b_rows.host + N * K}, B_MN, swizzle_b, dtype), "map of B");
  launch(multiply_boxes<T, N, A_MN, B_MN, A_REGISTERS>, 1, 128, 16384 + 256 * 128, map_a, map_b, swizzle_a, swizzle_b,
         a_rows.to_device(), out.device);
  out.from_device();
  for (int i = 0; i < 64; i++) {
    for (int j = 0; j < N; j++) {
      int sum = 0;
      for (int k = 0; k < K; k++) {
        sum += a_values[(size_t)(K * i + k)] * b_values[(size_t)(K * j + k)];
      }
      CHECK(out[N * i + j] == (float)sum, "%s, N %d, A %s %d/%d, B %d/%d: (%d, %d) is %d, not %g",
            nn_mma_type<T>::is_f16 ? "f16" : "bf16", N, A_REGISTERS ? "registers" : "shared", A_MN, swizzle_a, B_MN,
            swizzle_b, i, j, sum, (double)out[N * i + j]);
    }
  }
}

template <class T, int N> static void test_majors(nn_swizzle a, nn_swizzle b) {
  test_boxes<T, N, false, false, false>(a, b);
  test_boxes<T, N, false, true, false>(a, b);
  test_boxes<T, N, true, false, false>(a, b);
  test_boxes<T, N, true, true, false>(a, b);
  test_boxes<T, N, false, false, true>(NN_SWIZZLE_128, b);
  test_boxes<T, N, false, true, true>(NN_SWIZZLE_128, b);
}

/* ---- codes of 8 bits, two where the others have an element of 16 */
template <int N>
__global__ void multiply_codes(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                               nn_swizzle swizzle_a, nn_swizzle swizzle_b, float *out) {
  SHARED_BYTES(memory);
  __shared__ uint64_t full;
  const uint32_t shared = nn_shared_address(memory), barrier = nn_shared_address(&full);
  if (threadIdx.x == 0) {
    nn_mbarrier_init(barrier, 2);
    nn_fence_mbarrier_init();
  }
  __syncthreads();
  const operand a = load_operand(&map_a, shared, 0, barrier, false, swizzle_a, 64);
  const operand b = load_operand(&map_b, shared, 16384, barrier, false, swizzle_b, N);
  nn_mbarrier_wait(barrier, 0);
  float d[N / 2];
  for (int i = 0; i < N / 2; i++) {
    d[i] = 1e30f;
  }
  nn_wgmma_hold(d);
  nn_wgmma_fence();
  for (int p = 0; p < K / 16; p++) {
    nn_wgmma_e4m3(d, descriptor_at(a, shared, p), descriptor_at(b, shared, p), p > 0);
  }
  nn_wgmma_commit();
  nn_wgmma_wait<0>();
  nn_wgmma_hold(d);
  for (int i = 0; i < N / 2; i++) {
    out[d_place(N, i)] = d[i];
  }
}

/* The product of 64 and of N rows of 2 K numbers that E4M3 has, row by row. */
template <int N>
static void run_codes(array<float> &out, const std::vector<float> &x, const std::vector<float> &y, nn_swizzle swizzle_a,
                      nn_swizzle swizzle_b) {
  const auto pairs = [](const std::vector<float> &from) {
    std::vector<uint16_t> made(from.size() / 2);
    for (size_t i = 0; i < from.size(); i++) {
      made[i / 2] |= (uint16_t)(nn_e4m3_encoded(from[i]) << 8 * (i % 2));
    }
    return made;
  };
  array<uint16_t> a(64 * K), b(N * K);
  CUtensorMap map_a, map_b;
  CHECK(map_operand(&map_a, a, pairs(x), false, swizzle_a, NNCUDA_BF16), "map of A");
  CHECK(map_operand(&map_b, b, pairs(y), false, swizzle_b, NNCUDA_BF16), "map of B");
  launch(multiply_codes<N>, 1, 128, 16384 + 256 * 128, map_a, map_b, swizzle_a, swizzle_b, out.device);
  out.from_device();
}

template <int N> static void test_codes(nn_swizzle swizzle_a, nn_swizzle swizzle_b) {
  std::vector<float> x(64 * 2 * K), y(N * 2 * K);
  uint32_t state = 7;
  for (std::vector<float> *factor : {&x, &y}) {
    for (float &value : *factor) {
      state = state * 1664525 + 1013904223;
      value = (float)((int)(state >> 24) % 7 - 3);
    }
  }
  array<float> out(64 * N);
  run_codes<N>(out, x, y, swizzle_a, swizzle_b);
  for (int i = 0; i < 64; i++) {
    for (int j = 0; j < N; j++) {
      float sum = 0;
      for (int k = 0; k < 2 * K; k++) {
        sum += x[(size_t)(2 * K * i + k)] * y[(size_t)(2 * K * j + k)];
      }
      CHECK(out[N * i + j] == sum, "codes, N %d, A %d, B %d: (%d, %d) is %g, not %g", N, swizzle_a, swizzle_b, i, j,
            (double)sum, (double)out[N * i + j]);
    }
  }
}

/* What is kept of a sum: row i of A times ones and powers of two. */
static void test_bits_of_codes() {
  struct sum {
    int ones, after; /* products of 1; among the 32 after them, or with them */
    float small, expected;
  };
  const float least = 0x1p-7f;
  const sum sums[8] = {
      {1, 0, 0x1p-6f, 1 + 0x1p-13f}, /* the last place beside a product of 1 */
      {1, 0, least, 1},              /* half of it */
      {2, 0, 0x1p-6f, 2},            /* there, but not behind the first of 2 */
      {2, 0, 0x1p-5f, 2 + 0x1p-12f}, /* 13 behind it */
      {16, 0, 0x1p-3f, 16},          /* 2^-10, and 16 keeps 2^-9 */
      {16, 0, 0x1p-2f, 16 + 0x1p-9f},
      {16, 1, 0x1p-3f, 16},          /* beside a sum of 16 */
      {1, 1, 0x1p-6f, 1 + 0x1p-13f}, /* beside a sum of 1 */
  };
  std::vector<float> x(64 * 2 * K), y(64 * 2 * K);
  for (int i = 0; i < 8; i++) {
    for (int k = 0; k < sums[i].ones; k++) {
      x[(size_t)(2 * K * i + k)] = 1;
    }
    x[(size_t)(2 * K * i + 31 + 32 * sums[i].after)] = sums[i].small;
  }
  for (int j = 0; j < 64; j++) {
    for (int k = 0; k < 2 * K; k++) {
      y[(size_t)(2 * K * j + k)] = k % 32 == 31 ? least : 1;
    }
  }
  array<float> out(64 * 64);
  run_codes<64>(out, x, y, NN_SWIZZLE_128, NN_SWIZZLE_128);
  for (int i = 0; i < 8; i++) {
    CHECK(out[64 * i] == sums[i].expected, "sum %d is %a, not %a", i, (double)out[64 * i], (double)sums[i].expected);
  }
}

#ifdef NN_EMULATED
/* The emulator must not hide results that are used too early, or operands that are overwritten too early. */
__global__ void without_wait(float *out) {
  SHARED_BYTES(memory);
  for (int i = (int)threadIdx.x; i < 4096; i += 128) {
    ((uint16_t *)memory)[i] = 0x3f80;
  }
  __syncthreads();
  const uint64_t operand = nn_wgmma_descriptor_k_major<NN_SWIZZLE_128>(nn_shared_address(memory));
  float d[32];
  nn_wgmma_fence();
  nn_wgmma<nn_bf16>(d, operand, operand, false);
  nn_wgmma_commit();
  out[threadIdx.x] = d[5];
  nn_wgmma_wait<0>();
  out[128 + threadIdx.x] = d[5];
  nn_wgmma_fence();
  nn_wgmma<nn_bf16>(d, operand, operand, false);
  nn_wgmma_commit();
  __syncthreads();
  for (int i = (int)threadIdx.x; i < 4096; i += 128) {
    ((uint16_t *)memory)[i] = 0;
  }
  __syncthreads();
  nn_wgmma_wait<0>();
  out[256 + threadIdx.x] = d[5];
}

static void test_without_wait() {
  array<float> out(384);
  launch(without_wait, 1, 128, 8192, out.device);
  out.from_device();
  for (int t = 0; t < 128; t++) {
    CHECK(out[t] != out[t] && out[128 + t] == 16 && out[256 + t] == 0, "thread %d: %g, %g, %g", t, (double)out[t],
          (double)out[128 + t], (double)out[256 + t]);
  }
}
#endif

int main() {
  if (device_arch() == 90) {
    test_images();
    const nn_swizzle swizzles[4] = {NN_SWIZZLE_NONE, NN_SWIZZLE_32, NN_SWIZZLE_64, NN_SWIZZLE_128};
    for (const nn_swizzle a : swizzles) {
      for (const nn_swizzle b : swizzles) {
        test_majors<nn_bf16, 64>(a, b);
      }
    }
    test_majors<nn_bf16, 128>(NN_SWIZZLE_128, NN_SWIZZLE_128);
    test_majors<nn_bf16, 256>(NN_SWIZZLE_128, NN_SWIZZLE_128);
    test_majors<nn_f16, 64>(NN_SWIZZLE_128, NN_SWIZZLE_128);
    test_majors<nn_f16, 128>(NN_SWIZZLE_128, NN_SWIZZLE_128);
    test_majors<nn_f16, 256>(NN_SWIZZLE_128, NN_SWIZZLE_128);
    for (const nn_swizzle swizzle : swizzles) {
      test_codes<64>(swizzle, NN_SWIZZLE_128);
    }
    test_codes<128>(NN_SWIZZLE_128, NN_SWIZZLE_64);
    test_codes<256>(NN_SWIZZLE_128, NN_SWIZZLE_128);
    test_bits_of_codes();
#ifdef NN_EMULATED
    test_without_wait();
#endif
  }
  puts("wgmma: passed");
}
