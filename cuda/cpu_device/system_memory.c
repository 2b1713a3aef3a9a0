#define _GNU_SOURCE
#include "system_memory.h"

#include "runtime/device.h"
#include "runtime/poison.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* From here on the system gives pages directly: malloc would give them back at every free and fault them in again. The
 * sanitizer only watches over what malloc gave. */
#if NN_ADDRESS_SANITIZER
static const size_t mapped_from = SIZE_MAX;
#else
static const size_t mapped_from = (size_t)1 << 20;
#endif
static const size_t page = 4096, huge_page = (size_t)1 << 21;

/* Below this nobody asks whether the machine has it: the question costs tens of microseconds. */
static const size_t question_from = (size_t)1 << 28;

static size_t round_up(size_t bytes, size_t grain) { return (bytes + grain - 1) / grain * grain; }

static void *map(size_t bytes, int protection) {
  const size_t size = round_up(bytes, page);
  const size_t extra = size >= huge_page ? huge_page : 0;
  unsigned char *memory = mmap(NULL, size + extra, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return NULL;
  }
  if (extra != 0) {
    const size_t before = round_up((size_t)(uintptr_t)memory, huge_page) - (size_t)(uintptr_t)memory;
    if (before != 0) {
      munmap(memory, before);
    }
    if (extra != before) {
      munmap(memory + before + size, extra - before);
    }
    memory += before;
    madvise(memory, size, MADV_HUGEPAGE); /* a wish: without huge pages it is only slower */
  }
  return memory;
}

/* Linux promises more memory than there is and kills the process that comes to collect. An error is better. */
static int32_t hopeless(nncuda_ctx *ctx, size_t bytes) {
  int64_t free_bytes, total_bytes;
  return bytes >= question_from && nn_system_memory_info(ctx, &free_bytes, &total_bytes) && bytes > (size_t)free_bytes;
}

void *nn_system_take(nncuda_ctx *ctx, size_t bytes) {
  if (bytes > PTRDIFF_MAX - 2 * huge_page || hopeless(ctx, bytes)) {
    return NULL;
  }
  return bytes >= mapped_from ? map(bytes, PROT_READ | PROT_WRITE)
                              : aligned_alloc(NN_MEMORY_ALIGNMENT, round_up(bytes, NN_MEMORY_ALIGNMENT));
}

void nn_system_give(nncuda_ctx *ctx, void *memory, size_t bytes) {
  (void)ctx;
  if (bytes >= mapped_from) {
    munmap(memory, round_up(bytes, page));
  } else {
    free(memory);
  }
}

void *nn_system_take_parts(nncuda_ctx *ctx, size_t bytes, const int64_t *ranges, int64_t count) {
  size_t wanted = 0;
  for (int64_t i = 0; i < count; i++) {
    wanted += (size_t)(ranges[2 * i + 1] - ranges[2 * i]);
  }
  unsigned char *memory = bytes > PTRDIFF_MAX - 2 * huge_page || hopeless(ctx, wanted) ? NULL : map(bytes, PROT_NONE);
  const size_t grain = (size_t)sysconf(_SC_PAGESIZE);
  for (int64_t i = 0; i < count && memory != NULL; i++) {
    const size_t begin = (size_t)ranges[2 * i] / grain * grain, end = round_up((size_t)ranges[2 * i + 1], grain);
    if (mprotect(memory + begin, end - begin, PROT_READ | PROT_WRITE) != 0) {
      nn_system_give_parts(ctx, memory, bytes, ranges, count);
      memory = NULL;
    }
  }
  return memory;
}

void nn_system_give_parts(nncuda_ctx *ctx, void *memory, size_t bytes, const int64_t *ranges, int64_t count) {
  (void)ctx, (void)ranges, (void)count;
  munmap(memory, round_up(bytes, page));
}

static int64_t read_number(const char *path) {
  FILE *file = fopen(path, "re");
  long long number = -1; /* also for "max" */
  if (file != NULL) {
    if (fscanf(file, "%lld", &number) != 1) {
      number = -1;
    }
    fclose(file);
  }
  return number;
}

int32_t nn_system_memory_info(nncuda_ctx *ctx, int64_t *free_bytes, int64_t *total_bytes) {
  (void)ctx;
  FILE *file = fopen("/proc/meminfo", "re");
  if (file == NULL) {
    return 0;
  }
  long long total = -1, available = -1, swap = 0;
  char line[128];
  while (fgets(line, sizeof line, file) != NULL) {
    sscanf(line, "MemTotal: %lld", &total);
    sscanf(line, "MemAvailable: %lld", &available);
    sscanf(line, "SwapFree: %lld", &swap);
  }
  fclose(file);
  if (total < 0 || available < 0) {
    return 0;
  }
  *total_bytes = total * 1024;
  *free_bytes = (available + swap) * 1024;
  const int64_t limit = read_number("/sys/fs/cgroup/memory.max");
  if (limit >= 0) {
    *total_bytes = limit < *total_bytes ? limit : *total_bytes;
    *free_bytes = limit < *free_bytes ? limit : *free_bytes;
  }
  return 1;
}
