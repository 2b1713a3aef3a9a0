/*
 * Streams, events and graphs. Work is carried out when it is issued; while a stream is captured it is recorded instead,
 * in the order in which it was issued, which is one of the orders that the graph allows.
 */
#include "machine.h"

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

typedef std::vector<std::function<void()>> nn_works;

/* How much of each stream's captured work a stream or event comes after. */
typedef std::map<cudaStream_t, size_t> nn_progress;

struct nn_capture {
  cudaStream_t origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  bool lost;
  std::shared_ptr<nn_works> works;
  std::map<cudaStream_t, nn_progress> streams; /* that take part */
};

struct CUstream_st {
  int device;
  unsigned flags;
  int priority;
  std::shared_ptr<nn_capture> capture;
};
struct CUevent_st {
  int device;
  unsigned flags;
  bool recorded;
  std::chrono::steady_clock::time_point time;
  std::shared_ptr<nn_capture> capture; /* it was last recorded in */
  nn_progress progress;
};
struct CUgraph_st {
  std::shared_ptr<nn_works> works;
};
struct CUgraphExec_st {
  int device;
  std::shared_ptr<nn_works> works;
};

namespace {

std::set<cudaStream_t> streams;
std::set<cudaEvent_t> events;
std::set<cudaGraph_t> graphs;
std::set<cudaGraphExec_t> execs;
std::set<std::shared_ptr<nn_capture>> captures; /* that have begun and not ended */
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

bool is_default(cudaStream_t stream) { return !stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread; }

cudaError_t check_stream(cudaStream_t stream) {
  int count;
  const cudaError_t error = cudaGetDeviceCount(&count);
  return error != cudaSuccess                          ? error
         : is_default(stream) || streams.count(stream) ? cudaSuccess
                                                       : cudaErrorInvalidResourceHandle;
}

std::shared_ptr<nn_capture> capture_of(cudaStream_t stream) {
  return is_default(stream) || !streams.count(stream) ? nullptr : stream->capture;
}

/* The legacy stream waits for all streams that were made without cudaStreamNonBlocking, also for captured ones. */
cudaError_t check_legacy(cudaStream_t stream) {
  if (stream && stream != cudaStreamLegacy) {
    return cudaSuccess;
  }
  for (cudaStream_t other : streams) {
    if (other->capture && !(other->flags & cudaStreamNonBlocking)) {
      other->capture->lost = true;
      return cudaErrorStreamCaptureImplicit;
    }
  }
  return cudaSuccess;
}

/* For calls that wait for a stream or ask after it. */
cudaError_t check_waiting(cudaStream_t stream) {
  cudaError_t error = check_stream(stream);
  if (error != cudaSuccess) {
    return error;
  }
  if (const auto capture = capture_of(stream)) {
    capture->lost = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  return nn_refuse_while_capturing();
}

void merge(nn_progress &into, const nn_progress &from) {
  for (const auto &entry : from) {
    size_t &mine = into[entry.first];
    mine = mine > entry.second ? mine : entry.second;
  }
}

void run(const nn_works &works) {
  const nn_memory_open opened(-1); /* once for all of a graph's kernels */
  for (const auto &work : works) {
    work();
  }
}

} // namespace

bool nn_is_capturing(cudaStream_t stream) { return capture_of(stream) != nullptr; }

int nn_stream_device(cudaStream_t stream) {
  return is_default(stream) || !streams.count(stream) ? nn_current_device() : stream->device;
}

cudaError_t nn_refuse_while_capturing() {
  for (const auto &capture : captures) {
    if (thread_mode != cudaStreamCaptureModeRelaxed && capture->mode != cudaStreamCaptureModeRelaxed &&
        (capture->mode == cudaStreamCaptureModeGlobal || capture->thread == std::this_thread::get_id())) {
      capture->lost = true;
      return cudaErrorStreamCaptureUnsupported;
    }
  }
  return cudaSuccess;
}

cudaError_t nn_submit(cudaStream_t stream, std::function<void()> work) {
  cudaError_t error = check_stream(stream);
  if (error == cudaSuccess) {
    error = check_legacy(stream);
  }
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  const auto capture = capture_of(stream);
  if (!capture) {
    work();
    return cudaSuccess;
  }
  if (capture->lost) {
    return nn_error(cudaErrorStreamCaptureInvalidated);
  }
  capture->works->push_back(std::move(work));
  capture->streams[stream][stream]++;
  return cudaSuccess;
}

/* ---- streams */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  NN_LOCKED;
  const cudaError_t error = check_stream(nullptr);
  if (error != cudaSuccess || flags > cudaStreamNonBlocking) {
    return nn_error(error != cudaSuccess ? error : cudaErrorInvalidValue);
  }
  *stream = new CUstream_st{nn_current_device(), flags, priority, nullptr};
  streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  NN_LOCKED;
  if (is_default(stream) || !streams.count(stream)) {
    return nn_error(cudaErrorInvalidResourceHandle);
  }
  if (stream->capture) {
    stream->capture->lost = true;
    captures.erase(stream->capture);
  }
  streams.erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  NN_LOCKED;
  return nn_error(check_waiting(stream));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags) {
  NN_LOCKED;
  *flags = is_default(stream) || !streams.count(stream) ? 0 : stream->flags;
  return nn_error(check_stream(stream));
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
  NN_LOCKED;
  *priority = is_default(stream) || !streams.count(stream) ? 0 : stream->priority;
  return nn_error(check_stream(stream));
}

