/* Programs with mistakes, chosen by name; the emulator shall tell each. */
#include "kernels/instructions.cuh"
#include "program.cuh"

/* Reverses 256 numbers through shared memory; without the barrier it reads what others have not written yet. */
__global__ void reverse(const int *in, int *out, bool with_barrier) {
  NN_SHARED_BYTES(shared);
  int *numbers = reinterpret_cast<int *>(shared);
  numbers[threadIdx.x] = in[threadIdx.x];
  if (with_barrier) {
    __syncthreads();
  }
  out[threadIdx.x] = numbers[blockDim.x - 1 - threadIdx.x];
}

/* Blocks that hand a number on to the next: wrong, since they may run in any order. */
__global__ void chain(int *sums) { sums[blockIdx.x + 1] = sums[blockIdx.x] + 1; }

__global__ void half_at_barrier() {
  if (threadIdx.x < 40) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}

__global__ void two_barriers() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

/* Two warps take turns: `mistake` 1 passes a turn that is none of its own, 2 forgets to take the last one back, 3 to
 * pass one on. */
__global__ void take_turns(int mistake) {
  const unsigned own = 1 + threadIdx.x / 32, other = 3 - own;
  if (own == 2) {
    nn_barrier_arrive(other, 64);
  }
  for (int i = 0; i < 3; i++) {
    nn_barrier_sync(own, 64);
    if (mistake != 3 || own != 2 || i != 1) {
      nn_barrier_arrive(other, 64);
    }
    if (mistake == 1 && own == 1 && i == 1) {
      nn_barrier_arrive(other, 64);
    }
  }
  if (own == 1 && mistake != 2) {
    nn_barrier_sync(own, 64);
  }
}

/* Copies 16 bytes, by cp.async, and has the copy engine store them; `fence` as it should. */
__global__ void stores_copied(const int *in, int *out, bool fence) {
  NN_SHARED_BYTES(shared);
  nn_copy_async<16>(nn_shared_address(shared), in);
  nn_copy_async_commit();
  nn_copy_async_wait<0>();
  if (fence) {
    nn_fence_async_shared();
  }
  nn_bulk_store(out, nn_shared_address(shared), 16);
  nn_tensor_store_commit();
  nn_bulk_wait<0>();
}

__global__ void masks_differ(int *out) {
  out[threadIdx.x] = __shfl_sync(threadIdx.x < 16 ? 0xffffffffu : 0xffff0001u, 1, 0);
}

__global__ void kinds_differ(int *out) {
  out[threadIdx.x] = threadIdx.x < 16 ? __shfl_sync(~0u, 1, 0) : (int)__ballot_sync(~0u, 1);
}

__global__ void polls_for_ever(volatile int *flag) {
  while (*flag) {
    __nanosleep(100);
  }
}

__global__ void writes(int *p, long at) { p[at] = 1; }
__global__ void reads_vector(const int4 *p, int *out) { *out = p->x; }
__global__ void writes_shared(int bytes) {
  NN_SHARED_BYTES(shared);
  memset(shared, 0, (size_t)bytes);
}
__global__ void overflows_array(int *out, int at) {
  __shared__ int part[8];
  part[at] = 1;
  out[0] = part[0];
}
/* Adds the sums of 32 warps, though there may be fewer: the others' places were never written. */
template <class T> __global__ void sums_all(const T *in, T *out) {
  __shared__ T sums[32];
  if (threadIdx.x % 32 == 0) {
    sums[threadIdx.x / 32] = in[threadIdx.x];
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    T sum = 0;
    for (T part : sums) {
      sum += part;
    }
    out[blockIdx.x] = sum;
  }
}
struct more {
  char bytes[24 << 10];
};
__global__ void three_times_24k(char *out) {
  __shared__ more one;
  __shared__ more two;
  __shared__ more three;
  one.bytes[0] = two.bytes[1] = three.bytes[2] = out[0];
  __syncthreads();
  out[1] = one.bytes[1] + two.bytes[2] + three.bytes[0];
}
__global__ void reverse_within(int *out) {
  __shared__ int numbers[32];
  numbers[threadIdx.x] = (int)threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = numbers[31 - threadIdx.x];
}
__global__ void recurses(int *out, int depth) {
  int big[256];
  for (int i = 0; i < 256; i++) {
    big[i] = depth + i;
  }
  if (depth) {
    launch(recurses, 1, 1, 0, nullptr, out, depth - 1);
  }
  out[0] = big[depth % 256];
}
__device__ int deep(volatile int *out, int depth) {
  volatile int big[256];
  big[depth % 256] = depth;
  return depth ? deep(out, depth - 1) + big[depth % 256] : *out;
}
__global__ void fills_stack(int *out, int depth) { out[0] = deep(out, depth); }

