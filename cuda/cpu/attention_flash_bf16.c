/*
 * Attention in blocks (attention_flash.c) in bf16 by tile registers, on the forms of attention_bf16.h. Probabilities
 * are rounded to bf16 for the product with the values, as the tensor cores of a GPU take them; their sums, and so the
 * log-sum-exp, are those of the numbers before.
 *
 * What is computed at a time is a part: a block of 32 queries, two vectors, against the keys of a step. Tile registers
 * multiply while vectors compute powers of two, if the instructions of both lie side by side. So each turn computes the
 * softmax of one part between the products of two others: the scores of the part after it, and what the part before it
 * adds to the output.
 *
 * What a core does beside its tile registers (measured in loops of a few instructions on a Xeon with AMX, cycles):
 *   four products of tiles 64, four loads 32, four stores 64, all three side by side as long as the longest;
 *   512-bit additions and multiplications, two a cycle without tile registers, one beside them, on the port that also
 *     shifts; permutations and comparisons stay at one a cycle, on the other port.
 * A score takes eight operations of the first kind, so that 32 queries and 64 keys take 1,024 cycles; their products
 * take 512 with 64 columns and 1,024 with 128. Both together, from L1 and without loads and stores of tiles, take 1,140
 * and 1,500, a turn with everything 1,360 and 1,840.
 */
#include "kernel.h"

#if defined(__AMX_BF16__)

#include "attention_bf16.h"

#include <float.h>

#include "abi/generated/attention.h"

/*
 * Queries of a block, keys of a step, and units of keys and values that are packed at a time: they stay in L2, and pass
 * by line after line. They are loaded as what is not needed again, or they push out of L1 what else a block has (36 KB
 * with 64 columns): a turn then takes 8 % longer with 64 columns, 33 % with 128. Prefetching them costs 10 %.
 */
enum {
  QUERIES = 32,
  PANELS = QUERIES / VF,
  STEP_KEYS = 64,
  STEP_UNITS = STEP_KEYS / BF16_PAIR,
  PACKED_UNITS = 1 << 18,
  PARTS = 3
};

/* How far, in units of ln 2, a score may lie above its query's peak: weights are at most 2^SLACK. */
#define SLACK 8.0f

typedef struct flash {
  const nn_flash_attention_args *a;
  unit *keys, *values;       /* of each (sequence, key head) in this round: tiles by key and, in each step, by column */
  char *workspace;           /* of each worker */
  int64_t round;             /* (sequence, key head) pairs that are packed at a time */
  int64_t first_pair, pairs; /* those in this round */
  int64_t query_blocks, steps, size, workspace_size;
} flash;

/* What a worker needs for a block of queries. */
typedef struct flash_block {
  unit *q;    /* lanes by query */
  float *out; /* [whole(dim)][QUERIES] */
  float factor;
  vf peak[PANELS], sum[PANELS];
  vf most[PANELS]; /* the scores, before they are multiplied by the factor, beyond which a peak rises */
} flash_block;

/* A block of queries against a step of keys. */
typedef struct flash_part {
  sight sees;               /* of the step */
  int64_t keys;             /* the first ones, which hold all that any query sees: whole tiles of 32 */
  const unit *k, *v;        /* of the step */
  float *scores;            /* [STEP_KEYS][QUERIES]; from the front they become probabilities, units of lanes */
  int32_t first;            /* nothing was added to the output yet */
  int32_t hidden;           /* some query does not see some of these keys */
  int32_t grown;            /* sums are to be multiplied by `rescale` before */
  __mmask16 within[PANELS]; /* lanes whose scores are no reason to raise the peak */
  vf rescale[PANELS];
} flash_part;

/* What vectors do beside the products of a turn: they look for scores beyond the peaks of one part, and compute the
 * softmax of the one before it. */
typedef struct beside {
  const float *looked, *looked_end; /* scores of a key; two keys are next */
  __mmask16 within[BF16_PAIR][PANELS];
  const float *scores, *scores_end; /* the keys j, j+1 are next */
  unit *p;
  vf most[PANELS], scale, lowered[PANELS], sums[BF16_PAIR][PANELS];
} beside;

