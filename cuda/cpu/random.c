/*
 * Philox4x32-10 for a vector of consecutive blocks at once, and the numbers made from its words.
 *
 * A counter word lives in the low half of a 64-bit lane, so that one instruction gives both halves of its product; what
 * the upper halves hold in between never matters. Nothing here fuses a product with a sum or approximates an
 * instruction, and square root and division are exactly rounded: every instruction set makes the same bits.
 */
#include "kernel.h"

#include "abi/generated/random.h"
#include "numbers/philox.h"

enum {
  LANES = VF / 2,    /* blocks at once */
  GROUP = 4 * LANES, /* numbers at once: two vectors of f32 */
  CHUNK = 1 << 14    /* numbers a task: fixed, so that the pieces do not depend on the number of threads */
};
enum { BITS, UNIFORM, NORMAL };

/* LANES words of 64 bits. */
#if NN_SIMD_NEON
typedef struct vq {
  uint64x2_t low, high;
} vq;

NN_INLINE vq vq_set1(uint64_t x) { return (vq){vdupq_n_u64(x), vdupq_n_u64(x)}; }
NN_INLINE vq vq_add(vq a, vq b) { return (vq){a.low + b.low, a.high + b.high}; }
NN_INLINE vq vq_xor(vq a, vq b) { return (vq){a.low ^ b.low, a.high ^ b.high}; }
NN_INLINE vq vq_upper(vq x) { return (vq){x.low >> 32, x.high >> 32}; }
NN_INLINE vw vq_words(vq x) { return (vw){vreinterpretq_u32_u64(x.low), vreinterpretq_u32_u64(x.high)}; }
NN_INLINE vq multiply(vq a, vq b) {
  return (vq){vmull_u32(vmovn_u64(a.low), vmovn_u64(b.low)), vmull_u32(vmovn_u64(a.high), vmovn_u64(b.high))};
}
NN_INLINE vq pair_low(vq a, vq b) { return (vq){vsliq_n_u64(a.low, b.low, 32), vsliq_n_u64(a.high, b.high, 32)}; }
NN_INLINE vq pair_high(vq a, vq b) { return (vq){vsriq_n_u64(b.low, a.low, 32), vsriq_n_u64(b.high, a.high, 32)}; }
NN_INLINE void interleave(vq a, vq b, vq *first, vq *second) {
  *first = (vq){vzip1q_u64(a.low, b.low), vzip2q_u64(a.low, b.low)};
  *second = (vq){vzip1q_u64(a.high, b.high), vzip2q_u64(a.high, b.high)};
}
NN_INLINE vq quads_of(vf x) { return (vq){vreinterpretq_u64_f32(x.low), vreinterpretq_u64_f32(x.high)}; }

#else
typedef uint64_t vq __attribute__((vector_size(sizeof(vf))));

NN_INLINE vq vq_set1(uint64_t x) { return (vq){0} + x; }
NN_INLINE vq vq_add(vq a, vq b) { return a + b; }
NN_INLINE vq vq_xor(vq a, vq b) { return a ^ b; }
/* The upper halves in the place of the lower ones. */
NN_INLINE vq vq_upper(vq x) { return x >> 32; }
NN_INLINE vw vq_words(vq x) { return (vw)x; }
NN_INLINE vq quads_of(vf x) { return (vq)x; }