cudaError_t cudaDeviceSynchronize() {
  NN_LOCKED;
  return nn_error(check_waiting(cudaStreamPerThread));
}

cudaError_t cudaDeviceReset() {
  NN_LOCKED;
  const cudaError_t error = check_waiting(cudaStreamPerThread);
  if (error == cudaSuccess) {
    nn_memory_reset(nn_current_device());
  }
  return nn_error(error);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  NN_LOCKED;
  return nn_submit(stream, [=] { function(data); });
}

/* ---- events */
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  NN_LOCKED;
  const cudaError_t error = check_stream(nullptr);
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  *event = new CUevent_st{nn_current_device(), flags, false, {}, nullptr, {}};
  events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  NN_LOCKED;
  if (!events.erase(event)) {
    return nn_error(cudaErrorInvalidResourceHandle);
  }
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  NN_LOCKED;
  cudaError_t error = events.count(event) ? check_stream(stream) : cudaErrorInvalidResourceHandle;
  if (error == cudaSuccess && !is_default(stream) && stream->device != event->device) {
    error = cudaErrorInvalidResourceHandle;
  }
  if (error == cudaSuccess) {
    error = check_legacy(stream);
  }
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  const auto capture = capture_of(stream);
  if (capture && flags != cudaEventRecordExternal) {
    event->capture = capture;
    event->progress = capture->streams[stream];
    return cudaSuccess;
  }
  const auto record = [event] {
    event->capture = nullptr;
    event->recorded = true;
    event->time = std::chrono::steady_clock::now();
  };
  return nn_submit(stream, record);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  NN_LOCKED;
  cudaError_t error = events.count(event) ? check_stream(stream) : cudaErrorInvalidResourceHandle;
  if (error == cudaSuccess) {
    error = check_legacy(stream);
  }
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  const auto mine = capture_of(stream);
  const auto its = event->capture && captures.count(event->capture) ? event->capture : nullptr;
  if (!its) {
    /* What was recorded before a capture, or in one that has ended, is no part of a graph. */
    if (mine && (event->recorded || event->capture)) {
      mine->lost = true;
      return nn_error(cudaErrorStreamCaptureIsolation);
    }
    return cudaSuccess;
  }
  if (is_default(stream) || (mine && mine != its)) {
    its->lost = true;
    return nn_error(is_default(stream) ? cudaErrorStreamCaptureImplicit : cudaErrorStreamCaptureMerge);
  }
  stream->capture = its;
  merge(its->streams[stream], event->progress);
  /* Having been forked counts as work: the fork must be joined even when nothing was issued to it. */
  if (!mine) {
    its->streams[stream][stream]++;
  }
  return cudaSuccess;
}

