/* AdamW with moments of 16 and of 8 bits. A task is a run of whole blocks, so an element gets the same random word and
 * the same scale however many threads there are. */
#include "abi/generated/optimizer.h"
#include "numbers/moments.h"
#include "optimizer_adamw.h"

enum { BLOCK = NN_MOMENT_BLOCK, BLOCKS_PER_TASK = NN_CHUNK / BLOCK };

/* VF lanes of u32, and of bytes. */
typedef uint32_t vu __attribute__((vector_size(sizeof(vf))));
typedef uint8_t vb __attribute__((vector_size(sizeof(vf) / 4)));

NN_INLINE vu vu_set1(uint32_t x) { return (vu){0} + x; }
NN_INLINE vu vu_select(vu mask, vu x, vu y) { return (x & mask) | (y & ~mask); }
NN_INLINE vu vu_load(const uint32_t *p) {
  vu x;
  memcpy(&x, p, sizeof x);
  return x;
}

/* Codes of n elements, those after them as 0. */
NN_INLINE vu get_codes(const uint8_t *p, int64_t n, int32_t mode) {
  vb x = {0};
  memcpy(&x, p, mode == NN_PART ? (size_t)n : sizeof x);
  return __builtin_convertvector(x, vu);
}

NN_INLINE void put_codes(uint8_t *p, int64_t n, vu codes, int32_t mode) {
  const vb x = __builtin_convertvector(codes, vb);
  memcpy(p, &x, mode == NN_PART ? (size_t)n : sizeof x);
}

NN_INLINE vu mix(vu x) {
  x ^= x >> 16;
  x *= 0x85ebca6bu;
  x ^= x >> 13;
  x *= 0xc2b2ae35u;
  return x ^ x >> 16;
}

/* The random words of elements at .. at+VF-1 of a block. */
NN_INLINE vu words(uint32_t key, int64_t at) {
#define STRIDES(i)                                                                                                     \
  NN_MOMENT_STRIDE *i##u, NN_MOMENT_STRIDE *(i##u + 1u), NN_MOMENT_STRIDE *(i##u + 2u), NN_MOMENT_STRIDE *(i##u + 3u)
  static const uint32_t strides[16] = {STRIDES(0), STRIDES(4), STRIDES(8), STRIDES(12)};
#undef STRIDES
  return mix(vu_load(strides) + (key + (uint32_t)at * NN_MOMENT_STRIDE));
}

/* What weight decay leaves of parameters i .. i+VF-1. */
NN_INLINE vf decay_at(float decay, int64_t n_decay, int64_t i) {
  const int64_t decayed = n_decay - i;
  if (decayed >= VF) {
    return vf_set1(decay);
  }
  return decayed <= 0 ? vf_set1(1.0f) : vf_keep_part(vf_set1(decay), decayed, 1.0f);
}

/* ---- bf16 ---- */

typedef struct bf16_job {
  nn_adamw_step_bf16_args a;
  adamw_factors factors;
} bf16_job;

/* x with the lower half of its bits 0: up when they and `chance` carry. Infinities and NaN stay, the latter quiet. */
NN_INLINE vf rounded_to_bf16(vf x, vu chance) {
  const vu bits = (vu)x, magnitude = bits & 0x7fffffffu;
  const vu odd = (vu)(magnitude >= vu_set1(0x7f800000u)), nan = (vu)(magnitude > vu_set1(0x7f800000u));
  const vu special = bits | (nan & 0x400000u);
  return (vf)(vu_select(odd, special, bits + chance) & 0xffff0000u);
}

NN_INLINE void bf16_vector(const bf16_job *job, uint32_t key, int64_t begin, int64_t i, int64_t lanes, int32_t dtype,
                           int32_t mode) {
  const nn_adamw_step_bf16_args *a = &job->a;
  const adamw_factors *f = &job->factors;
  if (mode != NN_PART) {
    nn_fetch(a->grad, i + NN_FETCH_BYTES / 4, VF, NNCUDA_F32);
    nn_fetch(a->param, i + NN_FETCH_BYTES / 4, VF, NNCUDA_F32);
    nn_fetch(a->m, i + NN_FETCH_BYTES / 2, VF, NNCUDA_BF16);
    nn_fetch(a->v, i + NN_FETCH_BYTES / 2, VF, NNCUDA_BF16);
  }
  const vf grad = nn_get(a->grad, i, lanes, NNCUDA_F32, mode) * vf_set1(f->grad_scale);
  const vf m = adamw_first(f, nn_get(a->m, i, lanes, NNCUDA_BF16, mode), grad);
  const vf v = adamw_second(f, nn_get(a->v, i, lanes, NNCUDA_BF16, mode), grad);
  const vf root = vf_sqrt(v * vf_set1(f->v_scale)) + vf_set1(f->eps), decay = decay_at(f->decay, a->n_decay, i);
  const vf param = adamw_param(f, nn_get(a->param, i, lanes, NNCUDA_F32, mode), decay, m, root);
  const vu w = words(key, i - begin);
  nn_put(a->m, i, lanes, rounded_to_bf16(m, w & 0xffffu), NNCUDA_BF16, mode);
  nn_put(a->v, i, lanes, rounded_to_bf16(v, w >> 16), NNCUDA_BF16, mode);
  nn_put(a->param, i, lanes, param, NNCUDA_F32, mode);
  if (a->param_copy != NULL) {
    nn_put(a->param_copy, i, lanes, param, dtype, mode);
  }
}

