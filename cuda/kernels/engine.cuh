/* What the host files of the GPU engine share. Kernels do not see it. */
#ifndef NN_KERNELS_ENGINE_CUH
#define NN_KERNELS_ENGINE_CUH

#include "kernels/kernel.cuh"

#include <cuda.h>

extern "C" {
#include "runtime/context.h"
}

/* What a context has of its GPU: ctx->device. */
struct nn_gpu {
  cudaStream_t stream; /* the context's own */
  decltype(&cuCtxGetCurrent) get_current;
  decltype(&cuCtxSetCurrent) set_current;
  CUcontext primary;    /* what the driver has of the device, for the whole process */
  CUcontext before;     /* what the thread that is inside had current, or null */
  nn_fault *fault;      /* on the device */
  unsigned *arrivals;   /* likewise */
  bool launches_ahead;  /* GPU and driver let kernels start before the ones before them have ended, in graphs, too */
  bool ahead;           /* what was last put into the stream is a kernel of nn_launch_ahead */
  bool next_ahead;      /* what is put into it next will be one */
  nn_fault *fault_seen; /* page-locked: where it is read to */
};

inline nn_gpu *nn_gpu_of(nncuda_ctx *ctx) { return static_cast<nn_gpu *>(ctx->device); }

inline cudaMemcpyKind nn_gpu_copy_kind(int32_t kind) {
  return kind == NNCUDA_HOST_TO_DEVICE   ? cudaMemcpyHostToDevice
         : kind == NNCUDA_DEVICE_TO_HOST ? cudaMemcpyDeviceToHost
                                         : cudaMemcpyDeviceToDevice;
}

/* Waits for the own stream; reports, and takes back, the fault that its kernels met. */
int32_t nn_gpu_wait(nncuda_ctx *ctx);

#endif
