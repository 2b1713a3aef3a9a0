/* Memory from the system, for the pool and the arena. */
#ifndef NN_ABI_PAGES_H
#define NN_ABI_PAGES_H

#include <stddef.h>
#include <stdint.h>

enum { NN_PAGES_ALIGNMENT = 256 };

#if defined(__SANITIZE_ADDRESS__)
#define NN_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#define NN_ADDRESS_SANITIZER __has_feature(address_sanitizer)
#else
#define NN_ADDRESS_SANITIZER 0
#endif

/* The address sanitizer reports accesses to poisoned memory: what lies behind a buffer, and what was given back. */
#if NN_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
static inline void nn_poison(const void *memory, size_t bytes) { ASAN_POISON_MEMORY_REGION(memory, bytes); }
static inline void nn_unpoison(const void *memory, size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(memory, bytes); }
#else
static inline void nn_poison(const void *memory, size_t bytes) { (void)memory, (void)bytes; }
static inline void nn_unpoison(const void *memory, size_t bytes) { (void)memory, (void)bytes; }
#endif

/* Uninitialised, aligned to NN_PAGES_ALIGNMENT, large pieces on huge pages. Null when there is none. `bytes` > 0. */
void *nn_pages_take(size_t bytes);
void nn_pages_give(void *memory, size_t bytes);

/* Bytes that the machine (or the control group of this process) has in all and could still give. False when the system
 * does not say. */
int32_t nn_pages_info(int64_t *free_bytes, int64_t *total_bytes);

#endif
