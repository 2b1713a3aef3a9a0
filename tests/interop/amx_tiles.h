/* Included in front of every C++ file of llama.cpp when `make interop` builds it.
 *
 * GCC 12 tells its optimiser that loading a configuration of AMX tiles reads 8 bytes, so that it drops the stores to
 * the other 56 as dead; the instruction then refuses what is on the stack, and every model with weights in blocks ends
 * in a segmentation fault. This says that 64 are read. */
#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#define _tile_loadconfig(config) __asm__ volatile("ldtilecfg %0" ::"m"(*(const char(*)[64])(config)))
#endif