static cudaError_t check_event(cudaEvent_t event) {
  if (!events.count(event)) {
    return cudaErrorInvalidResourceHandle;
  }
  if (event->capture) {
    if (captures.count(event->capture)) {
      event->capture->lost = true;
    }
    nn_refuse_while_capturing();
    return cudaErrorCapturedEvent;
  }
  return nn_refuse_while_capturing();
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  NN_LOCKED;
  return nn_error(check_event(event));
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  NN_LOCKED;
  cudaError_t error = check_event(begin);
  if (error == cudaSuccess) {
    error = check_event(end);
  }
  if (error == cudaSuccess &&
      (!begin->recorded || !end->recorded || (begin->flags | end->flags) & cudaEventDisableTiming)) {
    error = cudaErrorInvalidResourceHandle;
  }
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}

/* ---- capture */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  NN_LOCKED;
  const cudaError_t error = check_stream(stream);
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  /* The stream for each thread could be captured on a GPU; here it has nothing that keeps a capture. */
  if (is_default(stream)) {
    return nn_error(cudaErrorStreamCaptureUnsupported);
  }
  if (stream->capture || (unsigned)mode > cudaStreamCaptureModeRelaxed) {
    return nn_error(cudaErrorInvalidValue);
  }
  stream->capture = std::make_shared<nn_capture>(
      nn_capture{stream, mode, std::this_thread::get_id(), false, std::make_shared<nn_works>(), {{stream, {}}}});
  captures.insert(stream->capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  NN_LOCKED;
  *graph = nullptr;
  cudaError_t error = check_stream(stream);
  const auto capture = capture_of(stream);
  if (error != cudaSuccess || !capture) {
    return nn_error(error != cudaSuccess ? error : cudaErrorInvalidValue);
  }
  if (capture->origin != stream) {
    capture->lost = true;
    return nn_error(cudaErrorStreamCaptureUnmatched);
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    return nn_error(cudaErrorStreamCaptureWrongThread);
  }
  const nn_progress &joined = capture->streams[stream];
  for (const auto &other : capture->streams) {
    const auto own = other.second.find(other.first), seen = joined.find(other.first);
    if (own != other.second.end() && (seen == joined.end() || seen->second < own->second)) {
      error = cudaErrorStreamCaptureUnjoined;
    }
  }
  for (cudaStream_t other : streams) {
    if (other->capture == capture) {
      other->capture = nullptr;
    }
  }
  captures.erase(capture);
  if (capture->lost || error != cudaSuccess) {
    return nn_error(capture->lost ? cudaErrorStreamCaptureInvalidated : error);
  }
  *graph = new CUgraph_st{capture->works};
  graphs.insert(*graph);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  NN_LOCKED;
  const auto capture = capture_of(stream);
  *status = !capture        ? cudaStreamCaptureStatusNone
            : capture->lost ? cudaStreamCaptureStatusInvalidated
                            : cudaStreamCaptureStatusActive;
  return nn_error(check_stream(stream));
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

/* ---- graphs */
cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned) {
  NN_LOCKED;
  *graph = new CUgraph_st{std::make_shared<nn_works>()};
  graphs.insert(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  NN_LOCKED;
  if (!graphs.erase(graph)) {
    return nn_error(cudaErrorInvalidValue);
  }
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  NN_LOCKED;
  if (!graphs.count(graph) || !count) {
    return nn_error(cudaErrorInvalidValue);
  }
  for (size_t i = 0; nodes && i < *count; i++) {
    nodes[i] = i < graph->works->size() ? (cudaGraphNode_t) & (*graph->works)[i] : nullptr;
  }
  if (!nodes || *count > graph->works->size()) {
    *count = graph->works->size();
  }
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
  NN_LOCKED;
  if (!graphs.count(graph)) {
    return nn_error(cudaErrorInvalidValue);
  }
  *exec = new CUgraphExec_st{nn_current_device(), graph->works};
  execs.insert(*exec);
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  NN_LOCKED;
  return nn_error(execs.count(exec) ? check_stream(stream) : cudaErrorInvalidValue);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  NN_LOCKED;
  if (!execs.count(exec)) {
    return nn_error(cudaErrorInvalidValue);
  }
  return nn_submit(stream, [works = exec->works] { run(*works); });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  NN_LOCKED;
  if (!execs.erase(exec)) {
    return nn_error(cudaErrorInvalidValue);
  }
  delete exec;
  return cudaSuccess;
}
