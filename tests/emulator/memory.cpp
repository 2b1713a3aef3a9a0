/*
 * Device memory: a region of addresses for each device, in which every allocation is followed by a page that cannot be
 * touched, and none of which can be touched at all except while a kernel or a copy runs (and, to save time, after most
 * operations of a long run). Fresh memory is 0xff bytes: NaN as a float, -1 as an integer.
 */
#include "machine.h"

#include <map>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace {

enum : size_t {
  REGION_BYTES = (size_t)1 << 38,
  ALIGNMENT = 256,
  FILLED_BYTES = (size_t)256 << 20,    /* of larger allocations only the ends are filled, to save time */
  PROTECTED_BYTES = (size_t)128 << 20, /* with more memory in use it stays open: closing costs time by the page */
  ALWAYS_CLOSED = 256, /* operations; of later ones a sample, since a host that reads does so again and again */
  CLOSED_ONE_IN = 17,
};

struct allocation {
  size_t bytes;
  unsigned char *low; /* first page */
  size_t mapped;      /* bytes of its pages */
};

struct region {
  unsigned char *base, *next;
  unsigned char *top; /* behind it, addresses are reserved */
  size_t used, mapped;
  int open;
  bool unprotected;
  uint64_t closings;
  std::map<unsigned char *, allocation> live;
  std::map<unsigned char *, size_t> freed; /* for reports, until their addresses are used again */
};

region regions[16];
std::map<unsigned char *, size_t> host_memory; /* pinned */

const size_t page = (size_t)sysconf(_SC_PAGESIZE);

region &region_of(int device) {
  region &r = regions[device];
  if (!r.base) {
    void *p = mmap(nullptr, REGION_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
      nn_die("no addresses for the memory of a device");
    }
    r.base = (unsigned char *)p;
    r.next = r.base + page;
    r.top = r.base + REGION_BYTES;
  }
  return r;
}

void protect(region &r, int how) {
  for (const auto &entry : r.live) {
    mprotect(entry.second.low, entry.second.mapped, how);
  }
}

void open(region &r) {
  if (r.open++ == 0 && !r.unprotected) {
    protect(r, PROT_READ | PROT_WRITE);
  }
}

void close(region &r) {
  if (--r.open == 0) {
    const bool sampled = r.closings++ < ALWAYS_CLOSED || r.closings % CLOSED_ONE_IN == 0;
    r.unprotected = !nn_setting().protect || r.mapped > PROTECTED_BYTES || !sampled;
    if (!r.unprotected) {
      protect(r, PROT_NONE);
    }
  }
}

/* Addresses of freed memory are used again only when all others have been. */
unsigned char *find_addresses(region &r, size_t bytes) {
  for (int wrapped = 0; wrapped < 2; wrapped++) {
    for (;;) {
      unsigned char *low = r.next, *high = low + bytes;
      if (high > r.top) {
        break;
      }
      auto after = r.live.lower_bound(low);
      if (after != r.live.begin()) {
        const auto before = std::prev(after);
        if (before->second.low + before->second.mapped + page > low) {
          r.next = before->second.low + before->second.mapped + page;
          continue;
        }
      }
      if (after != r.live.end() && after->second.low < high) {
        r.next = after->second.low + after->second.mapped + page;
        continue;
      }
      r.next = high;
      return low;
    }
    r.next = r.base + page;
  }
  return nullptr;
}

size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

/* The bytes of its pages that belong to no allocation must be as they were filled. */
void check_edges(unsigned char *p, const allocation &a) {
  for (unsigned char *at = a.low; at < a.low + a.mapped; at++) {
    if (at == p) {
      at += a.bytes;
      if (at == a.low + a.mapped) {
        break;
      }
    }
    if (*at != 0xff) {
      nn_die(at < p ? "something was written " + std::to_string(p - at) + " bytes before an allocation of " +
                          std::to_string(a.bytes) + " bytes of device memory"
                    : "something was written " + std::to_string(at - p - (ptrdiff_t)a.bytes) +
                          " bytes behind the end of an allocation of " + std::to_string(a.bytes) +
                          " bytes of device memory");
    }
  }
}

} // namespace

nn_memory_open::nn_memory_open(int of_device) : device(of_device) {
  for (int i = device < 0 ? 0 : device; i < nn_setting().devices && (device < 0 || i == device); i++) {
    open(region_of(i));
  }
}

nn_memory_open::~nn_memory_open() {
  for (int i = device < 0 ? 0 : device; i < nn_setting().devices && (device < 0 || i == device); i++) {
    close(region_of(i));
  }
}

int nn_memory_device(const void *p) {
  for (int i = 0; i < nn_setting().devices; i++) {
    const region &r = regions[i];
    if (r.base && (const unsigned char *)p >= r.base && (const unsigned char *)p < r.base + REGION_BYTES) {
      return i;
    }
  }
  return -1;
}

