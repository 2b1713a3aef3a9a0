/* Copies of boxes of tensors, both ways: every swizzle, 2 to 4 dimensions, boxes that leave the tensor. */
#include "check.cuh"

#include "interface.h"
#include "kernels/tensormap.cu" /* so that a test is one program */

/* PTX 5.5.7's tables of the swizzles: the 16-byte cell of the box that stands in each cell of 8 rows of 128 bytes. */
static const int cells_none[8] = {0, 1, 2, 3, 4, 5, 6, 7};
static const int cells_32[2][8] = {{0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}};
static const int cells_64[4][8] = {
    {0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}, {2, 3, 0, 1, 6, 7, 4, 5}, {3, 2, 1, 0, 7, 6, 5, 4}};
static const int cells_128[8][8] = {{0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}, {2, 3, 0, 1, 6, 7, 4, 5},
                                    {3, 2, 1, 0, 7, 6, 5, 4}, {4, 5, 6, 7, 0, 1, 2, 3}, {5, 4, 7, 6, 1, 0, 3, 2},
                                    {6, 7, 4, 5, 2, 3, 0, 1}, {7, 6, 5, 4, 3, 2, 1, 0}};

static const int *cells_of(nn_swizzle swizzle, int row) {
  return swizzle == NN_SWIZZLE_128  ? cells_128[row % 8]
         : swizzle == NN_SWIZZLE_64 ? cells_64[row % 4]
         : swizzle == NN_SWIZZLE_32 ? cells_32[row % 2]
                                    : cells_none;
}

struct coordinates {
  int c[4];
};

__device__ __forceinline__ void load_box(int rank, uint32_t shared, const CUtensorMap *map, uint32_t barrier,
                                         coordinates at) {
  if (rank == 2) {
    nn_tensor_load(shared, map, barrier, nn_l2_evict_normal(), at.c[0], at.c[1]);
  } else if (rank == 3) {
    nn_tensor_load(shared, map, barrier, nn_l2_evict_normal(), at.c[0], at.c[1], at.c[2]);
  } else {
    nn_tensor_load(shared, map, barrier, nn_l2_evict_normal(), at.c[0], at.c[1], at.c[2], at.c[3]);
  }
}

/* Loads a box twice, to two places, and copies both out as they lie in shared memory. */
__global__ void load_boxes(const __grid_constant__ CUtensorMap map, int rank, coordinates at, int bytes,
                           uint32_t *out) {
  SHARED_BYTES(memory);
  __shared__ uint64_t barrier;
  const uint32_t b = nn_shared_address(&barrier), second = (uint32_t)(bytes + 1023) / 1024 * 1024;
  if (threadIdx.x == 0) {
    nn_tensor_prefetch(&map);
    nn_mbarrier_init(b, 1);
    nn_fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 32 && nn_elect()) {
    nn_mbarrier_arrive_expect(b, 2 * (uint32_t)bytes);
    load_box(rank, nn_shared_address(memory), &map, b, at);
    load_box(rank, nn_shared_address(memory + second), &map, b, at);
  }
  nn_mbarrier_wait(b, 0);
  for (int i = (int)threadIdx.x; i < bytes / 4; i += 128) {
    out[i] = ((const uint32_t *)memory)[i];
    out[bytes / 4 + i] = ((const uint32_t *)(memory + second))[i];
  }
}

struct tensor {
  int rank;
  int64_t dims[4], strides[3];
  int32_t box[4];
};

/* The element of the tensor that element n of a box at these coordinates is, or -1 outside. */
static int64_t element_of(const tensor &t, const coordinates &at, int64_t n) {
  int64_t element = 0;
  for (int i = 0; i < t.rank; i++) {
    const int64_t c = at.c[i] + n % t.box[i];
    n /= t.box[i];
    if (c < 0 || c >= t.dims[i]) {
      return -1;
    }
    element += c * (i == 0 ? 1 : t.strides[i - 1]);
  }
  return element;
}

/* Elements are 32 or 16 bits, and boxes begin at whole runs of 16 bytes. */
static void test_box(const char *what, const tensor &t, int32_t dtype, nn_swizzle swizzle, const coordinates &at) {
  const int64_t each = dtype == NNCUDA_F32 ? 4 : 2;
  int64_t elements = t.strides[t.rank - 2] * t.dims[t.rank - 1], in_box = 1;
  for (int i = 0; i < t.rank; i++) {
    in_box *= t.box[i];
  }
  const int64_t bytes = in_box * each, units = elements * each / 4;
  array<uint32_t> x(units), out(2 * bytes / 4);
  for (int64_t i = 0; i < units; i++) {
    x[i] = (uint32_t)(0x10000 + i);
  }
  x.to_device();
  CUtensorMap map;
  CHECK(nn_tensor_map(&map, dtype, t.rank, x.device, t.dims, t.strides, t.box, swizzle), "%s", what);
  launch(load_boxes, 1, 128, (size_t)(2 * bytes + 2048), map, t.rank, at, (int)bytes, out.device);
  out.from_device();
  for (int64_t i = 0; i < bytes / 4; i++) {
    const int row = (int)(i / 32), cell = (int)(i / 4 % 8);
    const int64_t in_dense = row * 32 + cells_of(swizzle, row)[cell] * 4 + i % 4;
    const int64_t element = element_of(t, at, in_dense * 4 / each);
    const uint32_t expected = element < 0 ? 0 : (uint32_t)(0x10000 + element * each / 4);
    CHECK(out[i] == expected && out[bytes / 4 + i] == expected, "%s, swizzle %d, at %d %d %d %d: unit %d is %x, not %x",
          what, (int)swizzle, at.c[0], at.c[1], at.c[2], at.c[3], (int)i, expected, out[i]);
  }
}

