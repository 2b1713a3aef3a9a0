/* A stream of the ABI is a stream of CUDA, an event an event: the handles are theirs. */
#include "kernels/streams.cuh"

static cudaStream_t stream_of(nncuda_ctx *ctx, nncuda_stream *stream) {
  return stream == NULL ? nn_gpu_stream(ctx) : reinterpret_cast<cudaStream_t>(stream);
}

static cudaEvent_t event_of(nncuda_event *event) { return reinterpret_cast<cudaEvent_t>(event); }

static int32_t status_of(nncuda_ctx *ctx, cudaError_t error) {
  return error == cudaSuccess ? NNCUDA_SUCCESS : nn_gpu_fail(ctx, error);
}

static int32_t stream_create(nncuda_ctx *ctx, nncuda_stream **stream) {
  cudaStream_t made = NULL;
  const cudaError_t error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
  *stream = reinterpret_cast<nncuda_stream *>(made);
  return status_of(ctx, error);
}

static void stream_destroy(nncuda_ctx *ctx, nncuda_stream *stream) {
  cudaStreamSynchronize(stream_of(ctx, stream));
  cudaStreamDestroy(stream_of(ctx, stream));
  cudaGetLastError();
}

static int32_t stream_synchronize(nncuda_ctx *ctx, nncuda_stream *stream) {
  return stream == NULL ? nn_gpu_wait(ctx) : status_of(ctx, cudaStreamSynchronize(stream_of(ctx, stream)));
}

static int32_t stream_wait_event(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event) {
  return status_of(ctx, cudaStreamWaitEvent(stream_of(ctx, stream), event_of(event), 0));
}

static int32_t stream_copy(nncuda_ctx *ctx, nncuda_stream *stream, void *destination, const void *source, size_t bytes,
                           int32_t kind) {
  return status_of(ctx, cudaMemcpyAsync(destination, source, bytes, nn_gpu_copy_kind(kind), stream_of(ctx, stream)));
}

static int32_t event_create(nncuda_ctx *ctx, nncuda_event **event) {
  cudaEvent_t made = NULL;
  const cudaError_t error = cudaEventCreateWithFlags(&made, cudaEventDefault);
  *event = reinterpret_cast<nncuda_event *>(made);
  return status_of(ctx, error);
}

static void event_destroy(nncuda_ctx *ctx, nncuda_event *event) {
  (void)ctx;
  cudaEventDestroy(event_of(event));
  cudaGetLastError();
}

static int32_t event_record(nncuda_ctx *ctx, nncuda_stream *stream, nncuda_event *event) {
  return status_of(ctx, cudaEventRecord(event_of(event), stream_of(ctx, stream)));
}

static int32_t event_synchronize(nncuda_ctx *ctx, nncuda_event *event) {
  return status_of(ctx, cudaEventSynchronize(event_of(event)));
}

static int32_t event_query(nncuda_ctx *ctx, nncuda_event *event, int32_t *happened) {
  const cudaError_t error = cudaEventQuery(event_of(event));
  *happened = error == cudaSuccess;
  if (error == cudaErrorNotReady) {
    cudaGetLastError();
    return NNCUDA_SUCCESS;
  }
  return status_of(ctx, error);
}

static int32_t event_elapsed(nncuda_ctx *ctx, nncuda_event *start, nncuda_event *end, float *milliseconds) {
  const cudaError_t error = cudaEventElapsedTime(milliseconds, event_of(start), event_of(end));
  if (error == cudaErrorNotReady || error == cudaErrorInvalidResourceHandle) {
    cudaGetLastError();
    return nn_fail(ctx, NNCUDA_ERROR_STATE, "%s has not happened; record it and wait for it first",
                   error == cudaErrorNotReady && cudaEventQuery(event_of(start)) == cudaSuccess ? "end"
                                                                                                : "start or end");
  }
  return status_of(ctx, error);
}

extern const nn_stream_functions nn_gpu_streams = {
    stream_create, stream_destroy, stream_synchronize, stream_wait_event, stream_copy,  event_create,
    event_destroy, event_record,   event_synchronize,  event_query,       event_elapsed};

