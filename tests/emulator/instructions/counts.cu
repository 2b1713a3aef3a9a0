/* Blocks that wait for what others count: each finds all that was made before the count was raised. */
#include "check.cuh"

constexpr uint32_t PIECES = 5;
constexpr int THREADS = 64;

/* Blocks make pieces as long as there are any, then each adds up all of them. */
__global__ void share(uint32_t *numbers, uint32_t *pieces, uint32_t *sums) {
  __shared__ uint32_t ticket;
  for (;;) {
    if (threadIdx.x == 0) {
      ticket = nn_turn_ticket(numbers);
    }
    __syncthreads();
    const uint32_t piece = ticket;
    __syncthreads();
    if (piece >= PIECES) {
      break;
    }
    pieces[piece * THREADS + threadIdx.x] = 100 * piece + threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) {
      nn_count_raise(numbers + 1);
    }
  }
  if (threadIdx.x == 0) {
    nn_count_wait(numbers + 1, PIECES);
  }
  __syncthreads();
  uint32_t sum = 0;
  for (uint32_t piece = 0; piece < PIECES; piece++) {
    sum += pieces[piece * THREADS + THREADS - 1 - threadIdx.x]; /* another thread's */
  }
  sums[blockIdx.x * THREADS + threadIdx.x] = sum;
}

static void test_share(int blocks) {
  array<uint32_t> numbers(2), pieces(PIECES * THREADS), sums((int64_t)blocks * THREADS);
  numbers.to_device(); /* zeros */
  launch(share, (unsigned)blocks, THREADS, 0, numbers.device, pieces.device, sums.device);
  numbers.from_device();
  sums.from_device();
  CHECK(numbers[0] == PIECES + (uint32_t)blocks && numbers[1] == PIECES, "%u tickets, %u pieces", numbers[0],
        numbers[1]);
  for (int i = 0; i < blocks * THREADS; i++) {
    const uint32_t sum = 100 * (PIECES * (PIECES - 1) / 2) + PIECES * (uint32_t)(THREADS - 1 - i % THREADS);
    CHECK(sums[i] == sum, "%d blocks, thread %d: %u, not %u", blocks, i, sums[i], sum);
  }
}

int main() {
  for (int blocks : {1, 2, 7, 300}) {
    test_share(blocks);
  }
  puts("counts: passed");
}
