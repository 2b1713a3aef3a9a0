/*
 * The interface of the GPU engine: devices, a context's state on one, memory, and the call of kernels. The CUDA runtime
 * is linked statically and finds the driver when it is first used, so this file does no harm on a machine without one.
 */
#include "comm/collective.h"
#include "kernels/driver.cuh"
#include "kernels/engine.cuh"
#include "kernels/memory_parts.cuh"
#include "kernels/streams.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "runtime/memory.h"
#define NN_WEAK(op) int32_t nn_cuda_##op(nncuda_ctx *ctx, const void *args) __attribute__((weak, visibility("hidden")));
NN_OPS(NN_WEAK)
#undef NN_WEAK
}

cudaStream_t nn_gpu_stream(nncuda_ctx *ctx) {
  nn_gpu *gpu = nn_gpu_of(ctx);
  gpu->ahead = gpu->next_ahead;
  gpu->next_ahead = false;
  return gpu->stream;
}

int32_t nn_gpu_launches_ahead(nncuda_ctx *ctx) {
  nn_gpu *gpu = nn_gpu_of(ctx);
  gpu->next_ahead = gpu->launches_ahead;
  return gpu->ahead;
}

int32_t nn_gpu_arch(nncuda_ctx *ctx) { return ctx->machine.isa; }
int32_t nn_gpu_sms(nncuda_ctx *ctx) { return ctx->machine.sms; }
int32_t nn_gpu_tf32(nncuda_ctx *ctx) { return ctx->machine.tf32; }
int32_t nn_gpu_two_parts(nncuda_ctx *ctx) { return ctx->machine.two_parts; }
nn_fault *nn_gpu_fault(nncuda_ctx *ctx) { return nn_gpu_of(ctx)->fault; }
unsigned *nn_gpu_arrivals(nncuda_ctx *ctx) { return nn_gpu_of(ctx)->arrivals; }
const char *nn_gpu_function(nncuda_ctx *ctx) { return ctx->function; }

int32_t nn_gpu_fail(nncuda_ctx *ctx, cudaError_t error) {
  cudaGetLastError(); /* an error that is not sticky is cleared by reading it */
  if (error == cudaErrorMemoryAllocation) {
    size_t free_bytes = 0, total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_MEMORY, "GPU %d has no memory left for it: %zu of %zu bytes are free",
                   ctx->index, free_bytes, total_bytes);
  }
  return nn_fail(ctx, NNCUDA_ERROR_DEVICE, "GPU %d reports %s: %s", ctx->index, cudaGetErrorName(error),
                 cudaGetErrorString(error));
}

/* ---- devices ---- */

static int32_t count(void) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return devices;
}

static int32_t attribute(int32_t index, cudaDeviceAttr name) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, name, index) == cudaSuccess ? value : 0;
}

static int32_t widest_isa(int32_t index) {
  return 10 * attribute(index, cudaDevAttrComputeCapabilityMajor) + attribute(index, cudaDevAttrComputeCapabilityMinor);
}

/* Why there is no such device, or which one it is. */
static void describe(int32_t index, char *text, size_t capacity) {
  int devices = 0, driver = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  cudaGetLastError();
  cudaDriverGetVersion(&driver);
  if (driver == 0) {
    snprintf(text, capacity, "no NVIDIA driver is installed, or this process may not load it (libcuda.so.1)");
    return;
  }
  if (found == cudaErrorInsufficientDriver) {
    snprintf(text, capacity, "the NVIDIA driver serves CUDA %d.%d; this library needs %d.0 or later", driver / 1000,
             driver % 1000 / 10, CUDART_VERSION / 1000);
    return;
  }
  cudaDeviceProp found_device;
  if (index < 0 || index >= devices || cudaGetDeviceProperties(&found_device, index) != cudaSuccess) {
    cudaGetLastError();
    snprintf(text, capacity, "%s; the driver finds %d GPU%s",
             found == cudaSuccess ? "no such GPU" : cudaGetErrorString(found), devices, devices == 1 ? "" : "s");
    return;
  }
  snprintf(text, capacity, "%s, compute capability %d.%d, %d multiprocessors, %.1f GiB, driver for CUDA %d.%d",
           found_device.name, found_device.major, found_device.minor, found_device.multiProcessorCount,
           (double)found_device.totalGlobalMem / (1024.0 * 1024.0 * 1024.0), driver / 1000, driver % 1000 / 10);
}

