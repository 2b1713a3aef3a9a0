/* Launches: the checks that driver and GPU make. */
#include "machine.h"

#include <atomic>
#include <map>
#include <memory>

namespace {

constexpr size_t ARGUMENT_BYTES = 4096;

/* What kernels may have of dynamic shared memory, where it was asked for. */
std::map<const void *, size_t> dynamic_shared;

size_t dynamic_shared_of(const void *kernel) {
  const auto found = dynamic_shared.find(kernel);
  return found == dynamic_shared.end() ? NN_SHARED_DEFAULT : found->second;
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
  if (config.dynamicSmemBytes > dynamic_shared_of(kernel) ||
      config.dynamicSmemBytes + nn_shared_static(kernel) > nn_device().shared_block) {
    return cudaErrorInvalidValue;
  }
  return nn_stream_device(config.stream) == nn_current_device() ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

/* Blocks of a cluster, along x. What a GPU allows and the emulator has not ends the process. */
cudaError_t check_cluster(const cudaLaunchConfig_t &config, const void *kernel, dim3 cluster) {
  const uint64_t blocks = (uint64_t)cluster.x * cluster.y * cluster.z,
                 threads = config.blockDim.x * config.blockDim.y * config.blockDim.z;
  if (nn_device().capability < 90) {
    nn_die("kernel " + nn_symbol(kernel) + " is started in clusters on an architecture that has none");
  }
  if (blocks < 1 || blocks > NN_CLUSTER_MOST || config.gridDim.x % cluster.x || config.gridDim.y % cluster.y ||
      config.gridDim.z % cluster.z) {
    return cudaErrorInvalidClusterSize;
  }
  if (cluster.x != blocks || threads % 32 || blocks * threads > 1024) {
    nn_die("kernel " + nn_symbol(kernel) + ": the emulator has clusters along x, of whole warps and at most 1024 " +
           "threads; this one has " + std::to_string(blocks) + " blocks of " + std::to_string(threads) + " threads");
  }
  return cudaSuccess;
}

std::atomic<int64_t> launches;

} // namespace

/* Kernels that were launched, or noted for a graph, since the process began: for tests that count them. */
extern "C" __attribute__((visibility("default"))) int64_t nn_emulated_launches() { return launches; }

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
  bool ahead = false;
  unsigned cluster = 1;
  for (unsigned i = 0; error == cudaSuccess && i < config->numAttrs; i++) {
    const cudaLaunchAttribute &attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      ahead = attribute.val.programmaticStreamSerializationAllowed != 0;
    } else {
      cluster = attribute.val.clusterDim.x;
      error = check_cluster(*config, kernel, dim3(cluster, attribute.val.clusterDim.y, attribute.val.clusterDim.z));
    }
  }
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  launches++;
  nn_watch_faults();
  const int device = nn_current_device();
  if (ahead && nn_device().capability < 90) {
    nn_die("kernel " + nn_symbol(kernel) + " is started ahead on an architecture that cannot");
  }
  const nn_launch_record record{kernel,          config->gridDim, config->blockDim, config->dynamicSmemBytes,
                                std::move(body), ahead,           cluster};
  return nn_submit(config->stream, [record, device] {
    const nn_memory_open opened(device);
    nn_run_grid(record);
  });
}

cudaError_t nn_emulated_set_attribute(const void *kernel, cudaFuncAttribute, int value) {
  NN_LOCKED;
  if (value < 0 || (size_t)value > nn_device().shared_block) {
    return nn_error(cudaErrorInvalidValue);
  }
  dynamic_shared[kernel] = (size_t)value > NN_SHARED_DEFAULT ? (size_t)value : NN_SHARED_DEFAULT;
  return cudaSuccess;
}
