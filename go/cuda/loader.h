/*
 * The functions of bindings.h, found in libnncuda when the program runs.
 *
 * The program is not linked to the library: it builds and its help works where there is none, and NNCUDA_LIBRARY can
 * choose another one. Each function of the header has a pointer of the header's own type, and calls_gen.h a small
 * function that calls through it, since Go cannot call a C function pointer.
 */
#ifndef NNCUDA_GO_LOADER_H
#define NNCUDA_GO_LOADER_H

#include <string.h>

#include "bindings.h"
#include "symbols_gen.h"

typedef struct {
#define NN_POINTER(name) __typeof__(name) *name;
  NN_FUNCTIONS(NN_POINTER)
#undef NN_POINTER
} nn_functions;

extern nn_functions nn_api;

/* How nn_load ended. */
enum { NN_LOADED, NN_NOT_OPENED, NN_NOT_NNCUDA, NN_OTHER_VERSION, NN_INCOMPLETE };

/*
 * Opens the library at `path` (a bare name is the system loader's to find) and fills nn_api. `version` is what
 * nncuda_abi_version said, when it could be asked. On failure `text` says what was wrong: the system's words, or the
 * name of the missing function; and nothing stays open.
 */
int nn_load(const char *path, int32_t major, int32_t minor, int32_t *version, char *text, int64_t capacity);

/* nncuda_memcpy with Go's memory on one side, which cgo must see as a pointer to keep it in place during the call. */
static inline int32_t call_nncuda_memcpy_to(nncuda_ctx *ctx, uintptr_t destination, const void *source, int64_t bytes) {
  return nn_api.nncuda_memcpy(ctx, (void *)destination, source, bytes, NNCUDA_HOST_TO_DEVICE);
}
static inline int32_t call_nncuda_memcpy_from(nncuda_ctx *ctx, void *destination, uintptr_t source, int64_t bytes) {
  return nn_api.nncuda_memcpy(ctx, destination, (const void *)source, bytes, NNCUDA_DEVICE_TO_HOST);
}

/* Copies between Go's memory and host memory of the library, which is a number to Go. */
static inline void nn_copy_to(uintptr_t destination, const void *source, int64_t bytes) {
  memcpy((void *)destination, source, (size_t)bytes);
}
static inline void nn_copy_from(void *destination, uintptr_t source, int64_t bytes) {
  memcpy(destination, (const void *)source, (size_t)bytes);
}

#endif
