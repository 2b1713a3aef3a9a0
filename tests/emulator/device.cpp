/* Settings, errors, and the properties of the device that is imitated. */
#include "machine.h"

#include <cstdio>

namespace {

const nn_architecture architectures[] = {
    {70, "Emulated V100", 80, 2048, 32, 96 << 10, 96 << 10, 6 << 20},
    {75, "Emulated T4", 40, 1024, 16, 64 << 10, 64 << 10, 4 << 20},
    {80, "Emulated A100", 108, 2048, 32, 164 << 10, 163 << 10, 40 << 20},
    {86, "Emulated A10", 72, 1536, 16, 100 << 10, 99 << 10, 6 << 20},
    {89, "Emulated L40", 142, 1536, 24, 100 << 10, 99 << 10, 96 << 20},
    {90, "Emulated H100", 132, 2048, 32, 228 << 10, 227 << 10, 50 << 20},
};

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

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

int nn_current_device() { return current_device; }

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
cudaError_t cudaPeekAtLastError() { return last_error; }

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
cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
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
  }
  return nn_error(error);
}
cudaError_t cudaGetDevice(int *device) {
  const cudaError_t error = check_device(current_device);
  *device = current_device;
  return nn_error(error);
}
cudaError_t cudaInitDevice(int device, unsigned, unsigned) { return nn_error(check_device(device)); }
cudaError_t cudaSetDeviceFlags(unsigned) { return nn_error(check_device(current_device)); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
  const cudaError_t error = check_device(device);
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  const nn_architecture &a = nn_device();
  *p = {};
  snprintf(p->name, sizeof p->name, "%s", a.name);
  memcpy(p->uuid.bytes, "emulated device", 15);
  p->uuid.bytes[15] = (char)device;
  p->totalGlobalMem = nn_setting().memory;
  p->sharedMemPerBlock = NN_SHARED_DEFAULT;
  p->sharedMemPerBlockOptin = a.shared_block;
  p->sharedMemPerMultiprocessor = a.shared;
  p->reservedSharedMemPerBlock = a.capability >= 80 ? NN_SHARED_RESERVED : 0;
  p->totalConstMem = 64 << 10;
  p->major = a.capability / 10;
  p->minor = a.capability % 10;
  p->multiProcessorCount = nn_setting().sms;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = INT_MAX;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->maxThreadsPerMultiProcessor = a.threads;
  p->maxBlocksPerMultiProcessor = a.blocks;
  p->l2CacheSize = (int)a.l2;
  p->memoryBusWidth = 4096;
  p->asyncEngineCount = 2;
  p->concurrentKernels = p->memoryPoolsSupported = p->canMapHostMemory = p->unifiedAddressing =
      p->streamPrioritiesSupported = 1;
  p->pciBusID = device + 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  const cudaError_t error = cudaGetDeviceProperties(&p, device);
  if (error != cudaSuccess) {
    return error;
  }
  switch (attribute) {
  case cudaDevAttrMaxThreadsPerBlock:
    *value = p.maxThreadsPerBlock;
    break;
  case cudaDevAttrMaxBlockDimX:
    *value = p.maxThreadsDim[0];
    break;
  case cudaDevAttrMaxBlockDimY:
    *value = p.maxThreadsDim[1];
    break;
  case cudaDevAttrMaxBlockDimZ:
    *value = p.maxThreadsDim[2];
    break;
  case cudaDevAttrMaxGridDimX:
    *value = p.maxGridSize[0];
    break;
  case cudaDevAttrMaxGridDimY:
    *value = p.maxGridSize[1];
    break;
  case cudaDevAttrMaxGridDimZ:
    *value = p.maxGridSize[2];
    break;
  case cudaDevAttrMaxSharedMemoryPerBlock:
    *value = (int)p.sharedMemPerBlock;
    break;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin:
    *value = (int)p.sharedMemPerBlockOptin;
    break;
  case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
    *value = (int)p.sharedMemPerMultiprocessor;
    break;
  case cudaDevAttrReservedSharedMemoryPerBlock:
    *value = (int)p.reservedSharedMemPerBlock;
    break;
  case cudaDevAttrTotalConstantMemory:
    *value = (int)p.totalConstMem;
    break;
  case cudaDevAttrWarpSize:
    *value = p.warpSize;
    break;
  case cudaDevAttrMaxRegistersPerBlock:
    *value = p.regsPerBlock;
    break;
  case cudaDevAttrMaxRegistersPerMultiprocessor:
    *value = p.regsPerMultiprocessor;
    break;
  case cudaDevAttrClockRate:
    *value = 1000000;
    break;
  case cudaDevAttrMemoryClockRate:
    *value = 1000000;
    break;
  case cudaDevAttrGlobalMemoryBusWidth:
    *value = p.memoryBusWidth;
    break;
  case cudaDevAttrMultiProcessorCount:
    *value = p.multiProcessorCount;
    break;
  case cudaDevAttrMaxThreadsPerMultiProcessor:
    *value = p.maxThreadsPerMultiProcessor;
    break;
  case cudaDevAttrMaxBlocksPerMultiprocessor:
    *value = p.maxBlocksPerMultiProcessor;
    break;
  case cudaDevAttrL2CacheSize:
    *value = p.l2CacheSize;
    break;
  case cudaDevAttrAsyncEngineCount:
    *value = p.asyncEngineCount;
    break;
  case cudaDevAttrConcurrentKernels:
    *value = p.concurrentKernels;
    break;
  case cudaDevAttrCanMapHostMemory:
    *value = p.canMapHostMemory;
    break;
  case cudaDevAttrUnifiedAddressing:
    *value = p.unifiedAddressing;
    break;
  case cudaDevAttrStreamPrioritiesSupported:
    *value = p.streamPrioritiesSupported;
    break;
  case cudaDevAttrPciBusId:
    *value = p.pciBusID;
    break;
  case cudaDevAttrPciDeviceId:
    *value = p.pciDeviceID;
    break;
  case cudaDevAttrPciDomainId:
    *value = p.pciDomainID;
    break;
  case cudaDevAttrComputeCapabilityMajor:
    *value = p.major;
    break;
  case cudaDevAttrComputeCapabilityMinor:
    *value = p.minor;
    break;
  case cudaDevAttrIntegrated:
  case cudaDevAttrComputeMode:
  case cudaDevAttrEccEnabled:
  case cudaDevAttrManagedMemory:
  case cudaDevAttrConcurrentManagedAccess:
  case cudaDevAttrCooperativeLaunch:
    *value = 0;
    break;
  case cudaDevAttrMemoryPoolsSupported:
    *value = p.memoryPoolsSupported;
    break;
  default:
    return nn_error(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int capacity, int device) {
  const cudaError_t error = check_device(device);
  if (error != cudaSuccess || capacity < 13) {
    return nn_error(error != cudaSuccess ? error : cudaErrorInvalidValue);
  }
  snprintf(text, (size_t)capacity, "0000:%02x:00.0", (unsigned)device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return nn_error(check_device(current_device));
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = 0;
  const cudaError_t error = check_device(device);
  return nn_error(error != cudaSuccess ? error : check_device(peer));
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  const cudaError_t error = check_device(peer);
  return nn_error(error != cudaSuccess ? error : cudaErrorPeerAccessUnsupported);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *result) {
  *function = nullptr;
  for (const nn_emulated_entry_point *e = nn_emulated_entry_point::first; e; e = e->next) {
    if (!strcmp(e->name, name)) {
      *function = e->function;
    }
  }
  if (result) {
    *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return *function || result ? cudaSuccess : nn_error(cudaErrorSymbolNotFound);
}

cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult *result) {
  return cudaGetDriverEntryPointByVersion(name, function, CUDART_VERSION, flags, result);
}
