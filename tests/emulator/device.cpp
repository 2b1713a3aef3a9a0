/* Settings, errors, and the properties of the device that is imitated. */
#include "machine.h"

#include <cstdio>
#include <cuda.h>

namespace {

const nn_architecture architectures[] = {
    {70, "Emulated V100", 80, 96 << 10}, {75, "Emulated T4", 40, 64 << 10},   {80, "Emulated A100", 108, 163 << 10},
    {86, "Emulated A10", 72, 99 << 10},  {89, "Emulated L40", 142, 99 << 10}, {90, "Emulated H100", 132, 227 << 10},
};

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;
thread_local bool has_context = false; /* of the current device: since the first call that needs one */

size_t number(const char *name, size_t otherwise) {
  const char *text = getenv(name);
  if (!text || !*text) {
    return otherwise;
  }
  char *end;
  const unsigned long long value = strtoull(text, &end, 0);
  if (*end) {
    nn_die(std::string(name) + " is \"" + text + "\"; it must be a number");
  }
  return value;
}

nn_settings read_settings() {
  nn_settings s = {};
  const char *order = getenv("NNCUDA_EMULATOR_ORDER");
  if (!order || !*order || !strcmp(order, "forward")) {
    s.order = nn_settings::FORWARD;
  } else if (!strcmp(order, "backward")) {
    s.order = nn_settings::BACKWARD;
  } else if (!strncmp(order, "shuffle:", 8)) {
    s.order = nn_settings::SHUFFLE;
    s.seed = strtoull(order + 8, nullptr, 0) + 1;
  } else {
    nn_die(std::string("NNCUDA_EMULATOR_ORDER is \"") + order + "\"; it must be forward, backward or shuffle:SEED");
  }
  const char *streams = getenv("NNCUDA_EMULATOR_STREAMS");
  s.late = streams && !strcmp(streams, "late");
  if (streams && *streams && !s.late && strcmp(streams, "prompt")) {
    nn_die(std::string("NNCUDA_EMULATOR_STREAMS is \"") + streams + "\"; it must be prompt or late");
  }
  s.devices = (int)number("NNCUDA_EMULATOR_DEVICES", 1);
  if (s.devices > 16) {
    nn_die("NNCUDA_EMULATOR_DEVICES must be 0 to 16");
  }
  s.memory = number("NNCUDA_EMULATOR_MEMORY", (size_t)4 << 30);
  s.sms = (int)number("NNCUDA_EMULATOR_SMS", (size_t)nn_device().sms);
  s.protect = number("NNCUDA_EMULATOR_PROTECT", 1) != 0;
  return s;
}

cudaError_t check_device(int device) {
  int count;
  const cudaError_t error = cudaGetDeviceCount(&count);
  return error != cudaSuccess ? error : device >= 0 && device < count ? cudaSuccess : cudaErrorInvalidDevice;
}

} // namespace

const nn_emulated_entry_point *nn_emulated_entry_point::first = nullptr;

const nn_settings &nn_setting() {
  static const nn_settings settings = read_settings();
  return settings;
}

std::recursive_mutex &nn_big_lock() {
  static std::recursive_mutex *lock = new std::recursive_mutex; /* outlives whatever runs at exit */
  return *lock;
}

const nn_architecture &nn_device() {
  for (const nn_architecture &a : architectures) {
    if (a.capability == __CUDA_ARCH__ / 10) {
      return a;
    }
  }
  nn_die("the emulator was built for an architecture that it does not know");
}

int nn_current_device() {
  has_context = true;
  return current_device;
}

cudaError_t nn_error(cudaError_t error) {
  if (error != cudaSuccess) {
    last_error = error;
  }
  return error;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

const char *cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define NN_ERROR_NAME(name, value, text)                                                                               \
  case name:                                                                                                           \
    return #name;
    NN_ERRORS(NN_ERROR_NAME)
  }
  return "unrecognized error code";
}
const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
#define NN_ERROR_TEXT(name, value, text)                                                                               \
  case name:                                                                                                           \
    return text;
    NN_ERRORS(NN_ERROR_TEXT)
  }
  return "unrecognized error code";
}

cudaError_t cudaDriverGetVersion(int *version) {
  *version = nn_setting().devices ? CUDART_VERSION : 0;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
  *count = nn_setting().devices;
  return *count ? cudaSuccess : nn_error(cudaErrorInsufficientDriver);
}

cudaError_t cudaSetDevice(int device) {
  const cudaError_t error = check_device(device);
  if (error == cudaSuccess) {
    current_device = device;
    has_context = true;
  }
  return nn_error(error);
}
cudaError_t cudaGetDevice(int *device) {
  const cudaError_t error = check_device(current_device);
  *device = current_device;
  return nn_error(error);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
  const cudaError_t error = check_device(device);
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  const nn_architecture &a = nn_device();
  *p = {};
  snprintf(p->name, sizeof p->name, "%s", a.name);
  p->totalGlobalMem = nn_setting().memory;
  p->major = a.capability / 10;
  p->minor = a.capability % 10;
  p->multiProcessorCount = nn_setting().sms;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  const cudaError_t error = cudaGetDeviceProperties(&p, device);
  if (error == cudaSuccess) {
    *value = attribute == cudaDevAttrMultiProcessorCount      ? p.multiProcessorCount
             : attribute == cudaDevAttrComputeCapabilityMajor ? p.major
             : attribute == cudaDevAttrComputeCapabilityMinor ? p.minor
                                                              : (int)nn_device().shared_block;
  }
  return error;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *result) {
  *function = nullptr;
  for (const nn_emulated_entry_point *e = nn_emulated_entry_point::first; e; e = e->next) {
    if (!strcmp(e->name, name)) {
      *function = e->function;
    }
  }
  *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

/* ---- the driver: the context of a thread. There are no others than the primary ones, one a device. */

struct CUctx_st {
  int device;
};

static CUctx_st *primary_context(int device) {
  static CUctx_st contexts[16];
  contexts[device].device = device;
  return &contexts[device];
}

extern "C" {
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < nn_setting().devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  *context = primary_context(device);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = has_context ? primary_context(current_device) : nullptr;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  has_context = context != nullptr;
  current_device = context ? context->device : 0;
  return CUDA_SUCCESS;
}
}

static const nn_emulated_entry_point device_get("cuDeviceGet", (void *)cuDeviceGet),
    retain("cuDevicePrimaryCtxRetain", (void *)cuDevicePrimaryCtxRetain),
    get_current("cuCtxGetCurrent", (void *)cuCtxGetCurrent), set_current("cuCtxSetCurrent", (void *)cuCtxSetCurrent);
