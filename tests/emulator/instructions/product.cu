/*
 * Everything of sm_90a together, as a kernel uses it: a product D = A * B^T of f16 whose sizes fit nothing, by a
 * warpgroup that loads and two that multiply, through a ring of buffers; D leaves through stmatrix and tensor stores.
 */
#include "check.cuh"

#include "interface.h"
#include "kernels/tensormap.cu" /* so that a test is one program */

static constexpr int TILE = 128, DEPTH = 64, STAGES = 2;
static constexpr uint32_t OPERAND = TILE * DEPTH * 2; /* bytes of one operand of a stage */

struct shared_barriers {
  uint64_t full[STAGES], empty[STAGES];
};

__device__ __forceinline__ void load_tiles(const CUtensorMap *a, const CUtensorMap *b, uint32_t shared,
                                           uint32_t barriers, int row, int column, int steps) {
  for (int i = 0; i < steps; i++) {
    const uint32_t stage = (uint32_t)i % STAGES, full = barriers + 8 * stage, empty = barriers + 8 * (STAGES + stage);
    nn_mbarrier_wait(empty, (uint32_t)(i / STAGES + 1) & 1);
    nn_mbarrier_arrive_expect(full, 2 * OPERAND);
    nn_tensor_load(shared + 2 * OPERAND * stage, a, full, nn_l2_evict_normal(), DEPTH * i, row);
    nn_tensor_load(shared + 2 * OPERAND * stage + OPERAND, b, full, nn_l2_evict_normal(), DEPTH * i, column);
  }
}

__device__ __forceinline__ void multiply_tiles(float (&d)[TILE / 2], uint32_t shared, uint32_t barriers, int half,
                                               int steps) {
  for (int i = 0; i < steps; i++) {
    const uint32_t stage = (uint32_t)i % STAGES, at = shared + 2 * OPERAND * stage;
    const uint64_t a = nn_wgmma_descriptor_k_major<NN_SWIZZLE_128>(at + (uint32_t)half * (OPERAND / 2));
    const uint64_t b = nn_wgmma_descriptor_k_major<NN_SWIZZLE_128>(at + OPERAND);
    nn_mbarrier_wait(barriers + 8 * stage, (uint32_t)(i / STAGES) & 1);
    nn_wgmma_hold(d);
    nn_wgmma_fence();
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++) {
      nn_wgmma<nn_f16>(d, nn_wgmma_step(a, 32 * (uint32_t)k), nn_wgmma_step(b, 32 * (uint32_t)k), i > 0 || k > 0);
    }
    nn_wgmma_commit();
    if (i > 0) { /* the products of the stage before are done, its buffer is free */
      nn_wgmma_wait<1>();
      if (threadIdx.x % 128 == 0) {
        nn_mbarrier_arrive(barriers + 8 * (STAGES + (uint32_t)(i - 1) % STAGES));
      }
    }
  }
  nn_wgmma_wait<0>();
  nn_wgmma_hold(d);
}

/* 64 rows of D by one warpgroup: two boxes of 64 columns, swizzled. */
__device__ __forceinline__ void store_tile(const CUtensorMap *map, const float (&d)[TILE / 2], uint32_t shared,
                                           int half, int row, int column) {
  const int warp = (int)threadIdx.x / 32 % 4, lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < TILE / 16; j++) { /* 16 columns: matrices of rows 0-7 and 8-15, of columns 0-7, then 8-15 */
    uint32_t r[4];
    for (int m = 0; m < 4; m++) {
      r[m] = nn_f32x2_to_f16x2(d[8 * j + 2 * m], d[8 * j + 2 * m + 1]);
    }
    const int matrix = lane / 8, my_row = 16 * warp + 8 * (matrix % 2) + lane % 8,
              my_column = 16 * j + 8 * (matrix / 2);
    const uint32_t in_box = nn_swizzled<NN_SWIZZLE_128>((uint32_t)(128 * my_row + 2 * (my_column % 64)));
    nn_stmatrix_x4(shared + (uint32_t)(my_column / 64) * 8192 + in_box, r);
  }
  nn_fence_async_shared();
  nn_barrier_sync(1 + (uint32_t)half, 128);
  if (warp == 0 && nn_elect()) {
    nn_tensor_store(map, shared, column, row);
    nn_tensor_store(map, shared + 8192, column + 64, row);
    nn_tensor_store_commit();
    nn_tensor_store_wait_read<0>();
  }
}