/* Product of the low halves of the lanes. */
NN_INLINE vq multiply(vq a, vq b) {
#if NN_SIMD_AVX512
  return (vq)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif NN_SIMD_AVX2
  return (vq)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (vq)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

/* a0 b0 a1 b1 ... */
NN_INLINE void interleave(vq a, vq b, vq *first, vq *second) {
#if NN_SIMD_AVX512
  const __m512i low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
  *first = (vq)_mm512_permutex2var_epi64((__m512i)a, low, (__m512i)b);
  *second = (vq)_mm512_permutex2var_epi64((__m512i)a, high, (__m512i)b);
#elif NN_SIMD_AVX2
  const __m256i even = _mm256_unpacklo_epi64((__m256i)a, (__m256i)b),
                odd = _mm256_unpackhi_epi64((__m256i)a, (__m256i)b);
  *first = (vq)_mm256_permute2x128_si256(even, odd, 0x20);
  *second = (vq)_mm256_permute2x128_si256(even, odd, 0x31);
#else
  *first = (vq){a[0], b[0]};
  *second = (vq){a[1], b[1]};
#endif
}

/* Low half of a below the low half of b, and the high halves so. */
NN_INLINE vq pair_low(vq a, vq b) { return (a & 0xffffffffu) | b << 32; }
NN_INLINE vq pair_high(vq a, vq b) { return a >> 32 | (b & ~(uint64_t)0xffffffffu); }
#endif

typedef struct key_schedule {
  vq k0[NN_PHILOX_ROUNDS], k1[NN_PHILOX_ROUNDS];
} key_schedule;

static key_schedule expand_key(uint64_t key) {
  key_schedule s;
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  for (int i = 0; i < NN_PHILOX_ROUNDS; i++, k0 += NN_PHILOX_W0, k1 += NN_PHILOX_W1) {
    s.k0[i] = vq_set1(k0);
    s.k1[i] = vq_set1(k1);
  }
  return s;
}

/* The blocks `block` of a stream: word j of each in the low half of its lane of c[j]. */
NN_INLINE void philox(const key_schedule *key, vq block, uint64_t stream, vq c[4]) {
  vq c0 = block, c1 = vq_upper(block), c2 = vq_set1(stream), c3 = vq_upper(c2);
  for (int i = 0; i < NN_PHILOX_ROUNDS; i++) {
    const vq a = multiply(c0, vq_set1(NN_PHILOX_M0)), b = multiply(c2, vq_set1(NN_PHILOX_M1));
    c0 = vq_xor(vq_xor(vq_upper(b), c1), key->k0[i]);
    c1 = b;
    c2 = vq_xor(vq_xor(vq_upper(a), c3), key->k1[i]);
    c3 = a;
  }
  c[0] = c0;
  c[1] = c1;
  c[2] = c2;
  c[3] = c3;
}

/*
 * sqrt(-2 log u) for u = v * 2^-24, v in 1 .. 2^24. u = m * 2^e with m in [sqrt(1/2), sqrt(2)), and
 * log m = 2 artanh(s), s = (m - 1) / (m + 1), |s| <= 0.1716: the series up to s^9 leaves a relative error below 2^-28.
 * ln 2 is cut into a part with few enough bits that its product with e is exact, and the rest.
 */
NN_INLINE vf radius(vw v) {
  vf exponent;
  const vf m = vf_split(vf_mul(vw_converted(v), vf_set1(0x1p-24f)), &exponent);
  const vf s = vf_div(vf_sub(m, vf_set1(1.0f)), vf_add(m, vf_set1(1.0f))), z = vf_mul(s, s);
  vf p = vf_add(vf_mul(z, vf_set1(1.0f / 9.0f)), vf_set1(1.0f / 7.0f));
  p = vf_add(vf_mul(p, z), vf_set1(1.0f / 5.0f));
  p = vf_add(vf_mul(p, z), vf_set1(1.0f / 3.0f));
  p = vf_add(vf_mul(vf_mul(p, z), s), s); /* artanh(s) */
  const vf low = vf_sub(vf_mul(p, vf_set1(-4.0f)), vf_mul(exponent, vf_set1(2.0f * 0x1.7f7d1cp-20f)));
  return vf_sqrt(vf_max(vf_set1(0.0f), vf_sub(low, vf_mul(exponent, vf_set1(2.0f * 0x1.62e4p-1f)))));
}

/*
 * Cosine and sine of 2 pi w for w = v * 2^-24, v in 0 .. 2^24-1: the nearest quarter turn is taken off exactly, the
 * Taylor series of what is left, t in [-1/8, 1/8], have a remainder below 2^-28, and the quarter turns swap and negate
 * the two.
 */
NN_INLINE void circle(vw v, vf *cosine, vf *sine) {
  const vw quarter = vw_right(vw_add(v, vw_set1(1u << 21)), 22);
  const vf t = vf_mul(vw_converted(vw_sub(v, vw_left(quarter, 22))), vf_set1(0x1p-24f));
  const vf x = vf_mul(t, vf_set1(6.28318530717958647692f)), z = vf_mul(x, x);
  vf s = vf_sub(vf_mul(z, vf_set1(1.0f / 362880.0f)), vf_set1(1.0f / 5040.0f));
  s = vf_add(vf_mul(s, z), vf_set1(1.0f / 120.0f));
  s = vf_sub(vf_mul(s, z), vf_set1(1.0f / 6.0f));
  s = vf_add(vf_mul(vf_mul(s, z), x), x);
  vf c = vf_add(vf_mul(z, vf_set1(-1.0f / 3628800.0f)), vf_set1(1.0f / 40320.0f));
  c = vf_sub(vf_mul(c, z), vf_set1(1.0f / 720.0f));
  c = vf_add(vf_mul(c, z), vf_set1(1.0f / 24.0f));
  c = vf_sub(vf_mul(c, z), vf_set1(0.5f));
  c = vf_add(vf_mul(c, z), vf_set1(1.0f));
  const vw odd = vw_equal(vw_and(quarter, vw_set1(1)), vw_set1(1));
  const vw swap = vw_and(vw_xor(vf_words(s), vf_words(c)), odd);
  const vw cosine_sign = vw_left(vw_and(vw_add(quarter, vw_set1(1)), vw_set1(2)), 30);
  *cosine = vw_floats(vw_xor(vw_xor(vf_words(c), swap), cosine_sign));
  *sine = vw_floats(vw_xor(vw_xor(vf_words(s), swap), vw_left(vw_and(quarter, vw_set1(2)), 30)));
}

typedef struct sequence {
  void *y;
  int64_t n;
  uint64_t seed, stream, offset;
  float shift, scale; /* low and high - low, or mean and std */
} sequence;

/* Numbers begin .. end-1, begin a multiple of GROUP. */
NN_INLINE void make(const sequence *q, const key_schedule *key, int64_t begin, int64_t end, int32_t kind,
                    int32_t dtype) {
  uint64_t lanes[LANES];
  for (int i = 0; i < LANES; i++) {
    lanes[i] = (uint64_t)i;
  }
  vq lane;
  memcpy(&lane, lanes, sizeof lane);
  for (int64_t i = begin; i < end; i += GROUP) {
    vq c[4], first, second;
    philox(key, vq_add(lane, vq_set1(q->offset + (uint64_t)i / 4)), q->stream, c);
    if (kind == NORMAL) { /* pairs (word 0, word 1) of the blocks in even lanes, (word 2, word 3) in odd ones */
      vf cosine, sine;
      const vf r = radius(vw_add(vw_right(vq_words(pair_low(c[0], c[2])), 8), vw_set1(1)));
      circle(vw_right(vq_words(pair_low(c[1], c[3])), 8), &cosine, &sine);
      const vq x = quads_of(vf_mul(cosine, r)), y = quads_of(vf_mul(sine, r));
      interleave(pair_low(x, y), pair_high(x, y), &first, &second);
    } else {
      interleave(pair_low(c[0], c[1]), pair_low(c[2], c[3]), &first, &second);
    }
    vf y[2] = {vw_floats(vq_words(first)), vw_floats(vq_words(second))};
    if (kind == UNIFORM) {
      y[0] = vf_mul(vw_converted(vw_right(vq_words(first), 8)), vf_set1(0x1p-24f));
      y[1] = vf_mul(vw_converted(vw_right(vq_words(second), 8)), vf_set1(0x1p-24f));
    }
    for (int j = 0; j < 2; j++) {
      const int64_t at = i + j * VF, left = end - at;
      if (kind != BITS) {
        y[j] = vf_add(vf_set1(q->shift), vf_mul(vf_set1(q->scale), y[j]));
      }
      if (left > 0) {
        vf_store_upto_as(q->y, at, left, y[j], dtype);
      }
    }
  }
}

NN_INLINE void task_body(const sequence *q, int64_t i, int32_t kind, int32_t dtype) {
  const key_schedule key = expand_key(q->seed);
  const int64_t begin = i * CHUNK, end = nn_min(begin + CHUNK, q->n);
  make(q, &key, begin, end, kind, dtype);
}

#define NN_RANDOM_TASK(name, kind, dtype)                                                                              \
  static void name(void *arg, int64_t i, int32_t worker) {                                                             \
    (void)worker;                                                                                                      \
    task_body(arg, i, kind, dtype);                                                                                    \
  }
NN_RANDOM_TASK(bits, BITS, NNCUDA_F32) /* 32-bit stores */
NN_RANDOM_TASK(uniform_f32, UNIFORM, NNCUDA_F32)
NN_RANDOM_TASK(uniform_f16, UNIFORM, NNCUDA_F16)
NN_RANDOM_TASK(uniform_bf16, UNIFORM, NNCUDA_BF16)
NN_RANDOM_TASK(normal_f32, NORMAL, NNCUDA_F32)
NN_RANDOM_TASK(normal_f16, NORMAL, NNCUDA_F16)
NN_RANDOM_TASK(normal_bf16, NORMAL, NNCUDA_BF16)

static void run(nncuda_ctx *ctx, const sequence *q, nn_task task) {
  nn_parallel(ctx, nn_ceil_div(q->n, CHUNK), task, (void *)q);
}

#define SEQUENCE(a, ...)                                                                                               \
  {.y = (a)->y,                                                                                                        \
   .n = (a)->n,                                                                                                        \
   .seed = (uint64_t)(a)->seed,                                                                                        \
   .stream = (uint64_t)(a)->stream,                                                                                    \
   .offset = (uint64_t)(a)->offset,                                                                                    \
   __VA_ARGS__}

int32_t NN_KERNEL(random_bits)(nncuda_ctx *ctx, const void *args) {
  const nn_random_bits_args *a = args;
  const sequence q = SEQUENCE(a, .shift = 0.0f);
  run(ctx, &q, bits);
  return NNCUDA_SUCCESS;
}

int32_t NN_KERNEL(uniform)(nncuda_ctx *ctx, const void *args) {
  const nn_uniform_args *a = args;
  const sequence q = SEQUENCE(a, .shift = a->low, .scale = a->high - a->low);
  run(ctx, &q, a->dtype == NNCUDA_F32 ? uniform_f32 : a->dtype == NNCUDA_F16 ? uniform_f16 : uniform_bf16);
  return NNCUDA_SUCCESS;
}

int32_t NN_KERNEL(normal)(nncuda_ctx *ctx, const void *args) {
  const nn_normal_args *a = args;
  const sequence q = SEQUENCE(a, .shift = a->mean, .scale = a->std);
  run(ctx, &q, a->dtype == NNCUDA_F32 ? normal_f32 : a->dtype == NNCUDA_F16 ? normal_f16 : normal_bf16);
  return NNCUDA_SUCCESS;
}
