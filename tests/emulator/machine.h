/* What the emulator's own files share. Nothing here is seen by kernels. */
#ifndef NN_EMULATOR_MACHINE_H
#define NN_EMULATOR_MACHINE_H

#include "cuda_runtime.h"

#include <functional>
#include <mutex>
#include <string>

/* ---- settings, read from the environment once */
struct nn_settings {
  enum { FORWARD, BACKWARD, SHUFFLE } order;
  uint64_t seed;
  int devices;
  size_t memory; /* bytes a device */
  int sms;
  bool protect;
  bool late; /* work is carried out when something waits for it, not when it is issued */
};
const nn_settings &nn_setting();

/* ---- one call at a time, whichever thread it comes from */
std::recursive_mutex &nn_big_lock();
#define NN_LOCKED const std::lock_guard<std::recursive_mutex> locked_(nn_big_lock())

/* Notes the error for cudaGetLastError and returns it. */
cudaError_t nn_error(cudaError_t error);

/* ---- the device (device.cpp) */
struct nn_architecture {
  int capability; /* 70 ... 90 */
  const char *name;
  int sms;
  size_t shared_block; /* bytes of shared memory that a block may have after cudaFuncSetAttribute */
};
const nn_architecture &nn_device();
int nn_current_device();
/* Bytes that a block may have without asking. */
constexpr size_t NN_SHARED_DEFAULT = 48 << 10;

/* ---- fibers (fiber.cpp): stacks and the switch between them */
struct nn_stack {
  unsigned char *low, *top; /* usable bytes; a page that cannot be touched lies below */
  nn_stack *next;
};
nn_stack *nn_stack_take();
void nn_stack_give(nn_stack *stack);
/* Whether the address lies in the guard page of a stack. */
bool nn_stack_overflowed(const void *address);
/* Stores the running context in *from and continues with `to`. */
void nn_context_switch(void **from, void *to);
/* A context that will call `entry`, which must never return. */
void *nn_context_new(nn_stack *stack, void (*entry)());

/* ---- a running kernel (block.cpp) */
/* Blocks of a cluster that every GPU with clusters has. */
constexpr unsigned NN_CLUSTER_MOST = 8;
struct nn_launch_record {
  const void *kernel;
  dim3 grid, block;
  size_t shared;
  std::function<void()> body;
  bool ahead = false;   /* started before the kernels in front of it have ended: each thread has to wait for them */
  unsigned cluster = 1; /* blocks along x that run together; of whole warps, if several */
};
/* Runs all blocks. The caller has checked the sizes and holds the lock. */
void nn_run_grid(const nn_launch_record &launch);
/* Of the kernel that runs now, or null. */
const nn_launch_record *nn_running();
/* "kernel NAME, block (x, y, z), thread (x, y, z)", or "" when none runs. */
std::string nn_running_where();

/* ---- device memory (memory.cpp) */
/* Device memory can be touched only while one of these lives: that of one device, or with -1 of all. */
struct nn_memory_open {
  explicit nn_memory_open(int device);
  ~nn_memory_open();
  nn_memory_open(const nn_memory_open &) = delete;
  const int device;
};
/* The device on which the address lies, -1 for host memory. */
int nn_memory_device(const void *p);
/* Whether all bytes lie in one live allocation. */
bool nn_memory_valid(const void *p, size_t bytes);
/* What lies at a device address, in words. */
std::string nn_memory_describe(const void *p);

/* For virtual_memory.cpp: addresses of a device, multiples of `grain`, that no allocation gets; null when there are
 * none left. Those that were reserved last are used again once they are given back. */
unsigned char *nn_memory_reserve(int device, size_t bytes, size_t grain);
void nn_memory_unreserve(int device, unsigned char *p, size_t bytes);
/* Takes so many bytes of a device's memory, or gives them back; whether there are as many. */
bool nn_memory_take(int device, size_t bytes);
void nn_memory_give(int device, size_t bytes);
/* Whole pages of reserved addresses become an allocation, or are none any more. */
bool nn_memory_back(int device, unsigned char *p, size_t bytes);
void nn_memory_unback(int device, unsigned char *p);

/* ---- streams (stream.cpp) */
/* Runs the work now (when it must be done at once, or work is not late), or later, or records it when the stream is
 * captured. */
cudaError_t nn_submit(cudaStream_t stream, std::function<void()> work, bool at_once = false);
/* Work that may have to wait for another process: false is "not yet", and what comes after it in the stream waits, too.
 */
cudaError_t nn_submit_patient(cudaStream_t stream, std::function<bool()> work, bool at_once = false);
/* Carries out what was issued to any stream. */
void nn_finish_all();
/* The same as far as none must wait for another process. */
void nn_carry_on();
/* cudaErrorStreamCaptureUnsupported (and the capture is lost) when a capture forbids calls such as cudaMalloc. */
cudaError_t nn_refuse_while_capturing();
/* The device that a stream belongs to; the current one for the default streams. */
int nn_stream_device(cudaStream_t stream);

/* ---- shared memory (shared.cpp) */
void nn_shared_begin(const nn_launch_record &launch);
/* Of all blocks of a cluster. */
void nn_shared_begin_blocks();
void nn_shared_end_blocks();
/* The block of the cluster whose memory nn_emulated_shared is. */
void nn_shared_select(unsigned block);
/* Bytes of static shared memory that the kernel's blocks were seen to use. */
size_t nn_shared_static(const void *kernel);

/* ---- names (symbol.cpp) */
struct nn_symbol_entry {
  const char *name; /* mangled */
  unsigned char *address;
  size_t bytes;
  bool writable; /* a variable */
};
/* Visits the functions and variables of the library in which the address lies. */
void nn_each_symbol(const void *in_library, const std::function<void(const nn_symbol_entry &)> &visit);
/* The function or variable there, as C++ writes it. */
std::string nn_symbol(const void *address);

/* ---- reports (report.cpp) */
/* Ends the process with a report. */
[[noreturn]] void nn_die(const std::string &text);
/* Reports crashes that a kernel or the host causes by touching device memory. */
void nn_watch_faults();

#endif