static void test_boxes() {
  for (nn_swizzle swizzle : {NN_SWIZZLE_NONE, NN_SWIZZLE_32, NN_SWIZZLE_64, NN_SWIZZLE_128}) {
    const int wide = swizzle == NN_SWIZZLE_NONE ? 48 : (int)nn_swizzle_bytes(swizzle) / 2; /* 16-bit elements */
    const tensor two = {2, {100, 50}, {104}, {wide, 24}};
    for (const coordinates &at : {coordinates{{0, 0}}, coordinates{{-8, -3}}, coordinates{{88, 40}},
                                  coordinates{{24, 13}}, coordinates{{200, 0}}, coordinates{{0, -30}}}) {
      test_box("16 bits, 2 dimensions", two, NNCUDA_BF16, swizzle, at);
    }
    const tensor three = {3, {72, 9, 5}, {80, 800}, {wide, 4, 3}};
    for (const coordinates &at : {coordinates{{8, 2, 1}}, coordinates{{-8, 7, 3}}, coordinates{{56, -1, -2}}}) {
      test_box("16 bits, 3 dimensions", three, NNCUDA_F16, swizzle, at);
    }
    /* A tensor [batch, rows, heads, columns], its dimensions in another order than its strides. */
    const tensor four = {4, {40, 6, 3, 2}, {3 * 40, 40, 6 * 3 * 40}, {wide, 5, 1, 2}};
    for (const coordinates &at : {coordinates{{0, 0, 1, 0}}, coordinates{{8, 3, 2, 1}}, coordinates{{-8, -2, 0, -1}}}) {
      test_box("16 bits, 4 dimensions", four, NNCUDA_F16, swizzle, at);
    }
    const tensor single = {2, {30, 20}, {32}, {wide / 2, 9}};
    for (const coordinates &at : {coordinates{{0, 0}}, coordinates{{-4, 15}}, coordinates{{24, -2}}}) {
      test_box("32 bits, 2 dimensions", single, NNCUDA_F32, swizzle, at);
    }
  }
}

/* Stores two boxes one after the other by one lane, as `swizzle` lies in shared memory, of what all lanes wrote there;
 * then writes their places again. */
__global__ void store_boxes(const __grid_constant__ CUtensorMap map, coordinates first, coordinates second,
                            int swizzled, int bytes) {
  SHARED_BYTES(memory);
  const uint32_t shared = nn_shared_address(memory), apart = (uint32_t)(bytes + 1023) / 1024 * 1024;
  for (int n = (int)threadIdx.x; n < bytes / 2; n += 32) {
    const int cell = n / 8, row = cell / 8, moved = swizzled ? row * 8 + (cell % 8 ^ row % 8) : cell;
    ((uint16_t *)memory)[moved * 8 + n % 8] = (uint16_t)(1 + n);
    ((uint16_t *)(memory + apart))[moved * 8 + n % 8] = (uint16_t)(0x4001 + n);
  }
  nn_fence_async_shared();
  __syncwarp();
  if (threadIdx.x == 0) {
    nn_tensor_store(&map, shared, first.c[0], first.c[1], first.c[2]);
    nn_tensor_store_commit();
    nn_tensor_store(&map, shared + apart, second.c[0], second.c[1], second.c[2]);
    nn_tensor_store_commit();
    nn_tensor_store_wait<1>();
  }
  __syncwarp();
  for (int n = (int)threadIdx.x; n < bytes / 2; n += 32) {
    ((uint16_t *)memory)[n] = 0xeeee;
  }
  if (threadIdx.x == 0) {
    nn_tensor_store_wait<0>();
  }
}

