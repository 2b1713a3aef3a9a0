/* The runtime's rules: what is refused, and with which error; capture and replay; limits of launches and of memory. */
#include "program.cuh"

__global__ void add(int *p, int value) { p[threadIdx.x] += value; }
__global__ void doubles(int *p) { p[threadIdx.x] *= 2; }
__global__ void with_shared(int *p) {
  NN_SHARED_BYTES(shared);
  p[0] = (int)shared[0] + (int)((uintptr_t)shared % 1024);
}
struct large {
  char bytes[4096];
};
__global__ void with_large(large) {}
struct too_large {
  char bytes[4097];
};
__global__ void with_too_large(too_large) {}

int *p;
cudaStream_t a, b;

/* The number in all places of p, as it is now. */
int seen() {
  int host[32];
  OK(cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost));
  for (int i = 1; i < 32; i++) {
    CHECK(host[i] == host[0]);
  }
  return host[0];
}

int value() {
  OK(cudaDeviceSynchronize());
  return seen();
}

void check_launches() {
  FAILS(launch(add, 1, 0, 0, nullptr, p, 1), cudaErrorInvalidConfiguration);
  FAILS(launch(add, 0, 1, 0, nullptr, p, 1), cudaErrorInvalidConfiguration);
  FAILS(launch(add, 1, 1025, 0, nullptr, p, 1), cudaErrorInvalidConfiguration);
  FAILS(launch(add, 1, dim3(1, 1, 65), 0, nullptr, p, 1), cudaErrorInvalidConfiguration);
  FAILS(launch(add, dim3(1, 65536), 1, 0, nullptr, p, 1), cudaErrorInvalidConfiguration);
  FAILS(launch(add, 0x80000000u, 1, 0, nullptr, p, 1), cudaErrorInvalidConfiguration);
  if (__CUDA_ARCH__ >= 900) {
    FAILS(launch_clusters(add, 2, 3, 32, p, 0), cudaErrorInvalidClusterSize);
    FAILS(launch_clusters(add, 16, 16, 32, p, 0), cudaErrorInvalidClusterSize);
    OK(launch_clusters(add, 2, 4, 32, p, 0));
  }
  OK(launch(with_large, 1, 1, 0, nullptr, large()));
  FAILS(launch(add, 1, 1, 0, (cudaStream_t)&p, p, 1), cudaErrorInvalidResourceHandle);

  int most;
  OK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  CHECK(most == (__CUDA_ARCH__ == 700   ? 96
                 : __CUDA_ARCH__ == 750 ? 64
                 : __CUDA_ARCH__ == 800 ? 163
                 : __CUDA_ARCH__ == 900 ? 227
                                        : 99)
                    << 10);
  OK(launch(with_shared, 1, 1, 48 << 10, nullptr, p));
  int first;
  OK(cudaMemcpy(&first, p, sizeof first, cudaMemcpyDeviceToHost));
  CHECK(first == 255); /* fresh shared memory, well aligned */
  FAILS(launch(with_shared, 1, 1, (48 << 10) + 1, nullptr, p), cudaErrorInvalidValue);
  FAILS(cudaFuncSetAttribute(with_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, most + 1),
        cudaErrorInvalidValue);
  OK(cudaFuncSetAttribute(with_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
  OK(launch(with_shared, 1, 1, (size_t)most, nullptr, p));
}

void check_memory() {
  size_t available, total;
  OK(cudaMemGetInfo(&available, &total));
  CHECK(total == (size_t)1 << 20);
  char *most = nullptr, *more = nullptr;
  FAILS(cudaMalloc(&more, available + 1), cudaErrorMemoryAllocation);
  OK(cudaMalloc(&most, available));
  FAILS(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
  CHECK(more == nullptr);
  OK(cudaFree(most));
  FAILS(cudaFree(most), cudaErrorInvalidValue);
  OK(cudaFree(nullptr));

  int host[32], *fresh = device_array<int>(32), *pinned;
  OK(cudaMemcpy(host, fresh, sizeof host, cudaMemcpyDeviceToHost));
  CHECK(host[0] == -1 && host[31] == -1);
  FAILS(cudaMemcpy(fresh, host, sizeof host, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  FAILS(cudaMemcpy(fresh, fresh, sizeof host, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  FAILS(cudaMemcpy(fresh, host, sizeof host + 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  FAILS(cudaMemset(fresh + 1, 0, sizeof host), cudaErrorInvalidValue);
  OK(cudaMemset(fresh, 1, sizeof host));

  cudaPointerAttributes found;
  OK(cudaMallocHost(&pinned, 100));
  OK(cudaPointerGetAttributes(&found, fresh + 31));
  CHECK(found.type == cudaMemoryTypeDevice && found.device == 0);
  OK(cudaPointerGetAttributes(&found, pinned + 1));
  CHECK(found.type == cudaMemoryTypeHost);
  OK(cudaPointerGetAttributes(&found, host));
  CHECK(found.type == cudaMemoryTypeUnregistered);
  OK(cudaFreeHost(pinned));
  FAILS(cudaFreeHost(host), cudaErrorInvalidValue);
  OK(cudaFree(fresh));
}

void check_events() {
  cudaEvent_t begin, end, untimed;
  float milliseconds;
  OK(cudaEventCreate(&begin));
  OK(cudaEventCreate(&end));
  OK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  OK(cudaEventRecord(begin, a));
  FAILS(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorInvalidResourceHandle);
  OK(launch(add, 1, 32, 0, a, p, 1));
  OK(cudaEventRecord(end, a));
  OK(cudaEventRecord(untimed, a));
  OK(cudaStreamWaitEvent(b, end));
  OK(cudaEventSynchronize(end));
  OK(cudaEventQuery(end));
  OK(cudaEventElapsedTime(&milliseconds, begin, end));
  CHECK(milliseconds >= 0);
  FAILS(cudaEventElapsedTime(&milliseconds, begin, untimed), cudaErrorInvalidResourceHandle);
  OK(cudaEventDestroy(untimed));
  FAILS(cudaEventDestroy(untimed), cudaErrorInvalidResourceHandle);
}

void check_capture() {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaEvent_t forked, joined;
  cudaStreamCaptureStatus status;
  OK(cudaEventCreate(&forked));
  OK(cudaEventCreate(&joined));
  OK(cudaMemset(p, 0, 128));

  OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
  OK(launch(add, 1, 32, 0, a, p, 3));
  OK(cudaEventRecord(forked, a));
  OK(cudaStreamWaitEvent(b, forked));
  OK(cudaStreamIsCapturing(b, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  OK(launch(doubles, 1, 32, 0, b, p));
  OK(cudaEventRecord(joined, b));
  OK(cudaStreamWaitEvent(a, joined));
  OK(cudaStreamEndCapture(a, &graph));
  OK(cudaStreamIsCapturing(b, &status));
  CHECK(status == cudaStreamCaptureStatusNone);
  CHECK(value() == 0); /* nothing has run yet */
  OK(cudaGraphInstantiate(&exec, graph));
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphLaunch(exec, a));
  CHECK(value() == 6);
  OK(cudaGraphLaunch(exec, b));
  CHECK(value() == 18);
  OK(cudaGraphExecDestroy(exec));
  FAILS(cudaGraphLaunch(exec, a), cudaErrorInvalidValue);

  /* What would have to wait is refused, and takes the capture with it. */
  int *more, host;
  const auto refused = [&](auto call, cudaError_t error) {
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    FAILS(call(), error);
    FAILS(launch(add, 1, 32, 0, a, p, 1), cudaErrorStreamCaptureInvalidated);
    FAILS(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
    CHECK(graph == nullptr);
  };
  refused([&] { return cudaMalloc(&more, 4); }, cudaErrorStreamCaptureUnsupported);
  refused([&] { return cudaFree(p); }, cudaErrorStreamCaptureUnsupported);
  refused([&] { return cudaStreamSynchronize(a); }, cudaErrorStreamCaptureUnsupported);
  refused([&] { return cudaDeviceSynchronize(); }, cudaErrorStreamCaptureUnsupported);
  refused([&] { return cudaEventQuery(joined); }, cudaErrorCapturedEvent);

  /* A stream that the legacy one waits for. */
  cudaStream_t blocking;
  OK(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault));
  OK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
  FAILS(cudaMemcpy(&host, p, 4, cudaMemcpyDeviceToHost), cudaErrorStreamCaptureImplicit);
  FAILS(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);

  OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  OK(cudaEventRecord(forked, a));
  OK(cudaStreamWaitEvent(b, forked));
  FAILS(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureUnjoined);
  OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
  OK(cudaEventRecord(forked, a));
  OK(cudaStreamWaitEvent(b, forked));
  FAILS(cudaStreamEndCapture(b, &graph), cudaErrorStreamCaptureUnmatched);
  FAILS(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
  OK(cudaEventRecord(joined, b));
  OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
  FAILS(cudaStreamWaitEvent(a, joined), cudaErrorStreamCaptureIsolation);
  FAILS(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
  CHECK(value() == 18);
}

/* Work is done when something waits for it, so what did not wait is seen. */
void check_late() {
  int *pinned, pageable[32];
  cudaEvent_t event;
  OK(cudaMallocHost(&pinned, 128));
  OK(cudaEventCreate(&event));
  OK(cudaMemset(p, 0, 128));
  OK(launch(add, 1, 32, 0, a, p, 3));
  OK(cudaMemcpyAsync(pinned, p, 128, cudaMemcpyDeviceToHost, a));
  CHECK(pinned[0] == -1);
  OK(cudaStreamSynchronize(a));
  CHECK(pinned[0] == 3 && pinned[31] == 3);

  /* Two streams without a wait between them: here the second is done first. */
  OK(launch(add, 1, 32, 0, a, p, 1));
  OK(launch(doubles, 1, 32, 0, b, p));
  OK(cudaStreamSynchronize(b));
  OK(cudaStreamSynchronize(a));
  CHECK(seen() == 7);
  OK(launch(add, 1, 32, 0, a, p, 1));
  OK(cudaEventRecord(event, a));
  OK(launch(add, 1, 32, 0, a, p, 100)); /* after the event */
  OK(cudaStreamWaitEvent(b, event));
  OK(launch(doubles, 1, 32, 0, b, p));
  OK(cudaStreamSynchronize(b));
  CHECK(seen() == 16);
  OK(cudaStreamSynchronize(a));
  CHECK(seen() == 116);

  OK(launch(add, 1, 32, 0, a, p, 1));
  OK(cudaEventRecord(event, a));
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  OK(cudaEventQuery(event));
  CHECK(seen() == 117);
  OK(launch(add, 1, 32, 0, a, p, 1));
  OK(cudaMemcpyAsync(pageable, p, 128, cudaMemcpyDeviceToHost, a)); /* returns when it is done */
  CHECK(pageable[0] == 118);
  OK(launch(add, 1, 32, 0, a, p, 1));
  OK(launch(add, 1, 32, 0, b, p, 1));
  OK(cudaDeviceSynchronize());
  CHECK(seen() == 120);
  OK(launch(add, 1, 32, 0, a, p, 1));
  OK(cudaStreamDestroy(a));
  CHECK(seen() == 121);
}

int driver_function() { return 5; }
static const nn_emulated_entry_point entry("cuFive", (void *)driver_function);

int main(int, char **arguments) {
  if (!strcmp(arguments[1], "no device")) {
    int count;
    FAILS(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    CHECK(count == 0);
    FAILS(cudaMalloc(&p, 4), cudaErrorInsufficientDriver);
    FAILS(cudaStreamCreateWithFlags(&a, cudaStreamDefault), cudaErrorInsufficientDriver);
    FAILS(launch(add, 1, 1, 0, nullptr, p, 1), cudaErrorInsufficientDriver);
    puts("ok");
    return 0;
  }
  if (!strcmp(arguments[1], "too large")) {
    launch(with_too_large, 1, 1, 0, nullptr, too_large());
    return 0;
  }
  if (!strcmp(arguments[1], "two devices")) {
    OK(cudaStreamCreateWithFlags(&a, cudaStreamDefault));
    p = device_array<int>(32);
    OK(cudaSetDevice(1));
    int *q = device_array<int>(32);
    cudaPointerAttributes found;
    OK(cudaPointerGetAttributes(&found, q));
    CHECK(found.device == 1);
    FAILS(launch(add, 1, 1, 0, a, p, 1), cudaErrorInvalidResourceHandle); /* a stream of the other device */
    FAILS(cudaSetDevice(2), cudaErrorInvalidDevice);
    launch(add, 1, 1, 0, nullptr, p, 1); /* memory of the other device */
    return 0;
  }
  int count;
  OK(cudaGetDeviceCount(&count));
  CHECK(count == 1);
  CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking) == cudaSuccess);
  CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking) == cudaSuccess);
  p = device_array<int>(32);
  if (!strcmp(arguments[1], "late")) {
    check_late();
    puts("ok");
    return 0;
  }
  check_launches();
  check_memory();
  check_events();
  check_capture();
  OK(cudaStreamDestroy(b));
  FAILS(cudaStreamDestroy(b), cudaErrorInvalidResourceHandle);
  void *function;
  cudaDriverEntryPointQueryResult result;
  OK(cudaGetDriverEntryPointByVersion("cuFive", &function, 12000, cudaEnableDefault, &result));
  CHECK(result == cudaDriverEntryPointSuccess && ((int (*)())function)() == 5);
  OK(cudaGetDriverEntryPointByVersion("cuSix", &function, 12000, cudaEnableDefault, &result));
  CHECK(result == cudaDriverEntryPointSymbolNotFound && function == nullptr);
  CHECK(!strcmp(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady"));
  CHECK(!strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory"));
  puts("ok");
}
