/* AdamW with moments of 16 and of 8 bits. A task is a run of whole blocks, so an element gets the same random word and
 * the same scale however many threads there are. */
#include "abi/generated/optimizer.h"
#include "numbers/moments.h"
#include "optimizer_adamw.h"

enum { BLOCK = NN_MOMENT_BLOCK, BLOCKS_PER_TASK = NN_CHUNK / BLOCK };

/* Codes of n elements, those after them as 0. */
NN_INLINE vw get_codes(const uint8_t *p, int64_t n, int32_t mode) {
  if (mode != NN_PART) {
    return vw_load_bytes(p);
  }
  uint8_t x[VF] = {0};
  memcpy(x, p, (size_t)n);
  return vw_load_bytes(x);
}

NN_INLINE void put_codes(uint8_t *p, int64_t n, vw codes, int32_t mode) {
  if (mode != NN_PART) {
    vw_store_bytes(p, codes);
    return;
  }
  uint8_t x[VF];
  vw_store_bytes(x, codes);
  memcpy(p, x, (size_t)n);
}

NN_INLINE vw mix(vw x) {
  x = vw_mul(vw_xor(x, vw_right(x, 16)), vw_set1(0x85ebca6bu));
  x = vw_mul(vw_xor(x, vw_right(x, 13)), vw_set1(0xc2b2ae35u));
  return vw_xor(x, vw_right(x, 16));
}

