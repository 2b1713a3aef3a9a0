/*
 * VF words: the bits of a vector of f32, or whole numbers, in lanes of 32 bits without sign. Shifts are by constants.
 * simd_neon.h has the same for its structs.
 */
#ifndef NN_CPU_SIMD_WORDS_H
#define NN_CPU_SIMD_WORDS_H

typedef uint32_t vw __attribute__((vector_size(sizeof(vf))));

NN_INLINE vw vi_words(vi x) { return (vw)x; }
NN_INLINE vw vf_words(vf x) { return (vw)x; }
NN_INLINE vf vw_floats(vw x) { return (vf)x; }
NN_INLINE vw vw_set1(uint32_t x) { return (vw){0} + x; }
NN_INLINE vw vw_load(const void *p) {
  vw x;
  memcpy(&x, p, sizeof x);
  return x;
}
NN_INLINE void vw_store(void *p, vw x) { memcpy(p, &x, sizeof x); }
NN_INLINE vw vw_and(vw a, vw b) { return a & b; }
NN_INLINE vw vw_or(vw a, vw b) { return a | b; }
NN_INLINE vw vw_xor(vw a, vw b) { return a ^ b; }
NN_INLINE vw vw_add(vw a, vw b) { return a + b; }
NN_INLINE vw vw_sub(vw a, vw b) { return a - b; }
NN_INLINE vw vw_mul(vw a, vw b) { return a * b; }
NN_INLINE vw vw_left(vw x, int n) { return x << n; }
NN_INLINE vw vw_right(vw x, int n) { return x >> n; }

/* The same with the uppermost bit in the bits that become free. */
NN_INLINE vw vw_right_signed(vw x, int n) {
  typedef int32_t vs __attribute__((vector_size(sizeof(vf))));
  return (vw)((vs)x >> n);
}

/* Lanes of ones where a > b, or a == b, of zeros elsewhere; and x where a lane is ones, y where it is zeros. */
NN_INLINE vw vw_above(vw a, vw b) { return (vw)(a > b); }
NN_INLINE vw vw_equal(vw a, vw b) { return (vw)(a == b); }
NN_INLINE vw vw_select(vw mask, vw x, vw y) { return (x & mask) | (y & ~mask); }
NN_INLINE vw vw_max(vw a, vw b) { return vw_select(vw_above(a, b), a, b); }

/* As numbers with sign. */
NN_INLINE vf vw_converted(vw x) {
  typedef int32_t vs __attribute__((vector_size(sizeof(vf))));
  return __builtin_convertvector((vs)x, vf);
}

/* VF bytes as words, and the lowest bytes of words. */
NN_INLINE vw vw_load_bytes(const uint8_t *p) {
  uint8_t x __attribute__((vector_size(sizeof(vf) / 4)));
  memcpy(&x, p, sizeof x);
  return __builtin_convertvector(x, vw);
}
NN_INLINE void vw_store_bytes(uint8_t *p, vw x) {
  typedef uint8_t vb __attribute__((vector_size(sizeof(vf) / 4)));
  const vb bytes = __builtin_convertvector(x, vb);
  memcpy(p, &bytes, sizeof bytes);
}

NN_INLINE uint32_t vw_largest(vw x) {
  uint32_t most = 0;
  for (int i = 0; i < VF; i++) {
    most = x[i] > most ? x[i] : most;
  }
  return most;
}

#endif