/* Nothing outside of the tensor changes, and nothing in it but what the boxes cover. */
static void test_stores() {
  const tensor t = {3, {72, 9, 5}, {80, 800}, {64, 4, 1}};
  for (const nn_swizzle swizzle : {NN_SWIZZLE_NONE, NN_SWIZZLE_128}) {
    for (const coordinates &at : {coordinates{{0, 0, 0}}, coordinates{{16, 7, 2}}, coordinates{{40, 2, 4}},
                                  coordinates{{8, -2, 1}}, coordinates{{72, 0, 0}}, coordinates{{0, 0, 5}}}) {
      const coordinates second = {{8, 3, 3}};
      array<uint16_t> x(800 * 5);
      for (int i = 0; i < 800 * 5; i++) {
        x[i] = 0x7777;
      }
      CUtensorMap map;
      CHECK(nn_tensor_map(&map, NNCUDA_BF16, 3, x.to_device(), t.dims, t.strides, t.box, swizzle), "a map");
      uint16_t expected[800 * 5];
      memcpy(expected, x.host, sizeof expected);
      for (int n = 0; n < 64 * 4; n++) {
        const int64_t one = element_of(t, at, n), other = element_of(t, second, n);
        if (one >= 0) {
          expected[one] = (uint16_t)(1 + n);
        }
        if (other >= 0) {
          expected[other] = (uint16_t)(0x4001 + n);
        }
      }
      launch(store_boxes, 1, 32, 2048, map, at, second, (int)(swizzle == NN_SWIZZLE_128), 64 * 4 * 2);
      x.from_device();
      for (int i = 0; i < 800 * 5; i++) {
        CHECK(x[i] == expected[i], "swizzle %d, at %d %d %d: element %d is %x, not %x", (int)swizzle, at.c[0], at.c[1],
              at.c[2], i, x[i], expected[i]);
      }
    }
  }
}

static void test_refusals() {
  array<uint16_t> x(1 << 16);
  CUtensorMap map;
  const int64_t dims[2] = {64, 64}, strides[1] = {64}, odd[1] = {68}, empty[2] = {64, 0};
  const int32_t box[2] = {64, 8}, wide[2] = {72, 8}, tall[2] = {64, 257};
  CHECK(nn_tensor_map(&map, NNCUDA_F16, 2, x.device, dims, strides, box, NN_SWIZZLE_128), "a plain map");
  CHECK(!nn_tensor_map(&map, NNCUDA_F16, 2, x.device + 4, dims, strides, box, NN_SWIZZLE_128), "base");
  CHECK(!nn_tensor_map(&map, NNCUDA_F16, 2, x.device, dims, odd, box, NN_SWIZZLE_128), "stride");
  CHECK(!nn_tensor_map(&map, NNCUDA_F16, 2, x.device, empty, strides, box, NN_SWIZZLE_128), "size");
  CHECK(!nn_tensor_map(&map, NNCUDA_F16, 2, x.device, dims, strides, wide, NN_SWIZZLE_128), "row of the box");
  CHECK(!nn_tensor_map(&map, NNCUDA_F16, 2, x.device, dims, strides, tall, NN_SWIZZLE_128), "rows of the box");
  CHECK(!nn_tensor_map(&map, NNCUDA_F16, 2, x.device, dims, strides, box, NN_SWIZZLE_64), "swizzle");
}

#ifdef NN_EMULATED
/* The emulator must not hide a read that does not wait. */
__global__ void without_wait(const __grid_constant__ CUtensorMap map, uint32_t *out) {
  SHARED_BYTES(memory);
  __shared__ uint64_t barrier;
  const uint32_t b = nn_shared_address(&barrier);
  nn_mbarrier_init(b, 1);
  nn_mbarrier_arrive_expect(b, 64 * 8 * 2);
  nn_tensor_load(nn_shared_address(memory), &map, b, nn_l2_evict_normal(), 0, 0);
  *out = *(const uint32_t *)memory;
  nn_mbarrier_wait(b, 0);
}

/* Nor a store whose place is written before it was read. */
__global__ void written_too_early(const __grid_constant__ CUtensorMap map) {
  SHARED_BYTES(memory);
  ((uint16_t *)memory)[0] = 1;
  nn_fence_async_shared();
  nn_tensor_store(&map, nn_shared_address(memory), 0, 0, 0);
  nn_tensor_store_commit();
  ((uint16_t *)memory)[0] = 2;
  nn_tensor_store_wait<0>();
}

static void test_written_too_early() {
  array<uint16_t> x(64 * 8);
  CUtensorMap map;
  const int64_t dims[3] = {64, 8, 1}, strides[2] = {64, 512};
  const int32_t box[3] = {64, 8, 1};
  CHECK(nn_tensor_map(&map, NNCUDA_F16, 3, x.to_device(), dims, strides, box, NN_SWIZZLE_128), "a plain map");
  launch(written_too_early, 1, 1, 1024, map);
  x.from_device();
  CHECK(x[0] == 2, "stored %u", x[0]);
}

static void test_without_wait() {
  array<uint16_t> x(64 * 64);
  array<uint32_t> out(1);
  CUtensorMap map;
  const int64_t dims[2] = {64, 64}, strides[1] = {64};
  const int32_t box[2] = {64, 8};
  CHECK(nn_tensor_map(&map, NNCUDA_F16, 2, x.to_device(), dims, strides, box, NN_SWIZZLE_128), "a plain map");
  launch(without_wait, 1, 1, 1024, map, out.device);
  out.from_device();
  CHECK(out[0] == 0xffffffff, "read %u", out[0]);
}
#endif

int main() {
  if (device_arch() >= 90) {
    test_boxes();
    test_stores();
    test_refusals();
#ifdef NN_EMULATED
    test_without_wait();
    test_written_too_early();
#endif
  }
  puts("tensor: passed");
}
