/* Asynchronous copies with their fill of zeros and their groups; streaming loads. */
#include "check.cuh"

/* Thread t copies BYTES from from[t], `sizes[t]` of them, through shared memory. */
template <int BYTES> __global__ void through_shared(const unsigned char *from, const int *sizes, unsigned char *to) {
  __shared__ uint4 buffer[64];
  unsigned char *mine = (unsigned char *)buffer + BYTES * threadIdx.x;
  const int size = sizes[threadIdx.x];
  if (size == BYTES && threadIdx.x % 2) {
    nn_copy_async<BYTES>(nn_shared_address(mine), from + BYTES * threadIdx.x);
  } else {
    nn_copy_async<BYTES>(nn_shared_address(mine), from + BYTES * threadIdx.x, size);
  }
  nn_copy_async_commit();
  nn_copy_async_wait<0>();
  __syncthreads();
  const unsigned other = 63 - threadIdx.x;
  for (int i = 0; i < BYTES; i++) {
    to[BYTES * other + i] = ((unsigned char *)buffer)[BYTES * other + i];
  }
}

template <int BYTES> static void test_through_shared() {
  array<unsigned char> from(64 * BYTES), to(64 * BYTES);
  array<int> sizes(64);
  for (int i = 0; i < 64 * BYTES; i++) {
    from[i] = (unsigned char)(7 * i + 1);
  }
  for (int t = 0; t < 64; t++) {
    sizes[t] = t < 32 ? t % (BYTES + 1) : t < 48 ? BYTES : 0;
  }
  launch(through_shared<BYTES>, 1, 64, 0, from.to_device(), sizes.to_device(), to.device);
  to.from_device();
  for (int i = 0; i < 64 * BYTES; i++) {
    CHECK(to[i] == (i % BYTES < sizes[i / BYTES] ? from[i] : 0), "byte %d of %d is %d", i, BYTES, to[i]);
  }
}

/* Sums rows of 32 words through a ring of 3 buffers with 2 copies in flight. */
__global__ void ring(const uint32_t *from, uint32_t *sums, int rows) {
  __shared__ uint4 buffers[3][8];
  const unsigned t = threadIdx.x;
  for (int r = 0; r < 2; r++) {
    if (r < rows && t < 8) {
      nn_copy_async<16>(nn_shared_address(&buffers[r][t]), from + 32 * r + 4 * t);
    }
    nn_copy_async_commit();
  }
  uint32_t sum = 0;
  for (int r = 0; r < rows; r++) {
    nn_copy_async_wait<1>();
    __syncthreads();
    if (r + 2 < rows && t < 8) {
      nn_copy_async<16>(nn_shared_address(&buffers[(r + 2) % 3][t]), from + 32 * (r + 2) + 4 * t);
    }
    nn_copy_async_commit();
    sum += ((const uint32_t *)buffers[r % 3])[t] * (uint32_t)(r + 1);
  }
  sums[t] = sum;
}

static void test_ring() {
  const int rows = 11;
  array<uint32_t> from(32 * rows), sums(32);
  uint64_t state = 5;
  for (int i = 0; i < 32 * rows; i++) {
    from[i] = random_bits(&state);
  }
  launch(ring, 1, 32, 0, from.to_device(), sums.device, rows);
  sums.from_device();
  for (int t = 0; t < 32; t++) {
    uint32_t sum = 0;
    for (int r = 0; r < rows; r++) {
      sum += from[32 * r + t] * (uint32_t)(r + 1);
    }
    CHECK(sums[t] == sum, "thread %d", t);
  }
}

__global__ void stream(const uint4 *from, uint4 *to) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = nn_load_streaming(from + i);
}

static void test_stream() {
  array<uint4> from(512), to(512);
  for (uint32_t i = 0; i < 512; i++) {
    from[i] = make_uint4(i, 1000 + i, 2000 + i, 3000 + i);
  }
  launch(stream, 4, 128, 0, from.to_device(), to.device);
  to.from_device();
  for (uint32_t i = 0; i < 512; i++) {
    CHECK(memcmp(&to[i], &from[i], 16) == 0, "copy of %u", i);
  }
}

#ifdef NN_EMULATED
/* The emulator must not hide a forgotten wait. */
__global__ void without_wait(const uint32_t *from, uint32_t *to) {
  __shared__ uint32_t word;
  nn_copy_async<4>(nn_shared_address(&word), from);
  nn_copy_async_commit();
  *to = word;
  nn_copy_async_wait<0>();
}

static void test_without_wait() {
  array<uint32_t> from(1), to(1);
  from[0] = 5;
  launch(without_wait, 1, 1, 0, from.to_device(), to.device);
  to.from_device();
  CHECK(to[0] == 0xffffffff, "read %u", to[0]);
}
#endif

int main() {
  test_through_shared<4>();
  test_through_shared<8>();
  test_through_shared<16>();
  test_ring();
  test_stream();
#ifdef NN_EMULATED
  if (device_arch() >= 80) {
    test_without_wait();
  }
#endif
  puts("copy: passed");
}
