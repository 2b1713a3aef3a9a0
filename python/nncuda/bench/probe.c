/*
 * What this processor can do at most: the ceilings that the benchmarks are measured against. A library of its own,
 * since these are not kernels of the ABI. Every function runs on the calling thread; the benchmark calls them from as
 * many threads as it wants to load. Python loads it with cffi; see ceilings.py.
 *
 * A peak is that of an instruction set (NNCUDA_ISA_* of bindings.h, by number): what a kernel compiled for it could
 * reach, on a processor that may have more.
 */
#include <stdint.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define EXPORT __attribute__((visibility("default")))

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Calls block() until `seconds` have passed; operations a second. */
static double rate(void (*block)(void), double operations, double seconds) {
  double count = 0, begin = now(), end;
  do {
    block();
    count += operations;
    end = now();
  } while (end - begin < seconds);
  return count / (end - begin);
}

/* Independent chains: more than latency times ports of any core so far, 6 by 2. With as many as 14, dot products of
 * bf16, which are the ones that take 6 cycles, come to 96 % of what they do with 18 or more. */
enum { ROUNDS = 20000, CHAINS = 14, BF16_CHAINS = 20 };

/* A value that the compiler cannot see through, so that it keeps every round. */
#define OPAQUE(x) __asm__ volatile("" : "+x"(x))
#define OPAQUE_V(x) __asm__ volatile("" : "+v"(x))

#if defined(__x86_64__)

#define CHAIN_LOOP(type, count, start, step, keep)                                                                     \
  type c[count];                                                                                                       \
  for (int i = 0; i < count; i++) {                                                                                    \
    c[i] = start;                                                                                                      \
  }                                                                                                                    \
  for (int r = 0; r < ROUNDS; r++) {                                                                                   \
    _Pragma("GCC unroll 20") for (int i = 0; i < count; i++) { step; }                                                 \
  }                                                                                                                    \
  for (int i = 0; i < count; i++) {                                                                                    \
    keep(c[i]);                                                                                                        \
  }

/* Without a fused instruction: a multiplication and an addition. */
static void fma_sse2(void) {
  __m128 a = _mm_set1_ps(0.5f);
  OPAQUE(a);
  CHAIN_LOOP(__m128, CHAINS, _mm_set1_ps((float)i), c[i] = _mm_add_ps(_mm_mul_ps(c[i], a), a), OPAQUE)
}

__attribute__((target("avx512f"))) static void fma_avx512(void) {
  __m512 a = _mm512_set1_ps(0.5f);
  OPAQUE_V(a);
  CHAIN_LOOP(__m512, CHAINS, _mm512_set1_ps((float)i), c[i] = _mm512_fmadd_ps(c[i], a, a), OPAQUE_V)
}

__attribute__((target("avx2,fma"))) static void fma_avx2(void) {
  __m256 a = _mm256_set1_ps(0.5f);
  OPAQUE(a);
  CHAIN_LOOP(__m256, CHAINS, _mm256_set1_ps((float)i), c[i] = _mm256_fmadd_ps(c[i], a, a), OPAQUE)
}

__attribute__((target("avx512f,avx512bf16"))) static void bf16_avx512(void) {
  __m512i bits = _mm512_set1_epi16(0x3f00);
  OPAQUE_V(bits);
  const __m512bh a = (__m512bh)bits;
  CHAIN_LOOP(__m512, BF16_CHAINS, _mm512_setzero_ps(), c[i] = _mm512_dpbf16_ps(c[i], a, a), OPAQUE_V)
}

__attribute__((target("avx512f,avx512vnni"))) static void int8_avx512(void) {
  __m512i a = _mm512_set1_epi8(1);
  OPAQUE_V(a);
  CHAIN_LOOP(__m512i, CHAINS, _mm512_setzero_si512(), c[i] = _mm512_dpbusd_epi32(c[i], a, a), OPAQUE_V)
}

/* Bytes as these sets multiply them: pairs summed in 16 bits, pairs of those in 32. The factor is made opaque at each
 * step, or the compiler would multiply once. */
#define INT8_STEP(type, width, opaque)                                                                                 \
  type b = a;                                                                                                          \
  opaque(b);                                                                                                           \
  const type pairs = _mm##width##_maddubs_epi16(b, a);                                                                 \
  c[i] = _mm##width##_add_epi32(c[i], _mm##width##_madd_epi16(pairs, ones))

__attribute__((target("avx2"))) static void int8_avx2(void) {
  __m256i a = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
  OPAQUE(a);
  OPAQUE(ones);
  CHAIN_LOOP(__m256i, CHAINS, _mm256_setzero_si256(), INT8_STEP(__m256i, 256, OPAQUE), OPAQUE)
}

__attribute__((target("avx512f,avx512bw"))) static void int8_avx512bw(void) {
  __m512i a = _mm512_set1_epi8(1), ones = _mm512_set1_epi16(1);
  OPAQUE_V(a);
  OPAQUE_V(ones);
  CHAIN_LOOP(__m512i, CHAINS, _mm512_setzero_si512(), INT8_STEP(__m512i, 512, OPAQUE_V), OPAQUE_V)
}

#if !defined(__clang__) || __clang_major__ >= 11
#define HAVE_AMX 1

/* All eight tiles full: 16 rows of 64 bytes. Static, since gcc 12 takes the instruction to read its first 8 bytes only.
 */
static const struct {
  uint8_t palette, start, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} amx_full = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

