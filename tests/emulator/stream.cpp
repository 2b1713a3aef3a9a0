/*
 * Streams and events. Work is carried out when it is issued, or with NNCUDA_EMULATOR_STREAMS=late as late as CUDA
 * allows: when something waits for it. While a stream is captured its work is recorded instead (graph.cpp).
 */
#include "stream.h"

std::set<cudaStream_t> nn_streams;
std::set<std::shared_ptr<nn_capture>> nn_captures;

namespace {

constexpr size_t WAITING_WORKS = 1000; /* of a stream; then the first is done, which may happen at any time */

std::set<cudaEvent_t> events;

/* Carries out the first `until` works ever issued to the stream, as far as none must wait for another process. */
void carry_out(cudaStream_t stream, uint64_t until) {
  while (nn_streams.count(stream) && stream->done < until && !stream->waiting.empty()) {
    nn_work work = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    stream->done++;
    if (!work()) {
      stream->waiting.push_front(std::move(work));
      stream->done--;
      return;
    }
  }
}

/* All of them, however long that takes. */
void wait_for(cudaStream_t stream, uint64_t until) {
  carry_out(stream, until);
  while (nn_streams.count(stream) && stream->done < until && !stream->waiting.empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    carry_out(stream, until);
  }
}

/* Of all streams, or those that the legacy stream waits for. */
void carry_out_all(bool legacy) {
  for (cudaStream_t stream : std::vector<cudaStream_t>(nn_streams.begin(), nn_streams.end())) {
    if (nn_streams.count(stream) && !(legacy && stream->flags & cudaStreamNonBlocking)) {
      wait_for(stream, stream->issued);
    }
  }
}

/* The legacy stream waits for all streams that were made without cudaStreamNonBlocking, also for captured ones. */
cudaError_t check_legacy(cudaStream_t stream) {
  if (stream) {
    return cudaSuccess;
  }
  for (cudaStream_t other : nn_streams) {
    if (other->capture && !(other->flags & cudaStreamNonBlocking)) {
      other->capture->lost = true;
      return cudaErrorStreamCaptureImplicit;
    }
  }
  carry_out_all(true);
  return cudaSuccess;
}

/* For calls that wait for a stream or ask after it. */
cudaError_t check_waiting(cudaStream_t stream) {
  cudaError_t error = nn_check_stream(stream);
  if (error != cudaSuccess) {
    return error;
  }
  if (const auto capture = nn_capture_of(stream)) {
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

} // namespace

cudaError_t nn_check_stream(cudaStream_t stream) {
  int count;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    return error;
  }
  return !stream || nn_streams.count(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

std::shared_ptr<nn_capture> nn_capture_of(cudaStream_t stream) {
  return !stream || !nn_streams.count(stream) ? nullptr : stream->capture;
}

int nn_stream_device(cudaStream_t stream) {
  return !stream || !nn_streams.count(stream) ? nn_current_device() : stream->device;
}

cudaError_t nn_refuse_while_capturing() {
  for (const auto &capture : nn_captures) {
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        (capture->mode == cudaStreamCaptureModeGlobal || capture->thread == std::this_thread::get_id())) {
      capture->lost = true;
      return cudaErrorStreamCaptureUnsupported;
    }
  }
  return cudaSuccess;
}

void nn_finish_all() { carry_out_all(false); }

void nn_carry_on() {
  for (cudaStream_t stream : std::vector<cudaStream_t>(nn_streams.begin(), nn_streams.end())) {
    carry_out(stream, stream->issued);
  }
}

cudaError_t nn_submit(cudaStream_t stream, std::function<void()> work, bool at_once) {
  return nn_submit_patient(
      stream,
      [work = std::move(work)] {
        work();
        return true;
      },
      at_once);
}

cudaError_t nn_submit_patient(cudaStream_t stream, nn_work work, bool at_once) {
  cudaError_t error = nn_check_stream(stream);
  if (error == cudaSuccess) {
    error = check_legacy(stream);
  }
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  const auto capture = nn_capture_of(stream);
  if (capture && capture->lost) {
    return nn_error(cudaErrorStreamCaptureInvalidated);
  }
  if (capture) {
    capture->works->push_back(std::move(work));
    capture->streams[stream][stream]++;
  } else if (!stream) {
    while (!work()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } else {
    stream->waiting.push_back(std::move(work));
    stream->issued++;
    if (at_once) {
      wait_for(stream, stream->issued);
    } else {
      carry_out(stream, !nn_setting().late                       ? stream->issued
                        : stream->waiting.size() > WAITING_WORKS ? stream->done + 1
                                                                 : 0);
    }
  }
  return cudaSuccess;
}

/* ---- streams */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  NN_LOCKED;
  const cudaError_t error = nn_check_stream(nullptr);
  if (error != cudaSuccess || flags > cudaStreamNonBlocking) {
    return nn_error(error != cudaSuccess ? error : cudaErrorInvalidValue);
  }
  *stream = new CUstream_st{nn_current_device(), flags, nullptr, {}, 0, 0};
  nn_streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  NN_LOCKED;
  if (!stream || !nn_streams.count(stream)) {
    return nn_error(cudaErrorInvalidResourceHandle);
  }
  if (stream->capture) {
    stream->capture->lost = true;
    nn_captures.erase(stream->capture);
  }
  wait_for(stream, stream->issued);
  nn_streams.erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  NN_LOCKED;
  const cudaError_t error = check_waiting(stream);
  if (error == cudaSuccess && stream) {
    wait_for(stream, stream->issued);
  }
  return nn_error(error);
}

cudaError_t cudaDeviceSynchronize() {
  NN_LOCKED;
  const cudaError_t error = check_waiting(nullptr);
  if (error == cudaSuccess) {
    carry_out_all(false);
  }
  return nn_error(error);
}

/* ---- events */
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  NN_LOCKED;
  const cudaError_t error = nn_check_stream(nullptr);
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  *event = new CUevent_st{nn_current_device(), flags, nullptr, nullptr, {}};
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

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  NN_LOCKED;
  cudaError_t error = events.count(event) ? nn_check_stream(stream) : cudaErrorInvalidResourceHandle;
  if (error == cudaSuccess && stream && stream->device != event->device) {
    error = cudaErrorInvalidResourceHandle;
  }
  if (error == cudaSuccess) {
    error = check_legacy(stream);
  }
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  if (const auto capture = nn_capture_of(stream)) {
    event->capture = capture;
    event->progress = capture->streams[stream];
    return cudaSuccess;
  }
  const auto record = std::make_shared<nn_recording>();
  record->stream = stream;
  record->position = !stream ? 0 : stream->issued + 1;
  event->capture = nullptr;
  event->record = record;
  return nn_submit(stream, [record] {
    record->complete = true;
    record->time = std::chrono::steady_clock::now();
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  NN_LOCKED;
  cudaError_t error = events.count(event) ? nn_check_stream(stream) : cudaErrorInvalidResourceHandle;
  if (error == cudaSuccess) {
    error = check_legacy(stream);
  }
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  const auto mine = nn_capture_of(stream);
  const auto its = event->capture && nn_captures.count(event->capture) ? event->capture : nullptr;
  if (!its) {
    /* What was recorded before a capture, or in one that has ended, is no part of a graph. */
    if (mine && (event->record || event->capture)) {
      mine->lost = true;
      return nn_error(cudaErrorStreamCaptureIsolation);
    }
    const auto record = event->capture ? nullptr : event->record;
    if (mine || !record || record->complete) {
      return cudaSuccess;
    }
    return nn_submit_patient(stream, [record] {
      carry_out(record->stream, record->position);
      return record->complete;
    });
  }
  if (!stream || (mine && mine != its)) {
    its->lost = true;
    return nn_error(!stream ? cudaErrorStreamCaptureImplicit : cudaErrorStreamCaptureMerge);
  }
  stream->capture = its;
  merge(its->streams[stream], event->progress);
  /* Having been forked counts as work: the fork must be joined even when nothing was issued to it. */
  if (!mine) {
    its->streams[stream][stream]++;
  }
  return cudaSuccess;
}

/* Whether the event can be waited for or asked after. */
static cudaError_t check_event(cudaEvent_t event) {
  if (!events.count(event)) {
    return cudaErrorInvalidResourceHandle;
  }
  if (event->capture) {
    if (nn_captures.count(event->capture)) {
      event->capture->lost = true;
    }
    nn_refuse_while_capturing();
    return cudaErrorCapturedEvent;
  }
  return nn_refuse_while_capturing();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  NN_LOCKED;
  const cudaError_t error = check_event(event);
  if (error == cudaSuccess && event->record && !event->record->complete) {
    wait_for(event->record->stream, event->record->position);
  }
  return nn_error(error);
}

/* What is asked after is not ready the first time, when late. */
cudaError_t cudaEventQuery(cudaEvent_t event) {
  NN_LOCKED;
  const cudaError_t error = check_event(event);
  if (error != cudaSuccess || !event->record || event->record->complete) {
    return nn_error(error);
  }
  carry_out(event->record->stream, event->record->position);
  return cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  NN_LOCKED;
  cudaError_t error = check_event(begin);
  if (error == cudaSuccess) {
    error = check_event(end);
  }
  if (error == cudaSuccess &&
      (!begin->record || !end->record || (begin->flags | end->flags) & cudaEventDisableTiming)) {
    error = cudaErrorInvalidResourceHandle;
  }
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  if (!begin->record->complete || !end->record->complete) {
    return cudaErrorNotReady;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end->record->time - begin->record->time).count();
  return cudaSuccess;
}
