/*
 * Capture and graphs. While a stream is captured its work is recorded in the order in which it is issued, which is one
 * of the orders that the graph allows.
 */
#include "stream.h"

struct CUgraph_st {
  std::shared_ptr<nn_works> works;
};
struct CUgraphExec_st {
  int device;
  std::shared_ptr<nn_works> works;
};

namespace {

std::set<cudaGraph_t> graphs;
std::set<cudaGraphExec_t> execs;

/* One launch of a graph. It goes on where it had to wait. */
struct launch {
  std::shared_ptr<nn_works> works;
  size_t at;

  bool operator()() {
    const nn_memory_open opened(-1); /* once for all of a graph's kernels */
    for (; at < works->size(); at++) {
      if (!(*works)[at]()) {
        return false;
      }
    }
    at = 0; /* captured work is carried out again and again */
    return true;
  }
};

} // namespace

/* ---- capture */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  NN_LOCKED;
  const cudaError_t error = nn_check_stream(stream);
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  if (!stream) {
    return nn_error(cudaErrorStreamCaptureUnsupported);
  }
  if (stream->capture || (unsigned)mode > cudaStreamCaptureModeRelaxed) {
    return nn_error(cudaErrorInvalidValue);
  }
  stream->capture = std::make_shared<nn_capture>(
      nn_capture{stream, mode, std::this_thread::get_id(), false, std::make_shared<nn_works>(), {{stream, {}}}});
  nn_captures.insert(stream->capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  NN_LOCKED;
  *graph = nullptr;
  cudaError_t error = nn_check_stream(stream);
  const auto capture = nn_capture_of(stream);
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
  for (cudaStream_t other : nn_streams) {
    if (other->capture == capture) {
      other->capture = nullptr;
    }
  }
  nn_captures.erase(capture);
  if (capture->lost || error != cudaSuccess) {
    return nn_error(capture->lost ? cudaErrorStreamCaptureInvalidated : error);
  }
  *graph = new CUgraph_st{capture->works};
  graphs.insert(*graph);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
  NN_LOCKED;
  const auto capture = nn_capture_of(stream);
  *status = !capture        ? cudaStreamCaptureStatusNone
            : capture->lost ? cudaStreamCaptureStatusInvalidated
                            : cudaStreamCaptureStatusActive;
  return nn_error(nn_check_stream(stream));
}

/* ---- graphs */
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  NN_LOCKED;
  if (!graphs.erase(graph)) {
    return nn_error(cudaErrorInvalidValue);
  }
  delete graph;
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
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  NN_LOCKED;
  if (!execs.count(exec)) {
    return nn_error(cudaErrorInvalidValue);
  }
  return nn_submit_patient(stream, launch{exec->works, 0});
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  NN_LOCKED;
  if (!execs.erase(exec)) {
    return nn_error(cudaErrorInvalidValue);
  }
  delete exec;
  return cudaSuccess;
}
