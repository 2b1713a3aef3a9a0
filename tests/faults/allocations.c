/*
 * To be preloaded, or linked into a program: makes the n-th request of libnncuda for memory fail, and counts what it
 * holds. Requests of anybody else (the interpreter, a runtime, libc itself) pass untouched: only the library's own are
 * under test.
 *
 * Where the process is not the test's own, the environment arms it: NNCUDA_FAULT_AT=n, from 0, and NNCUDA_FAULT_LOG, a
 * file that is made when the fault has struck.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *memory);

static uintptr_t first, last; /* where the library's code lies; known once it asked for something */
static long countdown = -1;   /* requests that still succeed; negative: all do */
static long struck;           /* failures given since `fault_arm` */
static long alive;            /* what the library was given and has not freed */

static int find_library(struct dl_phdr_info *info, size_t size, void *address) {
  (void)size;
  uintptr_t low = UINTPTR_MAX, high = 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    if (info->dlpi_phdr[i].p_type == PT_LOAD) {
      const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
      low = begin < low ? begin : low;
      high = begin + info->dlpi_phdr[i].p_memsz > high ? begin + info->dlpi_phdr[i].p_memsz : high;
    }
  }
  if ((uintptr_t)address < low || (uintptr_t)address >= high || strstr(info->dlpi_name, "libnncuda") == NULL) {
    return 0;
  }
  last = high;
  __atomic_store_n(&first, low, __ATOMIC_RELEASE);
  return 1;
}

static int of_library(void *caller) {
  static _Thread_local int looking;
  if (__atomic_load_n(&first, __ATOMIC_ACQUIRE) == 0 && !looking) {
    looking = 1;
    dl_iterate_phdr(find_library, caller);
    looking = 0;
  }
  const uintptr_t low = __atomic_load_n(&first, __ATOMIC_ACQUIRE);
  return low != 0 && (uintptr_t)caller >= low && (uintptr_t)caller < last;
}

__attribute__((constructor)) static void arm_by_environment(void) {
  const char *at = getenv("NNCUDA_FAULT_AT");
  countdown = at == NULL ? -1 : atol(at);
}

/* While a library is loaded its constructors run, those of the CUDA runtime inside ours among them: not under test. */
static _Thread_local int loading;

void *dlopen(const char *file, int mode) {
  void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
  loading++;
  void *handle = next(file, mode);
  loading--;
  return handle;
}

static int refuse(void) {
  if (loading) {
    return 0;
  }
  if (__atomic_load_n(&countdown, __ATOMIC_RELAXED) < 0 || __atomic_fetch_sub(&countdown, 1, __ATOMIC_RELAXED) != 0) {
    return 0;
  }
  __atomic_add_fetch(&struck, 1, __ATOMIC_RELAXED);
  const char *log = getenv("NNCUDA_FAULT_LOG");
  if (log != NULL) {
    close(open(log, O_CREAT | O_WRONLY, 0644));
  }
  return 1;
}

static void *count(void *memory) {
  __atomic_add_fetch(&alive, memory != NULL, __ATOMIC_RELAXED);
  return memory;
}

/* For tests in the same process; fault_refuse is for requests of another kind, which it counts, too. */
int fault_refuse(void) { return refuse(); }
void fault_arm(long at) {
  struck = 0;
  countdown = at;
}
long fault_disarm(void) {
  countdown = -1;
  return struck;
}
long fault_struck(void) { return __atomic_load_n(&struck, __ATOMIC_RELAXED); }
long fault_alive(void) { return __atomic_load_n(&alive, __ATOMIC_RELAXED); }

#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

void *malloc(size_t bytes) {
  if (!of_library(CALLER)) {
    return __libc_malloc(bytes);
  }
  return refuse() ? NULL : count(__libc_malloc(bytes));
}

void *calloc(size_t n, size_t bytes) {
  if (!of_library(CALLER)) {
    return __libc_calloc(n, bytes);
  }
  return refuse() ? NULL : count(__libc_calloc(n, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  if (!of_library(CALLER)) {
    return __libc_memalign(alignment, bytes);
  }
  return refuse() ? NULL : count(__libc_memalign(alignment, bytes));
}

void *realloc(void *memory, size_t bytes) {
  if (!of_library(CALLER)) {
    return __libc_realloc(memory, bytes);
  }
  if (refuse()) {
    return NULL;
  }
  void *moved = __libc_realloc(memory, bytes);
  return memory == NULL ? count(moved) : moved;
}

void free(void *memory) {
  if (memory != NULL && of_library(CALLER)) {
    __atomic_sub_fetch(&alive, 1, __ATOMIC_RELAXED);
  }
  __libc_free(memory);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (of_library(CALLER) && refuse()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return (void *)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
}
