/*
 * Device memory in parts: addresses for a whole arena, of which the driver's virtual memory management gives memory to
 * some ranges alone. Its functions are found at run time.
 */
#include "kernels/memory_parts.cuh"

#include "kernels/driver.cuh"
#include "kernels/streams.cuh"

namespace {

struct driver {
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) free;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;

  bool find() {
    return nn_driver_find(granularity, "cuMemGetAllocationGranularity") &&
           nn_driver_find(reserve, "cuMemAddressReserve") && nn_driver_find(free, "cuMemAddressFree") &&
           nn_driver_find(create, "cuMemCreate") && nn_driver_find(release, "cuMemRelease") &&
           nn_driver_find(map, "cuMemMap") && nn_driver_find(unmap, "cuMemUnmap") &&
           nn_driver_find(set_access, "cuMemSetAccess");
  }
};

size_t whole_grains(size_t bytes) { return (bytes + NN_GPU_GRAIN - 1) / NN_GPU_GRAIN * NN_GPU_GRAIN; }

CUmemAllocationProp memory_of(int device) {
  CUmemAllocationProp wanted = {};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device;
  return wanted;
}

bool grain_fits(const driver &d, const CUmemAllocationProp &wanted) {
  size_t least = 0;
  return d.granularity(&least, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS && least != 0 &&
         NN_GPU_GRAIN % least == 0;
}

/* Gives memory to addresses that have none. */
bool back(const driver &d, CUdeviceptr at, size_t bytes, const CUmemAllocationProp &wanted) {
  CUmemGenericAllocationHandle memory;
  if (d.create(&memory, bytes, &wanted, 0) != CUDA_SUCCESS) {
    return false;
  }
  const bool mapped = d.map(at, bytes, 0, memory, 0) == CUDA_SUCCESS;
  d.release(memory); /* it lives until it is unmapped */
  if (!mapped) {
    return false;
  }
  CUmemAccessDesc access = {};
  access.location = wanted.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (d.set_access(at, bytes, &access, 1) == CUDA_SUCCESS) {
    return true;
  }
  d.unmap(at, bytes);
  return false;
}

void give(const driver &d, CUdeviceptr memory, size_t bytes, const int64_t *ranges, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    d.unmap(memory + (CUdeviceptr)ranges[2 * i], (size_t)(ranges[2 * i + 1] - ranges[2 * i]));
  }
  d.free(memory, whole_grains(bytes));
}

/* Zeroes them; when it is through, so that a copy on another stream need not wait. */
bool clear(nncuda_ctx *ctx, char *memory, const int64_t *ranges, int64_t count) {
  cudaError_t error = cudaSuccess;
  for (int64_t i = 0; i < count && error == cudaSuccess; i++) {
    const size_t part = (size_t)(ranges[2 * i + 1] - ranges[2 * i]);
    error = cudaMemsetAsync(memory + ranges[2 * i], 0, part, nn_gpu_stream(ctx));
  }
  error = error == cudaSuccess ? cudaStreamSynchronize(nn_gpu_stream(ctx)) : error;
  cudaGetLastError();
  return error == cudaSuccess;
}

} // namespace

void *nn_gpu_take_parts(nncuda_ctx *ctx, size_t bytes, const int64_t *ranges, int64_t count) {
  const CUmemAllocationProp wanted = memory_of(ctx->index);
  driver d;
  CUdeviceptr memory = 0;
  if (!d.find() || !grain_fits(d, wanted) || d.reserve(&memory, whole_grains(bytes), 0, 0, 0) != CUDA_SUCCESS) {
    return nullptr;
  }
  int64_t backed = 0;
  while (backed < count && back(d, memory + (CUdeviceptr)ranges[2 * backed],
                                (size_t)(ranges[2 * backed + 1] - ranges[2 * backed]), wanted)) {
    backed++;
  }
  char *const addresses = reinterpret_cast<char *>(memory);
  if (backed == count && clear(ctx, addresses, ranges, count)) {
    return addresses;
  }
  give(d, memory, bytes, ranges, backed);
  return nullptr;
}

void nn_gpu_give_parts(nncuda_ctx *ctx, void *memory, size_t bytes, const int64_t *ranges, int64_t count) {
  driver d;
  /* Nothing on the device may use it any more, copies on further streams neither: unmapping does not wait. */
  nn_streams_drain(ctx);
  if (d.find()) {
    give(d, reinterpret_cast<CUdeviceptr>(memory), bytes, ranges, count);
  }
}