int32_t nn_streams_wait(nncuda_ctx *ctx) {
  int32_t status = NNCUDA_SUCCESS;
  for (size_t i = 0; i < ctx->handles.capacity; i++) {
    const nn_table_entry *entry = &ctx->handles.entries[i];
    if (entry->value == (void *)(intptr_t)NN_HANDLE_STREAM && status == NNCUDA_SUCCESS) {
      status = status_of(ctx, cudaStreamSynchronize((cudaStream_t)(uintptr_t)entry->key));
    }
  }
  const int32_t own = nn_gpu_wait(ctx);
  return status != NNCUDA_SUCCESS ? status : own;
}

void nn_streams_drain(nncuda_ctx *ctx) {
  for (size_t i = 0; i < ctx->handles.capacity; i++) {
    const nn_table_entry *entry = &ctx->handles.entries[i];
    if (entry->value == (void *)(intptr_t)NN_HANDLE_STREAM) {
      cudaStreamSynchronize((cudaStream_t)(uintptr_t)entry->key);
    }
  }
  cudaStreamSynchronize(nn_gpu_stream(ctx));
  cudaGetLastError();
}

void nn_streams_close(nncuda_ctx *ctx) {
  for (size_t i = 0; i < ctx->handles.capacity; i++) {
    const nn_table_entry *entry = &ctx->handles.entries[i];
    if (entry->value == (void *)(intptr_t)NN_HANDLE_STREAM) {
      stream_destroy(ctx, (nncuda_stream *)(uintptr_t)entry->key);
    } else if (entry->value == (void *)(intptr_t)NN_HANDLE_EVENT) {
      event_destroy(ctx, (nncuda_event *)(uintptr_t)entry->key);
    }
  }
}

/* ---- graphs ---- */

/* Relaxed: the arena may grow while kernels are recorded, which stricter modes refuse. */
static int32_t capture_begin(nncuda_ctx *ctx) {
  return status_of(ctx, cudaStreamBeginCapture(nn_gpu_stream(ctx), cudaStreamCaptureModeRelaxed));
}

static int32_t capture_end(nncuda_ctx *ctx, void **executable) {
  cudaGraph_t graph = NULL;
  cudaGraphExec_t made = NULL;
  *executable = NULL;
  cudaError_t error = cudaStreamEndCapture(nn_gpu_stream(ctx), &graph);
  if (error == cudaSuccess) {
    error = cudaGraphInstantiate(&made, graph, 0);
  }
  if (graph != NULL) {
    cudaGraphDestroy(graph);
  }
  *executable = made;
  return status_of(ctx, error);
}

static int32_t capture_launch(nncuda_ctx *ctx, void *executable) {
  return status_of(ctx, cudaGraphLaunch((cudaGraphExec_t)executable, nn_gpu_stream(ctx)));
}

static void capture_destroy(nncuda_ctx *ctx, void *executable) {
  cudaStreamSynchronize(nn_gpu_stream(ctx)); /* it may still be running */
  cudaGraphExecDestroy((cudaGraphExec_t)executable);
  cudaGetLastError();
}

extern const nn_capture nn_gpu_capture = {capture_begin, capture_end, capture_launch, capture_destroy};

/* ---- times: a stamp is an event ---- */

int64_t nn_stamp(nncuda_ctx *ctx) {
  cudaEvent_t made = NULL;
  if (cudaEventCreate(&made) != cudaSuccess || cudaEventRecord(made, nn_gpu_stream(ctx)) != cudaSuccess) {
    cudaGetLastError();
  }
  return (int64_t)(intptr_t)made;
}

int64_t nn_stamp_elapsed(nncuda_ctx *ctx, int64_t from, int64_t to) {
  (void)ctx;
  float milliseconds = 0;
  if (from == 0 || to == 0 ||
      cudaEventElapsedTime(&milliseconds, (cudaEvent_t)(intptr_t)from, (cudaEvent_t)(intptr_t)to) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return (int64_t)((double)milliseconds * 1e6);
}

void nn_stamp_forget(nncuda_ctx *ctx, int64_t stamp) {
  (void)ctx;
  if (stamp != 0) {
    cudaEventDestroy((cudaEvent_t)(intptr_t)stamp);
  }
}
