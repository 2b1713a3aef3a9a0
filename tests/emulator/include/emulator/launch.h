/* Launching kernels: the typed front of nn_emulated_launch, which checks what the GPU and driver would check. */
#ifndef NN_EMULATOR_LAUNCH_H
#define NN_EMULATOR_LAUNCH_H

#include "runtime.h"

#include <functional>
#include <tuple>

enum cudaLaunchAttributeID {
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  union {
    struct {
      unsigned x, y, z;
    } clusterDim;
    int programmaticStreamSerializationAllowed;
  } val;
};

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute *attrs = nullptr;
  unsigned numAttrs = 0;
};

/* `body` is one thread of the kernel; it holds copies of the arguments, `bytes` in all. */
cudaError_t nn_emulated_launch(const cudaLaunchConfig_t *config, const void *kernel, size_t bytes,
                               std::function<void()> body);

/* By each thread of a kernel that was started ahead of the end of those before. */
void nn_emulated_waits_for_kernels();

/* How the driver packs arguments: each at its own alignment. */
template <class... P> constexpr size_t nn_argument_bytes() {
  size_t bytes = 0;
  ((bytes = (bytes + alignof(P) - 1) / alignof(P) * alignof(P) + sizeof(P)), ...);
  return bytes;
}

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), A &&...arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the kernel has parameters");
  static_assert((std::is_trivially_copyable<std::remove_cv_t<P>>::value && ...), "arguments are copied as bytes");
  std::tuple<std::remove_cv_t<P>...> copies(static_cast<P>(static_cast<A &&>(arguments))...);
  return nn_emulated_launch(config, (const void *)kernel, nn_argument_bytes<P...>(),
                            [kernel, copies] { std::apply(kernel, copies); });
}

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
struct cudaFuncAttributes {
  int maxThreadsPerBlock;
};
cudaError_t nn_emulated_set_attribute(const void *kernel, cudaFuncAttribute attribute, int value);
template <class T> cudaError_t cudaFuncSetAttribute(T *kernel, cudaFuncAttribute attribute, int value) {
  return nn_emulated_set_attribute((const void *)kernel, attribute, value);
}
template <class T> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, T *) {
  *attributes = {1024};
  return cudaSuccess;
}

#endif
