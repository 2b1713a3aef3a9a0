/*
 * What the tests of instructions share. They are CUDA programs: built by nvcc they test the GPU's instructions, built
 * for the emulator the emulator's, against the same expectations. Expected values are computed on the host from what
 * the PTX ISA says, and products are of small integers, so that they are exact in any order of additions.
 */
#ifndef NN_TEST_CHECK_CUH
#define NN_TEST_CHECK_CUH

#include "kernels/instructions.cuh"
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef NN_EMULATED
#define SHARED_BYTES(name) unsigned char *name = nn_emulated_shared()
#else
#define SHARED_BYTES(name) extern __shared__ __align__(1024) unsigned char name[]
#endif

#define CUDA(call)                                                                                                     \
  do {                                                                                                                 \
    const cudaError_t error_ = (call);                                                                                 \
    if (error_ != cudaSuccess) {                                                                                       \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_));                       \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

#define CHECK(condition, ...)                                                                                          \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                                                  \
      fprintf(stderr, __VA_ARGS__);                                                                                    \
      fprintf(stderr, "\n");                                                                                           \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

/* An array on the host and on the device. */
template <class T> struct array {
  int64_t count;
  T *host, *device;

  explicit array(int64_t n) : count(n), host((T *)calloc((size_t)n, sizeof(T))), device(nullptr) {
    CUDA(cudaMalloc(&device, (size_t)n * sizeof(T)));
    CUDA(cudaMemset(device, 0xcd, (size_t)n * sizeof(T)));
  }
  array(const array &) = delete;
  ~array() {
    free(host);
    cudaFree(device);
  }
  T &operator[](int64_t i) { return host[i]; }
  T *to_device() {
    CUDA(cudaMemcpy(device, host, (size_t)count * sizeof(T), cudaMemcpyHostToDevice));
    return device;
  }
  void from_device() { CUDA(cudaMemcpy(host, device, (size_t)count * sizeof(T), cudaMemcpyDeviceToHost)); }
};

/* `cluster`: blocks of one. */
template <class... P, class... A>
void launch_clusters(void (*kernel)(P...), unsigned cluster, unsigned blocks, unsigned threads, size_t shared,
                     A... arguments) {
  if (shared > 48 << 10) {
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {cluster, 1, 1};
  config.attrs = &attribute;
  config.numAttrs = cluster > 1 ? 1 : 0;
  CUDA(cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...));
  CUDA(cudaDeviceSynchronize());
}

template <class... P, class... A>
void launch(void (*kernel)(P...), unsigned blocks, unsigned threads, size_t shared, A... arguments) {
  launch_clusters(kernel, 1, blocks, threads, shared, arguments...);
}

inline int device_arch() {
  int device, major, minor;
  CUDA(cudaGetDevice(&device));
  CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
}

/* Reproducible numbers. */
inline uint32_t random_bits(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 32);
}

/* Integers from -8 to 8 as 16-bit floats. Written out, since conversions are themselves under test. */
inline uint16_t small_f16(int v) {
  static const uint16_t bits[9] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800};
  return (uint16_t)(v < 0 ? bits[-v] | 0x8000 : bits[v]);
}
inline uint16_t small_bf16(int v) {
  static const uint16_t bits[9] = {0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100};
  return (uint16_t)(v < 0 ? bits[-v] | 0x8000 : bits[v]);
}
template <class T> uint16_t small(int v);
template <> inline uint16_t small<nn_f16>(int v) { return small_f16(v); }
template <> inline uint16_t small<nn_bf16>(int v) { return small_bf16(v); }

/* A matrix of such integers. */
template <class T> void fill_small(array<uint16_t> &x, int *values, uint64_t seed) {
  uint64_t state = seed;
  for (int64_t i = 0; i < x.count; i++) {
    values[i] = (int)(random_bits(&state) % 17) - 8;
    x[i] = small<T>(values[i]);
  }
}

#endif