NN_INLINE void bf16_blocks(const bf16_job *shared, int64_t first, int64_t last, int32_t dtype) {
  const bf16_job job = *shared;
  for (int64_t block = first; block < last; block++) {
    const int64_t begin = block * BLOCK, end = nn_min(begin + BLOCK, job.a.n);
    const uint32_t key = nn_moment_key(job.factors.step, job.a.first / BLOCK + block);
    NN_EACH_VECTOR(begin, end, 0, 0, bf16_vector(&job, key, begin, i, lanes, dtype, MODE));
  }
}

NN_INLINE int64_t blocks_until(int64_t task, int64_t n) {
  const int64_t blocks = nn_moment_blocks(n), last = (task + 1) * BLOCKS_PER_TASK;
  return last < blocks ? last : blocks;
}

NN_TASK_OF(bf16_task, bf16_job, job, task) {
  const int64_t first = task * BLOCKS_PER_TASK, last = blocks_until(task, job->a.n);
  NN_SWITCH_DTYPE(job->a.dtype, bf16_blocks(job, first, last, DT));
}

int32_t NN_KERNEL(adamw_step_bf16)(nncuda_ctx *ctx, const void *args) {
  bf16_job job = {.a = *(const nn_adamw_step_bf16_args *)args};
  int32_t status;
  if (ADAMW_FACTORS(ctx, &job.a, &job.factors, &status)) {
    nn_parallel(ctx, nn_ceil_div(nn_moment_blocks(job.a.n), BLOCKS_PER_TASK), bf16_task, &job);
  }
  return status;
}

/* ---- f8 ---- */

typedef struct f8_job {
  nn_adamw_step_f8_args a;
  adamw_factors factors;
} f8_job;

/* The new moments of a block, kept until its scales are known, which takes all of them. Behind its last element zeros.
 */
typedef struct f8_moments {
  float m[BLOCK], r[BLOCK];
  vu m_most, r_most; /* bit patterns of magnitudes, which are in the order of the numbers, NaN last */
} f8_moments;

NN_INLINE vu larger(vu x, vu y) { return vu_select((vu)(x > y), x, y); }

NN_INLINE uint32_t largest(vu x) {
  uint32_t most = 0;
  for (int i = 0; i < VF; i++) {
    most = nn_max(x[i], most);
  }
  return most;
}

/* The number of a code without sign, of `bits` bits of mantissa. Where the exponent is 0 the numbers are evenly spaced:
 * they are read as those of the binade of 2^-14, which is then taken off. */
NN_INLINE vf decoded(vu code, int bits) {
  const vu even = (vu)(code < vu_set1(1u << bits)), one = vu_set1(0x800000u);
  return (vf)((code << (23 - bits)) + vu_set1(NN_MOMENT_EVEN) - (one & ~even)) - (vf)(vu_set1(NN_MOMENT_EVEN) & even);
}

/* The code, without sign, of x in 0 .. 1; `chance` has 16 bits. */
NN_INLINE vu encoded(vf x, vu chance, int bits) {
  const vu even = (vu)((vu)x < vu_set1(NN_MOMENT_EVEN)), one = vu_set1(0x800000u);
  const vu pattern = (vu)(x + (vf)(vu_set1(NN_MOMENT_EVEN) & even)) + (chance << (7 - bits));
  return (pattern - (vu_set1(NN_MOMENT_EVEN) - (one & ~even))) >> (23 - bits);
}