/* ---- a context's state on its device ---- */

/* What the driver has of the device: made once a process, and kept as the runtime does. */
static int32_t find_primary(nn_gpu *gpu, int32_t index) {
  decltype(&cuDeviceGet) device_get;
  decltype(&cuDevicePrimaryCtxRetain) retain;
  CUdevice device;
  if (!nn_driver_find(device_get, "cuDeviceGet") || !nn_driver_find(retain, "cuDevicePrimaryCtxRetain") ||
      !nn_driver_find(gpu->get_current, "cuCtxGetCurrent") || !nn_driver_find(gpu->set_current, "cuCtxSetCurrent") ||
      device_get(&device, index) != CUDA_SUCCESS) {
    return NNCUDA_ERROR_NO_DEVICE;
  }
  const CUresult retained = retain(&gpu->primary, device);
  return retained == CUDA_SUCCESS               ? NNCUDA_SUCCESS
         : retained == CUDA_ERROR_OUT_OF_MEMORY ? NNCUDA_ERROR_OUT_OF_MEMORY
                                                : NNCUDA_ERROR_DEVICE;
}

/*
 * The caller may use GPUs by other means, and another GPU than this one. The driver's calls, and not cudaSetDevice,
 * give its thread back exactly what it had: also nothing, and also a context that is no device's primary one.
 * cudaSetDevice would make a context, with its memory, on a GPU that nobody uses.
 */
static void enter(nncuda_ctx *ctx) {
  nn_gpu *gpu = nn_gpu_of(ctx);
  gpu->get_current(&gpu->before);
  if (gpu->before != gpu->primary) {
    gpu->set_current(gpu->primary);
  }
}

static void leave(nncuda_ctx *ctx) {
  const nn_gpu *gpu = nn_gpu_of(ctx);
  if (gpu->before != gpu->primary) {
    gpu->set_current(gpu->before);
  }
}

static void close(nncuda_ctx *ctx) {
  nn_gpu *gpu = nn_gpu_of(ctx);
  if (gpu == NULL) {
    return;
  }
  nn_streams_close(ctx);
  if (gpu->stream != NULL) {
    cudaStreamDestroy(gpu->stream);
  }
  cudaFree(gpu->fault);
  cudaFree(gpu->arrivals);
  cudaFreeHost(gpu->fault_seen);
  cudaGetLastError();
  leave(ctx);
  free(gpu);
  ctx->device = NULL;
}

static int32_t open(nncuda_ctx *ctx) {
  nn_gpu *gpu = (nn_gpu *)calloc(1, sizeof *gpu);
  if (gpu == NULL) {
    return NNCUDA_ERROR_OUT_OF_MEMORY;
  }
  const int32_t status = find_primary(gpu, ctx->index);
  if (status != NNCUDA_SUCCESS) {
    free(gpu);
    return status;
  }
  ctx->device = gpu;
  int driver = 0;
  gpu->launches_ahead = ctx->machine.isa >= 90 && cudaDriverGetVersion(&driver) == cudaSuccess && driver >= 12030;
  ctx->machine.sms = attribute(ctx->index, cudaDevAttrMultiProcessorCount);
  enter(ctx);
  cudaError_t error = cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking);
  if (error == cudaSuccess) {
    error = cudaMalloc((void **)&gpu->fault, sizeof *gpu->fault);
  }
  if (error == cudaSuccess) {
    error = cudaMallocHost((void **)&gpu->fault_seen, sizeof *gpu->fault_seen);
  }
  if (error == cudaSuccess) {
    error = cudaMalloc((void **)&gpu->arrivals, NN_ARRIVALS * sizeof *gpu->arrivals);
  }
  if (error == cudaSuccess) {
    error = cudaMemsetAsync(gpu->fault, 0, sizeof *gpu->fault, gpu->stream);
  }
  if (error == cudaSuccess) {
    error = cudaMemsetAsync(gpu->arrivals, 0, NN_ARRIVALS * sizeof *gpu->arrivals, gpu->stream);
  }
  if (error == cudaSuccess) {
    error = cudaStreamSynchronize(gpu->stream);
  }
  if (error == cudaSuccess) {
    leave(ctx);
    return NNCUDA_SUCCESS;
  }
  cudaGetLastError();
  close(ctx);
  return error == cudaErrorMemoryAllocation                                   ? NNCUDA_ERROR_OUT_OF_MEMORY
         : error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice ? NNCUDA_ERROR_NO_DEVICE
                                                                              : NNCUDA_ERROR_DEVICE;
}

