/*
 * The CUDA runtime's types and functions, as far as they are used here. Work is carried out when it is issued (or when
 * a graph that recorded it is launched), so it is never seen unfinished; what may not be done is refused as CUDA does.
 */
#ifndef NN_EMULATOR_RUNTIME_H
#define NN_EMULATOR_RUNTIME_H

#include "language.h"

#define CUDART_VERSION 13000

#define NN_ERRORS(X)                                                                                                   \
  X(cudaSuccess, 0, "no error")                                                                                        \
  X(cudaErrorInvalidValue, 1, "invalid argument")                                                                      \
  X(cudaErrorMemoryAllocation, 2, "out of memory")                                                                     \
  X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                                                \
  X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                                          \
  X(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version")                   \
  X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                                                      \
  X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                                             \
  X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                                                    \
  X(cudaErrorNotReady, 600, "device not ready")                                                                        \
  X(cudaErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing")                        \
  X(cudaErrorStreamCaptureInvalidated, 901, "operation failed due to a previous error during capture")                 \
  X(cudaErrorStreamCaptureMerge, 902, "operation would result in a merge of separate capture sequences")               \
  X(cudaErrorStreamCaptureUnmatched, 903, "capture was not ended in the same stream as it began")                      \
  X(cudaErrorStreamCaptureUnjoined, 904, "capturing stream has unjoined work")                                         \
  X(cudaErrorStreamCaptureIsolation, 905, "dependency created on uncaptured work in another stream")                   \
  X(cudaErrorStreamCaptureImplicit, 906,                                                                               \
    "operation would make the legacy stream depend on a capturing blocking stream")                                    \
  X(cudaErrorCapturedEvent, 907, "operation not permitted on an event last recorded in a capturing stream")            \
  X(cudaErrorStreamCaptureWrongThread, 908,                                                                            \
    "attempt to terminate a thread-local capture sequence from another thread")                                        \
  X(cudaErrorInvalidClusterSize, 912, "cluster misconfiguration")
#define NN_ERROR_ENUM(name, value, text) name = value,
typedef enum cudaError { NN_ERRORS(NN_ERROR_ENUM) } cudaError_t;
#undef NN_ERROR_ENUM

const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaDriverGetVersion(int *version);

/* ---- devices */
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor, multiProcessorCount;
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize();

/* ---- streams, events, graphs */
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventDisableTiming = 2 };
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2,
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2,
};
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

/* ---- memory */
enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};
enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
  cudaMemoryTypeManaged = 3,
};
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void *devicePointer, *hostPointer;
};
cudaError_t nn_emulated_malloc(void **p, size_t bytes);
cudaError_t nn_emulated_malloc_host(void **p, size_t bytes);
template <class T> cudaError_t cudaMalloc(T **p, size_t bytes) { return nn_emulated_malloc((void **)p, bytes); }
template <class T> cudaError_t cudaMallocHost(T **p, size_t bytes, unsigned = 0) {
  return nn_emulated_malloc_host((void **)p, bytes);
}
cudaError_t cudaFree(void *p);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemGetInfo(size_t *available, size_t *total);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *p);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void *p, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream = nullptr);

/* ---- entry points of the driver (nn_emulated_entry_point) */
enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess = 0,
  cudaDriverEntryPointSymbolNotFound = 1,
};
enum { cudaEnableDefault = 0 };
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult *result = nullptr);

#endif
