#include "numbers/format.h"
#include "runtime/call.h"
#include "runtime/context.h"

#include <stdio.h>
#include <string.h>

#define NN_TEXT_(x) #x
#define NN_TEXT(x) NN_TEXT_(x)

int32_t nncuda_abi_version(void) { return NNCUDA_ABI_MAJOR * 1000 + NNCUDA_ABI_MINOR; }

const char *nncuda_build_info(void) {
  return "nncuda " NN_VERSION
         ", ABI " NN_TEXT(NNCUDA_ABI_MAJOR) "." NN_TEXT(NNCUDA_ABI_MINOR) ", "
#if defined(__clang__)
                                                                          "clang " __clang_version__
#else
                                                                          "gcc " __VERSION__
#endif
                                                                          ", CPU: " NN_ISAS "; CUDA: " NN_CUDA;
}

static const struct {
  int32_t status;
  const char *name;
  const char *text;
} statuses[] = {
    {NNCUDA_SUCCESS, "NNCUDA_SUCCESS", "success"},
    {NNCUDA_ERROR_INVALID_CONTEXT, "NNCUDA_ERROR_INVALID_CONTEXT",
     "the context, stream, event or graph is null or not one of this library: pass the one that its create call gave"},
    {NNCUDA_ERROR_NULL_POINTER, "NNCUDA_ERROR_NULL_POINTER", "a pointer that must not be null is: pass its memory"},
    {NNCUDA_ERROR_INVALID_SIZE, "NNCUDA_ERROR_INVALID_SIZE",
     "a size is negative, too large for its product to fit, or at odds with another: check the shapes"},
    {NNCUDA_ERROR_INVALID_DTYPE, "NNCUDA_ERROR_INVALID_DTYPE",
     "the dtype is unknown or not one that this function takes: cast first"},
    {NNCUDA_ERROR_INVALID_VALUE, "NNCUDA_ERROR_INVALID_VALUE",
     "an option, flag or enum is out of its range: see the parameter in bindings.h"},
    {NNCUDA_ERROR_MISALIGNED, "NNCUDA_ERROR_MISALIGNED",
     "a pointer is not a multiple of its element's size: copy the data to aligned memory"},
    {NNCUDA_ERROR_WRONG_DEVICE, "NNCUDA_ERROR_WRONG_DEVICE",
     "a pointer or handle belongs to another device or context: use it with the one that made it"},
    {NNCUDA_ERROR_ALIASED, "NNCUDA_ERROR_ALIASED",
     "an output overlaps an argument in a way that is not allowed: give it memory of its own"},
    {NNCUDA_ERROR_OUT_OF_RANGE, "NNCUDA_ERROR_OUT_OF_RANGE",
     "a token id, target, expert index or position is outside its range: check the data"},
    {NNCUDA_ERROR_OUT_OF_MEMORY, "NNCUDA_ERROR_OUT_OF_MEMORY",
     "the device or the host has no more memory: free some or ask for less; the context stays usable"},
    {NNCUDA_ERROR_UNSUPPORTED, "NNCUDA_ERROR_UNSUPPORTED", "the call is valid, but this engine cannot do it"},
    {NNCUDA_ERROR_NO_DEVICE, "NNCUDA_ERROR_NO_DEVICE",
     "this machine has no such device, or no driver for it: see nncuda_device_count"},
    {NNCUDA_ERROR_CAPTURING, "NNCUDA_ERROR_CAPTURING",
     "not allowed while the context captures a graph: call it before nncuda_graph_begin or after nncuda_graph_end"},
    {NNCUDA_ERROR_STATE, "NNCUDA_ERROR_STATE", "begin without end, end without begin, or the like"},
    {NNCUDA_ERROR_BUSY, "NNCUDA_ERROR_BUSY",
     "another thread is inside a call on this context: use one context a thread, or a lock"},
    {NNCUDA_ERROR_DEVICE, "NNCUDA_ERROR_DEVICE", "the device reported a fault and the context is lost: make a new one"},
    {NNCUDA_ERROR_PEER, "NNCUDA_ERROR_PEER",
     "another rank failed, left, hung or is unlike this one: see what it said, then start all ranks again"},
    {NNCUDA_ERROR_INTERNAL, "NNCUDA_ERROR_INTERNAL", "a defect of this library: please report it"},
};

const char *nncuda_status_name(int32_t status) {
  for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
    if (statuses[i].status == status) {
      return statuses[i].name;
    }
  }
  return "unknown status";
}

const char *nncuda_status_string(int32_t status) {
  for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
    if (statuses[i].status == status) {
      return statuses[i].text;
    }
  }
  return "unknown status";
}

int32_t nncuda_dtype_size(int32_t dtype, int64_t *bytes) {
  if (bytes == NULL) {
    return NNCUDA_ERROR_NULL_POINTER;
  }
  const int64_t size = nn_dtype_size(dtype);
  if (size == 0 || dtype > NNCUDA_I8) {
    return NNCUDA_ERROR_INVALID_DTYPE;
  }
  *bytes = size;
  return NNCUDA_SUCCESS;
}

int32_t nncuda_format_row_bytes(int32_t format, int64_t elements, int64_t *bytes) {
  if (bytes == NULL) {
    return NNCUDA_ERROR_NULL_POINTER;
  }
  if (nn_format_block_of(format).elements == 0) {
    return NNCUDA_ERROR_INVALID_VALUE;
  }
  const int64_t size = nn_format_row_bytes(format, elements);
  if (size < 0) {
    return NNCUDA_ERROR_INVALID_SIZE;
  }
  *bytes = size;
  return NNCUDA_SUCCESS;
}

int32_t nncuda_device_count(int32_t device, int32_t *number) {
  if (number == NULL) {
    return NNCUDA_ERROR_NULL_POINTER;
  }
  if (device != NNCUDA_DEVICE_CPU && device != NNCUDA_DEVICE_CUDA) {
    return NNCUDA_ERROR_INVALID_VALUE;
  }
  const nn_engine *engine = nn_engine_find(device);
  *number = engine == NULL ? 0 : engine->count();
  return NNCUDA_SUCCESS;
}

int32_t nncuda_device_describe(int32_t device, int32_t index, char *text, int64_t capacity) {
  if (text == NULL) {
    return NNCUDA_ERROR_NULL_POINTER;
  }
  if (capacity < 1) {
    return NNCUDA_ERROR_INVALID_SIZE;
  }
  if (device != NNCUDA_DEVICE_CPU && device != NNCUDA_DEVICE_CUDA) {
    return NNCUDA_ERROR_INVALID_VALUE;
  }
  const nn_engine *engine = nn_engine_find(device);
  if (engine == NULL) {
    snprintf(text, (size_t)capacity, "this library was built without the GPU engine");
    return NNCUDA_ERROR_NO_DEVICE;
  }
  engine->describe(index, text, (size_t)capacity);
  return index < 0 || index >= engine->count() ? NNCUDA_ERROR_NO_DEVICE : NNCUDA_SUCCESS;
}