NN_INLINE void f8_vector(const f8_job *job, vf m_scale, vf r_scale, f8_moments *moments, int64_t begin, int64_t i,
                         int64_t lanes, int32_t dtype, int32_t mode) {
  const nn_adamw_step_f8_args *a = &job->a;
  const adamw_factors *f = &job->factors;
  if (mode != NN_PART) {
    nn_fetch(a->grad, i + NN_FETCH_BYTES / 4, VF, NNCUDA_F32);
    nn_fetch(a->param, i + NN_FETCH_BYTES / 4, VF, NNCUDA_F32);
  }
  const vu m_code = get_codes((const uint8_t *)a->m + i, lanes, mode);
  const vu r_code = get_codes((const uint8_t *)a->r + i, lanes, mode);
  const vf m_size = decoded(m_code & 0x7fu, NN_MOMENT_M_BITS) * m_scale;
  const vf m_old = (vf)((vu)m_size ^ ((m_code & 0x80u) << 24)), r_old = decoded(r_code, NN_MOMENT_R_BITS) * r_scale;
  const vf grad = nn_get(a->grad, i, lanes, NNCUDA_F32, mode) * vf_set1(f->grad_scale);
  vf m = adamw_first(f, m_old, grad), r = vf_sqrt(adamw_second(f, r_old * r_old, grad));
  const vf root = r * vf_set1(f->root_scale) + vf_set1(f->eps), decay = decay_at(f->decay, a->n_decay, i);
  const vf param = adamw_param(f, nn_get(a->param, i, lanes, NNCUDA_F32, mode), decay, m, root);
  nn_put(a->param, i, lanes, param, NNCUDA_F32, mode);
  if (a->param_copy != NULL) {
    nn_put(a->param_copy, i, lanes, param, dtype, mode);
  }
  if (mode == NN_PART) { /* a scale of NaN or infinity would make NaN of what is not an element */
    m = vf_keep_part(m, lanes, 0.0f);
    r = vf_keep_part(r, lanes, 0.0f);
  }
  vf_store(moments->m + (i - begin), m);
  vf_store(moments->r + (i - begin), r);
  moments->m_most = larger((vu)m & 0x7fffffffu, moments->m_most);
  moments->r_most = larger((vu)r & 0x7fffffffu, moments->r_most);
}

NN_INLINE void f8_store(const nn_adamw_step_f8_args *a, const f8_moments *moments, float m_scale, float r_scale,
                        uint32_t key, int64_t begin, int64_t i, int64_t lanes, int32_t mode) {
  const vu w = words(key, i - begin);
  const vf m = vf_load(moments->m + (i - begin)), r = vf_load(moments->r + (i - begin));
  const vf m_size = (vf)((vu)m & 0x7fffffffu);
  const vu m_code = encoded(m_size / vf_set1(m_scale), w & 0xffffu, NN_MOMENT_M_BITS);
  const vu r_code = encoded(r / vf_set1(r_scale), w >> 16, NN_MOMENT_R_BITS);
  const vu least = (vu)(r_code == vu_set1(0)) & (vu)((vu)r > vu_set1(0)) & 1u;
  put_codes((uint8_t *)a->m + i, lanes, m_code | ((vu)m >> 31 << 7), mode);
  put_codes((uint8_t *)a->r + i, lanes, r_code | least, mode);
}

/* Zero, an infinity or a NaN: nothing can be a share of it, and the codes are 0. */
NN_INLINE int32_t without_codes(float scale) { return !(scale > 0.0f) || !(scale < INFINITY); }

NN_INLINE float as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

NN_INLINE void f8_blocks(const f8_job *shared, int64_t first, int64_t last, int32_t dtype) {
  const f8_job job = *shared;
  const nn_adamw_step_f8_args *a = &job.a;
  for (int64_t block = first; block < last; block++) {
    const int64_t begin = block * BLOCK, end = nn_min(begin + BLOCK, a->n);
    const uint32_t key = nn_moment_key(job.factors.step, job.a.first / BLOCK + block);
    const vf m_old = vf_set1(a->m_scale[block]), r_old = vf_set1(a->r_scale[block]);
    f8_moments moments;
    moments.m_most = moments.r_most = vu_set1(0);
    NN_EACH_VECTOR(begin, end, 0, 0, f8_vector(&job, m_old, r_old, &moments, begin, i, lanes, dtype, MODE));
    const float m_scale = as_float(largest(moments.m_most)), r_scale = as_float(largest(moments.r_most));
    a->m_scale[block] = m_scale;
    a->r_scale[block] = r_scale;
    /* Both scales stand for 1 where there is nothing to divide by, and those codes are then overwritten. */
    const float m_by = without_codes(m_scale) ? 1.0f : m_scale, r_by = without_codes(r_scale) ? 1.0f : r_scale;
    NN_EACH_VECTOR(begin, end, 0, 0, f8_store(a, &moments, m_by, r_by, key, begin, i, lanes, MODE));
    if (without_codes(m_scale)) {
      memset((uint8_t *)a->m + begin, 0, (size_t)(end - begin));
    }
    if (without_codes(r_scale)) {
      memset((uint8_t *)a->r + begin, 0, (size_t)(end - begin));
    }
  }
}

NN_TASK_OF(f8_task, f8_job, job, task) {
  const int64_t first = task * BLOCKS_PER_TASK, last = blocks_until(task, job->a.n);
  NN_SWITCH_DTYPE(job->a.dtype, f8_blocks(job, first, last, DT));
}

int32_t NN_KERNEL(adamw_step_f8)(nncuda_ctx *ctx, const void *args) {
  f8_job job = {.a = *(const nn_adamw_step_f8_args *)args};
  int32_t status;
  if (ADAMW_FACTORS(ctx, &job.a, &job.factors, &status)) {
    nn_parallel(ctx, nn_ceil_div(nn_moment_blocks(job.a.n), BLOCKS_PER_TASK), f8_task, &job);
  }
  return status;
}