/* The allocation that begins at or before the address; null when none does. */
static const std::pair<unsigned char *const, allocation> *allocation_before(const void *p) {
  const int device = nn_memory_device(p);
  if (device < 0) {
    return nullptr;
  }
  const auto after = regions[device].live.upper_bound((unsigned char *)p);
  return after == regions[device].live.begin() ? nullptr : &*std::prev(after);
}

bool nn_memory_valid(const void *p, size_t bytes) {
  const auto *found = allocation_before(p);
  const size_t offset = found ? (size_t)((const unsigned char *)p - found->first) : 0;
  return found && offset <= found->second.bytes && bytes <= found->second.bytes - offset;
}

std::string nn_memory_describe(const void *p) {
  const auto *found = allocation_before(p);
  const auto &freed = regions[nn_memory_device(p)].freed;
  const auto after = freed.upper_bound((unsigned char *)p);
  if (after != freed.begin() && (!found || std::prev(after)->first > found->first)) {
    const auto [start, bytes] = *std::prev(after);
    return "byte " + std::to_string((const unsigned char *)p - start) + " of " + std::to_string(bytes) +
           " bytes of device memory that were freed";
  }
  if (!found) {
    return "device memory before every allocation";
  }
  const size_t offset = (size_t)((const unsigned char *)p - found->first), bytes = found->second.bytes;
  const std::string of = " of an allocation of " + std::to_string(bytes) + " bytes of device memory";
  return offset < bytes ? "byte " + std::to_string(offset) + of
                        : std::to_string(offset - bytes) + " bytes behind the end" + of;
}

/* ---- allocations */

/* Fresh memory in all of its pages; false when the system refuses. */
static bool fill_pages(const region &r, unsigned char *low, size_t mapped) {
  if (mprotect(low, mapped, PROT_READ | PROT_WRITE)) {
    return false;
  }
  if (mapped <= FILLED_BYTES) {
    memset(low, 0xff, mapped);
  } else {
    memset(low, 0xff, page);
    memset(low + mapped - page, 0xff, page);
  }
  if (r.open == 0 && !r.unprotected) {
    mprotect(low, mapped, PROT_NONE);
  }
  return true;
}

static void insert(region &r, unsigned char *start, const allocation &a) {
  r.freed.erase(r.freed.lower_bound(a.low), r.freed.lower_bound(a.low + a.mapped));
  r.live.emplace(start, a);
  r.mapped += a.mapped;
}

static void remove(region &r, std::map<unsigned char *, allocation>::iterator found) {
  const allocation a = found->second;
  mprotect(a.low, a.mapped, PROT_READ | PROT_WRITE);
  check_edges(found->first, a);
  madvise(a.low, a.mapped, MADV_DONTNEED);
  mprotect(a.low, a.mapped, PROT_NONE);
  r.mapped -= a.mapped;
  r.freed[found->first] = a.bytes;
  r.live.erase(found);
}

unsigned char *nn_memory_reserve(int device, size_t bytes, size_t grain) {
  region &r = region_of(device);
  unsigned char *last = r.base; /* the end of the last allocation below */
  const auto behind = r.live.lower_bound(r.top);
  if (behind != r.live.begin()) {
    last = std::prev(behind)->second.low + std::prev(behind)->second.mapped;
  }
  const size_t below = (size_t)(r.top - last) - (uintptr_t)r.top % grain;
  if (bytes > REGION_BYTES || bytes + grain > below) {
    return nullptr;
  }
  r.top -= (uintptr_t)r.top % grain + bytes;
  return r.top;
}

void nn_memory_unreserve(int device, unsigned char *p, size_t bytes) {
  region &r = region_of(device);
  r.top = r.top == p ? p + bytes : r.top;
}

bool nn_memory_take(int device, size_t bytes) {
  region &r = region_of(device);
  const bool there = bytes <= nn_setting().memory - r.used;
  r.used += there ? bytes : 0;
  return there;
}

void nn_memory_give(int device, size_t bytes) { region_of(device).used -= bytes; }

bool nn_memory_back(int device, unsigned char *p, size_t bytes) {
  region &r = region_of(device);
  nn_watch_faults();
  if (!fill_pages(r, p, bytes)) {
    return false;
  }
  insert(r, p, {bytes, p, bytes});
  return true;
}

void nn_memory_unback(int device, unsigned char *p) {
  region &r = region_of(device);
  remove(r, r.live.find(p));
}

static cudaError_t check_allocation(void **p) {
  int count;
  const cudaError_t error = cudaGetDeviceCount(&count);
  return error != cudaSuccess ? error : !p ? cudaErrorInvalidValue : nn_refuse_while_capturing();
}