/*
 * Where row r of a left factor of `units` units a row has the 16 from u on. Tiles of 16 rows lie in the order in which
 * multiply_rows takes them, two of the same units after each other, so that they pass by line after line.
 */
NN_INLINE int64_t tile_row(int64_t r, int64_t u, int64_t units) { return r / 32 * 32 * units + u * 32 + r % 32 * 16; }

static void flash_pack_task(void *arg, int64_t i, int32_t worker) {
  (void)worker;
  const flash *f = arg;
  const nn_flash_attention_args *a = f->a;
  const nn_attention_shape *s = &a->shape;
  const int64_t local = i / f->steps, pair = f->first_pair + local, begin = i % f->steps * STEP_KEYS;
  const int64_t keys = nn_min(STEP_KEYS, s->kv_len - begin), dim = s->head_dim, columns = whole(dim);
  const int64_t at = local * f->size + begin * columns / BF16_PAIR;
  const int64_t from = (pair / s->kv_heads * s->kv_len + begin) * a->ld_kv + pair % s->kv_heads * dim;
  const uint16_t *k = (const uint16_t *)a->k + from, *v = (const uint16_t *)a->v + from;
  /* Rows lie further apart than the processor foresees: values arrive while keys are copied, and the next step's keys
   * while values are transposed. Past the last row this does nothing. */
  for (int64_t r = 0; r < STEP_KEYS; r++) {
    for (int64_t d = 0; d < dim; d += BF16_TILE) {
      __builtin_prefetch(v + r * a->ld_kv + d);
      __builtin_prefetch(k + (STEP_KEYS + r) * a->ld_kv + d);
    }
  }
  for (int64_t r = 0; r < STEP_KEYS; r++) {
    for (int64_t d = 0; d < columns; d += BF16_TILE) {
      store_units(f->keys + at + tile_row(r, d / BF16_PAIR, columns / BF16_PAIR),
                  r < keys ? row_units(k + r * a->ld_kv, d, dim) : vf_set1(0.0f));
    }
  }
  for (int64_t p = 0; p < STEP_UNITS; p += VF) {
    for (int64_t d = 0; d < columns; d += VF) {
      vf y[VF];
      NN_UNROLL for (int j = 0; j < VF; j++) { y[j] = column_units(v, a->ld_kv, p + j, keys, d, dim); }
      transpose(y);
      NN_UNROLL for (int j = 0; j < VF; j++) { store_units(f->values + at + tile_row(d + j, p, STEP_UNITS), y[j]); }
    }
  }
}

/* 2^(i/16). */
static const float STEPS_OF_TWO[VF] = {0x1p+0f,        0x1.0b5586p+0f, 0x1.172b84p+0f, 0x1.2387a6p+0f,
                                       0x1.306fe0p+0f, 0x1.3dea64p+0f, 0x1.4bfdaep+0f, 0x1.5ab07ep+0f,
                                       0x1.6a09e6p+0f, 0x1.7a1148p+0f, 0x1.8ace54p+0f, 0x1.9c4918p+0f,
                                       0x1.ae89fap+0f, 0x1.c199bep+0f, 0x1.d5818ep+0f, 0x1.ea4afap+0f};

/*
 * 2^x for x < 128 within 2^-20.8 of it, exact for whole x, zero for -inf.
 *
 * While tile registers are in use, the processor adds and multiplies vectors of 512 bits on one port and permutes and
 * compares them on another. So two steps of a polynomial are exchanged for a table: with k = floor(16 x) and
 * r = x - k / 16, 2^(k/16) is found by the last bits of k, and 2^r is a polynomial of degree two.
 */
