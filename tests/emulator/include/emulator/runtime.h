/*
 * The CUDA runtime's types and functions, as far as they are used here. Work is carried out when it is issued (or when
 * a graph that recorded it is launched), so it is never seen unfinished; what may not be done is refused as CUDA does.
 */
#ifndef NN_EMULATOR_RUNTIME_H
#define NN_EMULATOR_RUNTIME_H

#include "language.h"

#define CUDART_VERSION 13000
#define CUDART_CB

#define NN_ERRORS(X)                                                                                                   \
  X(cudaSuccess, 0, "no error")                                                                                        \
  X(cudaErrorInvalidValue, 1, "invalid argument")                                                                      \
  X(cudaErrorMemoryAllocation, 2, "out of memory")                                                                     \
  X(cudaErrorInitializationError, 3, "initialization error")                                                           \
  X(cudaErrorCudartUnloading, 4, "driver shutting down")                                                               \
  X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                                                \
  X(cudaErrorInvalidPitchValue, 12, "invalid pitch argument")                                                          \
  X(cudaErrorInvalidSymbol, 13, "invalid device symbol")                                                               \
  X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                                          \
  X(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version")                   \
  X(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                                                     \
  X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                                                      \
  X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                                             \
  X(cudaErrorNoKernelImageForDevice, 209, "no kernel image is available for execution on the device")                  \
  X(cudaErrorPeerAccessUnsupported, 217, "peer access is not supported between these two devices")                     \
  X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                                                    \
  X(cudaErrorSymbolNotFound, 500, "named symbol not found")                                                            \
  X(cudaErrorNotReady, 600, "device not ready")                                                                        \
  X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                                          \
  X(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")                                     \
  X(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")                                            \
  X(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled")                                          \
  X(cudaErrorAssert, 710, "device-side assert triggered")                                                              \
  X(cudaErrorHostMemoryAlreadyRegistered, 712, "part or all of the requested memory range is already mapped")          \
  X(cudaErrorHostMemoryNotRegistered, 713, "pointer does not correspond to a registered memory region")                \
  X(cudaErrorMisalignedAddress, 716, "misaligned address")                                                             \
  X(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                                         \
  X(cudaErrorNotPermitted, 800, "operation not permitted")                                                             \
  X(cudaErrorNotSupported, 801, "operation not supported")                                                             \
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
  X(cudaErrorInvalidClusterSize, 912, "the grid cannot be cut into clusters of this size")                             \
  X(cudaErrorUnknown, 999, "unknown error")
#define NN_ERROR_ENUM(name, value, text) name = value,
typedef enum cudaError { NN_ERRORS(NN_ERROR_ENUM) } cudaError_t;
#undef NN_ERROR_ENUM

const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);

/* ---- devices */
struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  size_t totalGlobalMem, sharedMemPerBlock, totalConstMem, sharedMemPerMultiprocessor, sharedMemPerBlockOptin;
  size_t reservedSharedMemPerBlock;
  int major, minor, multiProcessorCount;
  int regsPerBlock, regsPerMultiprocessor, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  int maxThreadsPerMultiProcessor, maxBlocksPerMultiProcessor, l2CacheSize, persistingL2CacheMaxSize, memoryBusWidth;
  int asyncEngineCount, concurrentKernels, ECCEnabled, integrated, canMapHostMemory, unifiedAddressing;
  int managedMemory, memoryPoolsSupported, cooperativeLaunch, streamPrioritiesSupported;
  int pciBusID, pciDeviceID, pciDomainID;
};
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxBlockDimX = 2,
  cudaDevAttrMaxBlockDimY = 3,
  cudaDevAttrMaxBlockDimZ = 4,
  cudaDevAttrMaxGridDimX = 5,
  cudaDevAttrMaxGridDimY = 6,
  cudaDevAttrMaxGridDimZ = 7,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrTotalConstantMemory = 9,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMaxRegistersPerBlock = 12,
  cudaDevAttrClockRate = 13,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrIntegrated = 18,
  cudaDevAttrCanMapHostMemory = 19,
  cudaDevAttrComputeMode = 20,
  cudaDevAttrConcurrentKernels = 31,
  cudaDevAttrEccEnabled = 32,
  cudaDevAttrPciBusId = 33,
  cudaDevAttrPciDeviceId = 34,
  cudaDevAttrMemoryClockRate = 36,
  cudaDevAttrGlobalMemoryBusWidth = 37,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrAsyncEngineCount = 40,
  cudaDevAttrUnifiedAddressing = 41,
  cudaDevAttrPciDomainId = 50,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrStreamPrioritiesSupported = 78,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxRegistersPerMultiprocessor = 82,
  cudaDevAttrManagedMemory = 83,
  cudaDevAttrConcurrentManagedAccess = 89,
  cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrMaxBlocksPerMultiprocessor = 106,
  cudaDevAttrReservedSharedMemoryPerBlock = 111,
  cudaDevAttrMemoryPoolsSupported = 115,
};
enum {
  cudaDeviceScheduleAuto = 0,
  cudaDeviceScheduleSpin = 1,
  cudaDeviceScheduleYield = 2,
  cudaDeviceScheduleBlockingSync = 4,
  cudaDeviceMapHost = 8
};
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags);
cudaError_t cudaSetDeviceFlags(unsigned flags);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char *text, int capacity, int device);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset();
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);