/* Four sums of products of two tiles by two, none of which waits for another. */
#define AMX_PROBE(name, set, multiply)                                                                                 \
  __attribute__((target("amx-tile," set))) static void name(void) {                                                    \
    _tile_loadconfig(&amx_full);                                                                                       \
    _tile_zero(0);                                                                                                     \
    _tile_zero(1);                                                                                                     \
    _tile_zero(2);                                                                                                     \
    _tile_zero(3);                                                                                                     \
    _tile_zero(4);                                                                                                     \
    _tile_zero(5);                                                                                                     \
    _tile_zero(6);                                                                                                     \
    _tile_zero(7);                                                                                                     \
    for (int r = 0; r < ROUNDS; r++) {                                                                                 \
      multiply(0, 4, 6);                                                                                               \
      multiply(1, 4, 7);                                                                                               \
      multiply(2, 5, 6);                                                                                               \
      multiply(3, 5, 7);                                                                                               \
    }                                                                                                                  \
    _tile_release();                                                                                                   \
  }

AMX_PROBE(bf16_amx, "amx-bf16", _tile_dpbf16ps)
AMX_PROBE(int8_amx, "amx-int8", _tile_dpbssd)

/* Tiles need the kernel's leave (ARCH_REQ_XCOMP_PERM for XTILEDATA) once a process. */
static int amx_granted(void) { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }
#endif

enum { BASELINE, AVX2, AVX512, AVX512BF16, AMX }; /* NNCUDA_ISA_* */

/* f32 multiply-adds, two operations each. `isa` must be a set that this processor has. */
EXPORT double probe_fma_f32(int32_t isa, double seconds) {
  if (isa >= AVX512) {
    return rate(fma_avx512, 2.0 * 16 * CHAINS * ROUNDS, seconds);
  }
  return isa == AVX2 ? rate(fma_avx2, 2.0 * 8 * CHAINS * ROUNDS, seconds)
                     : rate(fma_sse2, 2.0 * 4 * CHAINS * ROUNDS, seconds);
}

/* bf16 products summed in f32; 0 where the set has no instruction for them. */
EXPORT double probe_dot_bf16(int32_t isa, double seconds) {
#if HAVE_AMX
  if (isa >= AMX && amx_granted()) {
    return rate(bf16_amx, 2.0 * 16 * 16 * 32 * 4 * ROUNDS, seconds);
  }
#endif
  return isa >= AVX512BF16 ? rate(bf16_avx512, 2.0 * 32 * BF16_CHAINS * ROUNDS, seconds) : 0;
}

/* int8 products summed in int32; 0 where the set has no instruction for them. */
EXPORT double probe_dot_int8(int32_t isa, double seconds) {
#if HAVE_AMX
  if (isa >= AMX && amx_granted()) {
    return rate(int8_amx, 2.0 * 16 * 16 * 64 * 4 * ROUNDS, seconds);
  }
#endif
  if (isa >= AVX512BF16) {
    return rate(int8_avx512, 2.0 * 64 * CHAINS * ROUNDS, seconds);
  }
  if (isa == AVX512) {
    return rate(int8_avx512bw, 2.0 * 64 * CHAINS * ROUNDS, seconds);
  }
  return isa == AVX2 ? rate(int8_avx2, 2.0 * 32 * CHAINS * ROUNDS, seconds) : 0;
}

__attribute__((target("avx512f"))) static uint64_t read_avx512(const char *p, int64_t bytes) {
  __m512i s[8];
  for (int i = 0; i < 8; i++) {
    s[i] = _mm512_setzero_si512();
  }
  for (int64_t at = 0; at + 512 <= bytes; at += 512) {
    for (int i = 0; i < 8; i++) {
      _mm_prefetch(p + at + 4096 + 64 * i, _MM_HINT_T0);
      s[i] = _mm512_xor_si512(s[i], _mm512_loadu_si512((const void *)(p + at + 64 * i)));
    }
  }
  for (int i = 1; i < 8; i++) {
    s[0] = _mm512_xor_si512(s[0], s[i]);
  }
  return (uint64_t)_mm512_reduce_add_epi64(s[0]);
}

__attribute__((target("avx512f"))) static void copy_avx512(char *to, const char *from, int64_t bytes) {
  for (int64_t at = 0; at + 256 <= bytes; at += 256) {
    for (int i = 0; i < 4; i++) {
      _mm_prefetch(from + at + 4096 + 64 * i, _MM_HINT_T0);
      _mm512_stream_si512((void *)(to + at + 64 * i), _mm512_loadu_si512((const void *)(from + at + 64 * i)));
    }
  }
  _mm_sfence();
}

#else

EXPORT double probe_fma_f32(int32_t isa, double seconds) {
  (void)isa, (void)seconds, (void)rate;
  return 0;
}
EXPORT double probe_dot_bf16(int32_t isa, double seconds) {
  (void)isa, (void)seconds;
  return 0;
}
EXPORT double probe_dot_int8(int32_t isa, double seconds) {
  (void)isa, (void)seconds;
  return 0;
}

#endif

static volatile uint64_t sink;

/* Reads a buffer once; seconds. */
EXPORT double probe_read(const void *buffer, int64_t bytes) {
  const double begin = now();
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    sink ^= read_avx512(buffer, bytes);
    return now() - begin;
  }
#endif
  uint64_t sums[8] = {0};
  for (int64_t i = 0; i + 8 <= bytes / 8; i += 8) {
    for (int j = 0; j < 8; j++) {
      sums[j] ^= ((const uint64_t *)buffer)[i + j];
    }
  }
  sink ^= sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
  return now() - begin;
}

/* Copies a buffer once, past the caches where the processor can (both multiples of 64 bytes); seconds. */
EXPORT double probe_copy(void *destination, const void *source, int64_t bytes) {
  const double begin = now();
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    copy_avx512(destination, source, bytes);
    return now() - begin;
  }
#endif
  memcpy(destination, source, (size_t)bytes);
  return now() - begin;
}
