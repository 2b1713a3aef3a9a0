/* Memory that nobody may touch for now, for the address sanitizer: what lies after a buffer, what was given back. */
#ifndef NN_RUNTIME_POISON_H
#define NN_RUNTIME_POISON_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define NN_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#define NN_ADDRESS_SANITIZER __has_feature(address_sanitizer)
#else
#define NN_ADDRESS_SANITIZER 0
#endif

#if NN_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
static inline void nn_poison(const void *memory, size_t bytes) { ASAN_POISON_MEMORY_REGION(memory, bytes); }
static inline void nn_unpoison(const void *memory, size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(memory, bytes); }
#else
static inline void nn_poison(const void *memory, size_t bytes) { (void)memory, (void)bytes; }
static inline void nn_unpoison(const void *memory, size_t bytes) { (void)memory, (void)bytes; }
#endif

#endif