__global__ void __launch_bounds__(384, 1)
    product(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
            const __grid_constant__ CUtensorMap map_d, int steps, int tiles_across) {
  SHARED_BYTES(memory);
  __shared__ shared_barriers barriers;
  const uint32_t shared = nn_shared_address(memory), at = nn_shared_address(&barriers);
  const int row = (int)blockIdx.x / tiles_across * TILE, column = (int)blockIdx.x % tiles_across * TILE;
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < STAGES; i++) {
      nn_mbarrier_init(at + 8 * i, 1);
      nn_mbarrier_init(at + 8 * (STAGES + i), 2);
    }
    nn_fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    nn_registers_lower<40>();
    if (threadIdx.x < 32 && nn_elect()) {
      load_tiles(&map_a, &map_b, shared, at, row, column, steps);
    }
  } else {
    nn_registers_raise<232>();
    const int half = (int)threadIdx.x / 128 - 1;
    float d[TILE / 2];
    multiply_tiles(d, shared, at, half, steps);
    store_tile(&map_d, d, shared + 2 * OPERAND * STAGES + (uint32_t)half * 16384, half, row + 64 * half, column);
  }
}

static CUtensorMap map_of(uint16_t *x, int rows, int columns, int ld, int box_rows, int box_columns) {
  CUtensorMap map;
  const int64_t dims[2] = {columns, rows}, strides[1] = {ld};
  const int32_t box[2] = {box_columns, box_rows};
  CHECK(nn_tensor_map(&map, NNCUDA_F16, 2, x, dims, strides, box, NN_SWIZZLE_128), "map of %d x %d", rows, columns);
  return map;
}

static void test_product(int m, int n, int k, int ld_k, int ld_n) {
  array<uint16_t> a(m * ld_k), b(n * ld_k), d(m * ld_n);
  uint64_t state = 51;
  for (int i = 0; i < (m + n) * ld_k; i++) { /* what lies behind a row's k elements must not be used */
    const int v = i % ld_k < k ? (int)(random_bits(&state) % 3) - 1 : 8;
    (i < m * ld_k ? a[i] : b[i - m * ld_k]) = small_f16(v);
  }
  for (int i = 0; i < m * ld_n; i++) {
    d[i] = 0x1234;
  }
  const int across = (n + TILE - 1) / TILE, down = (m + TILE - 1) / TILE;
  launch(product, (unsigned)(across * down), 384, 2 * OPERAND * STAGES + 32768,
         map_of(a.to_device(), m, k, ld_k, TILE, DEPTH), map_of(b.to_device(), n, k, ld_k, TILE, DEPTH),
         map_of(d.to_device(), m, n, ld_n, 64, 64), (k + DEPTH - 1) / DEPTH, across);
  d.from_device();
  for (int i = 0; i < m; i++) {
    for (int j = 0; j < ld_n; j++) {
      int sum = 0;
      for (int l = 0; j < n && l < k; l++) {
        const uint16_t x = a[i * ld_k + l], y = b[j * ld_k + l];
        sum += x == 0 || y == 0 ? 0 : x == y ? 1 : -1;
      }
      /* f16 of an integer below 2048: sign, exponent, ten bits */
      uint16_t expected = 0x1234;
      if (j < n) {
        int e = 0;
        while (abs(sum) >> e > 1) {
          e++;
        }
        expected =
            sum == 0 ? 0 : (uint16_t)((sum < 0 ? 0x8000 : 0) | (e + 15) << 10 | ((abs(sum) << (10 - e)) & 0x3ff));
      }
      CHECK(d[i * ld_n + j] == expected, "%d x %d x %d: (%d, %d) is %d, not %04x", m, n, k, i, j, sum, d[i * ld_n + j]);
    }
  }
}

int main() {
  if (device_arch() == 90) {
    test_product(128, 128, 64, 64, 128);
    test_product(128, 128, 256, 256, 128);
    test_product(200, 150, 333, 336, 152);
    test_product(1, 1, 1, 8, 8);
  }
  puts("product: passed");
}