/* The random words of elements at .. at+VF-1 of a block. */
NN_INLINE vw words(uint32_t key, int64_t at) {
#define STRIDES(i)                                                                                                     \
  NN_MOMENT_STRIDE *i##u, NN_MOMENT_STRIDE *(i##u + 1u), NN_MOMENT_STRIDE *(i##u + 2u), NN_MOMENT_STRIDE *(i##u + 3u)
  static const uint32_t strides[16] = {STRIDES(0), STRIDES(4), STRIDES(8), STRIDES(12)};
#undef STRIDES
  return mix(vw_add(vw_load(strides), vw_set1(key + (uint32_t)at * NN_MOMENT_STRIDE)));
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
NN_INLINE vf rounded_to_bf16(vf x, vw chance) {
  const vw bits = vf_words(x), magnitude = vw_and(bits, vw_set1(0x7fffffffu));
  const vw finite = vw_above(vw_set1(0x7f800000u), magnitude), nan = vw_above(magnitude, vw_set1(0x7f800000u));
  const vw special = vw_or(bits, vw_and(nan, vw_set1(0x400000u)));
  return vw_floats(vw_and(vw_select(finite, vw_add(bits, chance), special), vw_set1(0xffff0000u)));
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
  const vf grad = vf_mul(nn_get(a->grad, i, lanes, NNCUDA_F32, mode), vf_set1(f->grad_scale));
  const vf m = adamw_first(f, nn_get(a->m, i, lanes, NNCUDA_BF16, mode), grad);
  const vf v = adamw_second(f, nn_get(a->v, i, lanes, NNCUDA_BF16, mode), grad);
  const vf root = vf_add(vf_sqrt(vf_mul(v, vf_set1(f->v_scale))), vf_set1(f->eps)),
           decay = decay_at(f->decay, a->n_decay, i);
  const vf param = adamw_param(f, nn_get(a->param, i, lanes, NNCUDA_F32, mode), decay, m, root);
  const vw w = words(key, i - begin);
  nn_put(a->m, i, lanes, rounded_to_bf16(m, vw_and(w, vw_set1(0xffffu))), NNCUDA_BF16, mode);
  nn_put(a->v, i, lanes, rounded_to_bf16(v, vw_right(w, 16)), NNCUDA_BF16, mode);
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
  vw m_most, r_most; /* bit patterns of magnitudes, which are in the order of the numbers, NaN last */
} f8_moments;

/* The number of a code without sign, of `bits` bits of mantissa. Where the exponent is 0 the numbers are evenly spaced:
 * they are read as those of the binade of 2^-14, which is then taken off. */
NN_INLINE vf decoded(vw code, int bits) {
  const vw zero = vw_set1(0), even = vw_above(vw_set1(1u << bits), code);
  const vw lifted =
      vw_sub(vw_add(vw_left(code, 23 - bits), vw_set1(NN_MOMENT_EVEN)), vw_select(even, zero, vw_set1(0x800000u)));
  return vf_sub(vw_floats(lifted), vw_floats(vw_and(vw_set1(NN_MOMENT_EVEN), even)));
}

/* The code, without sign, of x in 0 .. 1; `chance` has 16 bits. */
NN_INLINE vw encoded(vf x, vw chance, int bits) {
  const vw even = vw_above(vw_set1(NN_MOMENT_EVEN), vf_words(x));
  const vf lifted = vf_add(x, vw_floats(vw_and(vw_set1(NN_MOMENT_EVEN), even)));
  const vw pattern = vw_add(vf_words(lifted), vw_left(chance, 7 - bits));
  const vw least = vw_sub(vw_set1(NN_MOMENT_EVEN), vw_select(even, vw_set1(0), vw_set1(0x800000u)));
  return vw_right(vw_sub(pattern, least), 23 - bits);
}

NN_INLINE void f8_vector(const f8_job *job, vf m_scale, vf r_scale, f8_moments *moments, int64_t begin, int64_t i,
                         int64_t lanes, int32_t dtype, int32_t mode) {
  const nn_adamw_step_f8_args *a = &job->a;
  const adamw_factors *f = &job->factors;
  if (mode != NN_PART) {
    nn_fetch(a->grad, i + NN_FETCH_BYTES / 4, VF, NNCUDA_F32);
    nn_fetch(a->param, i + NN_FETCH_BYTES / 4, VF, NNCUDA_F32);
  }
  const vw m_code = get_codes((const uint8_t *)a->m + i, lanes, mode);
  const vw r_code = get_codes((const uint8_t *)a->r + i, lanes, mode);
  const vf m_size = vf_mul(decoded(vw_and(m_code, vw_set1(0x7f)), NN_MOMENT_M_BITS), m_scale);
  const vf m_old = vw_floats(vw_xor(vf_words(m_size), vw_left(vw_and(m_code, vw_set1(0x80)), 24)));
  const vf r_old = vf_mul(decoded(r_code, NN_MOMENT_R_BITS), r_scale);
  const vf grad = vf_mul(nn_get(a->grad, i, lanes, NNCUDA_F32, mode), vf_set1(f->grad_scale));
  vf m = adamw_first(f, m_old, grad), r = vf_sqrt(adamw_second(f, vf_mul(r_old, r_old), grad));
  const vf root = vf_add(vf_mul(r, vf_set1(f->root_scale)), vf_set1(f->eps)), decay = decay_at(f->decay, a->n_decay, i);
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
  moments->m_most = vw_max(vw_and(vf_words(m), vw_set1(0x7fffffffu)), moments->m_most);
  moments->r_most = vw_max(vw_and(vf_words(r), vw_set1(0x7fffffffu)), moments->r_most);
}

NN_INLINE void f8_store(const nn_adamw_step_f8_args *a, const f8_moments *moments, float m_scale, float r_scale,
                        uint32_t key, int64_t begin, int64_t i, int64_t lanes, int32_t mode) {
  const vw w = words(key, i - begin);
  const vf m = vf_load(moments->m + (i - begin)), r = vf_load(moments->r + (i - begin));
  const vf m_size = vw_floats(vw_and(vf_words(m), vw_set1(0x7fffffffu)));
  const vw m_code = encoded(vf_div(m_size, vf_set1(m_scale)), vw_and(w, vw_set1(0xffffu)), NN_MOMENT_M_BITS);
  const vw r_code = encoded(vf_div(r, vf_set1(r_scale)), vw_right(w, 16), NN_MOMENT_R_BITS);
  const vw lost = vw_and(vw_equal(r_code, vw_set1(0)), vw_above(vf_words(r), vw_set1(0)));
  put_codes((uint8_t *)a->m + i, lanes, vw_or(m_code, vw_left(vw_right(vf_words(m), 31), 7)), mode);
  put_codes((uint8_t *)a->r + i, lanes, vw_or(r_code, vw_and(lost, vw_set1(1))), mode);
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
    moments.m_most = moments.r_most = vw_set1(0);
    NN_EACH_VECTOR(begin, end, 0, 0, f8_vector(&job, m_old, r_old, &moments, begin, i, lanes, dtype, MODE));
    const float m_scale = as_float(vw_largest(moments.m_most)), r_scale = as_float(vw_largest(moments.r_most));
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