NN_INLINE vf power(vf x) {
  const vf k = _mm512_add_round_ps(x, vf_set1(0x1.8p19f), _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  const vf r = _mm512_reduce_ps(x, 4 << 4 | _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  const vf step = _mm512_permutexvar_ps(_mm512_castps_si512(k), vf_load(STEPS_OF_TWO));
  const vf slope = vf_fma(vf_set1(0x1.f5f7c0p-3f), r, vf_set1(0x1.62d7d8p-1f));
  return vf_ldexp(vf_fma(vf_mul(step, r), slope, step), x);
}

/* Hides the keys of a part that its queries do not see. */
static void hide(const flash_part *part) {
  const vf lowest = vf_set1(-INFINITY);
  const sight *s = &part->sees;
  for (int64_t r = 0; r < QUERIES; r += VF) {
    const int64_t all = seen_by_all(s, r), some = nn_min(part->keys, before_any(s, r, VF));
    for (int64_t j = some > 0 ? 0 : all; j < part->keys; j = j + 1 == some ? nn_max(all, some) : j + 1) {
      float *scores = part->scores + j * QUERIES + r;
      vf_store(scores, _mm512_mask_mov_ps(lowest, seeing(s, r, j), vf_load(scores)));
    }
  }
}

/* Looks at a part, or at nothing. */
NN_INLINE void look_begin(beside *s, const flash_block *b, const flash_part *part) {
  s->looked = part ? part->scores : NULL;
  s->looked_end = part ? part->scores + part->keys * QUERIES : NULL;
  NN_UNROLL for (int v = 0; v < PANELS; v++) {
    s->most[v] = b->most[v];
    NN_UNROLL for (int i = 0; i < BF16_PAIR; i++) { s->within[i][v] = 0xffff; }
  }
}

/* At most `pairs` pairs of keys more. */
NN_INLINE void look(beside *s, const int pairs) {
  for (int n = 0; n < pairs && s->looked < s->looked_end; n++) {
    NN_UNROLL for (int i = 0; i < BF16_PAIR; i++) {
      NN_UNROLL for (int v = 0; v < PANELS; v++) {
        const vf x = vf_load(s->looked + i * QUERIES + v * VF);
        s->within[i][v] = _mm512_mask_cmp_ps_mask(s->within[i][v], x, s->most[v], _CMP_NGT_UQ);
      }
    }
    s->looked += BF16_PAIR * QUERIES;
  }
}

NN_INLINE void look_end(beside *s, flash_part *part) {
  look(s, STEP_UNITS);
  NN_UNROLL for (int v = 0; v < PANELS; v++) { part->within[v] = s->within[0][v] & s->within[1][v]; }
}

/*
 * Moves the peaks of a part's queries up where a score lies far beyond: a peak is the largest score when it was last
 * moved. Most parts move none, and are spared the search for the largest score and the rescaling of the output. Lanes
 * that see no key get NaN, which store_lanes replaces.
 */
NN_INLINE void raise_peaks(flash_block *b, flash_part *part) {
  part->grown = 0;
  for (int v = 0; v < PANELS; v++) {
    const __mmask16 grown = (__mmask16)~part->within[v];
    part->rescale[v] = vf_set1(1.0f);
    if (grown) {
      vf top[4];
      NN_UNROLL for (int i = 0; i < 4; i++) { top[i] = vf_set1(-INFINITY); }
      for (int64_t j = 0; j < part->keys; j += 4) {
        NN_UNROLL for (int i = 0; i < 4; i++) {
          top[i] = vf_max(vf_load(part->scores + (j + i) * QUERIES + v * VF), top[i]);
        }
      }
      const vf scale = vf_set1(b->factor), old = b->peak[v];
      /* Rounded down, so that the largest score lies at the peak or an ulp above, where powers are exact to the last
       * bit: just below they have the error of the polynomial's end. */
      const vf highest = _mm512_mul_round_ps(vf_max(vf_max(top[0], top[1]), vf_max(top[2], top[3])), scale,
                                             _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
      const vf peak = _mm512_mask_mov_ps(old, grown, highest);
      part->rescale[v] = _mm512_mask_mov_ps(vf_set1(1.0f), grown, power(old - peak));
      part->grown = 1;
      b->peak[v] = peak;
      b->most[v] = (peak + vf_set1(SLACK)) / scale;
    }
  }
}

/* Softens a part, or nothing. */
NN_INLINE void soften_begin(beside *s, const flash_block *b, const flash_part *part) {
  const vf zero = vf_set1(0.0f);
  s->scores = part ? part->scores : NULL;
  s->scores_end = part ? part->scores + part->keys * QUERIES : NULL;
  s->p = part ? (unit *)(void *)part->scores : NULL;
  s->scale = vf_set1(b->factor);
  NN_UNROLL for (int v = 0; v < PANELS; v++) {
    s->lowered[v] = zero - b->peak[v];
    NN_UNROLL for (int i = 0; i < BF16_PAIR; i++) { s->sums[i][v] = zero; }
  }
}

/* At most `pairs` pairs of keys more. */
NN_INLINE void soften(beside *s, const int pairs) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  /* The bytes of a number's leading half where those of its other half are. */
  const __m512i down = _mm512_set4_epi32((int)0x80800f0eu, (int)0x80800b0au, (int)0x80800706u, (int)0x80800302u);
  for (int n = 0; n < pairs && s->scores < s->scores_end; n++) {
    NN_UNROLL for (int v = 0; v < PANELS; v++) {
      __m512i x[BF16_PAIR];
      NN_UNROLL for (int i = 0; i < BF16_PAIR; i++) {
        const vf p = power(vf_fma(vf_load(s->scores + i * QUERIES + v * VF), s->scale, s->lowered[v]));
        s->sums[i][v] = s->sums[i][v] + p;
        x[i] = _mm512_add_epi32(_mm512_castps_si512(p), half); /* rounded; never negative, nor near overflow */
      }
      _mm512_storeu_si512(s->p + v * VF, _mm512_mask_shuffle_epi8(x[1], 0x3333333333333333u, x[0], down));
    }
    s->scores += BF16_PAIR * QUERIES;
    s->p += QUERIES;
  }
}

NN_INLINE void soften_end(beside *s, flash_block *b, const flash_part *part) {
  soften(s, STEP_UNITS);
  NN_UNROLL for (int v = 0; v < PANELS; v++) {
    vf sum = b->sum[v];
    if (part->grown) {
      sum = sum * part->rescale[v];
    }
    b->sum[v] = sum + (s->sums[0][v] + s->sums[1][v]);
  }
}

/* A product with the lanes of all queries: units of `b` are `step` apart, its panels `panel`. */
typedef struct factors {
  const unit *a, *b;
  int64_t units, step, panel;
} factors;

/*
 * Adds 32 rows of a product to tile registers 0 to 3, which begin as what lies at `from`, or as zeros. What they hold
 * from before goes to `last`, if that is not null, tile by tile as they are needed: stored at once, tiles would wait
 * for the last product, and the next ones for them, 50 cycles or more. Beside each product `looked` pairs of keys are
 * looked at and soft[..] of them softened.
 */
NN_INLINE void multiply_rows(const factors *f, const float *from, float *last, beside *s, const int looked,
                             const int soft[4]) {
  enum { ROW = QUERIES * 4, BELOW = 16 * QUERIES };
#define SUM_STEP(tile, left, right, at)                                                                                \
  if (u == 0) {                                                                                                        \
    if (last) {                                                                                                        \
      _tile_stored(tile, last + (at), ROW);                                                                            \
    }                                                                                                                  \
    if (from) {                                                                                                        \
      _tile_loadd(tile, from + (at), ROW);                                                                             \
    } else {                                                                                                           \
      _tile_zero(tile);                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  _tile_dpbf16ps(tile, left, right);                                                                                   \
  look(s, looked);                                                                                                     \
  soften(s, soft[tile]);
  for (int64_t u = 0; u < f->units; u += 16) {
    const unit *a = f->a + u * 32, *b = f->b + u * f->step;
    _tile_stream_loadd(4, a, 64);
    _tile_loadd(6, b, f->step * 4);
    _tile_loadd(7, b + f->panel, f->step * 4);
    _tile_stream_loadd(5, a + 256, 64);
    SUM_STEP(0, 4, 6, 0)
    SUM_STEP(1, 4, 7, VF)
    SUM_STEP(2, 5, 6, BELOW)
    SUM_STEP(3, 5, 7, BELOW + VF)
  }
#undef SUM_STEP
}

static void rescale_output(const flash_block *b, const vf *factor, int64_t columns) {
  for (int64_t d = 0; d < columns; d++) {
    NN_UNROLL for (int v = 0; v < PANELS; v++) {
      float *out = b->out + d * QUERIES + v * VF;
      vf_store(out, vf_load(out) * factor[v]);
    }
  }
}

/* The scores of a part, the softmax of the one before it, and what the one before that adds to the output; any of them
 * may be null. */
NN_INLINE void turn(flash_block *b, int64_t columns, flash_part *const parts[PARTS], const int looked,
                    const int soft[4]) {
  flash_part *scored = parts[0], *softened = parts[1];
  const flash_part *added = parts[2];
  const int64_t depth = columns / BF16_PAIR;
  if (added && added->grown && !added->first) {
    rescale_output(b, added->rescale, columns);
  }
  if (softened) {
    raise_peaks(b, softened);
  }
  beside s;
  look_begin(&s, b, NULL);
  soften_begin(&s, b, softened);
  float *last = NULL;
  /* The compiler does not know that tile loads and stores touch memory. */
  __asm__ volatile("" ::: "memory");
  for (int64_t j = 0; scored && j < scored->keys; j += 32) {
    const factors f = {scored->k + j * depth, b->q, depth, VF, depth * VF};
    multiply_rows(&f, NULL, last, &s, 0, soft);
    last = scored->scores + j * QUERIES;
  }
  const unit *p = added ? (const unit *)(const void *)added->scores : NULL;
  for (int64_t d = 0; added && d < columns; d += 32) {
    const factors f = {added->v + d * STEP_UNITS, p, added->keys / BF16_PAIR, QUERIES, VF};
    float *out = b->out + d * QUERIES;
    multiply_rows(&f, added->first ? NULL : out, last, &s, looked, soft);
    last = out;
    if (d == 0 && scored && !scored->hidden) { /* the scores are stored by now */
      look_begin(&s, b, scored);
    }
  }
  if (last) {
    tile_store_four(last, QUERIES * 4, 64, 64 * QUERIES);
  }
  __asm__ volatile("" ::: "memory");
  if (softened) {
    soften_end(&s, b, softened);
  }
  if (scored) {
    if (!s.looked) {
      look_begin(&s, b, scored);
    }
    if (scored->hidden) {
      hide(scored);
    }
    look_end(&s, scored);
  }
}

/* The softmax has 32 pairs of keys beside columns / 2 products, of which the output's from the second 32 columns on
 * leave time to look at 32 pairs. */
#define FLASH_TURN(columns_from, looked, a, b, c, d)                                                                   \
  static __attribute__((noinline)) void turn_from_##columns_from(flash_block *block, int64_t columns,                  \
                                                                 flash_part *const parts[PARTS]) {                     \
    turn(block, columns, parts, looked, (const int[]){a, b, c, d});                                                    \
  }
FLASH_TURN(32, 0, 2, 2, 2, 2)
FLASH_TURN(64, 4, 1, 1, 1, 1)
FLASH_TURN(96, 2, 1, 1, 1, 0)
FLASH_TURN(128, 2, 1, 0, 1, 0)
FLASH_TURN(256, 1, 1, 0, 0, 0)
#undef FLASH_TURN

static void flash_turn(flash_block *b, int64_t columns, flash_part *const parts[PARTS]) {
  if (columns >= 256) {
    turn_from_256(b, columns, parts);
  } else if (columns >= 128) {
    turn_from_128(b, columns, parts);
  } else if (columns >= 96) {
    turn_from_96(b, columns, parts);
  } else if (columns >= 64) {
    turn_from_64(b, columns, parts);
  } else {
    turn_from_32(b, columns, parts);
  }
}

/* Scores are compared before they are multiplied: a negative factor's sign goes to the queries, which are zeros where
 * the factor is. */
static void make_factor_positive(flash_block *b, int64_t columns) {
  if (b->factor < 0.0f) {
    for (int64_t i = 0; i < QUERIES * columns / BF16_PAIR; i++) {
      b->q[i] ^= 0x80008000u;
    }
    b->factor = -b->factor;
  } else if (b->factor == 0.0f) {
    b->factor = 1.0f;
  }
}

/* The keys from `begin` on that a block of queries sees, part by part. `scores` has room for PARTS of them; `sees`
 * counts keys from the sequence's first on. */
static void flash_keys(flash_block *b, const unit *keys, const unit *values, float *scores, int64_t begin,
                       const sight *sees, int64_t columns) {
  const int64_t count = nn_max(0, nn_ceil_div(sees->keys - begin, STEP_KEYS));
  flash_part parts[PARTS];
  for (int64_t t = 0; t < count + PARTS - 1; t++) {
    flash_part *now[PARTS];
    for (int64_t ago = 0; ago < PARTS; ago++) {
      now[ago] = t - ago >= 0 && t - ago < count ? &parts[(t - ago) % PARTS] : NULL;
    }
    if (now[0]) {
      const int64_t key = begin + t * STEP_KEYS;
      flash_part *part = now[0];
      *part = (flash_part){.sees = *sees,
                           .keys = whole(nn_min(STEP_KEYS, sees->keys - key)),
                           .k = keys + key * columns / BF16_PAIR,
                           .v = values + key * columns / BF16_PAIR,
                           .scores = scores + t % PARTS * STEP_KEYS * QUERIES,
                           .first = t == 0};
      part->sees.key = key;
      part->sees.seen -= key;
      part->sees.keys = nn_min(STEP_KEYS, sees->keys - key);
      part->hidden = seen_by_all(&part->sees, 0) < part->keys || before_any(&part->sees, 0, QUERIES) > 0;
    }
    flash_turn(b, columns, now);
  }
}

/* A block of queries of one head; tasks count down from the last block, which sees the most keys. */
static void flash_task(void *arg, int64_t i, int32_t worker) {
  const flash *f = arg;
  const nn_flash_attention_args *a = f->a;
  const nn_attention_shape *s = &a->shape;
  const int64_t group = s->heads / s->kv_heads, dim = s->head_dim, columns = whole(dim);
  const int64_t q_block = f->query_blocks - 1 - i % f->query_blocks, local = i / f->query_blocks / group;
  const int64_t pair = f->first_pair + local, sequence = pair / s->kv_heads;
  const int64_t head = pair % s->kv_heads * group + i / f->query_blocks % group;
  const int64_t row = q_block * QUERIES, rows = nn_min(QUERIES, s->q_len - row);
  flash_block b = {.factor = (float)(a->scale * LOG2E)};
  b.q = (unit *)(void *)(f->workspace + worker * f->workspace_size);
  b.out = (float *)(void *)(b.q + QUERIES * columns / BF16_PAIR);
  float *scores = b.out + QUERIES * columns;
  for (int64_t v = 0; v < PANELS; v++) {
    b.peak[v] = vf_set1(a->starts ? -FLT_MAX : -INFINITY); /* finite where a row may see none of the first keys */
    b.most[v] = b.peak[v];
    b.sum[v] = vf_set1(0.0f);
  }
  rows_to_lanes(b.q, (const uint16_t *)a->q + (sequence * s->q_len + row) * a->ld_q + head * dim, a->ld_q,
                b.factor == 0.0f ? 0 : rows, QUERIES, dim);
  make_factor_positive(&b, columns);
  /* Query r of the block sees seen + r keys, of which there are kv_len. */
  const int64_t seen = row + s->kv_len - s->q_len + 1;
  const int64_t limit = a->causal ? nn_min(s->kv_len, seen + rows - 1) : s->kv_len;
  const int32_t *starts = a->starts ? a->starts + sequence * s->q_len + row : NULL;
  const int64_t begin = starts ? starts[0] / STEP_KEYS * STEP_KEYS : 0;
  const sight sees = {.seen = seen, .keys = limit, .causal = a->causal, .starts = starts, .rows = rows};
  tile_registers_open();
  flash_keys(&b, f->keys + local * f->size, f->values + local * f->size, scores, begin, &sees, columns);
  tile_registers_close();
  const int64_t blind = a->causal ? nn_max(0, nn_min(rows, 1 - seen)) : 0; /* the first rows, without keys */
  vf inverse[PANELS];
  for (int64_t v = 0; v < PANELS; v++) {
    inverse[v] = vf_set1(1.0f) / b.sum[v];
    const int64_t left = nn_min(VF, rows - v * VF);
    if (a->lse && left > 0) {
      const split_factor ln2 = split_double(LN2);
      const vf low = vf_fma(b.peak[v], vf_set1(ln2.low), vf_log(b.sum[v]));
      vf lse = vf_fma(b.peak[v], vf_set1(ln2.high), low);
      if (v * VF < blind) {
        lse = _mm512_mask_mov_ps(lse, vf_mask(nn_min(VF, blind - v * VF)), vf_set1(-INFINITY));
      }
      vf_store_part(a->lse + (sequence * s->heads + head) * s->q_len + row + v * VF, left, lse);
    }
  }
  const int64_t out_ld = s->heads * dim;
  uint16_t *out = (uint16_t *)a->out + (sequence * s->q_len + row) * out_ld + head * dim;
  store_lanes(out, out_ld, b.out, QUERIES, VF, inverse, blind, rows, dim);
}

NN_PLAIN static flash flash_attention_lay_out(const nn_flash_attention_args *a, nn_workspace *w) {
  const nn_attention_shape *s = &a->shape;
  const int64_t columns = whole(s->head_dim), pairs = s->batch * s->kv_heads;
  flash f = {.a = a, .query_blocks = nn_ceil_div(s->q_len, QUERIES), .steps = nn_ceil_div(s->kv_len, STEP_KEYS)};
  f.size = f.steps * STEP_KEYS * columns / BF16_PAIR;
  const int64_t units = QUERIES * (columns / BF16_PAIR + columns) + PARTS * STEP_KEYS * QUERIES;
  f.workspace_size = nn_round_up(units * (int64_t)sizeof(unit), 64);
  f.round = nn_max(1, nn_min(pairs, PACKED_UNITS / (2 * f.size)));
  f.workspace = nn_workspace_piece(w, (size_t)(f.workspace_size * w->machine->threads));
  f.keys = nn_workspace_piece(w, (size_t)(f.round * f.size) * sizeof(unit));
  f.values = nn_workspace_piece(w, (size_t)(f.round * f.size) * sizeof(unit));
  return f;
}

static int32_t flash_attention(nncuda_ctx *ctx, const nn_flash_attention_args *a) {
  const nn_attention_shape *s = &a->shape;
  const int64_t pairs = s->batch * s->kv_heads;
  NN_TRY(check_starts(ctx, a->starts, s->batch, s->q_len));
  flash f = flash_attention_lay_out(a, nn_workspace_of(ctx));
  for (f.first_pair = 0; f.first_pair < pairs; f.first_pair += f.pairs) {
    f.pairs = nn_min(f.round, pairs - f.first_pair);
    nn_parallel(ctx, f.pairs * f.steps, flash_pack_task, &f);
    nn_parallel(ctx, f.pairs * (s->heads / s->kv_heads) * f.query_blocks, flash_task, &f);
  }
  return NNCUDA_SUCCESS;
}

NN_BF16_KERNEL_BY(flash_attention, nn_flash_attention_args, flash_attention, flash_attention_lay_out)

#endif
