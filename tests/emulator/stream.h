/* Streams, events and captures, as stream.cpp and graph.cpp share them. */
#ifndef NN_EMULATOR_STREAM_H
#define NN_EMULATOR_STREAM_H

#include "machine.h"

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

typedef std::function<bool()> nn_work; /* false: not done yet, to be asked again */
typedef std::vector<nn_work> nn_works;

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
  std::shared_ptr<nn_capture> capture;
  std::deque<nn_work> waiting; /* issued, and not yet carried out */
  uint64_t issued, done;
};

/* One recording of an event. */
struct nn_recording {
  cudaStream_t stream;
  uint64_t position; /* how much of the stream's work it comes after, its own included */
  bool complete;
  std::chrono::steady_clock::time_point time;
};

struct CUevent_st {
  int device;
  unsigned flags;
  std::shared_ptr<nn_recording> record;
  std::shared_ptr<nn_capture> capture; /* it was last recorded in */
  nn_progress progress;
};

extern std::set<cudaStream_t> nn_streams;
extern std::set<std::shared_ptr<nn_capture>> nn_captures; /* that have begun and not ended */

cudaError_t nn_check_stream(cudaStream_t stream);
std::shared_ptr<nn_capture> nn_capture_of(cudaStream_t stream);

#endif