/* ---- memory ---- */

static void *allocate(nncuda_ctx *ctx, size_t bytes) {
  (void)ctx;
  void *memory = NULL;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) {
    cudaGetLastError();
    return NULL;
  }
  return memory;
}

/* Memory may only be freed once nothing on the device uses it any more. */
static void release(nncuda_ctx *ctx, void *memory, size_t bytes) {
  (void)bytes;
  cudaStreamSynchronize(nn_gpu_stream(ctx));
  cudaFree(memory);
  cudaGetLastError();
}

static void *allocate_host(nncuda_ctx *ctx, size_t bytes) {
  (void)ctx;
  void *memory = NULL;
  if (cudaMallocHost(&memory, bytes) != cudaSuccess) {
    cudaGetLastError();
    return NULL;
  }
  return memory;
}

static void release_host(nncuda_ctx *ctx, void *memory, size_t bytes) {
  (void)bytes;
  cudaStreamSynchronize(nn_gpu_stream(ctx));
  cudaFreeHost(memory);
  cudaGetLastError();
}

static int32_t memory_info(nncuda_ctx *ctx, int64_t *free_bytes, int64_t *total_bytes) {
  (void)ctx;
  size_t available = 0, total = 0;
  if (cudaMemGetInfo(&available, &total) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  *free_bytes = (int64_t)available;
  *total_bytes = (int64_t)total;
  return 1;
}

static int32_t reaches(nncuda_ctx *ctx, const void *pointer) {
  if (nn_pool_find(&ctx->pool, pointer) != NULL) {
    return 1;
  }
  cudaPointerAttributes found;
  if (cudaPointerGetAttributes(&found, pointer) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return found.type == cudaMemoryTypeManaged || (found.type == cudaMemoryTypeDevice && found.device == ctx->index);
}

/* ---- calls ---- */

struct sentence {
  char words[512];
};

/* The CPU engine's words for the same fault. */
static sentence fault_text(const nn_fault &fault) {
  sentence text;
  size_t at = 0;
  const auto say = [&](const char *format, auto... values) {
    const int length = snprintf(text.words + at, sizeof text.words - at, format, values...);
    at = length < 0 ? at : at + (size_t)length < sizeof text.words ? at + (size_t)length : sizeof text.words - 1;
  };
  const long long index = fault.index, width = fault.width, value = fault.value;
  say("%s: %s", fault.function, fault.name);
  if (width > 0) {
    say("[%lld, %lld]", index / width, index % width);
  } else {
    say("[%lld]", index);
  }
  if (fault.rule != nullptr && fault.is_float) {
    say(" is %g; it must be %s", fault.number, fault.rule);
  } else if (fault.rule != nullptr) {
    say(" is %lld; it must be %s", value, fault.rule);
  } else {
    say(" is %lld; it must be %lld to %lld", value, (long long)fault.low, (long long)fault.high);
    if (fault.note != nullptr) {
      say(", %s", fault.note);
    }
    if (fault.exception != nullptr) {
      say(", or %s (%lld)", fault.exception, (long long)fault.excepted);
    }
  }
  return text;
}

/* Where other ranks may be waited for, who can give up does that first. */
static int32_t wait_for_peers(nncuda_ctx *ctx) {
  return ctx->comm_wait == nullptr ? NNCUDA_SUCCESS : ctx->comm_wait(ctx);
}

int32_t nn_gpu_wait(nncuda_ctx *ctx) {
  const int32_t status = wait_for_peers(ctx);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  nn_gpu *gpu = nn_gpu_of(ctx);
  cudaError_t error =
      cudaMemcpyAsync(gpu->fault_seen, gpu->fault, sizeof *gpu->fault, cudaMemcpyDeviceToHost, gpu->stream);
  if (error == cudaSuccess) {
    error = cudaStreamSynchronize(gpu->stream);
  }
  if (error != cudaSuccess) {
    return nn_gpu_fail(ctx, error);
  }
  const nn_fault *fault = gpu->fault_seen;
  if (!fault->raised) {
    return NNCUDA_SUCCESS;
  }
  error = cudaMemsetAsync(gpu->fault, 0, sizeof *gpu->fault, gpu->stream);
  if (error != cudaSuccess) {
    return nn_gpu_fail(ctx, error);
  }
  /* The sentence begins with the kernel that met it, which is not the function that waits: nn_fail adds no name to a
   * format that begins like one. */
  return nn_fail(ctx, NNCUDA_ERROR_OUT_OF_RANGE, "cuda_%s", fault_text(*fault).words + strlen("cuda_"));
}

static int32_t run_memset(nncuda_ctx *ctx, const void *args) {
  const auto *a = static_cast<const nn_memset_args *>(args);
  const cudaError_t error = cudaMemsetAsync(a->pointer, a->value, (size_t)a->bytes, nn_gpu_stream(ctx));
  return error == cudaSuccess ? NNCUDA_SUCCESS : nn_gpu_fail(ctx, error);
}

/* Page-locked memory is read while the copy runs. Of other memory the runtime has taken what it needs on return. */
static bool is_page_locked(const void *host) {
  cudaPointerAttributes found;
  if (cudaPointerGetAttributes(&found, host) != cudaSuccess) {
    cudaGetLastError();
    return true; /* to be safe */
  }
  return found.type == cudaMemoryTypeHost;
}

/* What goes to the device does not have to wait for the work before it: a training step is given its ids while the one
 * before still runs. */
static int32_t run_memcpy(nncuda_ctx *ctx, const void *args) {
  const auto *a = static_cast<const nn_memcpy_args *>(args);
  if (a->wait && a->kind == NNCUDA_DEVICE_TO_HOST) { /* to memory that is not page-locked the copy itself waits */
    const int32_t status = wait_for_peers(ctx);
    if (status != NNCUDA_SUCCESS) {
      return status;
    }
  }
  const cudaError_t error =
      cudaMemcpyAsync(a->destination, a->source, (size_t)a->bytes, nn_gpu_copy_kind(a->kind), nn_gpu_stream(ctx));
  if (error != cudaSuccess) {
    return nn_gpu_fail(ctx, error);
  }
  const bool wait =
      a->wait && (a->kind == NNCUDA_DEVICE_TO_HOST || (a->kind == NNCUDA_HOST_TO_DEVICE && is_page_locked(a->source)));
  return wait ? nn_gpu_wait(ctx) : NNCUDA_SUCCESS;
}

static int32_t read(nncuda_ctx *ctx, void *to, const void *from, size_t bytes) {
  const int32_t status = wait_for_peers(ctx);
  if (status != NNCUDA_SUCCESS) {
    return status;
  }
  cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, nn_gpu_stream(ctx));
  if (error == cudaSuccess) {
    error = cudaStreamSynchronize(nn_gpu_stream(ctx));
  }
  return error == cudaSuccess ? NNCUDA_SUCCESS : nn_gpu_fail(ctx, error);
}

static void *native_stream(nncuda_ctx *ctx) { return nn_gpu_stream(ctx); }

#define NN_ENTRY(op) nn_cuda_##op,
static const nn_kernel kernels[NN_OP_COUNT] = {NN_OPS(NN_ENTRY)};
#undef NN_ENTRY

static void fill(int32_t isa, nn_kernel *kernel, nn_layout *layout) {
  (void)isa;
  memcpy(layout, nn_gpu_workspaces, sizeof nn_gpu_workspaces);
  memcpy(kernel, kernels, sizeof kernels);
  kernel[NN_OP_memset] = run_memset;
  kernel[NN_OP_memcpy] = run_memcpy;
  nn_comm_fill(kernel, layout);
}

/* Not const alone: that would keep it inside this file. */
extern const nn_engine nn_gpu_engine = {
    NNCUDA_DEVICE_CUDA,
    count,
    describe,
    widest_isa,
    fill,
    /* measures */ 0,
    /* isas */ 0,
    /* threads */ nullptr,
    /* end_threads */ nullptr,
    open,
    close,
    enter,
    leave,
    /* memory */
    {allocate, release, 256, /* visible */ 0, /* lazy */ 0, nn_gpu_take_parts, nn_gpu_give_parts, NN_GPU_GRAIN},
    /* host_memory */ {allocate_host, release_host, 256, /* visible */ 1, /* lazy */ 0, nullptr, nullptr, 0},
    memory_info,
    reaches,
    nn_streams_wait,
    read,
    &nn_gpu_streams,
    &nn_gpu_capture,
    nn_stamp,
    nn_stamp_elapsed,
    nn_stamp_forget,
    native_stream};