/* ---- streams, events, graphs */
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;
#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2, cudaEventInterprocess = 4 };
enum { cudaEventRecordDefault = 0, cudaEventRecordExternal = 1, cudaEventWaitDefault = 0, cudaEventWaitExternal = 1 };
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
typedef void (*cudaHostFn_t)(void *);
cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags);
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream = nullptr, unsigned flags = 0);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode);
cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count);
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
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4 };
enum { cudaHostRegisterDefault = 0, cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2 };
typedef struct CUmemPool_st *cudaMemPool_t;
enum cudaMemPoolAttr {
  cudaMemPoolReuseFollowEventDependencies = 1,
  cudaMemPoolReuseAllowOpportunistic = 2,
  cudaMemPoolReuseAllowInternalDependencies = 3,
  cudaMemPoolAttrReleaseThreshold = 4,
};
cudaError_t nn_emulated_malloc(void **p, size_t bytes);
cudaError_t nn_emulated_malloc_async(void **p, size_t bytes, cudaStream_t stream);
cudaError_t nn_emulated_malloc_host(void **p, size_t bytes);
template <class T> cudaError_t cudaMalloc(T **p, size_t bytes) { return nn_emulated_malloc((void **)p, bytes); }
template <class T> cudaError_t cudaMallocAsync(T **p, size_t bytes, cudaStream_t stream) {
  return nn_emulated_malloc_async((void **)p, bytes, stream);
}
template <class T> cudaError_t cudaMallocHost(T **p, size_t bytes, unsigned = 0) {
  return nn_emulated_malloc_host((void **)p, bytes);
}
template <class T> cudaError_t cudaHostAlloc(T **p, size_t bytes, unsigned) {
  return nn_emulated_malloc_host((void **)p, bytes);
}
cudaError_t cudaFree(void *p);
cudaError_t cudaFreeAsync(void *p, cudaStream_t stream);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t nn_emulated_host_pointer(void **device, void *host);
template <class T> cudaError_t cudaHostGetDevicePointer(T **device, void *host, unsigned) {
  return nn_emulated_host_pointer((void **)device, host);
}
cudaError_t cudaMemGetInfo(size_t *available, size_t *total);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *p);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void *p, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream = nullptr);
cudaError_t cudaMemset2DAsync(void *p, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream = nullptr);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep);
template <class T>
cudaError_t cudaMemcpyToSymbolAsync(T &symbol, const void *from, size_t bytes, size_t offset, cudaMemcpyKind,
                                    cudaStream_t stream = nullptr) {
  return cudaMemcpyAsync((char *)&symbol + offset, from, bytes, cudaMemcpyDefault, stream);
}
template <class T> cudaError_t cudaGetSymbolAddress(void **p, T &symbol) {
  *p = (void *)&symbol;
  return cudaSuccess;
}

/* ---- entry points of the driver (nn_emulated_entry_point) */
enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess = 0,
  cudaDriverEntryPointSymbolNotFound = 1,
  cudaDriverEntryPointVersionNotSufficent = 2, /* sic */
};
enum { cudaEnableDefault = 0, cudaEnableLegacyStream = 1, cudaEnablePerThreadDefaultStream = 2 };
cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult *result = nullptr);
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult *result = nullptr);

#endif