cudaError_t nn_emulated_malloc(void **p, size_t bytes) {
  NN_LOCKED;
  const cudaError_t error = check_allocation(p);
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  *p = nullptr;
  if (bytes == 0) {
    return cudaSuccess;
  }
  nn_watch_faults();
  region &r = region_of(nn_current_device());
  const size_t total = nn_setting().memory;
  if (bytes > total || rounded(bytes, ALIGNMENT) > total - r.used) {
    return nn_error(cudaErrorMemoryAllocation);
  }
  const size_t mapped = rounded(rounded(bytes, ALIGNMENT), page);
  unsigned char *low = find_addresses(r, mapped + page);
  if (!low || !fill_pages(r, low, mapped)) {
    return nn_error(cudaErrorMemoryAllocation);
  }
  unsigned char *start = low + mapped - rounded(bytes, ALIGNMENT);
  insert(r, start, {bytes, low, mapped});
  r.used += rounded(bytes, ALIGNMENT);
  *p = start;
  return cudaSuccess;
}

cudaError_t cudaFree(void *p) {
  NN_LOCKED;
  if (!p) {
    return cudaSuccess;
  }
  const int device = nn_memory_device(p);
  if (device < 0) {
    return nn_error(cudaErrorInvalidValue);
  }
  if (nn_refuse_while_capturing() != cudaSuccess) {
    return nn_error(cudaErrorStreamCaptureUnsupported);
  }
  nn_finish_all(); /* cudaFree waits for the device */
  region &r = regions[device];
  const auto found = r.live.find((unsigned char *)p);
  if (found == r.live.end() || found->first >= r.top) { /* what was mapped is unmapped, and not freed */
    return nn_error(cudaErrorInvalidValue);
  }
  r.used -= rounded(found->second.bytes, ALIGNMENT);
  remove(r, found);
  return cudaSuccess;
}

cudaError_t nn_emulated_malloc_host(void **p, size_t bytes) {
  NN_LOCKED;
  const cudaError_t error = check_allocation(p);
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  *p = bytes ? aligned_alloc(page, rounded(bytes, page)) : nullptr;
  if (!*p) {
    return bytes ? nn_error(cudaErrorMemoryAllocation) : cudaSuccess;
  }
  memset(*p, 0xff, bytes);
  host_memory.emplace((unsigned char *)*p, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p) {
  NN_LOCKED;
  if (!p) {
    return cudaSuccess;
  }
  if (nn_refuse_while_capturing() != cudaSuccess) {
    return nn_error(cudaErrorStreamCaptureUnsupported);
  }
  nn_finish_all();
  if (!host_memory.erase((unsigned char *)p)) {
    return nn_error(cudaErrorInvalidValue);
  }
  free(p);
  return cudaSuccess;
}

static bool is_pinned(const void *p) {
  const auto after = host_memory.upper_bound((unsigned char *)p);
  return after != host_memory.begin() &&
         (size_t)((const unsigned char *)p - std::prev(after)->first) < std::prev(after)->second;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
  NN_LOCKED;
  int count;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  *total = nn_setting().memory;
  *available = *total - region_of(nn_current_device()).used;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *p) {
  NN_LOCKED;
  const int device = nn_memory_device(p);
  *attributes = {};
  if (device >= 0 && nn_memory_valid(p, 0)) {
    *attributes = {cudaMemoryTypeDevice, device, (void *)p, nullptr};
  } else if (is_pinned(p)) {
    *attributes = {cudaMemoryTypeHost, nn_current_device(), (void *)p, (void *)p};
  } else {
    attributes->device = -1; /* -2 on some versions */
  }
  return cudaSuccess;
}

/* ---- copies */

/* The call returns only after such memory has been read or written. */
static bool is_pageable(const void *p) { return nn_memory_device(p) < 0 && !is_pinned(p); }

/* Whether the pointers lie where the kind says, and inside allocations. */
static cudaError_t check_copy(const void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  const bool to_device = nn_memory_device(to) >= 0, from_device = nn_memory_device(from) >= 0;
  if ((unsigned)kind > cudaMemcpyDefault) {
    return cudaErrorInvalidMemcpyDirection;
  }
  const bool says_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool says_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault && (says_to != to_device || says_from != from_device)) {
    return cudaErrorInvalidValue;
  }
  if (!to || !from || (to_device && !nn_memory_valid(to, bytes)) || (from_device && !nn_memory_valid(from, bytes))) {
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  NN_LOCKED;
  if (bytes == 0) {
    return cudaSuccess;
  }
  const cudaError_t error = check_copy(to, from, bytes, kind);
  if (error != cudaSuccess) {
    return nn_error(error);
  }
  return nn_submit(
      stream,
      [=] {
        const nn_memory_open opened(-1);
        memmove(to, from, bytes);
      },
      is_pageable(to) || is_pageable(from));
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
  NN_LOCKED;
  if (bytes == 0) {
    return cudaSuccess;
  }
  if (nn_memory_device(p) >= 0 ? !nn_memory_valid(p, bytes) : !is_pinned(p)) {
    return nn_error(cudaErrorInvalidValue);
  }
  return nn_submit(stream, [=] {
    const nn_memory_open opened(-1);
    memset(p, value, bytes);
  });
}

cudaError_t cudaMemset(void *p, int value, size_t bytes) { return cudaMemsetAsync(p, value, bytes, nullptr); }
