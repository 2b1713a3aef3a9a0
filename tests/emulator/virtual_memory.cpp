/*
 * The driver's virtual memory management, with the rules that its documentation states (CUDA 13.0): addresses are
 * reserved, memory is made, mapped to some of them, and may be touched once access was set.
 */
#include "machine.h"

#include <cuda.h>
#include <map>

namespace {

enum : size_t { GRAIN = (size_t)2 << 20 };

struct memory {
  int device;
  size_t bytes;
  int uses; /* the handle, and mappings */
};

struct mapping {
  size_t bytes;
  CUmemGenericAllocationHandle of;
  bool open; /* access was set */
};

struct reservation {
  int device;
  size_t bytes;
  std::map<CUdeviceptr, mapping> mappings;
};

std::map<CUmemGenericAllocationHandle, memory> memories;
std::map<CUdeviceptr, reservation> reservations;
CUmemGenericAllocationHandle last_handle;

bool whole(size_t bytes) { return bytes != 0 && bytes % GRAIN == 0; }

bool known(const CUmemLocation &location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id >= 0 && location.id < nn_setting().devices;
}

bool known(const CUmemAllocationProp *wanted) {
  return wanted && wanted->type == CU_MEM_ALLOCATION_TYPE_PINNED && known(wanted->location) &&
         wanted->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE;
}

/* The reservation that has all of these addresses; null when none does. */
reservation *reservation_of(CUdeviceptr address, size_t bytes) {
  const auto after = reservations.upper_bound(address);
  if (after == reservations.begin()) {
    return nullptr;
  }
  auto &[first, found] = *std::prev(after);
  return address - first <= found.bytes && bytes <= found.bytes - (address - first) ? &found : nullptr;
}

/* Exactly this mapping; null when there is none. */
mapping *mapping_of(reservation *r, CUdeviceptr address, size_t bytes) {
  const auto found = r ? r->mappings.find(address) : std::map<CUdeviceptr, mapping>::iterator();
  return r && found != r->mappings.end() && found->second.bytes == bytes ? &found->second : nullptr;
}

bool mapped_within(const reservation &r, CUdeviceptr address, size_t bytes) {
  const auto after = r.mappings.lower_bound(address + bytes);
  return after != r.mappings.begin() && std::prev(after)->first + std::prev(after)->second.bytes > address;
}

void drop(CUmemGenericAllocationHandle handle) {
  memory &m = memories.at(handle);
  if (--m.uses == 0) {
    nn_memory_give(m.device, m.bytes);
    memories.erase(handle);
  }
}

CUresult granularity(size_t *least, const CUmemAllocationProp *wanted, CUmemAllocationGranularity_flags) {
  if (!least || !known(wanted)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *least = GRAIN;
  return CUDA_SUCCESS;
}

CUresult reserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr, unsigned long long flags) {
  NN_LOCKED;
  if (!address || !whole(bytes) || (alignment & (alignment - 1)) != 0 || alignment > GRAIN || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int device = nn_current_device();
  unsigned char *const p = nn_memory_reserve(device, bytes, GRAIN);
  if (!p) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = (CUdeviceptr)p;
  reservations[*address] = {device, bytes, {}};
  return CUDA_SUCCESS;
}

CUresult free_addresses(CUdeviceptr address, size_t bytes) {
  NN_LOCKED;
  const auto found = reservations.find(address);
  if (found == reservations.end() || found->second.bytes != bytes || !found->second.mappings.empty()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  nn_memory_unreserve(found->second.device, (unsigned char *)address, bytes);
  reservations.erase(found);
  return CUDA_SUCCESS;
}

CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *wanted,
                unsigned long long flags) {
  NN_LOCKED;
  if (!handle || !whole(bytes) || !known(wanted) || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!nn_memory_take(wanted->location.id, bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = ++last_handle;
  memories[*handle] = {wanted->location.id, bytes, 1};
  return CUDA_SUCCESS;
}

CUresult release(CUmemGenericAllocationHandle handle) {
  NN_LOCKED;
  if (!memories.count(handle)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  drop(handle);
  return CUDA_SUCCESS;
}

CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags) {
  NN_LOCKED;
  reservation *const r = reservation_of(address, bytes);
  const auto of = memories.find(handle);
  if (!r || address % GRAIN != 0 || of == memories.end() || of->second.bytes != bytes || offset != 0 || flags != 0 ||
      mapped_within(*r, address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  of->second.uses++;
  r->mappings[address] = {bytes, handle, false};
  return CUDA_SUCCESS;
}

/* What is under way and touches it faults: the caller has waited. */
CUresult unmap(CUdeviceptr address, size_t bytes) {
  NN_LOCKED;
  reservation *const r = reservation_of(address, bytes);
  const mapping *const m = mapping_of(r, address, bytes);
  if (!m) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (m->open) {
    nn_memory_unback(r->device, (unsigned char *)address);
  }
  drop(m->of);
  r->mappings.erase(address);
  return CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count) {
  NN_LOCKED;
  reservation *const r = reservation_of(address, bytes);
  mapping *const m = mapping_of(r, address, bytes);
  if (!m || m->open || !access || count != 1 || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
      !known(access->location) || access->location.id != memories.at(m->of).device) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  m->open = nn_memory_back(r->device, (unsigned char *)address, bytes);
  return m->open ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

const nn_emulated_entry_point granularity_entry("cuMemGetAllocationGranularity", (void *)granularity),
    reserve_entry("cuMemAddressReserve", (void *)reserve), free_entry("cuMemAddressFree", (void *)free_addresses),
    create_entry("cuMemCreate", (void *)create), release_entry("cuMemRelease", (void *)release),
    map_entry("cuMemMap", (void *)map), unmap_entry("cuMemUnmap", (void *)unmap),
    set_access_entry("cuMemSetAccess", (void *)set_access);

} // namespace
