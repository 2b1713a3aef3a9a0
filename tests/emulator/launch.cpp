/* Launches: the checks that driver and GPU make, and the attributes of kernels. */
#include "machine.h"

#include <map>
#include <memory>

namespace {

constexpr size_t ARGUMENT_BYTES = 4096;

struct attributes {
  size_t dynamic_shared = NN_SHARED_DEFAULT;
  int carveout = cudaSharedmemCarveoutDefault;
};
std::map<const void *, attributes> kernels;

attributes attributes_of(const void *kernel) {
  const auto found = kernels.find(kernel);
  return found == kernels.end() ? attributes() : found->second;
}

cudaError_t check(const cudaLaunchConfig_t &config, const void *kernel, size_t bytes) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  if (!grid.x || !grid.y || !grid.z || grid.x > INT_MAX || grid.y > 65535 || grid.z > 65535 || !block.x || !block.y ||
      !block.z || block.x > 1024 || block.y > 1024 || block.z > 64 || block.x * block.y * block.z > 1024) {
    return cudaErrorInvalidConfiguration;
  }
  if (bytes > ARGUMENT_BYTES) {
    nn_die("kernel " + nn_symbol(kernel) + " takes " + std::to_string(bytes) + " bytes of arguments, more than " +
           std::to_string(ARGUMENT_BYTES));
  }
  if (config.dynamicSmemBytes > attributes_of(kernel).dynamic_shared ||
      config.dynamicSmemBytes + nn_shared_static(kernel) > nn_device().shared_block) {
    return cudaErrorInvalidValue;
  }
  for (unsigned i = 0; i < config.numAttrs; i++) {
    const cudaLaunchAttribute &a = config.attrs[i];
    if (a.id == cudaLaunchAttributeCooperative && a.val.cooperative) {
      return cudaErrorNotSupported;
    }
    if (a.id == cudaLaunchAttributeClusterDimension) {
      const auto c = a.val.clusterDim;
      if (nn_device().capability < 90 || !c.x || !c.y || !c.z || c.x * c.y * c.z > 8 || grid.x % c.x || grid.y % c.y ||
          grid.z % c.z) {
        return cudaErrorInvalidClusterSize;
      }
      if (c.x * c.y * c.z > 1) {
        return cudaErrorNotSupported; /* the blocks of a cluster would have to run at the same time */
      }
    }
  }
  return nn_stream_device(config.stream) == nn_current_device() ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

} // namespace

cudaError_t nn_emulated_launch(const cudaLaunchConfig_t *config, const void *kernel, size_t bytes,
                               std::function<void()> body) {
  NN_LOCKED;
  int count;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && nn_running()) {
    nn_die("a kernel launches a kernel");
  }
  if (error == cudaSuccess) {
    error = check(*config, kernel, bytes);
  }
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  nn_watch_faults();
  const int device = nn_current_device();
  const nn_launch_record record{kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes, std::move(body)};
  return nn_submit(config->stream, [record, device] {
    const nn_memory_open opened(device);
    nn_run_grid(record);
  });
}

cudaError_t nn_emulated_set_attribute(const void *kernel, cudaFuncAttribute attribute, int value) {
  NN_LOCKED;
  switch (attribute) {
  case cudaFuncAttributeMaxDynamicSharedMemorySize:
    if (value < 0 || (size_t)value > nn_device().shared_block) {
      return nn_error(cudaErrorInvalidValue);
    }
    kernels[kernel].dynamic_shared = (size_t)value > NN_SHARED_DEFAULT ? (size_t)value : NN_SHARED_DEFAULT;
    return cudaSuccess;
  case cudaFuncAttributePreferredSharedMemoryCarveout:
    if (value < -1 || value > 100) {
      return nn_error(cudaErrorInvalidValue);
    }
    kernels[kernel].carveout = value;
    return cudaSuccess;
  case cudaFuncAttributeNonPortableClusterSizeAllowed:
    return cudaSuccess;
  }
  return nn_error(cudaErrorInvalidValue);
}

cudaError_t nn_emulated_get_attributes(cudaFuncAttributes *a, const void *kernel) {
  NN_LOCKED;
  const attributes its = attributes_of(kernel);
  *a = {};
  a->maxThreadsPerBlock = 1024;
  a->sharedSizeBytes = nn_shared_static(kernel);
  a->numRegs = 64; /* nobody counts them here */
  a->ptxVersion = a->binaryVersion = nn_device().capability;
  a->maxDynamicSharedSizeBytes = (int)its.dynamic_shared;
  a->preferredShmemCarveout = its.carveout;
  return cudaSuccess;
}

cudaError_t nn_emulated_occupancy(int *blocks, const void *kernel, int threads, size_t shared) {
  NN_LOCKED;
  if (threads <= 0 || threads > 1024 || !blocks) {
    return nn_error(cudaErrorInvalidValue);
  }
  const nn_architecture &device = nn_device();
  const size_t reserved = device.capability >= 80 ? NN_SHARED_RESERVED : 0;
  const size_t each = (shared + reserved + 127) / 128 * 128, warps = (size_t)(threads + 31) / 32;
  size_t fit = (size_t)device.threads / 32 / warps;
  fit = fit < (size_t)device.blocks ? fit : (size_t)device.blocks;
  fit = each && device.shared / each < fit ? device.shared / each : fit;
  *blocks = shared > attributes_of(kernel).dynamic_shared ? 0 : (int)fit;
  return cudaSuccess;
}