int main(int, char **arguments) {
  const auto is = [&](const char *name) { return !strcmp(arguments[1], name); };
  int *p = device_array<int>(1000), *q = device_array<int>(1000), host[257];
  const int zero = 0;
  for (int i = 0; i < 256; i++) {
    host[i] = 3 * i;
  }
  OK(cudaMemcpy(p, host, 1024, cudaMemcpyHostToDevice));
  if (is("race") || is("no race")) {
    OK(launch(reverse, 1, 256, 1024, nullptr, (const int *)p, q, is("no race")));
    OK(cudaMemcpy(host, q, 1024, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 256; i++) {
      printf("%d ", host[i]);
    }
  } else if (is("chain")) {
    OK(launch(chain, 256, 1, 0, nullptr, p));
    OK(cudaMemcpy(host, p, 257 * sizeof *host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 257; i++) {
      printf("%d ", host[i]);
    }
  } else if (is("half at barrier")) {
    launch(half_at_barrier, 1, 64, 0, nullptr);
  } else if (is("two barriers")) {
    launch(two_barriers, 1, 64, 0, nullptr);
  } else if (is("turn too many") || is("turn not taken") || is("turn not passed")) {
    launch(take_turns, 1, 64, 0, nullptr, is("turn too many") ? 1 : is("turn not taken") ? 2 : 3);
  } else if (is("turns")) {
    OK(launch(take_turns, 1, 64, 0, nullptr, 0));
  } else if (is("fence missing") || is("fenced")) {
    OK(launch(stores_copied, 1, 1, 16, nullptr, (const int *)p, q, is("fenced")));
    OK(cudaMemcpy(host, q, 16, cudaMemcpyDeviceToHost));
    CHECK(host[3] == 9);
  } else if (is("masks differ")) {
    launch(masks_differ, 1, 32, 0, nullptr, p);
  } else if (is("kinds differ")) {
    launch(kinds_differ, 1, 32, 0, nullptr, p);
  } else if (is("polls")) {
    launch(polls_for_ever, 1, 32, 0, nullptr, (volatile int *)(p + 1));
  } else if (is("ahead")) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = config.blockDim = dim3(1);
    config.attrs = &attribute;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, writes, p, 0L);
  } else if (is("cluster with static shared")) {
    launch_clusters(reverse_within, 2, 4, 32, p);
  } else if (is("large cluster")) {
    launch_clusters(writes, 4, 4, 512, p, 0L);
  } else if (is("behind the end")) {
    launch(writes, 1, 1, 0, nullptr, p, 1024L);
  } else if (is("just behind the end")) {
    launch(writes, 1, 1, 0, nullptr, p, 1000L);
    cudaFree(p);
  } else if (is("just before")) {
    int *small = device_array<int>(100);
    launch(writes, 1, 1, 0, nullptr, small, -1L);
    cudaFree(small);
  } else if (is("freed")) {
    OK(cudaFree(p));
    launch(writes, 1, 1, 0, nullptr, p, 0L);
  } else if (is("misaligned")) {
    launch(reads_vector, 1, 1, 0, nullptr, (const int4 *)(p + 1), q);
  } else if (is("behind shared")) {
    launch(writes_shared, 1, 1, 100, nullptr, 101);
  } else if (is("array")) {
    launch(overflows_array, 1, 1, 0, nullptr, p, 8);
  } else if (is("uninitialised")) {
    OK(launch(sums_all<int>, 2, 1024, 0, nullptr, (const int *)p, q));
    OK(cudaMemcpy(host, q, 8, cudaMemcpyDeviceToHost));
    CHECK(host[0] == host[1]);
    const int whole = host[0];
    OK(launch(sums_all<int>, 2, 128, 0, nullptr, (const int *)p, q));
    OK(cudaMemcpy(host, q, 8, cudaMemcpyDeviceToHost));
    CHECK(host[0] == host[1]);
    printf("%d %d ", whole, host[0]);
  } else if (is("static shared")) {
    OK(launch(three_times_24k, 1, 1, 0, nullptr, (char *)p));
  } else if (is("stack")) {
    OK(cudaMemcpy(q, &zero, 4, cudaMemcpyHostToDevice));
    launch(fills_stack, 1, 1, 0, nullptr, q, 100000);
  } else if (is("nested launch")) {
    launch(recurses, 1, 1, 0, nullptr, p, 1);
  } else if (is("host reads")) {
    printf("%d\n", p[0]);
  } else if (is("host pointer")) {
    OK(launch(writes, 1, 1, 0, nullptr, (int *)64, 0L));
  } else {
    return 2;
  }
  puts("went on");
}
