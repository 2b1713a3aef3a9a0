/* A kernel that starts ahead of the end of the one before it sees what that one wrote once it has waited. */
#include "check.cuh"

constexpr int THREADS = 128, BLOCKS = 40;

__global__ void first(int *numbers, int turn) {
  nn_let_next_start();
  nn_wait_for_kernels();
  numbers[blockIdx.x * THREADS + threadIdx.x] += turn;
}

/* Reads what other blocks of the kernel before wrote. */
__global__ void second(const int *numbers, int *sums) {
  nn_let_next_start();
  nn_prefetch(numbers + threadIdx.x);
  nn_wait_for_kernels();
  int sum = 0;
  for (int i = threadIdx.x; i < BLOCKS * THREADS; i += THREADS) {
    sum += numbers[i];
  }
  sums[blockIdx.x * THREADS + threadIdx.x] += sum;
}

template <class... P, class... A> static void launch_ahead(void (*kernel)(P...), A... arguments) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(BLOCKS);
  config.blockDim = dim3(THREADS);
  config.attrs = &attribute;
  config.numAttrs = 1;
  CUDA(cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...));
}

int main() {
  array<int> numbers(BLOCKS * THREADS), sums(BLOCKS * THREADS);
  for (int i = 0; i < BLOCKS * THREADS; i++) {
    numbers[i] = i;
    sums[i] = 0;
  }
  numbers.to_device();
  sums.to_device();
  constexpr int TURNS = 20;
  for (int turn = 0; turn < TURNS; turn++) {
    launch_ahead(first, numbers.device, turn);
    launch_ahead(second, (const int *)numbers.device, sums.device);
  }
  CUDA(cudaDeviceSynchronize());
  sums.from_device();
  for (int i = 0; i < BLOCKS * THREADS; i++) {
    int expected = 0;
    for (int turn = 0, added = 0; turn < TURNS; turn++) {
      added += turn;
      for (int block = 0; block < BLOCKS; block++) {
        expected += block * THREADS + i % THREADS + added;
      }
    }
    CHECK(sums[i] == expected, "sum %d is %d, not %d", i, sums[i], expected);
  }
  puts("grid: passed");
}
